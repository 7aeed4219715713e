"""The tables of the service as the current program version has them, and the engine that reaches them."""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import event

from app.settings import InvalidSetting

METADATA = sa.MetaData()

# A server whose machine is gone never says so: without these a connection to it waits for hours.
POSTGRES_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

# The same the other way round: a program that is gone in the middle of a transaction holds its locks no longer.
POSTGRES_LEAST_PATIENCE = "SET idle_in_transaction_session_timeout = '15s'"

CLAIMS = 0x15733A5  # the number of our advisory lock; any that other programs of the database do not use

KEY_CHARACTERS = 300  # of an idempotency key with its owner, as stored; SQLite takes more, Postgres does not

PATIENCE_S = 30.0  # for the lock of an SQLite file: half of what a proxy waits for an answer, as a rule

MONITOR_S = 0.5  # the same where a monitor asks, whose own patience is often a second

WAL_ATTEMPTS, WAL_PAUSE_S = 500, 0.02  # as long as a program that starts beside may need, ten seconds

SCHEMA = sa.Table("isthmus_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True))

PLANS = sa.Table(
    "isthmus_plans",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("stop_reason", sa.String(32)),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sa.Column("request_digest", sa.String(80), nullable=False),
    sa.Column("idempotency_key", sa.String(KEY_CHARACTERS), unique=True),
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
    sa.Column("owner", sa.String(64), nullable=False, server_default="", index=True),
    sa.Column("key_id", sa.String(32), nullable=False, server_default=""),
    sa.Column("urgency", sa.Integer, nullable=False, server_default="3"),
    sa.Column("parent_id", sa.String(40)),
    sa.Column("study_id", sa.String(40), index=True),
    sa.Column("member", sa.Integer),
    sa.Column("headline", sa.LargeBinary),
    sa.Column("holder", sa.String(60)),
    sa.Column("lease", sa.Integer, nullable=False, server_default="0"),
    sa.Column("name", sa.String(120), nullable=False, server_default=""),
    sa.Column("labels", sa.Text, nullable=False, server_default=""),
    sa.Column("model", sa.String(120), nullable=False, server_default=""),
    sa.Column("cluster", sa.String(120), nullable=False, server_default=""),
    sa.Column("objective", sa.String(40), nullable=False, server_default=""),
    sa.Index("ix_isthmus_plans_turn", "state", "key_id", "urgency", "id"),
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

SEARCHES = sa.Table(
    "isthmus_searches",
    METADATA,
    sa.Column("plan_id", sa.String(40), primary_key=True),
    sa.Column("program", sa.String(64), nullable=False),
    sa.Column("outcome", sa.LargeBinary),
    sa.Column("state", sa.LargeBinary),
    sa.Column("kept_at", sa.Float, nullable=False, index=True),
)

WORKERS = sa.Table(
    "isthmus_workers",
    METADATA,
    sa.Column("id", sa.String(120), primary_key=True),
    sa.Column("seen_at", sa.Float, nullable=False),
    sa.Column("name", sa.String(120), nullable=False, server_default=""),
    sa.Column("beat", sa.Integer, nullable=False, server_default="0"),
)

KEYS = sa.Table(
    "isthmus_keys",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("secret_digest", sa.String(64), nullable=False),
    sa.Column("scopes", sa.String(64), nullable=False),
    sa.Column("max_active_plans", sa.Integer),
    sa.Column("max_submissions_per_minute", sa.Integer),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("revoked_at", sa.Float),
)

USAGE = sa.Table(
    "isthmus_usage",
    METADATA,
    sa.Column("key_id", sa.String(32), primary_key=True),
    sa.Column("minute", sa.Integer, nullable=False),
    sa.Column("num_submissions", sa.Integer, nullable=False),
)

STUDIES = sa.Table(
    "isthmus_studies",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("owner", sa.String(64), nullable=False, server_default="", index=True),
    sa.Column("idempotency_key", sa.String(330), unique=True),
    sa.Column("request_digest", sa.String(80), nullable=False),
    sa.Column("name", sa.String(120), nullable=False),
    sa.Column("members", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("labels", sa.Text, nullable=False, server_default=""),
)

CALIBRATIONS = sa.Table(
    "isthmus_calibrations",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("owner", sa.String(64), nullable=False, server_default="", index=True),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)

WEBHOOKS = sa.Table(
    "isthmus_webhooks",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("subject_id", sa.String(40), nullable=False, unique=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("secret", sa.String(100), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("num_attempts", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", sa.String(200)),
    sa.Column("ended_at", sa.Float),
    sa.Index("ix_isthmus_webhooks_next", "state", "next_at"),
)


def create_engine(database_url: str) -> sa.Engine:
    """An engine whose SQLite connections wait for each other instead of failing."""
    url = _usable(database_url)
    if url.get_backend_name() != "sqlite":
        engine = sa.create_engine(url, pool_pre_ping=True, pool_size=20, connect_args=dict(POSTGRES_PATIENCE))
        event.listen(engine, "connect", _prepare_postgres)
        return engine
    if url.database:
        _create_privately(Path(url.database))
    engine = sa.create_engine(url, pool_size=20, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "handle_error", _give_up_read_only)
    return engine


def _usable(database_url: str) -> sa.URL:
    """The parts of a URL for which there is a driver; InvalidSetting for any other, without what may be a password."""
    try:
        url = sa.make_url(database_url)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect().import_dbapi()
    except ValueError:
        why = "its port is no number"
    except (ImportError, sa.exc.ArgumentError) as error:
        why = str(error)
    else:
        return url
    raise InvalidSetting(
        f"no database has this URL, {why}: write sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME, "
        "for which the extra isthmus[postgres] has the driver"
    )


AnyQuery: TypeAlias = sa.Select[*tuple[Any, ...]]
Made = TypeVar("Made")
AnyRow: TypeAlias = sa.Row[*tuple[Any, ...]]


class Store:
    """What reads and writes rows of one database; the clock tells seconds since 1970."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    def _rows(self, query: AnyQuery) -> Sequence[AnyRow]:
        with self._engine.connect() as connection:
            return connection.execute(query).all()

    def _row(self, query: AnyQuery) -> AnyRow | None:
        with self._engine.connect() as connection:
            return connection.execute(query).first()

    def _one(self, kind: Callable[..., Made], query: AnyQuery) -> Made | None:
        """The first row of a query as a value of this kind, or None."""
        row = self._row(query)
        return None if row is None else kind(**row._asdict())

    def _all(self, kind: Callable[..., Made], query: AnyQuery) -> list[Made]:
        """The rows of a query as values of this kind."""
        return [kind(**row._asdict()) for row in self._rows(query)]

    def _value(self, query: AnyQuery) -> Any:
        with self._engine.connect() as connection:
            return connection.execute(query).scalar()


class KeyedStore(Store):
    """One whose rows may have an idempotency key."""

    table: ClassVar[sa.Table]

    def by_key(self, owner: str, key: str) -> tuple[str, str] | None:
        """Id and request digest of the row that came with an owner's idempotency key."""
        query = sa.select(self.table.c.id, self.table.c.request_digest)
        row = self._row(query.where(self.table.c.idempotency_key == scoped_key(owner, key)))
        return None if row is None else (row[0], row[1])


def scoped_key(owner: str, key: str | None) -> str | None:
    """An idempotency key as stored: two owners may choose the same one. What the column does not hold is digested.

    >>> scoped_key("team-a", "k1")
    'team-a:k1'
    """
    if key is None:
        return None
    whole = f"{owner}:{key}"
    return whole if len(whole) <= KEY_CHARACTERS else f"{owner}:sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def timed_id(prefix: str, now: float, num_bytes: int = 10) -> str:
    """An id that sorts by time among those of its prefix: 48 bits of milliseconds, 16 of their parts, then chance.

    `num_bytes` follow the milliseconds.

    >>> timed_id("plan_", 0.0015)[:21]
    'plan_0000000000018000'
    >>> timed_id("plan_", 1.8e9) < timed_id("plan_", 1.8e9 + 1e-6)
    True
    """
    return f"{prefix}{int(now * 2**16 * 1000):016x}{os.urandom(num_bytes - 2).hex()}"


_WRITERS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def writing(engine: sa.Engine, *, claims: bool = False, patience_s: float = PATIENCE_S) -> Iterator[sa.Connection]:
    """A transaction that writes; one that `claims` plans sees no other such transaction under way.

    SQLite has one writer at a time, whoever writes; the threads of this process wait for each other by a lock, because
    SQLite itself makes them sleep and look again. Both together wait for `patience_s` at most: where another program
    has the database locked, each thread would wait as long again after the one before it.
    """
    if engine.dialect.name == "sqlite":
        with _turn(engine, patience_s) as left_s, engine.begin() as connection:
            if _file_at(connection.info["path"]) != connection.info["file"]:
                raise _refused("the file was moved or removed")  # SQLite would go on, and nobody find it again
            connection.exec_driver_sql(f"PRAGMA busy_timeout={math.ceil(left_s * 1000)}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
        return
    with engine.begin() as connection:
        if claims:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CLAIMS)))
        yield connection


@contextmanager
def _turn(engine: sa.Engine, patience_s: float) -> Iterator[float]:
    """The lock of this process on one database, and how many seconds are left; as SQLite says it where none are."""
    lock, until = _WRITERS[str(engine.url)], time.monotonic() + patience_s
    if not lock.acquire(timeout=patience_s):
        raise _refused("database is locked")
    try:
        yield max(0.0, until - time.monotonic())
    finally:
        lock.release()


def _refused(words: str) -> sa.exc.OperationalError:
    """A transaction that SQLite, had it been asked, would have had to refuse."""
    return sa.exc.OperationalError("BEGIN IMMEDIATE", {}, sqlite3.OperationalError(words))


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file has this name; None: none, or no name."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_writable(engine: sa.Engine) -> None:
    """Raise what keeps this program from writing, and soon: a monitor asks."""
    with writing(engine, patience_s=MONITOR_S) as connection:
        connection.execute(sa.update(SCHEMA).values(version=SCHEMA.c.version))


def _create_privately(path: Path) -> None:
    """A new file for its owner alone: it holds what everybody has planned. SQLite gives its logs the same mode."""
    # Where the folder cannot be made or written to, SQLite says so in its own words.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare_postgres(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(POSTGRES_LEAST_PATIENCE)
    connection.commit()


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # IMMEDIATE makes writers queue up at BEGIN; a deferred one could deadlock when it upgrades its lock.
    connection.isolation_level = "IMMEDIATE"
    for pragma in (f"busy_timeout={PATIENCE_S * 1000:.0f}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    _use_write_ahead_log(connection)
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    record.info.update(path=path, file=_file_at(path))


def _give_up_read_only(context: sa.engine.ExceptionContext) -> None:
    """SQLite opens a file that it may only read without a word, and keeps to that when it may write again."""
    if "readonly database" in str(context.original_exception):
        context.is_disconnect = True


def _use_write_ahead_log(connection: Any) -> None:
    """Every program may be the first to switch a new file, which needs it alone and is not covered by the timeout."""
    for _ in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(WAL_PAUSE_S)
        else:
            return
    connection.execute("PRAGMA journal_mode=WAL")
