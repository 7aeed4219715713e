"""A child is stopped for certain, and says how it ended."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import psutil
import pytest

from app.jobs.child import OUT_OF_MEMORY, Task
from app.jobs.children import Ended, Limits, run_in_child
from app.jobs.processes import PRELOADED, limit_memory, start
from tests.bodies.costs import cost_of
from tests.unit.app import fake_solver
from tests.unit.app.jobs import endings
from tests.unit.app.programs import ROOT, await_
from tests.unit.app.service_fixture import FAKE_SOLVERS, request_for

MEMORY_BYTES = 384 * 1024**2
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


def _ends(seed: int, soft_s: float = 30.0) -> Ended:
    document = json.dumps(request_for(seed)).encode()
    task = Task("plan", "tests.unit.app.jobs.endings:ends", (document,), MEMORY_BYTES)
    return run_in_child(task, Limits(soft_s, 0.1, 10.0, MEMORY_BYTES))


@pytest.mark.parametrize(
    ("seed", "ending"),
    [
        (int(signal.SIGKILL), "killed"),
        (int(signal.SIGTERM), "killed"),
        (int(signal.SIGHUP), "killed"),
        (int(signal.SIGSEGV), "crashed"),
        (int(signal.SIGABRT), "crashed"),
        (endings.STATUS, "crashed"),
        (endings.STATUS + 1, "crashed"),
        (endings.STATUS + OUT_OF_MEMORY, "memory"),
    ],
)
def test_a_child_that_says_nothing_is_judged_by_its_exit_status(seed: int, ending: str) -> None:
    assert _ends(seed).ending == ending


def test_a_child_that_we_end_was_not_killed_from_outside() -> None:
    assert _ends(endings.STILL, soft_s=0.1).ending == "timed_out"


def test_a_fork_server_that_is_killed_takes_its_children_along_and_the_next_one_goes_on() -> None:
    found: list[Ended] = []
    ends = [threading.Thread(target=lambda: found.append(_run(fake_solver.UNTIL_STOPPED)[0])) for _ in range(2)]
    for one in ends:
        one.start()

    def fork_servers() -> list[psutil.Process]:
        """Of this process alone: another test may have started a service, which has one of its own."""
        return [one for one in psutil.Process().children() if "forkserver" in " ".join(one.cmdline())]

    def num_settled(one: psutil.Process) -> int:
        """Children that have a session of their own, the last step before they ask to end with the fork server."""
        return sum(os.getsid(child.pid) == child.pid for child in one.children())

    (fork,) = await_(lambda: [one for one in fork_servers() if num_settled(one) == 2], "searching")
    time.sleep(0.5)
    fork.kill()
    for one in ends:
        one.join()
    assert [one.ending for one in found] == ["killed", "killed"]
    assert _run(fake_solver.FINDS)[0].ending == "answered"


def test_a_child_that_is_slow_to_start_loses_none_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_slowly(*args: Any) -> Any:
        process = start(*args)
        os.kill(process.pid or 0, signal.SIGSTOP)
        threading.Timer(1.5, os.kill, (process.pid, signal.SIGCONT)).start()
        return process

    monkeypatch.setattr("app.jobs.children.start", start_slowly)
    ended, _ = _run(fake_solver.FINDS, soft_s=0.5, grace_s=0.5)
    assert ended.ending == "answered"


def test_threads_that_end_children_at_once_mistake_no_status() -> None:
    """Each start looks at all children; a status that two threads read is lost for one of them."""
    cases = {int(signal.SIGKILL): "killed", int(signal.SIGSEGV): "crashed", endings.STATUS: "crashed", 0: "answered"}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda seed: (_ends(seed).ending, cases[seed]), [*cases] * 8))
    assert all(said == so for said, so in found), found


def test_a_child_lives_with_a_lower_limit_of_the_system() -> None:
    """A hard limit below ours would make every search fail."""
    program = (
        "import resource, json\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (2**29, 2**29))\n"
        "from tests.unit.app.jobs.test_children import *\n"
        "task = Task('plan', FAKE_SOLVERS.plan, (json.dumps(request_for(fake_solver.FINDS)).encode(),), 2**40)\n"
        "print(run_in_child(task, Limits(30.0, 1.0, 1.0, 2**40)).ending)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["answered"]


def test_a_child_that_overruns_is_first_told_then_killed() -> None:
    assert _run(fake_solver.UNTIL_STOPPED, soft_s=0.1)[0].ending == "answered", "it ends when it is told"
    assert _run(fake_solver.IGNORES_STOP, soft_s=0.1, grace_s=0.2)[0].ending == "timed_out", (
        "it is killed when it does not"
    )


def test_a_child_that_has_reported_nothing_may_take_longer() -> None:
    task = Task("compute", "tests.unit.app.jobs.endings:is_starved", (b"{}",), MEMORY_BYTES)
    limits = Limits(0.05, 0.05, 0.05, MEMORY_BYTES)
    assert run_in_child(task, limits).ending == "timed_out"
    assert run_in_child(task, replace(limits, empty_grace_s=60.0)).answer == b'"late"'


def test_a_child_that_has_reported_something_may_not() -> None:
    document = json.dumps(request_for(fake_solver.IGNORES_STOP)).encode()
    limits = Limits(0.1, 0.1, 0.1, MEMORY_BYTES, empty_grace_s=60.0)
    ended = run_in_child(Task("plan", FAKE_SOLVERS.plan, (document,), MEMORY_BYTES), limits)
    assert ended.ending == "timed_out"
    assert ended.best is not None
    assert ended.elapsed_s < limits.empty_grace_s


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


def test_all_that_the_fork_server_imports_ahead_exists() -> None:
    """It says nothing of what it does not find, and each process would import the right one by itself."""
    assert [name for name in PRELOADED if find_spec(name) is None] == []
