"""The durable queue as its users see it: names, and putting a plan on it inside the caller's transaction.

Owns the client side of DBOS. Never runs a plan; `worker` does.
"""

from __future__ import annotations

import os

import sqlalchemy as sa
from dbos import DBOSClient, EnqueueOptions

from app.jobs.access import MOST_URGENT
from app.settings import Settings
from app.storage.plans import Lane

APPLICATION = "isthmus"
URGENT_QUEUE = "plans"  # goes before everything; it is also where releases without priorities queued all they had
QUEUE = "plans-by-key"
WORKFLOW = "search_plan"
NO_KEY = "nobody"  # the partition of callers without a key
VERSION = "1"  # of the workflow's shape; one fixed value lets a new release take over the queue of the old one


def open_queue(engine: sa.Engine) -> DBOSClient:
    """A client of the queue in the database of `engine`; its tables are created when they are missing."""
    client = DBOSClient(system_database_engine=engine, application_name=APPLICATION)
    # The public DBOS.migrate opens the database by an engine of its own, which for SQLite has other locking rules.
    client._sys_db.run_migrations()  # noqa: SLF001
    return client


def register_queues(client: DBOSClient, settings: Settings) -> None:
    """Declare both queues: one whose plans wait for nobody, and one with a partition, a fair share and a limit per key.

    The library takes the least number of a partition first, and the partitions in random order.
    """
    client.register_queue(
        URGENT_QUEUE,
        worker_concurrency=settings.num_urgent_solves,
        polling_interval_sec=settings.queue_poll_s,
        on_conflict="always_update",
    )
    client.register_queue(
        QUEUE,
        worker_concurrency=settings.num_concurrent_solves,
        partition_concurrency=settings.max_running_per_key,
        polling_interval_sec=settings.queue_poll_s,
        on_conflict="always_update",
    )


def enqueue_plan(
    client: DBOSClient, connection: sa.Connection, plan_id: str, lane: Lane, *, ticket: str | None = None
) -> None:
    """Put a plan on its queue; it is there once the caller's transaction has been committed."""
    workflow_id = ticket or plan_id
    options = EnqueueOptions(workflow_name=WORKFLOW, queue_name=QUEUE, workflow_id=workflow_id, app_version=VERSION)
    if lane.urgency == MOST_URGENT:
        options["queue_name"] = URGENT_QUEUE
    else:
        options["priority"] = lane.urgency
        options["queue_partition_key"] = lane.key_id or NO_KEY
    client.enqueue_in_transaction(connection, options, plan_id)


def enqueue_again(client: DBOSClient, connection: sa.Connection, plan_id: str, lane: Lane) -> str:
    """Put a plan on its queue by a new workflow and return that one's id, the plan's new ticket."""
    ticket = f"{plan_id}.{os.urandom(6).hex()}"
    enqueue_plan(client, connection, plan_id, lane, ticket=ticket)
    return ticket


def plan_of(workflow_id: str) -> str:
    """The plan that a workflow is about.

    >>> plan_of("plan_1.a0b1"), plan_of("plan_1")
    ('plan_1', 'plan_1')
    """
    return workflow_id.partition(".")[0]
