"""The command replays a plan, and the how-to plays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import cli
from app.documents import canonical
from models.outcome import Planned
from tests.build_exports import whole_host_plan
from tests.docs.player import play


def test_the_howto_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    play("replay-a-schedule.md", tmp_path, capsys)


def test_a_plan_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(canonical(Planned(plan=whole_host_plan("dp_out"), elapsed_s=1.0)))
    with pytest.raises(SystemExit) as leaving:
        cli.main(["replay", str(path), "--json", "--repetitions", "2", "--operation-ms", "60"])
    found = json.loads(capsys.readouterr().out)
    assert leaving.value.code == 0, found
    assert found["same_order"]
    assert len(found["repetitions_s"]) == 2


def test_a_schedule_without_its_problem_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(canonical(whole_host_plan("dp_out").timelines[0].schedule))
    with pytest.raises(SystemExit) as leaving:
        cli.main(["replay", str(path)])
    assert leaving.value.code == 2
    assert "--problem PROBLEM.json" in capsys.readouterr().err
