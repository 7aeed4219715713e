"""What keeps a database from answering: whether the same statement can succeed later, and what to do meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa


class Outage(NamedTuple):
    """What is wrong, and what whoever runs the service does about it."""

    what: str
    remedy: str


UNKNOWN = Outage("it does not answer", "Start it, or name another by ISTHMUS_DATABASE_URL or --database.")
FULL = Outage("its disk is full, or fails", "Make room on the disk of the file.")

# By words of SQLite's messages (sqlite3ErrStr in its main.c), the one thing that the errors of its driver always have.
OF_SQLITE: Sequence[tuple[str, Outage]] = (
    ("is locked", Outage("another program keeps it locked", "End the program that holds the file, or wait for it.")),
    ("disk is full", FULL),
    ("disk I/O error", FULL),
    ("readonly database", Outage("it can only be read", "Let this program write to the file and its folder.")),
    ("unable to open", Outage("its file cannot be opened", "Let this program write to the file and its folder.")),
    (
        "moved or removed",
        Outage("its file was moved or removed", "Put it back, or start the service on what is there."),
    ),
    ("malformed", Outage("its file is damaged", "Put a backup in its place while nothing runs.")),
    ("not a database", Outage("its file is none of SQLite", "Put a backup in its place, or name another file.")),
)


def outage_of(error: BaseException) -> Outage | None:
    """What is wrong with a database that did not answer, or could not write; None for any other error.

    >>> outage_of(sa.exc.OperationalError("select 1", {}, sqlite3.OperationalError("database or disk is full"))).what
    'its disk is full, or fails'
    >>> outage_of(sa.exc.IntegrityError("insert", {}, Exception("UNIQUE constraint failed")))
    """
    if not isinstance(error, sa.exc.SQLAlchemyError):
        return None
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.DatabaseError):
        found = (outage for words, outage in OF_SQLITE if words in str(cause))
        if (known := next(found, None)) is not None:
            return known
    if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError):
        return UNKNOWN
    return UNKNOWN if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated else None


def is_outage(error: BaseException) -> bool:
    """Whether the same statement can succeed later."""
    return outage_of(error) is not None
