"""A search whose tasks are done by the workers of a Dask cluster: processes of their own, reached over sockets."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

from app.jobs import cluster_pool
from app.jobs.cluster_pool import ClusterPool
from models.outcome import Planned
from solver.context import stack_for
from solver.planner import plan
from solver.search.params import SearchParams
from solver.search.tasks import WorkerInit
from solver.search.worker_pool import WorkerEvent
from tests.build_job import job

PATIENCE_LOOKS = 6000
REQUEST = job(batch=32, allowed={"tp": [2, 4], "cp": [1]}, link={"latency_s": 0.004, "capacity_bytes_per_s": 2e10},
              options={"time_limit_s": 20.0, "workers": 3})  # fmt: skip


@dataclass(frozen=True)
class SayTask:
    """Tells which process it is in, then goes on until it is not wanted, or so many hundredths of a second."""

    hundredths: int = 0

    def do(self, task_context: Any) -> Iterator[int]:
        """The process id, twice."""
        yield os.getpid()
        for _ in range(self.hundredths):
            if task_context.schedulers.cancelled():
                break
            time.sleep(0.01)
        yield os.getpid()


@dataclass(frozen=True)
class FailTask:
    """Has a defect."""

    def do(self, _task_context: Any) -> Iterator[int]:
        """Nothing."""
        yield from [1 // 0]


def local(**others: Any) -> LocalCluster:
    return LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50, **others)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local() as started:
        yield started


@pytest.fixture
def pool(cluster: LocalCluster) -> Iterator[ClusterPool]:
    started = begun(cluster.scheduler_address)
    yield started
    started.shutdown()


def begun(address: str, size: int = 2) -> ClusterPool:
    pool = ClusterPool(address, size)
    pool.begin(pickle.dumps(WorkerInit(REQUEST, stack_for(REQUEST), 1e9)))
    until(lambda: pool.num_ready == size or pool.is_gone)
    return pool


def until(condition: Callable[[], Any]) -> None:
    for _ in range(PATIENCE_LOOKS):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("never")


def give(pool: ClusterPool, number: int, task: Any) -> None:
    pool.submit(number, pickle.dumps((number, task)), is_urgent=False)


def heard(pool: ClusterPool, *numbers: int) -> dict[int, list[WorkerEvent]]:
    """What came of these tasks, to their ends."""
    found: dict[int, list[WorkerEvent]] = {number: [] for number in numbers}

    def all_ended() -> bool:
        for one in pool.events(0.0):
            found[one.number].append(one)
        return all(events and events[-1].kind != "partial" for events in found.values())

    until(all_ended)
    return found


def test_tasks_are_done_elsewhere_and_their_parts_come_back_in_order(pool: ClusterPool) -> None:
    for number in range(5):
        give(pool, number, SayTask())
    for events in heard(pool, *range(5)).values():
        assert [one.kind for one in events] == ["partial", "partial", "done"]
        assert pickle.loads(events[0].content) != os.getpid()
        assert float(events[-1].content) >= 0


def test_a_defect_is_told_with_its_traceback(pool: ClusterPool) -> None:
    give(pool, 0, FailTask())
    (event,) = heard(pool, 0)[0]
    assert event.kind == "failed"
    assert b"ZeroDivisionError" in event.content


def test_what_waits_can_be_taken_back(pool: ClusterPool) -> None:
    for number in range(2):
        give(pool, number, SayTask(3000))
    pool.submit(7, pickle.dumps((7, SayTask())), is_urgent=True)
    assert (pool.withdraw(), pool.withdraw()) == (7, None)
    assert pool.capacity(2) == 2


def test_the_task_of_a_killed_worker_is_done_by_another_one() -> None:
    with local() as cluster:
        pool = begun(cluster.scheduler_address)
        pids = {number: one.process.pid for number, one in enumerate(cluster.workers.values())}
        for number in range(2):
            give(pool, number, SayTask(100))
        until(lambda: len(pool._running) == 2)  # noqa: SLF001
        time.sleep(0.3)
        os.kill(pids[0], signal.SIGKILL)
        for events in heard(pool, 0, 1).values():
            assert [one.kind for one in events] == ["partial", "partial", "done"]
            assert pickle.loads(events[0].content) != pids[0]
        pool.shutdown()


def test_workers_hear_that_a_search_has_ended(cluster: LocalCluster) -> None:
    pool = begun(cluster.scheduler_address)
    for number in range(2):
        give(pool, number, SayTask(100_000))
    with Client(cluster, set_as_default=False) as client:
        until(lambda: sum(map(len, client.processing().values())) == 2)
        pool.shutdown()
        assert client.submit(os.getpid, pure=False).result(timeout=60)
    assert pool.is_gone


def test_a_lost_scheduler_loses_its_tasks_and_nothing_else() -> None:
    cluster = local()
    pool = begun(cluster.scheduler_address)
    for number in range(3):
        give(pool, number, SayTask(100_000))
    cluster.close()
    ends = {number: events[-1].kind for number, events in heard(pool, 0, 1, 2).items()}
    assert set(ends.values()) <= {"lost", "back"}
    assert ends[2] == "back"
    until(lambda: pool.is_gone)
    assert pool.capacity(6) == 0


def test_where_nobody_listens_the_search_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_pool, "PATIENCE_S", 0.2)
    pool = begun("tcp://127.0.0.1:9")
    assert pool.is_gone
    assert pool.num_ready == 0


def test_a_worker_of_another_version_is_left_alone(pool: ClusterPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_pool, "program", lambda: "another")
    for number in range(2):
        give(pool, number, SayTask())
    assert {events[-1].kind for events in heard(pool, 0, 1).values()} == {"back"}
    assert pool.num_ready == 0


def test_a_search_uses_a_cluster_and_both_proofs_agree(cluster: LocalCluster) -> None:
    alone = plan(REQUEST)
    pool = begun(cluster.scheduler_address)
    pool.begin = lambda _init: None  # type: ignore[method-assign]  # it has begun
    ends: list[str] = []
    events = pool.events

    def told(wait_s: float, /) -> list[WorkerEvent]:
        found = events(wait_s)
        ends.extend(one.kind for one in found)
        return found

    pool.events = told  # type: ignore[method-assign]
    shared = plan(REQUEST, worker_pool=pool, params=SearchParams(alone_s=0.0))
    assert isinstance(alone, Planned)
    assert isinstance(shared, Planned)
    assert shared.plan.verdict.accepted
    assert "done" in ends
    assert "failed" not in ends
    for one, other in ((alone, shared), (shared, alone)):
        assert one.plan.proof.lower_bound_s <= other.plan.metrics.iteration_s * (1 + 1e-9)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key and a certificate that is its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
                   check=True, capture_output=True)  # fmt: skip
    return folder


def test_the_certificates_of_dask_s_configuration_are_used(tls: Path) -> None:
    cert, key = str(tls / "cert.pem"), str(tls / "key.pem")
    roles = {f"tls_{role}_{kind}": path for role in ("client", "worker", "scheduler")
             for kind, path in (("cert", cert), ("key", key))}  # fmt: skip
    with local(security=Security(tls_ca_file=cert, require_encryption=True, **roles), protocol="tls") as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        assert begun(cluster.scheduler_address).is_gone, "without a certificate nobody is let in"
        own = {"ca-file": cert, "client.cert": cert, "client.key": key}
        with dask.config.set({f"distributed.comm.tls.{name}": path for name, path in own.items()}):
            pool = begun(cluster.scheduler_address)
            give(pool, 0, SayTask())
            assert heard(pool, 0)[0][-1].kind == "done"
            pool.shutdown()
