"""Plan rows as clients see and change them: submit, read, cancel, delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import sqlalchemy as sa

from app.storage.holds import change
from app.storage.lease import ask_to_stop
from app.storage.listing import EVERYTHING, Wanted, conditions, of_owner, ordered, owned
from app.storage.searches import KeptSearch, begin_with, delete_kept
from app.storage.tables import EVENTS, PLANS, KeyedStore, scoped_key, timed_id, writing
from app.storage.webhooks import NewWebhook, add_webhook, remove_webhooks

State = Literal["queued", "running", "succeeded", "infeasible", "not_found", "incomplete", "cancelled", "failed"]
StopReason = Literal["finished", "cancelled", "time", "memory", "killed", "crashed", "refused", "attempts"]
Kind = Literal["plan", "question"]  # what a row asks for; its id begins with it
STATES: tuple[State, ...] = get_args(State)
TERMINAL: frozenset[str] = frozenset(STATES) - {"queued", "running"}


@dataclass(frozen=True, kw_only=True)
class PlanOrigin:
    """Whose plan it is and where it came from, and what lists show of its request."""

    owner: str = ""
    key_id: str = ""
    urgency: int = 3
    parent_id: str | None = None
    study_id: str | None = None
    member: int | None = None
    name: str = ""
    labels: str = ""
    model: str = ""
    cluster: str = ""
    objective: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanRow(PlanOrigin):
    """One plan as stored, by default as it is when it has just been submitted; documents are JSON text."""

    id: str
    state: State = "queued"
    stop_reason: StopReason | None = None
    revision: int = 1
    request_digest: str
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    attempt: int = 0
    cancel_requested: bool = False
    num_events: int = 1
    progress: bytes | None = None
    outcome: bytes | None = None
    fault: bytes | None = None
    headline: bytes | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in TERMINAL

    def elapsed_s(self, now: float) -> float:
        """Seconds since the search began, until it ended."""
        if self.started_at is None:
            return 0.0
        return max(0.0, (self.finished_at or now) - self.started_at)


@dataclass(frozen=True)
class NewPlan(PlanOrigin):
    """What a submission stores."""

    request: bytes
    request_digest: str
    idempotency_key: str | None
    webhook: NewWebhook | None = None
    kind: Kind = "plan"
    begins_with: KeptSearch | None = None


Admit = Callable[[sa.Connection], object]

_INSERT_PLAN, _INSERT_EVENT = sa.insert(PLANS), sa.insert(EVENTS)

_LIGHT = [
    column for column in PLANS.c if column.name not in ("request", "idempotency_key", "worker_id", "holder", "lease")
]
STATUS_COLUMNS = [column for column in _LIGHT if column.name != "outcome"]


def kind_of(row_id: str) -> Kind:
    """What a row asks for.

    >>> kind_of("question_000000000001")
    'question'
    """
    return "question" if row_id.startswith("question_") else "plan"


class PlanStore(KeyedStore):
    """The plans of one database, or its questions: rows of the same queue."""

    table = PLANS

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], float] = time.time, kind: Kind = "plan") -> None:
        super().__init__(engine, clock=clock)
        self._kind = kind

    def insert(self, new: NewPlan, admit: Admit | None = None) -> PlanRow:
        """Store a plan, which is then queued.

        `admit` may refuse by raising, in the same transaction. Raises sqlalchemy's IntegrityError when the
        idempotency key exists.
        """
        with writing(self._engine) as connection:
            if admit is not None:
                admit(connection)
            return self.insert_in(connection, new)

    def insert_in(self, connection: sa.Connection, new: NewPlan) -> PlanRow:
        """Insert a plan inside a transaction of the caller."""
        now = self._clock()
        origin = {one.name: getattr(new, one.name) for one in fields(PlanOrigin)}
        own_id = timed_id(f"{new.kind}_", now, 10 if new.kind == "plan" else 9)  # at most 40 characters
        row = PlanRow(id=own_id, request_digest=new.request_digest, created_at=now, **origin)
        key = scoped_key(new.owner, new.idempotency_key)
        # Values apart from the statement: SQLAlchemy then builds and compiles it once, not at every submission.
        connection.execute(_INSERT_PLAN, {**vars(row), "request": new.request, "idempotency_key": key, "lease": 0})
        first = {"plan_id": row.id, "sequence": 1, "kind": "state", "at": now, "data": b'{"state":"queued"}'}
        connection.execute(_INSERT_EVENT, first)
        if new.webhook is not None:
            add_webhook(connection, row.id, new.webhook)
        if new.begins_with is not None:
            begin_with(connection, row.id, new.begins_with, now)
        return row

    def get(self, plan_id: str, *, with_outcome: bool = True, owner: str | None = None) -> PlanRow | None:
        """One plan, or None; of this owner only, when one is named."""
        columns = _LIGHT if with_outcome else STATUS_COLUMNS
        return self._one(PlanRow, sa.select(*columns).where(*self._owned(plan_id, owner)))

    def revision(self, plan_id: str, *, owner: str | None = None) -> int | None:
        """The number that changes with the plan, or None."""
        found: int | None = self._value(sa.select(PLANS.c.revision).where(*self._owned(plan_id, owner)))
        return found

    def request(self, plan_id: str, *, owner: str | None = None) -> bytes | None:
        """The request of a plan, as JSON text."""
        found: bytes | None = self._value(sa.select(PLANS.c.request).where(*self._owned(plan_id, owner)))
        return found

    def latest_of(self, request_digest: str, *, owner: str | None) -> PlanRow | None:
        """The newest plan of a request that ended with an outcome."""
        query = (
            sa.select(*_LIGHT)
            .where(PLANS.c.request_digest == request_digest, PLANS.c.headline.is_not(None))
            .where(PLANS.c.state.in_(sorted(TERMINAL)), *of_owner(PLANS, owner))
            .order_by(PLANS.c.id.desc())
            .limit(1)
        )
        return self._one(PlanRow, query)

    def page(
        self, *, limit: int, before: str | None, owner: str | None = None, wanted: Wanted = EVERYTHING
    ) -> list[PlanRow]:
        """Plans without their outcomes, newest first or as is wanted, beginning behind `before`."""
        query = ordered(sa.select(*STATUS_COLUMNS), wanted.sort, before).limit(limit)
        query = query.where(_of(self._kind), *conditions(PLANS, wanted), *of_owner(PLANS, owner))
        names = [column.name for column in STATUS_COLUMNS]
        return [PlanRow(**dict[str, Any](zip(names, row, strict=True))) for row in self._rows(query)]

    def newest_about(self, parent_id: str, objective: str, *, owner: str | None = None) -> PlanRow | None:
        """The newest row of a kind of question, say, that was made about a plan."""
        query = sa.select(PLANS.c.id).where(
            _of(self._kind), PLANS.c.parent_id == parent_id, PLANS.c.objective == objective
        )
        query = query.order_by(PLANS.c.id.desc()).limit(1)
        found = self._value(query)
        return None if found is None else self.get(str(found), owner=owner)

    def cancel(self, plan_id: str, *, owner: str | None = None) -> PlanRow | None:
        """Stop a plan and keep its best: at once if it only waits, soon if it runs; a finished one stays as it is."""
        with writing(self._engine) as connection:
            change(connection, self._owned(plan_id, owner), ask_to_stop, self._clock())
        return self.get(plan_id, owner=owner)

    def delete(self, plan_id: str, *, owner: str | None = None, revision: int | None = None) -> bool:
        """Remove a plan, as it is under `revision` if one is named, its events and what was prepared for it; a running
        attempt notices that it is not wanted."""
        same = () if revision is None else (PLANS.c.revision == revision,)
        with writing(self._engine) as connection:
            removed = connection.execute(sa.delete(PLANS).where(*self._owned(plan_id, owner), *same)).rowcount
            if removed:
                remove_belongings(connection, [plan_id])
        return removed > 0

    def delete_finished_before(self, at: float) -> int:
        """Remove finished plans that are older, but for those of studies, which leave with theirs; returns how many."""
        is_old = (PLANS.c.state.in_(sorted(TERMINAL)), PLANS.c.finished_at < at, PLANS.c.study_id.is_(None))
        query = sa.select(PLANS.c.id).where(*is_old)
        ids = [str(row[0]) for row in self._rows(query)]
        return sum(PlanStore(self._engine, kind=kind_of(one)).delete(one) for one in ids)

    def _owned(self, plan_id: str, owner: str | None) -> tuple[sa.ColumnElement[bool], ...]:
        """A row by id; one of the other kind, or of another owner, is treated as one that does not exist."""
        return (*owned(PLANS, plan_id, owner), _of(self._kind))

    def events(self, plan_id: str, *, after: int, limit: int = 500) -> list[tuple[int, str, float, bytes]]:
        """Sequence number, kind, time and JSON text of the events after a number, in order."""
        query = (
            sa.select(EVENTS.c.sequence, EVENTS.c.kind, EVENTS.c.at, EVENTS.c.data)
            .where(EVENTS.c.plan_id == plan_id, EVENTS.c.sequence > after)
            .order_by(EVENTS.c.sequence)
            .limit(limit)
        )
        return [(row[0], row[1], row[2], row[3]) for row in self._rows(query)]


def remove_belongings(connection: sa.Connection, plan_ids: Sequence[str]) -> None:
    """Remove events, webhooks, kept searches and prepared answers of plans that are gone."""
    connection.execute(sa.delete(EVENTS).where(EVENTS.c.plan_id.in_(plan_ids)))
    remove_webhooks(connection, plan_ids)
    delete_kept(connection, plan_ids)
    about = sa.and_(PLANS.c.parent_id.in_(plan_ids), PLANS.c.objective == "what_if_lost", _of("question"))
    connection.execute(sa.delete(EVENTS).where(EVENTS.c.plan_id.in_(sa.select(PLANS.c.id).where(about))))
    connection.execute(sa.delete(PLANS).where(about))


def _of(kind: Kind) -> sa.ColumnElement[bool]:
    """Rows of one kind; nothing sorts between the two."""
    return PLANS.c.id >= "question_" if kind == "question" else PLANS.c.id < "question_"
