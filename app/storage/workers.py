"""Which workers live: a heartbeat row each.

Owns the heartbeats. Never moves work; the worker that finds another one dead does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

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
                sa.update(WORKERS).where(WORKERS.c.id == worker_id).values(seen_at=self._clock())
            )
            if changed.rowcount == 0:
                connection.execute(sa.insert(WORKERS).values(id=worker_id, seen_at=self._clock()))

    def leave(self, worker_id: str) -> None:
        """Forget a worker that stops in good order."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(WORKERS).where(WORKERS.c.id == worker_id))

    def dead(self, silent_s: float) -> list[str]:
        """Workers that neither left nor showed themselves for so long."""
        query = sa.select(WORKERS.c.id).where(WORKERS.c.seen_at < self._clock() - silent_s)
        with self._engine.connect() as connection:
            return [str(row[0]) for row in connection.execute(query)]

    def num_living(self, silent_s: float) -> int:
        """Workers heard of lately."""
        query = sa.select(sa.func.count()).select_from(WORKERS).where(WORKERS.c.seen_at >= self._clock() - silent_s)
        with self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())
