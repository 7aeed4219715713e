"""Which workers live: a heartbeat row each.

Owns the heartbeats. Never moves work; the worker that finds another one dead does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.storage.tables import WORKERS


class WorkerStore:
    """The workers of one database."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    def beat(self, worker_id: str) -> None:
        """Show that a worker lives."""
        with self._engine.begin() as connection:
            changed = connection.execute(
                sa.update(WORKERS).where(WORKERS.c.id == worker_id).values(seen_at=self._now())
            )
            if changed.rowcount == 0:
                connection.execute(sa.insert(WORKERS).values(id=worker_id, seen_at=self._now()))

    def leave(self, worker_id: str) -> None:
        """Forget a worker that stops in good order."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(WORKERS).where(WORKERS.c.id == worker_id))

    def living(self, silent_s: float) -> frozenset[str]:
        """Workers heard of lately."""
        query = sa.select(WORKERS.c.id).where(WORKERS.c.seen_at >= self._now() - silent_s)
        with self._engine.connect() as connection:
            return frozenset(str(row[0]) for row in connection.execute(query))

    def forget_silent(self, silent_s: float) -> None:
        """Remove the rows of workers that have been silent for so long."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(WORKERS).where(WORKERS.c.seen_at < self._now() - silent_s))

    def num_living(self, silent_s: float) -> int:
        """Workers heard of lately."""
        return len(self.living(silent_s))

    def _now(self) -> Any:
        """The time of the database where machines share one: their own clocks differ."""
        if self._clock is time.time and self._engine.dialect.name == "postgresql":
            return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)
        return self._clock()
