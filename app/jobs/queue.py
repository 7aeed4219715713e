"""The durable queue as its users see it: names, and putting a plan on it inside the caller's transaction.

Owns the client side of DBOS. Never runs a plan; `worker` does.
"""

from __future__ import annotations

import os

import sqlalchemy as sa
from dbos import DBOSClient, EnqueueOptions

APPLICATION = "isthmus"
QUEUE = "plans"
WORKFLOW = "search_plan"
VERSION = "1"  # of the workflow's shape; one fixed value lets a new release take over the queue of the old one


def open_queue(engine: sa.Engine) -> DBOSClient:
    """A client of the queue in the database of `engine`; its tables are created when they are missing."""
    client = DBOSClient(system_database_engine=engine, application_name=APPLICATION)
    # The public DBOS.migrate opens the database by an engine of its own, which for SQLite has other locking rules.
    client._sys_db.run_migrations()  # noqa: SLF001
    return client


def enqueue_plan(client: DBOSClient, connection: sa.Connection, plan_id: str, *, again: bool = False) -> None:
    """Put a plan on the queue; it is there once the caller's transaction has been committed."""
    workflow_id = f"{plan_id}.{os.urandom(6).hex()}" if again else plan_id
    options = EnqueueOptions(workflow_name=WORKFLOW, queue_name=QUEUE, workflow_id=workflow_id, app_version=VERSION)
    client.enqueue_in_transaction(connection, options, plan_id)
