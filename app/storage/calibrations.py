"""Fitted profiles that later requests may name by id."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from app.storage.listing import newest_first, owned
from app.storage.tables import CALIBRATIONS, Store, timed_id, writing

CALIBRATION_PREFIX = "cal_"


@dataclass(frozen=True)
class CalibrationRow:
    """One stored calibration; the document is JSON text."""

    id: str
    owner: str
    document: bytes
    created_at: float


class CalibrationStore(Store):
    """The calibrations of one database."""

    def insert(self, owner: str, document: bytes, *, most: int | None = None) -> CalibrationRow | None:
        """Keep a calibration under a new id; None when its owner has `most` already."""
        now = self._clock()
        row = CalibrationRow(timed_id(CALIBRATION_PREFIX, now), owner, document, now)
        with writing(self._engine) as connection:
            connection.execute(sa.insert(CALIBRATIONS).values(**vars(row)))
            mine = sa.select(sa.func.count()).select_from(CALIBRATIONS).where(CALIBRATIONS.c.owner == owner)
            if most is not None and connection.execute(mine).scalar_one() > most:
                connection.rollback()
                return None
        return row

    def delete_older_than(self, at: float) -> int:
        """Remove those made before that time; returns how many."""
        with writing(self._engine) as connection:
            return connection.execute(sa.delete(CALIBRATIONS).where(CALIBRATIONS.c.created_at < at)).rowcount

    def get(self, name: str, *, owner: str | None) -> CalibrationRow | None:
        """One calibration, or None; of this owner only, when one is named."""
        return self._one(CalibrationRow, sa.select(CALIBRATIONS).where(*owned(CALIBRATIONS, name, owner)))

    def page(self, *, limit: int, before: str | None, owner: str | None) -> list[CalibrationRow]:
        """Calibrations, newest first, older than `before`."""
        query = newest_first(sa.select(CALIBRATIONS), CALIBRATIONS, limit=limit, before=before, owner=owner)
        return self._all(CalibrationRow, query)

    def delete(self, name: str, *, owner: str | None) -> bool:
        """Remove one; plans that used it keep what they took from it."""
        with writing(self._engine) as connection:
            return connection.execute(sa.delete(CALIBRATIONS).where(*owned(CALIBRATIONS, name, owner))).rowcount > 0
