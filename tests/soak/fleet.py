"""The programs of a soak: services, workers and the database, and every way in which they are killed.

`load.py` submits the plans, `audit.py` judges what became of them.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from tests.soak.clock import Clock
from tests.soak.disk import Disk
from tests.soak.nursery import Nursery, Program
from tests.unit.app.http_client import Client
from tests.unit.app.postgres import Postgres
from tests.unit.app.programs import HOST, ROOT, free_port

SETTINGS: dict[str, Any] = {
    "num_concurrent_solves": 2,
    "queue_poll_s": 0.2,
    "event_poll_s": 0.2,
    "heartbeat_s": 0.5,
    "dead_worker_s": 3.0,
    "soft_grace_s": 3.0,
    "kill_grace_s": 1.0,
    "cancel_grace_s": 0.5,
    "max_attempts": 8,  # an innocent plan may be under way at several kills; a guilty one is given up all the same
    "child_memory_bytes": 512 * 1024**2,
    "log_level": "ERROR",
}


@dataclass
class Member:
    """One program that is started again after every death; a worker sometimes comes back under another name."""

    role: str
    port: int
    name: str
    process: Program

    @property
    def is_up(self) -> bool:
        """Whether it runs; a service must answer, too."""
        return self.process.is_running and (self.role == "work" or Client(HOST, self.port).is_ready())


@dataclass
class Fleet:
    """Two services and two workers over one database; every start is one of the program versions at hand."""

    database_url: str
    dice: random.Random
    server: Postgres | None
    disk: Disk | None
    clock: Clock
    nurseries: Sequence[Nursery]
    members: list[Member] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    starts: Counter[int] = field(default_factory=Counter)
    killed_searches: set[int] = field(default_factory=set)
    _num_names: int = 0

    def start(self) -> None:
        """Start every program."""
        for role in ("api", "api", "work", "work"):
            port = free_port() if role == "api" else 0
            name = self._new_name(role)
            self.members.append(Member(role, port, name, self._start(role, port, name)))

    @property
    def ports(self) -> list[int]:
        """Where services listen."""
        return [one.port for one in self.members if one.role == "api"]

    def stop(self) -> None:
        """End every program in good order, and by force what does not go."""
        for one in self.members:
            one.process.signal(signal.SIGTERM)
        for one in self.members:
            one.process.wait(30.0)

    def ask_what_they_do(self) -> None:
        """Let every program write its threads to the log: see `--log`."""
        for one in self.members:
            one.process.signal(signal.SIGUSR1)
        time.sleep(1.0)

    def kill_something(self) -> str:
        """One random failure; what it hit."""
        kinds: dict[str, tuple[int, Callable[[], bool]]] = {
            "worker": (34, lambda: self._kill_member("work")),
            "service": (26, lambda: self._kill_member("api")),
            "child": (28, self._kill_child),
            "fork server": (3, self._kill_fork_server),
            "worker frozen": (3, self._freeze_worker),
            "search frozen": (4, self._freeze_child),
            "fork server frozen": (2, self._freeze_fork_server),
            "worker told to stop": (3, self._drain_worker),
            "database": (3 if self.server else 0, self._kill_database),
            "disk full": (4 if self.disk else 0, self._fill_disk),
            "disk read-only": (4 if self.disk else 0, self._close_disk),
            "clock jump": (12, self._jump_clock),
        }
        (kind,) = self.dice.choices(list(kinds), [weight for weight, _ in kinds.values()])
        if not kinds[kind][1]():
            kind = "worker" if self._kill_member("work") else "nothing"
        self.kills[kind] += 1
        return kind

    def restart_the_dead(self) -> None:
        """Start again whatever has ended, whoever ended it."""
        for one in self.members:
            if not one.process.is_running:
                if one.role == "work" and self.dice.random() < 0.5:
                    one.name = self._new_name("work")
                one.process = self._start(one.role, one.port, one.name)

    def _start(self, role: str, port: int, name: str) -> Program:
        first = self.starts.total()  # each version is there from the start
        number = first if first < len(self.nurseries) else self.dice.randrange(len(self.nurseries))
        self.starts[number] += 1
        return self.nurseries[number].start((role, str(port), self.database_url, name, json.dumps(SETTINGS)))

    def _new_name(self, role: str) -> str:
        self._num_names += 1
        return f"{role}-{self._num_names}"

    def _living(self, role: str) -> list[Member]:
        return [one for one in self.members if one.role == role and one.process.is_running]

    def _kill_member(self, role: str) -> bool:
        living = [one for one in self._living(role) if one.is_up]
        if living:
            victim = self.dice.choice(living).process
            victim.signal(signal.SIGKILL)
            victim.wait(5.0)
        return bool(living)

    def _drain_worker(self) -> bool:
        living = self._living("work")
        if living:
            self.dice.choice(living).process.signal(signal.SIGTERM)
        return bool(living)

    def _freeze_worker(self) -> bool:
        """A machine that is away for longer than its heartbeat may be, and comes back."""
        living = self._living("work")
        if living:
            victim = self.dice.choice(living).process
            victim.signal(signal.SIGSTOP)
            try:
                time.sleep(SETTINGS["dead_worker_s"] + 1.0)
            finally:
                victim.signal(signal.SIGCONT)
        return bool(living)

    def _kill_child(self) -> bool:
        return self._hit(_searches, self._kill_one)

    def _kill_fork_server(self) -> bool:
        return self._hit(_forks, self._kill_one)

    def _freeze_child(self) -> bool:
        return self._hit(_searches, self._freeze_one)

    def _freeze_fork_server(self) -> bool:
        return self._hit(_forks, self._freeze_one)

    def _hit(self, below: Callable[[Member], list[psutil.Process]], how: Callable[[psutil.Process], None]) -> bool:
        for _ in range(40):
            with suppress(psutil.NoSuchProcess):
                found = [one for member in self._living("work") for one in below(member)]
                if found:
                    how(self.dice.choice(found))
                    return True
            time.sleep(0.05)
        return False

    def _kill_one(self, victim: psutil.Process) -> None:
        victim.suspend()  # a fork server starts nothing any more, so that these are all who die with it
        self.killed_searches |= {victim.pid, *(one.pid for one in victim.children())}
        victim.kill()

    def _freeze_one(self, victim: psutil.Process) -> None:
        freeze(victim, self.dice.uniform(1.0, SETTINGS["soft_grace_s"] + 3.0))

    def _fill_disk(self) -> bool:
        assert self.disk is not None
        self.disk.fill()
        time.sleep(self.dice.uniform(0.5, 4.0))
        self.disk.empty()
        return True

    def _close_disk(self) -> bool:
        """A folder that nobody may write to for a while: programs that start then find it so."""
        assert self.disk is not None
        self.disk.close()
        self._kill_member(self.dice.choice(("api", "work")))
        self.restart_the_dead()
        time.sleep(self.dice.uniform(0.5, 4.0))
        self.disk.open()
        return True

    def _jump_clock(self) -> bool:
        """Some machines' clocks go wrong by up to a day, and right again at another jump."""
        self.clock.jump(self.dice.choice([0.0, 1.0, -1.0]) * self.dice.uniform(1.0, 86_400.0))
        return True

    def _kill_database(self) -> bool:
        assert self.server is not None
        if self.dice.random() < 0.5:
            self.server.kill()
        else:
            self.server.stop()
        time.sleep(self.dice.uniform(0.0, 2.0))
        self.server.start()
        return True


def freeze(victim: psutil.Process, seconds: float) -> None:
    """Give a process no time for so long, as on a machine with far too much to do: slow is not killed.

    A soak that is stopped meanwhile leaves nothing frozen, which would never see that its owner has ended.
    """
    victim.suspend()
    try:
        time.sleep(seconds)
    finally:
        with suppress(psutil.NoSuchProcess):
            victim.resume()


def _searches(member: Member) -> list[psutil.Process]:
    """The processes that search for a worker."""
    return [child for fork in _forks(member) for child in fork.children()]


def _forks(member: Member) -> list[psutil.Process]:
    """The fork servers of a worker: its children that have children."""
    with suppress(psutil.NoSuchProcess):
        return [one for one in psutil.Process(member.process.pid).children() if one.children()]
    return []


@contextmanager
def fleet(
    database_url: str,
    dice: random.Random,
    server: Postgres | Disk | None,
    folder: Path,
    log: IO[bytes],
    roots: Sequence[Path] = (ROOT,),
) -> Iterator[Fleet]:
    """A started fleet that is gone at the end; `server` is what its database lies on, if that can fail.

    `roots` are the folders of the program versions that run side by side.
    """
    clock_file = folder / "clock"
    clock = Clock(clock_file)
    nurseries = [Nursery(log, clock_file, root) for root in roots]
    postgres = server if isinstance(server, Postgres) else None
    disk = server if isinstance(server, Disk) else None
    made = Fleet(database_url, dice, postgres, disk, clock, nurseries)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        for one in nurseries:
            one.close()
