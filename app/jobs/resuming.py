"""A search that goes on where an earlier one had ended: what its child is given, and which program has kept it.

Bounds are only as good as the program that proved them, so another program begins anew with the plan alone.
"""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from app.jobs.program import program
from app.storage.plans import PlanRow
from app.storage.searches import KeptSearch, kept_search

ANOTHER_PROGRAM = "they were proven by another version of the program"
NOT_KEPT = "they are not kept any more"


def begins_with(engine: sa.Engine, row: PlanRow) -> KeptSearch:
    """What a search that goes on from a plan begins with."""
    with engine.connect() as connection:
        kept = kept_search(connection, row.id) or KeptSearch(None, None)
    return replace(kept, outcome=row.outcome or kept.outcome)


def documents_of(kept: KeptSearch | None, best: bytes | None = None) -> tuple[bytes, ...]:
    """What the child of a search is given beside its request: outcome, state, and why there is no state; or nothing.

    `best` is the outcome of an attempt of the same search, which is newer than what it began with.

    >>> documents_of(None), documents_of(KeptSearch(b"{}", b"state", "an older one"))[2]
    ((), b'they were proven by another version of the program')
    """
    if kept is None:
        return ()
    outcome = best or kept.outcome or b""
    if kept.state is None:
        return outcome, b"", NOT_KEPT.encode()
    if kept.program != program():
        return outcome, b"", ANOTHER_PROGRAM.encode()
    return outcome, kept.state, b""
