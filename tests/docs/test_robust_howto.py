"""The how-to on several worlds is played from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.robust import RobustAnswer
from tests.docs.player import either_way, play


@either_way(0.1)
def test_the_howto_says_what_happens(
    time: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    play("plan-for-several-worlds.md", tmp_path, capsys, time)
    answer = RobustAnswer.model_validate_json((tmp_path / "robust-answer.json").read_bytes())
    assert [one.name for one in answer.figures] == ["as requested", "evening", "detour", "slow pool"]
    assert answer.value_s is not None
    assert answer.lower_bound_s <= answer.value_s
    assert answer.request_plan_value_s is not None
    assert answer.value_s <= answer.request_plan_value_s
