"""Plan rows as workers change them: begin an attempt, store its news, end it, give the plan back.

Owns who may write. A plan has one ticket, the workflow that may begin it; a worker writes only while its attempt is
the current one. So neither a worker that was taken for dead nor a workflow that was replaced can do harm. Never runs
anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.storage.plans import State, StopReason, append_event, done_event
from app.storage.tables import PLANS

Requeue = Callable[[sa.Connection], str]  # puts the plan on its queue and returns the new ticket
_OPEN = ("queued", "running")


class AttemptStore:
    """The attempts at the plans of one database."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    def begin(self, plan_id: str, worker_id: str, ticket: str | None = None) -> int | None:
        """Start the next attempt and return its number; None when there is nothing to run, or not by this ticket."""
        with self._engine.begin() as connection:
            changed = connection.execute(
                sa.update(PLANS)
                .where(PLANS.c.id == plan_id, PLANS.c.state.in_(_OPEN), *_may_run(ticket))
                .values(
                    state="running",
                    attempt=PLANS.c.attempt + 1,
                    worker_id=worker_id,
                    started_at=sa.func.coalesce(PLANS.c.started_at, self._clock()),
                    revision=PLANS.c.revision + 1,
                )
            )
            if changed.rowcount == 0:
                return None
            attempt = connection.execute(sa.select(PLANS.c.attempt).where(PLANS.c.id == plan_id)).scalar_one()
            self._append(connection, plan_id, "state", b'{"state":"running","attempt":%d}' % attempt)
            return int(attempt)

    def is_wanted(self, plan_id: str, attempt: int) -> bool:
        """Whether this attempt should go on: it is the current one and nobody asked to stop it."""
        query = sa.select(PLANS.c.id).where(*_current(plan_id, attempt), PLANS.c.cancel_requested.is_(False))
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def record(self, plan_id: str, attempt: int, kind: str, data: bytes, outcome: bytes | None = None) -> bool:
        """Add an event of a running attempt, and the plan that came with it; false when it lost the right to."""
        values: dict[str, Any] = {"revision": PLANS.c.revision + 1}
        if kind == "progress":
            values["progress"] = data
        if outcome is not None:
            values.update(outcome=outcome, headline=data)
        with self._engine.begin() as connection:
            changed = connection.execute(sa.update(PLANS).where(*_current(plan_id, attempt)).values(**values))
            if changed.rowcount:
                self._append(connection, plan_id, kind, data)
            return changed.rowcount > 0

    def finish(
        self,
        plan_id: str,
        attempt: int,
        state: State,
        reason: StopReason,
        *,
        outcome: bytes | None,
        fault: bytes | None,
        headline: bytes | None = None,
    ) -> bool:
        """End a running attempt; false when another attempt, or nobody, may write."""
        values: dict[str, Any] = {
            "state": state,
            "stop_reason": reason,
            "finished_at": self._clock(),
            "fault": fault,
            "revision": PLANS.c.revision + 1,
        }
        if outcome is not None:
            values.update(outcome=outcome, headline=headline)
        with self._engine.begin() as connection:
            changed = connection.execute(sa.update(PLANS).where(*_current(plan_id, attempt)).values(**values))
            if changed.rowcount:
                self._append(connection, plan_id, "done", done_event(state, reason))
            return changed.rowcount > 0

    def give_back(self, plan_id: str, attempt: int, requeue: Requeue, *, counts: bool = False) -> bool:
        """Queue a running plan again; an attempt that ends because its worker leaves does not count."""
        return self._requeue(plan_id, _current(plan_id, attempt), requeue, num_uncounted=0 if counts else 1)

    def hand_on(self, plan_id: str, ticket: str, requeue: Requeue) -> bool:
        """Queue a plan again that was claimed by this ticket and not begun."""
        waiting = (PLANS.c.id == plan_id, PLANS.c.state == "queued", *_may_run(ticket))
        return self._requeue(plan_id, waiting, requeue)

    def rescue(self, plan_id: str, revision: int, requeue: Requeue) -> bool:
        """Queue a plan again that nobody holds, unless something has happened to it since this revision."""
        untouched = (PLANS.c.id == plan_id, PLANS.c.state.in_(_OPEN), PLANS.c.revision == revision)
        return self._requeue(plan_id, untouched, requeue)

    def _requeue(
        self, plan_id: str, condition: tuple[sa.ColumnElement[bool], ...], requeue: Requeue, *, num_uncounted: int = 0
    ) -> bool:
        values = {"state": "queued", "attempt": PLANS.c.attempt - num_uncounted, "revision": PLANS.c.revision + 1}
        with self._engine.begin() as connection:
            changed = connection.execute(sa.update(PLANS).where(*condition).values(**values))
            if changed.rowcount:
                self._append(connection, plan_id, "state", b'{"state":"queued"}')
                ticket = requeue(connection)
                connection.execute(sa.update(PLANS).where(PLANS.c.id == plan_id).values(ticket=ticket))
            return changed.rowcount > 0

    def _append(self, connection: sa.Connection, plan_id: str, kind: str, data: bytes) -> None:
        append_event(connection, plan_id, self._clock(), kind, data)


def _current(plan_id: str, attempt: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (PLANS.c.id == plan_id, PLANS.c.state == "running", PLANS.c.attempt == attempt)


def _may_run(ticket: str | None) -> tuple[sa.ColumnElement[bool], ...]:
    """Rows of releases without tickets have none: any workflow may run those."""
    return () if ticket is None else (sa.or_(PLANS.c.ticket.is_(None), PLANS.c.ticket == ticket),)
