"""What took long to find is in its file before anything is printed, and a file that cannot be is refused at once."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest

from app.settings import Settings
from models.outcome import Planned
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for
from tests.unit.app.terminal.commands import run, written


def run_unread(monkeypatch: pytest.MonkeyPatch, settings: Settings, *arguments: str) -> int:
    """The exit code of a command whose standard output is a pipe that its reader has left, as `head` does."""
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        return run(settings, *arguments)


def question(kind: str) -> dict[str, object]:
    """A question of that kind about a request that the made-up planner answers."""
    more = {"why_not": {}, "curves": {"over": ["memory"], "factors": [2]}, "what_if": {"variants": [
        {"name": "few", "changes": [{"pointer": "/constraints/max_gpus", "value": 64}]}]}}[kind]  # fmt: skip
    return {"ask": kind, "request": request_for(fake_solver.FINDS), **more}


def test_a_plan_is_kept_though_nobody_reads_what_is_printed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "plan.json"
    request = written(tmp_path, request_for(fake_solver.FINDS))
    assert run_unread(monkeypatch, settings, "plan", request, "--out", str(out)) == 1
    assert Planned.model_validate_json(out.read_bytes())


def test_an_answer_is_kept_though_nobody_reads_what_is_printed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answer.json"
    asked = written(tmp_path, question("why_not"))
    assert run_unread(monkeypatch, settings, "ask", asked, "--out", str(out)) == 1
    assert json.loads(out.read_text())["ask"] == "why_not"


@pytest.mark.parametrize(("kind", "suffix"), [("why_not", ".csv"), ("what_if", ".svg")])
def test_a_form_that_an_answer_has_not_is_refused_before_the_search(
    kind: str, suffix: str, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"answer{suffix}"
    assert run(settings, "ask", written(tmp_path, question(kind)), "--out", str(out)) == 2
    assert f"an answer to {kind} has no {suffix} form" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("suffix", [".csv", ".svg"])
def test_a_table_or_picture_is_written_where_an_answer_is_one(suffix: str, settings: Settings, tmp_path: Path) -> None:
    out = tmp_path / f"answer{suffix}"
    assert run(settings, "ask", written(tmp_path, question("curves")), "--out", str(out)) == 0
    assert out.read_text().startswith({".csv": "over", ".svg": "<svg"}[suffix])


def test_a_search_that_cannot_be_kept_is_told_by_the_name_of_its_option(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = written(tmp_path, request_for(fake_solver.FINDS))
    assert run(settings, "plan", request, "--save-search", str(tmp_path)) == 2
    assert "at --save-search" in capsys.readouterr().err
