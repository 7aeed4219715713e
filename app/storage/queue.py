"""The queue as workers see it: take a plan, store its news, end it, give it back, take it from who is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from app.storage import lease as steps
from app.storage.holds import append_event, change
from app.storage.plans import State, StopReason
from app.storage.searches import KeptSearch, keep_state, kept_search
from app.storage.tables import PLANS, WORKERS, Store, writing

MOST_URGENT = 0  # plans that wait for nobody: they have places of their own and no limit per key


@dataclass(frozen=True)
class Claim:
    """A plan that a worker holds; `best` is the plan that an earlier attempt left, `attempt` counts from 1."""

    plan_id: str
    lease: int
    attempt: int
    request: bytes
    best: bytes | None = None
    key_id: str = ""
    urgency: int = 3


class PlanQueue(Store):
    """The queue of one database."""

    def waiting(self) -> tuple[bool, bool]:
        """Whether an urgent plan waits, and any other: the one question of a worker that has nothing to do."""
        urgent, other = (sa.exists().where(_queued(urgent=urgent)) for urgent in (True, False))
        ((is_urgent, is_other),) = self._rows(sa.select(urgent, other))
        return bool(is_urgent), bool(is_other)

    def claim(
        self, holder: str, name: str, *, urgent: bool, max_per_key: int, served: Mapping[str, int]
    ) -> Claim | None:
        """Take the plan whose turn it is, or None; `holder` is this run of a worker, `name` what people call it.

        `served` says when this worker last served a key. Claims of all workers happen one after the other, so that the
        limit per key holds over all of them.
        """
        with writing(self._engine, claims=True) as connection:
            plan_id = _next(connection, urgent=urgent, max_per_key=max_per_key, served=served)
            if plan_id is None:
                return None
            now = self._clock()
            values = {"worker_id": name, "started_at": sa.func.coalesce(PLANS.c.started_at, now)}
            which = (PLANS.c.id == plan_id,)
            if change(connection, which, partial(steps.claim, holder=holder), now, values=values) is None:
                return None  # a client was faster
            columns = [PLANS.c[name] for name in ("id", "lease", "attempt", "request", "outcome", "key_id", "urgency")]
            return Claim(*connection.execute(sa.select(*columns).where(*which)).one())

    def is_wanted(self, plan_id: str, lease: int) -> bool:
        """Whether this search should go on: it holds the plan and nobody asked to stop it."""
        query = sa.select(PLANS.c.id).where(*_held(plan_id, lease), PLANS.c.cancel_requested.is_(False))
        return self._row(query) is not None

    def record(self, plan_id: str, lease: int, kind: str, data: bytes, outcome: bytes | None = None) -> bool:
        """Add an event of a search, and the plan that came with it; false when the search lost the right to."""
        values: dict[str, Any] = {"revision": PLANS.c.revision + 1}
        if kind == "progress":
            values["progress"] = data
        if outcome is not None:
            values.update(outcome=outcome, headline=data)
        with writing(self._engine) as connection:
            changed = connection.execute(sa.update(PLANS).where(*_held(plan_id, lease)).values(**values))
            if changed.rowcount:
                append_event(connection, plan_id, self._clock(), kind, data)
            return changed.rowcount > 0

    def keep(self, plan_id: str, lease: int, state: bytes, program: str) -> bool:
        """Keep the state of a search, as this program wrote it; false when the search lost the right to."""
        with writing(self._engine) as connection:
            may = connection.execute(sa.select(PLANS.c.id).where(*_held(plan_id, lease))).first() is not None
            if may:
                keep_state(connection, plan_id, state, program, self._clock())
            return may

    def kept(self, plan_id: str) -> KeptSearch | None:
        """What a search begins with, if it is not the first."""
        with self._engine.connect() as connection:
            return kept_search(connection, plan_id)

    def finish(
        self,
        plan_id: str,
        lease: int,
        state: State,
        reason: StopReason,
        *,
        outcome: bytes | None,
        fault: bytes | None,
        headline: bytes | None = None,
    ) -> bool:
        """End a plan; false when this search may not, or has done so before."""
        values: dict[str, Any] = {"fault": fault}
        if outcome is not None:
            values.update(outcome=outcome, headline=headline)
        step = partial(steps.finish, lease=lease, state=state, reason=reason)
        return self._step(plan_id, step, values=values)

    def give_back(self, plan_id: str, lease: int, *, counts: bool, why: str) -> bool:
        """Let another worker search; the attempt counts when the plan may be the cause. False when it is not held."""
        return self._step(plan_id, partial(steps.give_back, lease=lease, counts=counts), why=why)

    def held_by(self, holder: str) -> dict[str, int]:
        """The plans of a holder, with their leases."""
        query = sa.select(PLANS.c.id, PLANS.c.lease).where(PLANS.c.state == "running", PLANS.c.holder == holder)
        return {str(row[0]): int(row[1]) for row in self._rows(query)}

    def beats(self) -> dict[str | None, int | None]:
        """The latest heartbeat of every worker, and None for holders that show none."""
        holders = sa.select(PLANS.c.holder).where(PLANS.c.state == "running").distinct()
        with self._engine.connect() as connection:
            found: dict[str | None, int | None] = {row[0]: None for row in connection.execute(holders)}
            found.update({row[0]: row[1] for row in connection.execute(sa.select(WORKERS.c.id, WORKERS.c.beat))})
        return found

    def take_over(self, holder: str | None, beat: int | None) -> list[str] | None:
        """Take everything from a holder and forget it; None, and nothing done, if it has shown a later heartbeat."""
        worker = WORKERS.c.id == holder
        with writing(self._engine) as connection:
            if connection.execute(sa.select(WORKERS.c.beat).where(worker).with_for_update()).scalar() != beat:
                return None
            connection.execute(sa.delete(WORKERS).where(worker))
            return self.take_from(connection, holder, why="its worker went silent")

    def take_from(self, connection: sa.Connection, holder: str | None, *, why: str) -> list[str]:
        """`take_over` inside a transaction of the caller, who knows that the holder is gone."""
        held = PLANS.c.holder.is_not_distinct_from(holder)
        query = sa.select(PLANS.c.id).where(PLANS.c.state == "running", held).order_by(PLANS.c.id)
        step = partial(steps.lose, holder=holder)
        ids = [str(row[0]) for row in connection.execute(query)]
        return [one for one in ids if change(connection, (PLANS.c.id == one,), step, self._clock(), why=why)]

    def _step(self, plan_id: str, step: Any, *, why: str = "", values: dict[str, Any] | None = None) -> bool:
        with writing(self._engine) as connection:
            which = (PLANS.c.id == plan_id,)
            return change(connection, which, step, self._clock(), why=why, values=values) is not None


def whose_turn(
    waiting: Mapping[str, int], running: Mapping[str, int], max_per_key: int, served: Mapping[str, int]
) -> str | None:
    """The key that goes next: the one with the fewest plans running, of several the one served longest ago.

    `waiting` and `running` count plans by key, `served` says at which turn a key was last served.

    >>> whose_turn({"a": 9, "b": 1}, {"a": 1}, 4, {})
    'b'
    >>> whose_turn({"a": 9, "b": 1}, {}, 4, {"a": 1, "b": 2})
    'a'
    >>> whose_turn({"a": 9}, {"a": 4}, 4, {}) is None
    True
    """
    free = [key for key in waiting if running.get(key, 0) < max_per_key]
    return min(free, key=lambda key: (running.get(key, 0), served.get(key, -1), key), default=None)


def _next(connection: sa.Connection, *, urgent: bool, max_per_key: int, served: Mapping[str, int]) -> str | None:
    query = sa.select(PLANS.c.id).where(_queued(urgent=urgent)).order_by(PLANS.c.urgency, PLANS.c.id).limit(1)
    if not urgent:
        counts: dict[str, dict[str, int]] = {"queued": {}, "running": {}}
        number = (
            sa.select(PLANS.c.state, PLANS.c.key_id, sa.func.count())
            .where(PLANS.c.state.in_(list(counts)), PLANS.c.urgency > MOST_URGENT)
            .group_by(PLANS.c.state, PLANS.c.key_id)
        )
        for state, key_id, plans in connection.execute(number):
            counts[state][key_id] = plans
        key = whose_turn(counts["queued"], counts["running"], max_per_key, served)
        if key is None:
            return None
        query = query.where(PLANS.c.key_id == key)
    return connection.execute(query).scalar()


def _queued(*, urgent: bool) -> sa.ColumnElement[bool]:
    urgency = PLANS.c.urgency == MOST_URGENT if urgent else PLANS.c.urgency > MOST_URGENT
    return sa.and_(PLANS.c.state == "queued", urgency)


def _held(plan_id: str, lease: int) -> tuple[sa.ColumnElement[bool], ...]:
    """`lease.may_write` as a condition."""
    return (PLANS.c.id == plan_id, PLANS.c.state == "running", PLANS.c.lease == lease)
