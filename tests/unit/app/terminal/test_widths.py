"""A plan on a narrow terminal: no figure is cut, no bar is broken, and what is left out is counted."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from app.terminal.summary import print_plan, print_verdict
from models.verdict import Verdict, Violation
from tests.build_plan import build_plan
from tests.build_request import build_request


def shown(width: int) -> list[str]:
    """The lines of a plan with three parts of time on a terminal of that width."""
    plan = build_plan(build_request())
    parts = {name: 0.0 for name, value in plan.time if isinstance(value, float)}
    time = plan.time.model_copy(
        update=parts | {"compute_s": 120.0, "bubble_s": 24.0, "overhead_s": 6.0, "total_s": 150}
    )
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_plan(console, plan.model_copy(update={"time": time}))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_every_cause_of_time_has_one_line_with_its_bar(width: int) -> None:
    lines = shown(width)
    first = next(number for number, line in enumerate(lines) if "Where the iteration time goes" in line)
    last = next(number for number, line in enumerate(lines) if line.startswith("│ total"))
    bars = [line for line in lines[first:last] if line.startswith("│")]
    assert [line.split()[1] for line in bars] == ["compute", "bubble", "step"]
    assert all("█" in line for line in bars)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_figure_of_memory_is_cut(width: int) -> None:
    lines = shown(width)
    assert not [line for line in lines if "…" in line]
    assert any("activations" in line for line in lines)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("number", "words"), [(1, "1 violation."), (21, "21 violations."), (21, "and 1 more")])
def test_violations_are_counted_those_left_out_too(number: int, words: str) -> None:
    found = Violation(rule="cost", where="metrics", detail="wrong")
    console = Console(file=io.StringIO(), width=80)
    print_verdict(console, Verdict(accepted=False, violations=(found,) * number, rules_checked=("cost",)))
    assert words in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("num_explored", "words"), [(0, "and the plan's own tried as far as this plan;"), (1200, "1,200 tried;")]
)
def test_a_plan_that_was_found_at_once_does_not_say_that_nothing_was_tried(num_explored: int, words: str) -> None:
    plan = build_plan(build_request())
    found = plan.model_copy(update={"proof": plan.proof.model_copy(update={"num_explored": num_explored})})
    console = Console(file=io.StringIO(), width=300)
    print_plan(console, found)
    assert words in console.file.getvalue()  # type: ignore[attr-defined]
