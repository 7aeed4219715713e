"""What searches have kept of themselves, so that another search goes on from there: one row per plan, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from app.storage.lease import OPEN
from app.storage.tables import PLANS, SEARCHES, writing


@dataclass(frozen=True)
class KeptSearch:
    """What a search begins with: an earlier outcome as JSON text, the state that was kept last, and by whom."""

    outcome: bytes | None
    state: bytes | None
    program: str = ""


def kept_search(connection: sa.Connection, plan_id: str) -> KeptSearch | None:
    """What is kept for a plan; None where nothing is."""
    columns = (SEARCHES.c.outcome, SEARCHES.c.state, SEARCHES.c.program)
    row = connection.execute(sa.select(*columns).where(SEARCHES.c.plan_id == plan_id)).first()
    if row is None:
        return None
    return KeptSearch(None if row[0] is None else zlib.decompress(row[0]), row[1], row[2])


def begin_with(connection: sa.Connection, plan_id: str, kept: KeptSearch, at: float) -> None:
    """A new plan's search is to begin with this."""
    outcome = None if kept.outcome is None else zlib.compress(kept.outcome)
    values = {"plan_id": plan_id, "outcome": outcome, "state": kept.state, "program": kept.program, "kept_at": at}
    connection.execute(sa.insert(SEARCHES).values(**values))


def keep_state(connection: sa.Connection, plan_id: str, state: bytes, program: str, at: float) -> None:
    """Keep the state of a plan's search in place of an earlier one."""
    values = {"state": state, "program": program, "kept_at": at}
    if not connection.execute(sa.update(SEARCHES).where(SEARCHES.c.plan_id == plan_id).values(**values)).rowcount:
        connection.execute(sa.insert(SEARCHES).values(plan_id=plan_id, **values))


def delete_kept(connection: sa.Connection, plan_ids: Sequence[str]) -> None:
    """These plans are removed."""
    connection.execute(sa.delete(SEARCHES).where(SEARCHES.c.plan_id.in_(plan_ids)))


def delete_kept_before(engine: sa.Engine, at: float) -> int:
    """Forget what ended searches kept before that time, those of removed plans too; returns how many."""
    going = sa.select(PLANS.c.id).where(PLANS.c.state.in_(OPEN))
    query = sa.delete(SEARCHES).where(SEARCHES.c.kept_at < at, SEARCHES.c.plan_id.not_in(going))
    with writing(engine) as connection:
        return connection.execute(query).rowcount
