"""Workers of a pool work, end and are replaced as the search is told; none of them outlives it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from app.jobs.child import Task
from app.jobs.children import Limits, plan_task, run_in_child
from app.jobs.worker_pool import NUM_SPARES, WorkerPipes, WorkerPool, num_cores, worker_pool, worker_pool_size
from app.settings import Settings
from tests.unit.app.jobs.chores import Chore, WorkerInit, submit_all
from tests.unit.app.service_fixture import request_for

GIB = 1024**3
SEARCH = "tests.unit.app.jobs.chores:begins"


def gone(pids: Iterable[int], patience_s: float = 20.0) -> bool:
    """Whether all these processes end while one waits."""
    give_up_s = time.monotonic() + patience_s
    for pid in pids:
        while time.monotonic() < give_up_s:
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.02)
                    continue
            break
        else:
            return False
    return True


def searched(case: int, size: int = 2, stop_after_members: bool = False) -> tuple[str, list[int]]:
    """How a search in a child ended, and the processes that it and its workers were."""
    pids: list[int] = []

    def take(kind: str, text: bytes) -> None:
        if kind == "progress":
            pids.extend(map(int, json.loads(text)["message"].split()))

    task = Task("plan", SEARCH, (json.dumps(request_for(case)).encode(),), GIB, size)
    stop = (lambda: bool(pids)) if stop_after_members else (lambda: False)
    ended = run_in_child(task, Limits(60.0, 0.2, 10.0, GIB), on_message=take, stop_asked=stop)
    return ended.ending, pids


def test_tasks_are_done_elsewhere_and_the_init_is_told_once() -> None:
    with worker_pool(2) as pool:
        assert pool is not None
        pool.begin(pickle.dumps(WorkerInit("ours")))
        found = submit_all(pool, [Chore(str(number)) for number in range(6)], until=12)
        partials = {one.number: pickle.loads(one.content) for one in found if one.kind == "partial"}
        assert {number: (task_context, what) for number, (task_context, _, what) in partials.items()} == {
            number: ("ours", str(number)) for number in range(6)
        }
        pids = {pid for _, pid, _ in partials.values()}
        assert os.getpid() not in pids
        assert sorted(one.number for one in found if one.kind == "done") == list(range(6))
    assert gone(pids)


@pytest.mark.parametrize("how", ["dies", "eats", "hangs"])
def test_what_was_in_hand_is_lost_and_a_spare_takes_over(how: str) -> None:
    worker_pipes = WorkerPipes(1, GIB)
    pool = WorkerPool(worker_pipes.ends, worker_pipes.start, 1, silence_s=0.3)
    try:
        pool.begin(pickle.dumps(WorkerInit()))
        found = submit_all(pool, [Chore(how), Chore("waits")], until=3)
        assert [(one.kind, one.number) for one in found] == [("lost", 0), ("partial", 1), ("done", 1)]
        assert not pool.is_gone
    finally:
        worker_pipes.close()


def test_after_the_spares_nobody_comes_and_tasks_come_back() -> None:
    with worker_pool(1) as pool:
        assert pool is not None
        pool.begin(pickle.dumps(WorkerInit()))
        found = submit_all(pool, [Chore("dies")] * (1 + NUM_SPARES), until=1 + NUM_SPARES)
        assert [one.kind for one in found] == ["lost"] * (1 + NUM_SPARES)
        assert (pool.is_gone, pool.capacity(2), pool.num_ready) == (True, 0, 0)
        pool.submit(9, b"", is_urgent=True)
        assert [(one.kind, one.number) for one in pool.events(0.0)] == [("back", 9)]


def test_urgent_tasks_come_first_in_their_order() -> None:
    with worker_pool(1) as pool:
        assert pool is not None
        for number, is_urgent in enumerate((False, True, True)):
            pool.submit(number, pickle.dumps((number, Chore())), is_urgent=is_urgent)
        pool.begin(pickle.dumps(WorkerInit()))
        found = submit_all(pool, [], until=6)
        assert [one.number for one in found if one.kind == "done"] == [1, 2, 0]


def test_a_defect_comes_back_as_its_traceback_and_the_member_goes_on() -> None:
    with worker_pool(1) as pool:
        assert pool is not None
        pool.begin(pickle.dumps(WorkerInit()))
        found = submit_all(pool, [Chore("fails"), Chore("next")], until=3)
        assert [one.kind for one in found] == ["failed", "partial", "done"]
        assert b"ZeroDivisionError: fails" in found[0].content


def test_nobody_is_started_before_the_search_asks() -> None:
    before = len(psutil.Process().children(recursive=True))
    with worker_pool(3):
        assert len(psutil.Process().children(recursive=True)) == before


def test_members_of_a_child_end_with_its_answer() -> None:
    ending, pids = searched(0)
    assert ending == "answered"
    assert len(pids) > 1
    assert gone(pids)


def test_members_end_when_the_search_is_killed() -> None:
    ending, pids = searched(1)
    assert ending == "killed"
    assert gone(pids)


def test_a_stop_ends_members_that_hang() -> None:
    ending, pids = searched(2, stop_after_members=True)
    assert ending == "answered"
    assert gone(pids)


PARENT = f"""
import json, sys
from app.jobs.child import Task
from app.jobs.children import Limits, plan_task, run_in_child
task = Task("plan", "{SEARCH}", (json.dumps({request_for(2)!r}).encode(),), {GIB}, 2)
def take(kind, text):
    if kind == "progress":
        print(json.loads(text)["message"], flush=True)
run_in_child(task, Limits(60.0, 1.0, 1.0, {GIB}), on_message=take)
"""


def test_nobody_outlives_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(one) for one in parent.stdout.readline().split()]
        assert len(pids) > 1
        assert all(map(psutil.pid_exists, pids))
        parent.send_signal(signal.SIGKILL)
    assert gone(pids)


SCRIPT = """
import pickle
from app.jobs.worker_pool import worker_pool
from app.settings import Settings
from tests.unit.app.jobs.chores import WorkerInit, Chore, submit_all
print("started", flush=True)
with worker_pool(2) as pool:
    pool.begin(pickle.dumps(WorkerInit()))
    print(sorted(one.kind for one in submit_all(pool, [Chore("a"), Chore("b")], until=4)))
"""


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.splitlines() == ["started", "['done', 'done', 'partial', 'partial']"]
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"workers": 1}, 0),
        ({"workers": 64, "reproducible": True}, 0),
        ({"workers": 64, "time_limit_s": 1.0}, 0),
        ({"workers": 2}, min(2, num_cores()) - 1),
        ({"workers": 256}, min(64, num_cores()) - 1),
    ],
)
def test_no_more_members_than_cores_and_workers(options: dict[str, object], size: int) -> None:
    document = {"options": {"time_limit_s": 30.0, "reproducible": False, **options}}
    assert worker_pool_size(json.dumps(document).encode()) == size


def test_a_cluster_helps_instead_of_this_machine_and_only_where_anybody_would() -> None:
    settings = Settings(search_pool="tls://there:8786")
    for options, pool in (({"workers": 256}, 255), ({"workers": 1}, 0), ({"workers": 9, "reproducible": True}, 0)):
        request = json.dumps({"options": {"time_limit_s": 30.0, "reproducible": False, **options}}).encode()
        task = plan_task((request,), settings)
        assert task.num_pool_workers == 0
        assert task.search_pool == (("tls://there:8786", pool) if pool else None)
        assert plan_task((request,), Settings()).search_pool is None
