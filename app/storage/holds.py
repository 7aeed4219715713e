"""Takes the steps of `lease` on rows of plans, each with its event, inside a transaction of the caller.

A step is decided on what was read and written only where that still holds, so two programs never both take one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from app.storage.lease import Hold
from app.storage.tables import EVENTS, PLANS

Step = Callable[[Hold], Hold | None]
_COLUMNS = [PLANS.c[field.name] for field in fields(Hold)]


def change(
    connection: sa.Connection,
    which: tuple[sa.ColumnElement[bool], ...],
    step: Step,
    at: float,
    *,
    why: str = "",
    values: dict[str, Any] | None = None,
) -> Hold | None:
    """Take a step on one plan and store `values` with it; None when the step does not apply, or there is no such plan.

    `which` names the plan by its id, and its owner if that matters; `why` is told by the event of a plan that waits
    again. `at` is in seconds since 1970.
    """
    while True:
        found = connection.execute(sa.select(PLANS.c.id, *_COLUMNS).where(*which)).first()
        if found is None:
            return None
        plan_id, before = str(found[0]), Hold(*found[1:])
        after = step(before)
        if after is None or after == before:
            return after
        if _replaced(connection, plan_id, before, after, {**(values or {}), **_end_of(after, at)}):
            if after.state != before.state:
                _tell(connection, plan_id, after, at, why)
            return after


def _replaced(connection: sa.Connection, plan_id: str, before: Hold, after: Hold, values: dict[str, Any]) -> bool:
    """Whether the row was still as it had been read."""
    unchanged = [PLANS.c[name].is_not_distinct_from(value) for name, value in asdict(before).items()]
    row = {**asdict(after), **values, "revision": PLANS.c.revision + 1}
    changed = connection.execute(sa.update(PLANS).where(PLANS.c.id == plan_id, *unchanged).values(**row))
    return changed.rowcount > 0


def _end_of(hold: Hold, at: float) -> dict[str, Any]:
    return {"finished_at": at} if hold.has_ended else {}


def _tell(connection: sa.Connection, plan_id: str, hold: Hold, at: float, why: str) -> None:
    if hold.has_ended:
        append_event(connection, plan_id, at, "done", done_event(hold.state, str(hold.stop_reason)))
    elif hold.state == "running":
        append_event(connection, plan_id, at, "state", b'{"state":"running","attempt":%d}' % hold.attempt)
    else:
        append_event(connection, plan_id, at, "state", b'{"state":"queued","reason":"%s"}' % why.encode())


def append_event(connection: sa.Connection, plan_id: str, at: float, kind: str, data: bytes) -> None:
    """Add the next event of a plan."""
    connection.execute(sa.update(PLANS).where(PLANS.c.id == plan_id).values(num_events=PLANS.c.num_events + 1))
    number = sa.select(PLANS.c.num_events).where(PLANS.c.id == plan_id).scalar_subquery()
    connection.execute(sa.insert(EVENTS).values(plan_id=plan_id, sequence=number, kind=kind, at=at, data=data))


def done_event(state: str, reason: str) -> bytes:
    """What the last event of a plan says."""
    return f'{{"state":"{state}","stop_reason":"{reason}"}}'.encode()
