"""Who asks, what they may do and how much: scopes, owners and quotas, the same for every interface."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from app.faults import Fault, refused
from app.settings import Settings
from app.storage.keys import SCOPES, KeyRow, KeyStore
from app.storage.queue import MOST_URGENT
from app.storage.tables import PLANS

MOST_AT_ONCE = 200  # plans that uncommitted submissions may add: seven processes with 30 connections each
QUEUE_LOCK = 0x1571405  # names the lock among all of a Postgres database
USUAL_URGENCY, STUDY_URGENCY, LEAST_URGENT = 3, 6, 7


class Busy(Exception):
    """The same request can succeed later: too much is under way, or something is missing meanwhile."""

    def __init__(self, fault: Fault, retry_after_s: int) -> None:
        super().__init__(fault.what)
        self.fault = fault
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Caller:
    """Who asks. Plans belong to an owner, so that a key can be replaced by a new one of the same owner."""

    owner: str = ""
    key_id: str = ""
    scopes: frozenset[str] = frozenset(SCOPES)
    max_active_plans: int | None = None
    max_submissions_per_minute: int | None = None

    @property
    def sees(self) -> str | None:
        """The owner whose plans are visible; None: everybody's."""
        return None if "admin" in self.scopes else self.owner


ANYBODY = Caller()


def caller_of(key: KeyRow) -> Caller:
    """The caller that came with a key."""
    return Caller(key.owner, key.id, key.scopes, key.max_active_plans, key.max_submissions_per_minute)


def check_urgency(caller: Caller, urgency: int) -> None:
    """Going before everybody else is for administrators."""
    if urgency > MOST_URGENT or "admin" in caller.scopes:
        return
    what = "urgency 0 goes before the plans of every other key and needs the scope admin"
    raise refused("not-allowed", what, "", "urgency 1 to 7; it orders the plans of one key",
                  "Send a greater urgency, or use a key with the scope admin.",
                  where="header Isthmus-Priority")  # fmt: skip


class Shares:
    """Something that one process has little of: so much altogether, and so much of it for one key."""

    def __init__(self, total: int, per_key: int) -> None:
        self.total = total
        self.per_key = per_key
        self._of_key: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, caller: Caller, amount: int = 1) -> bool:
        """Whether there is so much more for this caller; if so, it is taken."""
        key_id = caller.key_id
        with self._lock:
            if self._of_key.total() + amount > self.total:
                return False
            if key_id and self._of_key[key_id] + amount > self.per_key:
                return False
            self._of_key[key_id] += amount
            return True

    def give_back(self, caller: Caller, amount: int = 1) -> None:
        """Return what was taken."""
        with self._lock:
            self._of_key[caller.key_id] -= amount
            if not self._of_key[caller.key_id]:
                del self._of_key[caller.key_id]

    @contextmanager
    def place(self, caller: Caller) -> Iterator[bool]:
        """Whether there is room for one more, who stays until the end."""
        is_taken = self.take(caller)
        try:
            yield is_taken
        finally:
            if is_taken:
                self.give_back(caller)


@dataclass(frozen=True)
class Quotas:
    """The limits of one database, checked in the transaction that submits."""

    settings: Settings
    keys: KeyStore

    def admit(
        self, connection: sa.Connection, caller: Caller, num_plans: int = 1, *, urgency: int = USUAL_URGENCY
    ) -> int:
        """Raise Busy when the caller, or the service, has as much under way as it may.

        Answers how many queued plans of the caller's key go before a new one of this urgency.
        """
        # First, because it locks the row of the key: two submissions with one key are counted one after the other.
        if caller.key_id:
            self._check_rate(connection, caller)
            self._check_active(connection, caller, num_plans)
        num_queued, num_first = _queue(connection, caller, urgency)
        is_near = num_queued + num_plans + MOST_AT_ONCE > self.settings.max_queued_plans
        if is_near and connection.dialect.name == "postgresql":
            # Postgres lets several submissions count at once. Near the limit they count one after the other.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(QUEUE_LOCK)))
            num_queued, num_first = _queue(connection, caller, urgency)
        if num_queued + num_plans > self.settings.max_queued_plans:
            what = f"{num_queued} plans wait and {num_plans} would be added"
            limit = self.settings.max_queued_plans
            raise _busy("queue-full", what, "queued plans of this service", num_queued + num_plans, limit)
        return num_first

    def admit_direct(self, connection: sa.Connection, caller: Caller) -> None:
        """Count a direct computation among the submissions of a key; raise Busy when it is one too many."""
        if caller.key_id:
            self._check_rate(connection, caller)

    def _check_rate(self, connection: sa.Connection, caller: Caller) -> None:
        limit = caller.max_submissions_per_minute or self.settings.max_submissions_per_minute
        number = self.keys.count_submission(connection, caller.key_id)
        if number > limit:
            what, wait_s = f"submission {number} of this minute", self.keys.seconds_to_next_minute()
            raise _busy("rate-exceeded", what, "submissions per minute and key", number, limit, retry_after_s=wait_s)

    def _check_active(self, connection: sa.Connection, caller: Caller, num_plans: int) -> None:
        limit = caller.max_active_plans or self.settings.max_active_plans
        mine = PLANS.c.key_id == caller.key_id
        number = _count(connection, mine, PLANS.c.state.in_(("queued", "running")))
        if number + num_plans > limit:
            what = f"{number} plans of this key are queued or running and {num_plans} would be added"
            raise _busy("quota-exceeded", what, "queued and running plans per key", number + num_plans, limit)


# Both numbers from one pass over the index. Built once: SQLAlchemy takes as long for that as SQLite to run it.
_GOES_FIRST = sa.and_(PLANS.c.key_id == sa.bindparam("key"), PLANS.c.urgency <= sa.bindparam("urgency_given"))
_QUEUE = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.case((_GOES_FIRST, 1), else_=0)), 0)).where(
    PLANS.c.state == "queued"
)


def _queue(connection: sa.Connection, caller: Caller, urgency: int) -> tuple[int, int]:
    """Queued plans of everybody, and those of this caller's key that go before a new one."""
    total, first = connection.execute(_QUEUE, {"key": caller.key_id, "urgency_given": urgency}).one()
    return int(total), int(first)


def _count(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(PLANS).where(*conditions)).scalar_one())


def _busy(code: str, what: str, of_what: str, value: int, limit: int, *, retry_after_s: int = 10) -> Busy:
    fault = Fault(code=code, what=f"{what}, the limit is {limit}", allowed=f"at most {limit} {of_what}",
                  remedy="Send the request again after the time in Retry-After.", limit=limit, value=value)  # fmt: skip
    return Busy(fault, retry_after_s)
