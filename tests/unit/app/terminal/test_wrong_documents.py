"""A document of another kind than a command wants is called what it is, with the command that takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for
from tests.unit.app.terminal.commands import run, written

SHOWN_AS_A_PLAN = (
    ("show", "FILE"),
    ("compare", "FILE", "FILE"),
    ("verify", "FILE", "FILE"),
    ("export", "FILE", "--format", "rank-map-csv"),
    ("replan", "FILE", "--request", "FILE", "--lost", "west"),
    ("show", "llama-405b-two-buildings"),
)


@pytest.mark.parametrize("arguments", SHOWN_AS_A_PLAN, ids=" ".join)
def test_a_request_in_place_of_a_plan_is_told_how_to_become_one(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, request_for(fake_solver.FINDS))
    assert run(None, *(source if one == "FILE" else one for one in arguments)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "is a request, not a plan" in error
    assert "isthmus plan REQUEST.json" in error
    assert "unknown-field" not in error
