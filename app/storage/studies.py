"""Studies: a list of members, most of them plans of their own that carry the study's id."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from app.storage.listing import EVERYTHING, Wanted, conditions, newest_first, owned
from app.storage.plans import (
    STATUS_COLUMNS,
    TERMINAL,
    Admit,
    NewPlan,
    PlanRow,
    PlanStore,
    remove_belongings,
)
from app.storage.tables import PLANS, STUDIES, KeyedStore, scoped_key, timed_id, writing
from app.storage.webhooks import NewWebhook, add_webhook


@dataclass(frozen=True)
class StudyRow:
    """One study as stored; `members` is a JSON list of {changes, faults}, by member number."""

    id: str
    owner: str
    request_digest: str
    name: str
    members: bytes
    created_at: float
    labels: str = ""

    def member_list(self) -> list[dict[str, Any]]:
        """The members as plain values."""
        found: list[dict[str, Any]] = json.loads(self.members)
        return found


@dataclass(frozen=True, kw_only=True)
class NewStudy:
    """What a submission stores beside its plans."""

    owner: str
    request_digest: str
    name: str
    members: bytes
    labels: str = ""
    idempotency_key: str | None = None
    webhook: NewWebhook | None = None


_COLUMNS = [column for column in STUDIES.c if column.name != "idempotency_key"]


class StudyStore(KeyedStore):
    """The studies of one database."""

    table = STUDIES

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(engine, clock=clock)
        self._plans = PlanStore(engine, clock=clock)

    def insert(self, new: NewStudy, plans: Mapping[int, NewPlan], admit: Admit) -> StudyRow:
        """Store a study and queue its plans, each under the number of its member, in one transaction.

        Raises sqlalchemy's IntegrityError when the idempotency key exists.
        """
        now, key = self._clock(), scoped_key(new.owner, new.idempotency_key)
        own_id = timed_id("study_", now, 8)
        row = StudyRow(own_id, new.owner, new.request_digest, new.name, new.members, now, new.labels)
        with writing(self._engine) as connection:
            admit(connection)
            connection.execute(sa.insert(STUDIES).values(**vars(row), idempotency_key=key))
            for number, plan in plans.items():
                self._plans.insert_in(connection, replace(plan, study_id=row.id, member=number))
            if new.webhook is not None:
                add_webhook(connection, row.id, new.webhook)
        return row

    def get(self, study_id: str, *, owner: str | None) -> StudyRow | None:
        """One study, or None; of this owner only, when one is named."""
        return self._one(StudyRow, sa.select(*_COLUMNS).where(*owned(STUDIES, study_id, owner)))

    def page(self, *, limit: int, before: str | None, owner: str | None, wanted: Wanted = EVERYTHING) -> list[StudyRow]:
        """Studies that are wanted, newest first, older than `before`."""
        query = sa.select(*_COLUMNS).where(*conditions(STUDIES, wanted))
        query = newest_first(query, STUDIES, limit=limit, before=before, owner=owner)
        return self._all(StudyRow, query)

    def plans_of(self, study_id: str) -> dict[int, PlanRow]:
        """The plans of a study by member number, without their outcomes; deleted ones are missing."""
        rows = self._all(PlanRow, sa.select(*STATUS_COLUMNS).where(PLANS.c.study_id == study_id))
        return {row.member: row for row in rows if row.member is not None}

    def counts_of(self, study_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """Number of plans by state for several studies."""
        query = (
            sa.select(PLANS.c.study_id, PLANS.c.state, sa.func.count())
            .where(PLANS.c.study_id.in_(study_ids))
            .group_by(PLANS.c.study_id, PLANS.c.state)
        )
        counts: dict[str, dict[str, int]] = {study_id: {} for study_id in study_ids}
        for study_id, state, number in self._rows(query):
            counts[study_id][state] = number
        return counts

    def cancel(self, study_id: str) -> None:
        """Stop every plan of a study that has not ended; each keeps its best."""
        for row in self.plans_of(study_id).values():
            if not row.is_terminal:
                self._plans.cancel(row.id)

    def delete(self, study_id: str, *, owner: str | None) -> bool:
        """Remove a study with its plans; running ones notice that they are not wanted any more."""
        members = PLANS.c.study_id == study_id
        with writing(self._engine) as connection:
            if connection.execute(sa.delete(STUDIES).where(*owned(STUDIES, study_id, owner))).rowcount == 0:
                return False
            plan_ids = [str(row[0]) for row in connection.execute(sa.select(PLANS.c.id).where(members))]
            # In this order: a search that still tells news waits for its plan, and then finds none to tell it of.
            connection.execute(sa.delete(PLANS).where(members))
            remove_belongings(connection, [study_id, *plan_ids])
        return True

    def delete_older_than(self, at: float) -> int:
        """Remove old studies all of whose plans ended before that time; returns how many."""
        young = sa.or_(PLANS.c.state.not_in(sorted(TERMINAL)), PLANS.c.finished_at >= at)
        going = sa.select(PLANS.c.study_id).where(PLANS.c.study_id.is_not(None), young)
        query = sa.select(STUDIES.c.id).where(STUDIES.c.created_at < at, STUDIES.c.id.not_in(going))
        return sum(self.delete(str(row[0]), owner=None) for row in self._rows(query))
