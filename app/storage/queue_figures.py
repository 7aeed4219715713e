"""Figures of the queue that clients and operators see: places in it, plans in a state, the longest wait."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from app.storage.listing import of_owner
from app.storage.plans import PlanRow, State
from app.storage.tables import PLANS, Store


class QueueFigures(Store):
    """The figures of one database; of one owner only, where one is named."""

    def count(self, state: State, *, owner: str | None = None) -> int:
        """Plans and questions in a state."""
        query = sa.select(sa.func.count()).select_from(PLANS)
        return int(self._value(query.where(PLANS.c.state == state, *of_owner(PLANS, owner))))

    def oldest_queued_at(self, *, owner: str | None = None) -> float | None:
        """When the plan that waits longest was submitted."""
        query = sa.select(sa.func.min(PLANS.c.created_at))
        found: float | None = self._value(query.where(PLANS.c.state == "queued", *of_owner(PLANS, owner)))
        return found

    def position(self, row: PlanRow) -> int | None:
        """How many queued plans of the same key go first; None once it is not queued."""
        return self.positions([row]).get(row.id)

    def positions(self, rows: Sequence[PlanRow]) -> dict[str, int]:
        """How many queued plans of its key go before each of these; those that are not queued are left out."""
        queued = {row.id: row for row in rows if row.state == "queued"}
        if not queued:
            return {}
        place = sa.func.row_number().over(partition_by=PLANS.c.key_id, order_by=(PLANS.c.urgency, PLANS.c.id))
        keys = sorted({row.key_id for row in queued.values()})
        line = sa.select(PLANS.c.id, place.label("place")).where(PLANS.c.state == "queued", PLANS.c.key_id.in_(keys))
        places = line.subquery()
        query = sa.select(places.c.id, places.c.place - 1).where(places.c.id.in_(list(queued)))
        return {str(row[0]): int(row[1]) for row in self._rows(query)}
