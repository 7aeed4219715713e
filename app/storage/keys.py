"""API keys: who may do what, and how much of it. Only a digest of the secret is kept."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, get_args

import sqlalchemy as sa

from app.storage.tables import KEYS, USAGE, Store, writing

Scope = Literal["read", "submit", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_TOKEN = re.compile(r"isthmus_([0-9a-f]{16})_([0-9a-f]{64})")
_NOBODY = "0" * 64


@dataclass(frozen=True)
class KeyRow:
    """One key as stored; the secret itself is nowhere."""

    id: str
    owner: str
    scopes: frozenset[str]
    max_active_plans: int | None
    max_submissions_per_minute: int | None
    created_at: float
    revoked_at: float | None


@dataclass(frozen=True)
class NewKey:
    """What a key may do; limits that are None are those of the service."""

    owner: str
    scopes: frozenset[str]
    max_active_plans: int | None = None
    max_submissions_per_minute: int | None = None


def digest_of(secret: str) -> str:
    """What is stored of a secret; it has 256 random bits, so a plain digest cannot be searched for.

    >>> len(digest_of("00"))
    64
    """
    return hashlib.sha256(secret.encode()).hexdigest()


class KeyStore(Store):
    """The keys of one database."""

    def create(self, new: NewKey) -> tuple[KeyRow, str]:
        """A new key and its token, which is told this once."""
        key_id, secret = os.urandom(8).hex(), os.urandom(32).hex()
        values = {
            "id": key_id,
            "owner": new.owner,
            "max_active_plans": new.max_active_plans,
            "max_submissions_per_minute": new.max_submissions_per_minute,
            "created_at": self._clock(),
            "revoked_at": None,
        }
        with writing(self._engine) as connection:
            scopes = " ".join(sorted(new.scopes))
            connection.execute(sa.insert(KEYS).values(**values, scopes=scopes, secret_digest=digest_of(secret)))
        return _row({**values, "scopes": scopes}), f"isthmus_{key_id}_{secret}"

    def check(self, token: str) -> KeyRow | None:
        """The living key that a token is, or None; it takes as long whether the id exists or not."""
        found = _TOKEN.fullmatch(token)
        key_id, secret = found.groups() if found else ("", "")
        row = self._row(sa.select(KEYS).where(KEYS.c.id == key_id))
        stored = _NOBODY if row is None else str(row.secret_digest)
        is_right = hmac.compare_digest(stored, digest_of(secret))
        if row is None or not is_right or row.revoked_at is not None:
            return None
        return _row(row._asdict())

    def revoke(self, key_id: str) -> bool:
        """End a key now; false when there is no such living key."""
        change = sa.update(KEYS).where(KEYS.c.id == key_id, KEYS.c.revoked_at.is_(None))
        with writing(self._engine) as connection:
            return connection.execute(change.values(revoked_at=self._clock())).rowcount > 0

    def all(self) -> list[KeyRow]:
        """Every key, the revoked ones too, oldest first."""
        return [_row(row._asdict()) for row in self._rows(sa.select(KEYS).order_by(KEYS.c.created_at))]

    def any_living(self) -> bool:
        """Whether somebody could come in."""
        query = sa.select(KEYS.c.id).where(KEYS.c.revoked_at.is_(None)).limit(1)
        return self._row(query) is not None

    def count_submission(self, connection: sa.Connection, key_id: str) -> int:
        """Count one more submission of this minute and return how many there are; locks the key's row until the end."""
        minute = int(self._clock() // 60)
        count = (
            sa.update(USAGE)
            .where(USAGE.c.key_id == key_id)
            .values(
                minute=minute, num_submissions=sa.case((USAGE.c.minute == minute, USAGE.c.num_submissions + 1), else_=1)
            )
        )
        if connection.execute(count).rowcount == 0:
            # Another first submission of this key may write the row in between; it is counted after that one.
            with suppress(sa.exc.IntegrityError), connection.begin_nested():
                connection.execute(sa.insert(USAGE).values(key_id=key_id, minute=minute, num_submissions=0))
            connection.execute(count)
        query = sa.select(USAGE.c.num_submissions).where(USAGE.c.key_id == key_id)
        return int(connection.execute(query).scalar_one())

    def seconds_to_next_minute(self) -> int:
        """When the count of submissions starts again."""
        return 60 - int(self._clock() % 60)


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    """What of it is no scope.

    >>> unknown_scopes(["read", "root"])
    ['root']
    """
    return sorted(set(scopes) - set(SCOPES))


def _row(values: sa.RowMapping | dict[str, object]) -> KeyRow:
    kept = {name: value for name, value in values.items() if name != "secret_digest"}
    return KeyRow(**{**kept, "scopes": frozenset(str(values["scopes"]).split())})  # type: ignore[arg-type]
