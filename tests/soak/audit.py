"""What the database says after a soak: every promise kept once, every end with its true reason, nothing left over.

It reads the tables directly, so that a wrong answer of the service cannot hide a wrong row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.storage.plans import PlanRow, PlanStore
from app.storage.tables import PLANS, create_engine
from tests.soak.load import Promise
from tests.unit.app import fake_solver

OWN_ENDS: dict[int, set[tuple[str, str]]] = {
    fake_solver.FINDS: {("succeeded", "finished")},
    fake_solver.TAKES_ITS_TIME: {("succeeded", "finished")},
    fake_solver.INFEASIBLE: {("infeasible", "finished")},
    fake_solver.NOT_FOUND: {("not_found", "finished")},
    fake_solver.MEMORY_BOMB: {("incomplete", "memory")},
    fake_solver.CRASHES: {("incomplete", "crashed")},
    fake_solver.HALF_MESSAGE: {("incomplete", "killed")},
    fake_solver.REFUSES: {("failed", "refused")},
    fake_solver.IGNORES_STOP: {("incomplete", "time")},
    fake_solver.KILLS_WORKER: {("incomplete", "attempts"), ("failed", "attempts"), ("succeeded", "finished")},
}


# Why a plan waits again, where that counts as an attempt.
LOSSES = {
    "its worker went silent",
    "its worker was started anew",
    "its worker left it behind",
    "its worker met a defect",
}

Event = tuple[int, str, float, dict[str, Any]]


@dataclass(frozen=True)
class Audit:
    """What was found, by kind of fault; empty lists are good."""

    lost: list[str]
    doubled: list[str]
    stuck: list[str]
    wrong_reasons: list[str]
    dishonest: list[str]
    ends: Counter[str]
    max_attempt: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.stuck or self.wrong_reasons or self.dishonest)


def stuck_plans(database_url: str) -> list[str]:
    """Plans that have not ended, with what the queue knows of them."""
    columns = [PLANS.c[name] for name in ("id", "state", "attempt", "lease", "holder", "worker_id", "cancel_requested")]
    engine = create_engine(database_url)
    query = sa.select(*columns).where(PLANS.c.state.in_(("queued", "running")))
    with engine.connect() as connection:
        found = [str(dict(row)) for row in connection.execute(query).mappings()]
    engine.dispose()
    return found


def num_held(database_url: str) -> int:
    """Plans that somebody is still said to hold."""
    engine = create_engine(database_url)
    query = sa.select(sa.func.count()).select_from(PLANS).where(PLANS.c.holder.is_not(None))
    with engine.connect() as connection:
        found = int(connection.execute(query).scalar_one())
    engine.dispose()
    return found


def audit(
    database_url: str,
    promises: Sequence[Promise],
    *,
    killed: Collection[int],
    settings: Mapping[str, Any],
    clocks_jumped: bool,
) -> Audit:
    """Compare what was promised with what there is; `killed` are the processes of searches that were killed.

    Where clocks jumped, the length of a search cannot be told from when it began and ended.
    """
    stuck = stuck_plans(database_url)
    engine = create_engine(database_url)
    store = PlanStore(engine)
    rows = {row.id: row for row in _rows(store)}
    promised = {one.plan_id: one for one in promises}
    reasons = Reasons(killed, settings, clocks_jumped)
    dishonest: list[str] = []
    wrong: list[str] = []
    doubled = [f"{plan_id}: nobody asked for it" for plan_id in rows.keys() - promised.keys()]
    doubled += [f"{key}: {number} plans" for key, number in Counter(one.key for one in promises).items() if number > 1]
    for plan_id, row in rows.items():
        events = [(*one[:3], json.loads(one[3])) for one in store.events(plan_id, after=0, limit=1_000_000)]
        kinds = [event[1] for event in events]
        if kinds.count("done") > 1:
            doubled.append(f"{plan_id}: ended {kinds.count('done')} times")
        dishonest += [f"{plan_id}: {fault}" for fault in _dishonesty(row, events)]
        if row.is_terminal and plan_id in promised:
            wrong += [f"{plan_id}: {fault}" for fault in reasons.wrong(promised[plan_id], row, events)]
    wrong += reasons.too_many()
    engine.dispose()
    ends = Counter(f"{row.state} ({row.stop_reason})" for row in rows.values())
    most = max((row.attempt for row in rows.values()), default=0)
    return Audit(sorted(promised.keys() - rows.keys()), doubled, stuck, wrong, dishonest, ends, most)


class Reasons:
    """What really happened, to hold beside what plans say."""

    def __init__(self, killed: Collection[int], settings: Mapping[str, Any], clocks_jumped: bool) -> None:
        self._killed = set(killed)
        self._settings = settings
        self._clocks_jumped = clocks_jumped
        self._seen: set[int] = set()
        self._nameless: list[str] = []

    def wrong(self, promise: Promise, row: PlanRow, events: Sequence[Event]) -> Iterator[str]:
        """What a plan says of its end and is not so."""
        end = (row.state, str(row.stop_reason))
        last = max((number for number, _, _, data in events if data.get("state") == "running"), default=0)
        named = {number: int(data["message"].split()[1].rstrip(",")) for number, kind, _, data in events
                 if kind == "progress" and str(data.get("message", "")).startswith("process ")}  # fmt: skip
        self._seen |= set(named.values())
        processes = sorted({process for number, process in named.items() if number > last})
        if end not in OWN_ENDS[promise.kind] and not self._happened(end, promise, row, processes):
            yield f"kind {promise.kind} ended {end}, attempt {row.attempt}, processes {processes}"
        losses = [data for _, kind, _, data in events if kind == "state" and data.get("reason") in LOSSES]
        begun = sum(kind == "state" and data["state"] == "running" for _, kind, _, data in events)
        if row.attempt != len(losses) + (1 if begun and row.attempt > len(losses) else 0):
            yield f"attempt {row.attempt} after {len(losses)} losses: {[one['reason'] for one in losses]}"

    def _happened(self, end: tuple[str, str], promise: Promise, row: PlanRow, processes: Sequence[int]) -> bool:
        most_s = promise.time_limit_s + self._settings["soft_grace_s"]
        if end[1] == "killed" and not processes:
            self._nameless.append(row.id)
        truths: dict[str, bool] = {
            "killed": set(processes) <= self._killed,
            "cancelled": promise.cancelled,
            "attempts": row.attempt > self._settings["max_attempts"],
            "time": self._clocks_jumped or row.elapsed_s(0.0) >= most_s,
        }
        return truths.get(end[1], False)

    def too_many(self) -> list[str]:
        """Searches that say they were killed before they said who they were; so many must have been."""
        unseen = self._killed - self._seen
        return [f"{self._nameless}: of {len(unseen)} processes"] if len(self._nameless) > len(unseen) else []


def _dishonesty(row: PlanRow, events: Sequence[Event]) -> Iterator[str]:
    numbers, kinds = [event[0] for event in events], [event[1] for event in events]
    if numbers != list(range(1, row.num_events + 1)):
        yield f"events {numbers}"
    if not row.is_terminal:
        return
    if kinds[-1] != "done":
        yield f"its last event is {kinds[-1]}"
    outcome = None if row.outcome is None else json.loads(row.outcome)
    if row.state == "succeeded" and outcome is None:
        yield "succeeded with nothing"
    if row.state == "incomplete" and (outcome is None or outcome.get("complete") is not False):
        yield "incomplete, and its plan does not say so"
    if row.state == "failed" and outcome is not None:
        yield "failed, and shows a plan"


def _rows(store: PlanStore) -> list[PlanRow]:
    rows: list[PlanRow] = []
    while page := store.page(limit=500, before=rows[-1].id if rows else None):
        rows += [row for row in (store.get(one.id) for one in page) if row is not None]
    return rows
