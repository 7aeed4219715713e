"""Webhooks: one row says whom to tell that a plan or a study has ended, and how far that is."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import sqlalchemy as sa

from app.storage.lease import OPEN
from app.storage.tables import PLANS, WEBHOOKS, Store, writing

# Seconds until the next attempt, by the number of those made: the schedule of the Standard Webhooks specification 1.0.
RETRY_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
MAX_ATTEMPTS = len(RETRY_S) + 1
LONGEST_ATTEMPT_S = 20.0  # the 15 s of `jobs.webhooks.LIMIT_S`, and what reads and writes the database
MOST_SPREAD = 0.1  # of a pause, by chance: receivers that failed together are not asked again together

WebhookState = Literal["waiting", "delivered", "given_up"]
WAITING, DELIVERED, GIVEN_UP = get_args(WebhookState)


@dataclass(frozen=True)
class NewWebhook:
    """Where to tell the end of something, and the secret that signs it; the empty one signs nothing."""

    url: str
    secret: str = ""


@dataclass(frozen=True)
class WebhookRow:
    """One webhook as stored: `id` names its message in every attempt, `subject_id` the plan or study it tells of."""

    id: str
    subject_id: str
    url: str
    secret: str
    state: WebhookState
    num_attempts: int
    next_at: float
    last_status: int | None
    last_error: str | None
    ended_at: float | None


class WebhookStore(Store):
    """The webhooks of one database."""

    def get(self, subject_id: str) -> WebhookRow | None:
        """The webhook of a plan or a study, or None."""
        return self._one(WebhookRow, sa.select(WEBHOOKS).where(WEBHOOKS.c.subject_id == subject_id))

    def due(self, limit: int) -> list[WebhookRow]:
        """Messages to send now, those tried least first: what never arrives holds up nothing that may."""
        ended = [
            ~sa.exists().where(name == WEBHOOKS.c.subject_id, PLANS.c.state.in_(OPEN))
            for name in (PLANS.c.id, PLANS.c.study_id)
        ]
        query = (
            sa.select(WEBHOOKS)
            .where(WEBHOOKS.c.state == WAITING, WEBHOOKS.c.next_at <= self._clock(), *ended)
            .order_by(WEBHOOKS.c.num_attempts, WEBHOOKS.c.next_at)
            .limit(limit)
        )
        return self._all(WebhookRow, query)

    def begin(self, row: WebhookRow) -> bool:
        """Count an attempt before it is made; false when another worker was faster.

        Should this worker die in the middle, the next attempt is set already, for when this one would be over.
        """
        number = row.num_attempts + 1
        next_at = self._clock() + max(LONGEST_ATTEMPT_S, _pause_s(number))
        return self._change(row, row.num_attempts, {"num_attempts": number, "next_at": next_at})

    def end(self, row: WebhookRow, *, status: int | None, error: str | None) -> bool:
        """Store how the attempt went that `begin` has counted. 410 says that nobody wants to hear of it any more."""
        number = row.num_attempts + 1
        is_delivered = status is not None and 200 <= status < 300
        is_over = is_delivered or status == 410 or number >= MAX_ATTEMPTS
        state = DELIVERED if is_delivered else GIVEN_UP if is_over else WAITING
        ended_at = self._clock() if is_over else None
        values = {"state": state, "last_status": status, "last_error": error, "ended_at": ended_at,
                  "next_at": self._clock() + _pause_s(number)}  # fmt: skip
        return self._change(row, number, values)

    def _change(self, row: WebhookRow, num_attempts: int, values: dict[str, object]) -> bool:
        """Whether the row still waited after so many attempts; it is changed then."""
        same = (WEBHOOKS.c.id == row.id, WEBHOOKS.c.state == WAITING, WEBHOOKS.c.num_attempts == num_attempts)
        with writing(self._engine) as connection:
            return connection.execute(sa.update(WEBHOOKS).where(*same).values(**values)).rowcount > 0


def _pause_s(num_attempts: int) -> float:
    return RETRY_S[min(num_attempts, len(RETRY_S)) - 1] * random.uniform(1.0, 1.0 + MOST_SPREAD)


def add_webhook(connection: sa.Connection, subject_id: str, new: NewWebhook) -> None:
    """Store a webhook in the transaction that stores what it tells of."""
    row = {
        "id": f"msg_{os.urandom(16).hex()}",
        "subject_id": subject_id,
        "url": new.url,
        "secret": new.secret,
        "state": WAITING,
        "num_attempts": 0,
        "next_at": 0.0,
    }
    connection.execute(sa.insert(WEBHOOKS), row)


def remove_webhooks(connection: sa.Connection, subject_ids: Sequence[str]) -> None:
    """Remove the webhooks of what is being removed."""
    connection.execute(sa.delete(WEBHOOKS).where(WEBHOOKS.c.subject_id.in_(subject_ids)))
