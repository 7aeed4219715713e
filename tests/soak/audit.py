"""What the database says after a soak: every promise kept once, every end honest, nothing left over.

Owns the rules. Reads the tables directly, so that a wrong answer of the service cannot hide a wrong row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from app.jobs.queue import open_queue
from app.storage.plans import PlanRow, PlanStore
from app.storage.tables import create_engine
from tests.soak.load import Promise
from tests.unit.app import fake_solver

OWN_ENDS: dict[int, set[tuple[str, str]]] = {
    fake_solver.FINDS: {("succeeded", "finished")},
    fake_solver.TAKES_ITS_TIME: {("succeeded", "finished")},
    fake_solver.INFEASIBLE: {("infeasible", "finished")},
    fake_solver.NOT_FOUND: {("not_found", "finished")},
    fake_solver.MEMORY_BOMB: {("incomplete", "memory"), ("incomplete", "time")},  # whichever limit it meets first
    fake_solver.CRASHES: {("incomplete", "crashed")},
    fake_solver.HALF_MESSAGE: {("incomplete", "killed")},
    fake_solver.REFUSES: {("failed", "refused")},
    fake_solver.IGNORES_STOP: {("incomplete", "time")},
    fake_solver.KILLS_WORKER: {("incomplete", "attempts"), ("failed", "attempts"), ("succeeded", "finished")},
}


@dataclass(frozen=True)
class Audit:
    """What was found, by kind of fault; empty lists are good."""

    lost: list[str]
    doubled: list[str]
    stuck: list[str]
    dishonest: list[str]
    ends: Counter[str]
    max_attempt: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.stuck or self.dishonest)


def stuck_plans(database_url: str) -> list[str]:
    """Plans that have not ended, with what the queue knows of them."""
    engine = create_engine(database_url)
    client = open_queue(engine)
    try:
        open_plans = [row for row in _rows(PlanStore(engine)) if not row.is_terminal]
        return [f"{row.id} {row.state}, attempt {row.attempt}: {_queued(client, row)}" for row in open_plans]
    finally:
        client.destroy()
        engine.dispose()


def _queued(client: object, row: PlanRow) -> list[tuple[str, str | None]]:
    found = client.list_workflows(workflow_id_prefix=row.id, load_input=False)  # type: ignore[attr-defined]
    return [(one.status, one.executor_id) for one in found]


def audit(database_url: str, promises: Sequence[Promise], *, num_child_kills: int, max_attempts: int) -> Audit:
    """Compare what was promised with what there is."""
    stuck = stuck_plans(database_url)
    engine = create_engine(database_url)
    store = PlanStore(engine)
    rows = {row.id: row for row in _rows(store)}
    promised = {one.plan_id: one for one in promises}
    dishonest: list[str] = []
    doubled = [f"{plan_id}: nobody asked for it" for plan_id in rows.keys() - promised.keys()]
    doubled += [f"{key}: {number} plans" for key, number in Counter(one.key for one in promises).items() if number > 1]
    for plan_id, row in rows.items():
        events = store.events(plan_id, after=0, limit=1_000_000)
        numbers, kinds = [event[0] for event in events], [event[1] for event in events]
        if numbers != list(range(1, row.num_events + 1)):
            dishonest.append(f"{plan_id}: events {numbers}")
        if kinds.count("done") > 1:
            doubled.append(f"{plan_id}: ended {kinds.count('done')} times")
        if row.is_terminal and kinds[-1] != "done":
            dishonest.append(f"{plan_id}: its last event is {kinds[-1]}")
        if row.is_terminal and plan_id in promised:
            dishonest += _dishonesty(promised[plan_id], row, max_attempts)
    killed = [row.id for row in rows.values() if row.stop_reason == "killed" and plan_id in promised
              and promised[row.id].kind != fake_solver.HALF_MESSAGE]  # fmt: skip
    if len(killed) > num_child_kills:
        dishonest.append(f"{len(killed)} plans say that their search was killed, {num_child_kills} were")
    engine.dispose()
    ends = Counter(f"{row.state} ({row.stop_reason})" for row in rows.values())
    most = max((row.attempt for row in rows.values()), default=0)
    return Audit(sorted(promised.keys() - rows.keys()), doubled, stuck, dishonest, ends, most)


def _dishonesty(promise: Promise, row: PlanRow, max_attempts: int) -> list[str]:
    end = (row.state, str(row.stop_reason))
    explained = end in OWN_ENDS[promise.kind]
    explained |= end[1] == "killed"
    explained |= end == ("cancelled", "cancelled") and promise.cancelled
    explained |= end[1] == "attempts" and row.attempt > max_attempts
    faults = [] if explained else [f"{row.id}: kind {promise.kind} ended {end}, attempt {row.attempt}"]
    outcome = None if row.outcome is None else json.loads(row.outcome)
    if row.state == "succeeded" and outcome is None:
        faults.append(f"{row.id}: succeeded with nothing")
    if row.state == "incomplete" and (outcome is None or outcome.get("complete") is not False):
        faults.append(f"{row.id}: incomplete, and its plan does not say so")
    if row.state == "failed" and outcome is not None:
        faults.append(f"{row.id}: failed, and shows a plan")
    return faults


def _rows(store: PlanStore) -> list[PlanRow]:
    rows: list[PlanRow] = []
    while page := store.page(limit=500, before=rows[-1].id if rows else None, state=None):
        rows += [row for row in (store.get(one.id) for one in page) if row is not None]
    return rows


def num_sessions(database_url: str) -> int:
    """Rows of the queue that are still open."""
    engine = create_engine(database_url)
    client = open_queue(engine)
    try:
        return len(client.list_workflows(status=["ENQUEUED", "PENDING"], load_input=False, load_output=False))
    except sa.exc.SQLAlchemyError:
        return -1
    finally:
        client.destroy()
        engine.dispose()
