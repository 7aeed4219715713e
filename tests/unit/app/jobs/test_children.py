"""A child is stopped for certain, and says how it ended."""

from __future__ import annotations

import json
import resource
import time

import psutil
import pytest

from app.jobs.child import Task
from app.jobs.children import Ended, Limits, run_in_child
from app.jobs.processes import limit_memory
from tests.bodies.costs import cost_of
from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import FAKE_SOLVERS, request_for

MEMORY_BYTES = 256 * 1024**2
GIB = 1024**3


def _run(case: int, soft_s: float = 30.0, stop_after_s: float = 1e9, grace_s: float = 10.0) -> tuple[Ended, list[str]]:
    kinds: list[str] = []
    started = time.monotonic()
    task = Task("plan", FAKE_SOLVERS.plan, (json.dumps(request_for(case)).encode(),), MEMORY_BYTES)
    ended = run_in_child(
        task,
        Limits(soft_s, 0.2, grace_s, MEMORY_BYTES),
        on_message=lambda kind, _text: kinds.append(kind),
        stop_asked=lambda: time.monotonic() - started > stop_after_s,
    )
    return ended, kinds


@pytest.mark.parametrize(
    ("case", "ending"),
    [
        (fake_solver.FINDS, "answered"),
        (fake_solver.REFUSES, "refused"),
        (fake_solver.CRASHES, "crashed"),
        (fake_solver.KILLED, "killed"),
        (fake_solver.HALF_MESSAGE, "killed"),
        (fake_solver.MEMORY_BOMB, "memory"),
    ],
)
def test_every_ending_is_told_apart(case: int, ending: str) -> None:
    assert _run(case)[0].ending == ending


def test_a_child_that_overruns_is_first_told_then_killed() -> None:
    assert _run(fake_solver.UNTIL_STOPPED, soft_s=0.1)[0].ending == "answered", "it ends when it is told"
    assert _run(fake_solver.IGNORES_STOP, soft_s=0.1, grace_s=0.2)[0].ending == "timed_out", (
        "it is killed when it does not"
    )


def test_a_stop_is_passed_on_and_the_answer_still_taken() -> None:
    ended, kinds = _run(fake_solver.UNTIL_STOPPED, stop_after_s=0.3)
    assert json.loads(ended.answer)["complete"] is False
    assert kinds.count("incumbent") == 2


def test_nothing_is_left_of_a_child() -> None:
    before = {one.pid for one in psutil.Process().children(recursive=True)}
    for case in (fake_solver.FINDS, fake_solver.IGNORES_STOP):
        _run(case, soft_s=0.1, grace_s=0.2)
    left = [one for one in psutil.Process().children(recursive=True) if one.pid not in before]
    names = [" ".join(one.cmdline()) for one in left]
    assert all("forkserver" in name or "resource_tracker" in name for name in names), names


def test_a_lower_hard_limit_is_kept_to() -> None:
    def limited() -> tuple[int, int]:
        resource.setrlimit(resource.RLIMIT_DATA, (4 * GIB, 4 * GIB))
        limit_memory(8 * GIB)
        high = resource.getrlimit(resource.RLIMIT_DATA)
        limit_memory(2 * GIB)
        assert high == (4 * GIB, 4 * GIB)
        return resource.getrlimit(resource.RLIMIT_DATA)

    assert cost_of(limited).answer == (2 * GIB, 4 * GIB), "who needs more later may ask for it"
