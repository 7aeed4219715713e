"""Which workers live: one row for each run of a worker, with a number that grows while it lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.storage.queue import PlanQueue
from app.storage.tables import WORKERS, Store, writing


def new_holder() -> str:
    """A name for one run of a worker that no other run has.

    >>> len(new_holder())
    26
    """
    return f"run_{os.urandom(11).hex()}"


class WorkerStore(Store):
    """The workers of one database."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(engine, clock=clock)
        self._queue = PlanQueue(engine, clock=clock)

    def enter(self, holder: str, name: str) -> list[str]:
        """Show a new run of a worker. What earlier runs of the same name held waits again, and is returned."""
        with writing(self._engine) as connection:
            query = sa.select(WORKERS.c.id).where(WORKERS.c.name == name, WORKERS.c.id != holder)
            earlier = [str(row[0]) for row in connection.execute(query)]
            connection.execute(sa.delete(WORKERS).where(WORKERS.c.id.in_(earlier)))
            why = "its worker was started anew"
            freed = [one for run in earlier for one in self._queue.take_from(connection, run, why=why)]
            self._show(connection, holder, name, 0)
        return freed

    def beat(self, holder: str, name: str, number: int) -> None:
        """Show that a worker lives, by a number that is greater each time."""
        with writing(self._engine) as connection:
            self._show(connection, holder, name, number)

    def leave(self, holder: str) -> None:
        """Forget a worker that stops in good order; what it still holds waits again."""
        with writing(self._engine) as connection:
            connection.execute(sa.delete(WORKERS).where(WORKERS.c.id == holder))
            self._queue.take_from(connection, holder, why="its worker left it behind")

    def num_living(self, silent_s: float, *, name: str | None = None) -> int:
        """Workers heard of lately, of this name if one is given: for people to read, no plan changes hands for it."""
        now = self._now()
        lately = WORKERS.c.seen_at.between(now - silent_s, now + silent_s)  # after it where the clock was set back
        query = sa.select(sa.func.count()).select_from(WORKERS).where(lately)
        query = query if name is None else query.where(WORKERS.c.name == name)
        return int(self._value(query))

    def _show(self, connection: sa.Connection, holder: str, name: str, number: int) -> None:
        values = {"name": name, "beat": number, "seen_at": self._now()}
        if connection.execute(sa.update(WORKERS).where(WORKERS.c.id == holder).values(**values)).rowcount == 0:
            connection.execute(sa.insert(WORKERS).values(id=holder, **values))

    def _now(self) -> Any:
        """The time of the database where machines share one: their own clocks differ."""
        if self._clock is time.time and self._engine.dialect.name == "postgresql":
            return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)
        return self._clock()
