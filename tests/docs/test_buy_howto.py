"""The how-to on what to buy is played from top to bottom; its answers hold what it says of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from models.least import SizingAnswer
from models.worth import WorthAnswer
from tests.docs.player import either_way, play


@either_way(0.25)
def test_the_howto_says_what_happens(
    time: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    play("what-to-buy.md", tmp_path, capsys, time)
    worth = WorthAnswer.model_validate_json((tmp_path / "worth-answer.json").read_bytes())
    assert {value.kind for value in worth.values} == {"link", "limit"}
    for value in worth.values:
        assert value.useful.least is not None
        assert value.useful.least >= 0.0, "more never hurts"
    assert worth.in_one_building is not None
    assert worth.in_one_building.direction is None, "never clipped"
    assert "<circle" in (tmp_path / "curves.svg").read_text()
    least = SizingAnswer.model_validate_json((tmp_path / "least-answer.json").read_bytes())
    assert least.target_iteration_s == pytest.approx(92 * 86400 * 0.9 / 476838, rel=1e-5)
    for one in least.least:
        if one.value is not None and one.lower_bound is not None:
            assert one.lower_bound <= one.value * (1 + 1e-9)
        if one.plan is not None:
            assert one.plan.iteration_s <= least.target_iteration_s
    rows = list(csv.DictReader((tmp_path / "frontier.csv").read_text().splitlines()))
    assert {row["against"] for row in rows} == {"gpus", "energy"}
    for against in ("gpus", "energy"):
        own = [row for row in rows if row["against"] == against]
        times = [float(row["iteration_s"]) for row in own]
        spent = [float(row["num_gpus" if against == "gpus" else "kwh_per_million_tokens"]) for row in own]
        assert times == sorted(times)
        assert spent == sorted(spent, reverse=True)
