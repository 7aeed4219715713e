"""The tables of the service and how they are created.

Owns the schema and its version. Never holds a query: those are in `plans`, `events` and `workers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

SCHEMA_VERSION = 1

METADATA = sa.MetaData()

SCHEMA = sa.Table(
    "isthmus_schema",
    METADATA,
    sa.Column("version", sa.Integer, primary_key=True),
)

PLANS = sa.Table(
    "isthmus_plans",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False, index=True),
    sa.Column("stop_reason", sa.String(32)),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sa.Column("request_digest", sa.String(80), nullable=False),
    sa.Column("idempotency_key", sa.String(300), unique=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("started_at", sa.Float),
    sa.Column("finished_at", sa.Float),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("worker_id", sa.String(120)),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("num_events", sa.Integer, nullable=False),
    sa.Column("progress", sa.LargeBinary),
    sa.Column("outcome", sa.LargeBinary),
    sa.Column("fault", sa.LargeBinary),
)

EVENTS = sa.Table(
    "isthmus_events",
    METADATA,
    sa.Column("plan_id", sa.String(40), primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

WORKERS = sa.Table(
    "isthmus_workers",
    METADATA,
    sa.Column("id", sa.String(120), primary_key=True),
    sa.Column("seen_at", sa.Float, nullable=False),
)


class IncompatibleDatabase(Exception):
    """The database was written by another version of the schema."""


def create_engine(database_url: str) -> sa.Engine:
    """An engine whose SQLite connections wait for each other instead of failing."""
    url = sa.make_url(database_url)
    if url.get_backend_name() != "sqlite":
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        return sa.create_engine(url, pool_pre_ping=True, pool_size=20)
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url, pool_size=20, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # IMMEDIATE makes writers queue up at BEGIN; a deferred one could deadlock when it upgrades its lock.
    connection.isolation_level = "IMMEDIATE"
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def create_tables(engine: sa.Engine) -> None:
    """Create what is missing; refuse a database of another schema version.

    >>> create_tables(create_engine("sqlite://"))
    """
    try:
        METADATA.create_all(engine)
    except (sa.exc.OperationalError, sa.exc.ProgrammingError, sa.exc.IntegrityError):
        # Another process created the same tables between the check and the statement.
        METADATA.create_all(engine)
    with engine.begin() as connection:
        version = connection.execute(sa.select(SCHEMA.c.version)).scalar()
        if version is None:
            connection.execute(sa.insert(SCHEMA).values(version=SCHEMA_VERSION))
        elif version != SCHEMA_VERSION:
            raise IncompatibleDatabase(
                f"the database has schema version {version}, this program needs {SCHEMA_VERSION}: "
                "use another database_url or the program version that wrote it"
            )
