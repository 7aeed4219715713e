"""The published catalogue of codes and what the program raises are the same set."""

from __future__ import annotations

import ast
import gc
import re
from functools import cache
from pathlib import Path
from typing import get_args

import app
from app.api.problems import ISSUE_TYPES
from models.errors import PlannerError
from models.outcome import Reason
from solver.calibration import fit

CODE = re.compile(r"[a-z]+(?:-[a-z]+)*")
SOURCES = sorted(Path(app.__file__).parent.rglob("*.py"))
MAKERS = ("Fault", "refused")


@cache
def _trees() -> tuple[ast.Module, ...]:
    gc.disable()  # a collection lets other threads run, whose parsing CPython 3.11.7 counts as ours (gh-106905)
    try:
        return tuple(ast.parse(source.read_text(encoding="utf-8")) for source in SOURCES)
    finally:
        gc.enable()


def _stated_by_faults() -> set[str]:
    """The constant codes of every `Fault(...)` and `refused(...)` in the program."""
    found = set()
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "code")]
                found |= {one.value for one in given if isinstance(one, ast.Constant)}
    return found


def _of_planner_errors(root: type[PlannerError] = PlannerError) -> set[str]:
    """Of the kinds that are raised, wherever they are defined; the root of their tree is not."""
    kinds = root.__subclasses__()
    return {kind.code for kind in kinds}.union(*(_of_planner_errors(kind) for kind in kinds))


def _of_reasons() -> set[str]:
    return set(get_args(Reason.model_fields["code"].annotation))


def test_every_code_that_can_be_raised_is_published() -> None:
    assert fit.TooFewRows.code in _of_planner_errors()
    raised = _stated_by_faults() | _of_planner_errors() | _of_reasons()
    assert len(raised) > 30
    assert raised - set(ISSUE_TYPES) == set()


def test_every_published_code_can_be_raised() -> None:
    constants = {node.value for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    words = {word for text in constants if isinstance(text, str) for word in CODE.findall(text)}
    assert set(ISSUE_TYPES) - words - _of_planner_errors() - _of_reasons() == set()


def test_every_status_is_one_of_an_error() -> None:
    statuses = {one.status for one in ISSUE_TYPES.values()}
    assert statuses == {400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 421, 422, 429, 500, 503}
