"""The how-to on replans is played from top to bottom; losing one of three equal buildings moves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.outcome import Planned
from models.what_now import WhatIfLostAnswer
from tests.docs.player import either_way, play


@either_way(0.1)
def test_the_howto_says_what_happens(
    time: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    play("replan-after-a-loss.md", tmp_path, capsys, time)
    before, after = (
        Planned.model_validate_json((tmp_path / name).read_bytes()).plan for name in ("plan.json", "after.json")
    )
    used = {route.places[0] for route in after.placement.routes}
    assert "west" not in used
    assert after.configuration.degrees.model_copy(update={"dp": before.configuration.degrees.dp}) == (
        before.configuration.degrees
    )
    losses = WhatIfLostAnswer.model_validate_json((tmp_path / "losses.json").read_bytes())
    answers = {one.name: one.answer for one in losses.losses}
    assert {"north", "east", "west", "north-h100"} <= set(answers)
    for name in ("north", "east", "west"):
        answer = answers[name]
        assert answer is not None
        assert answer.chosen is not None
        assert answer.points[answer.chosen].num_moved == 0
