"""Brings a database to the current shape: new ones are created whole, older ones changed step by step, forward only.

No step removes data; a database newer than this program is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

import sqlalchemy as sa

from app.storage.holds import done_event
from app.storage.tables import EVENTS, METADATA, PLANS, SCHEMA, STUDIES

SCHEMA_VERSION = 9

# Statements that SQLite and Postgres both understand, by the version they lead to. Whole tables that a version adds
# need no statement: they are created after the last step.
STEPS: Mapping[int, tuple[str, ...]] = {
    2: (
        "ALTER TABLE isthmus_plans ADD COLUMN owner VARCHAR(64) DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_plans ADD COLUMN key_id VARCHAR(32) DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_plans ADD COLUMN urgency INTEGER DEFAULT 3 NOT NULL",
        "ALTER TABLE isthmus_plans ADD COLUMN parent_id VARCHAR(40)",
        "ALTER TABLE isthmus_plans ADD COLUMN study_id VARCHAR(40)",
        "ALTER TABLE isthmus_plans ADD COLUMN member INTEGER",
        "ALTER TABLE isthmus_plans ADD COLUMN headline BYTEA",
        "CREATE INDEX ix_isthmus_plans_owner ON isthmus_plans (owner)",
        "CREATE INDEX ix_isthmus_plans_study_id ON isthmus_plans (study_id)",
        "CREATE INDEX ix_isthmus_plans_key_state ON isthmus_plans (key_id, state)",
        # Keys of idempotency belong to an owner from here on; what exists belongs to nobody.
        "UPDATE isthmus_plans SET idempotency_key = ':' || idempotency_key WHERE idempotency_key IS NOT NULL",
    ),
    # Null: any workflow of the plan may run it, as it was before.
    3: ("ALTER TABLE isthmus_plans ADD COLUMN ticket VARCHAR(60)",),
    4: (),
    # The queue is these rows alone from here on. What older programs needed to begin a plan is gone, so that one which
    # still runs begins nothing more; what such programs ran waits again, and their late writes find no running plan.
    5: (
        "ALTER TABLE isthmus_plans RENAME COLUMN ticket TO holder",
        "ALTER TABLE isthmus_plans ADD COLUMN lease INTEGER DEFAULT 0 NOT NULL",
        "UPDATE isthmus_plans SET holder = NULL, lease = attempt",
        "UPDATE isthmus_plans SET state = 'queued', revision = revision + 1 WHERE state = 'running'",
        "ALTER TABLE isthmus_workers ADD COLUMN name VARCHAR(120) DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_workers ADD COLUMN beat INTEGER DEFAULT 0 NOT NULL",
        "DELETE FROM isthmus_workers",
        "DROP INDEX ix_isthmus_plans_state",
        "DROP INDEX ix_isthmus_plans_key_state",
        "CREATE INDEX ix_isthmus_plans_turn ON isthmus_plans (state, key_id, urgency, id)",
    ),
    6: (
        "ALTER TABLE isthmus_plans ADD COLUMN name VARCHAR(120) DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_plans ADD COLUMN labels TEXT DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_plans ADD COLUMN model VARCHAR(120) DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_studies ADD COLUMN labels TEXT DEFAULT '' NOT NULL",
    ),
    7: (),
    8: (
        "ALTER TABLE isthmus_plans ADD COLUMN cluster VARCHAR(120) DEFAULT '' NOT NULL",
        "ALTER TABLE isthmus_plans ADD COLUMN objective VARCHAR(40) DEFAULT '' NOT NULL",
    ),
    9: (),
}


class IncompatibleDatabase(Exception):
    """The database was written by a newer version of the schema."""


def create_tables(engine: sa.Engine) -> None:
    """Create or migrate, so that the database has the current shape.

    >>> from app.storage.tables import create_engine
    >>> create_tables(create_engine("sqlite://"))
    """
    if sa.inspect(engine).has_table(SCHEMA.name) and sa.inspect(engine).has_table(PLANS.name):
        _migrate(engine)
    _create_missing(engine)
    # Another process may have written the same row in between.
    with suppress(sa.exc.IntegrityError), engine.connect() as connection:
        if connection.execute(sa.select(SCHEMA.c.version)).scalar() is None:
            connection.execute(sa.insert(SCHEMA).values(version=SCHEMA_VERSION))
            connection.commit()


def _create_missing(engine: sa.Engine) -> None:
    """Every table that is not there. Programs that start together may each create some of them.

    A statement fails where another program was faster between look and statement: once per table at most.
    """
    for _ in METADATA.sorted_tables:
        try:
            return METADATA.create_all(engine)
        except sa.exc.DBAPIError as error:
            if "already exists" not in str(error):
                raise
    return METADATA.create_all(engine)


def _migrate(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        if connection.execute(sa.select(SCHEMA.c.version)).scalar() == SCHEMA_VERSION:
            return  # without a write: a full disk does not keep a service from starting
    with engine.begin() as connection:
        # A statement that writes takes the lock: a second process that migrates waits here and finds the work done.
        connection.execute(sa.update(SCHEMA).values(version=SCHEMA.c.version))
        found = connection.execute(sa.select(SCHEMA.c.version)).scalar()
        version = SCHEMA_VERSION if found is None else int(found)
        if version > SCHEMA_VERSION:
            raise IncompatibleDatabase(
                f"the database has schema version {version}, this program knows up to {SCHEMA_VERSION}: "
                "use another database_url or the program version that wrote it"
            )
        binary = "BYTEA" if engine.dialect.name == "postgresql" else "BLOB"
        has_studies = sa.inspect(connection).has_table(STUDIES.name)
        for step in range(version + 1, SCHEMA_VERSION + 1):
            for statement in STEPS[step]:
                if has_studies or STUDIES.name not in statement:
                    connection.execute(sa.text(statement.replace(" BYTEA", f" {binary}")))
            if step == 4:
                _name_endings(connection)
        connection.execute(sa.update(SCHEMA).values(version=SCHEMA_VERSION))


def _name_endings(connection: sa.Connection) -> None:
    """Up to version 3 a search that ended without a plan had succeeded; it gets the state of its outcome."""
    without_figures = sa.and_(PLANS.c.state == "succeeded", PLANS.c.headline.is_(None))
    for plan_id in connection.execute(sa.select(PLANS.c.id).where(without_figures)).scalars().all():
        outcome = connection.execute(sa.select(PLANS.c.outcome).where(PLANS.c.id == plan_id)).scalar_one()
        status = json.loads(outcome or b"{}").get("status")
        if status not in ("infeasible", "not_found"):
            continue
        changed = sa.update(PLANS).where(PLANS.c.id == plan_id).values(state=status, revision=PLANS.c.revision + 1)
        connection.execute(changed)
        done = sa.and_(EVENTS.c.plan_id == plan_id, EVENTS.c.kind == "done")
        connection.execute(sa.update(EVENTS).where(done).values(data=done_event(status, "finished")))
