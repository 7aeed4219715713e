"""What the routes of the service ask for: submit, wait, cancel, and small computations answered directly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import sqlalchemy as sa
from anyio import CapacityLimiter, fail_after
from anyio.to_thread import run_sync
from pydantic import BaseModel

from app.documents import canonical, check_limits, check_request_limits
from app.faults import Fault, Refused, from_reason, refused
from app.jobs.access import ANYBODY, USUAL_URGENCY, Busy, Caller, Quotas, Shares, check_urgency
from app.jobs.child import Task, load
from app.jobs.children import Ended, Limits, run_in_child
from app.jobs.response_cache import BRIEFLY_S, ResponseCache
from app.jobs.search import fault_of
from app.jobs.submission import Submitted, check_replayed, new_plan, submitted_once
from app.jobs.webhooks import check_webhook
from app.settings import Settings
from app.storage.calibrations import CALIBRATION_PREFIX, CalibrationStore
from app.storage.keys import KeyStore
from app.storage.migrations import create_tables
from app.storage.plans import PlanStore
from app.storage.queue_figures import QueueFigures
from app.storage.searches import KeptSearch
from app.storage.studies import StudyStore
from app.storage.tables import PATIENCE_S, create_engine, scoped_key, writing
from app.storage.webhooks import NewWebhook, WebhookStore
from app.storage.workers import WorkerStore
from models.catalogue import entry_names
from models.outcome import Reason
from models.plan import Plan
from models.request import PlanRequest
from models.schedule import PipelineProblem
from models.stack import StackProfile

# Submissions of one process under way at once. SQLite has one writer at a time; with a few at its lock the next one
# goes on while the event loop hears of the last, which doubles their rate (`python -m benchmarks.service`).
SQLITE_WRITERS = 4
POSTGRES_WRITERS = 8  # submissions of one process at once; each waits for the disk, which takes several together
# What to do where a direct computation was stopped; none but schedules have a time limit of their own.
SMALLER = "Send a smaller document, or the same again when the service has less to do."
DIRECT_LIMIT_S = 20.0  # validations and evaluations are arithmetic; this stops what is not
STARVED_S = 10.0  # past its limits for what has no answer yet; at a load of 7 a schedule of 0.2 s had none after 1.2 s

Stored = TypeVar("Stored")


@dataclass(frozen=True)
class Tag:
    """What a client calls a plan or a study, and where it wants to hear of its end; it changes nothing else."""

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    webhook: NewWebhook | None = None


class PlanService:
    """One open database, shared by all requests of a process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = create_engine(settings.database_url)
        create_tables(self.engine)
        self.plans = PlanStore(self.engine)
        self.queue_figures = QueueFigures(self.engine)
        self.questions = PlanStore(self.engine, kind="question")
        self.workers = WorkerStore(self.engine)
        self.keys = KeyStore(self.engine)
        self.studies = StudyStore(self.engine)
        self.webhooks = WebhookStore(self.engine)
        self.calibrations = CalibrationStore(self.engine)
        self.quotas = Quotas(settings, self.keys)
        self.waiting = Shares(settings.max_waiting_clients, settings.max_waiting_per_key)
        self.body_bytes = Shares(settings.max_body_bytes_at_once, settings.max_body_bytes_per_key)
        self.responses = ResponseCache()
        self.status_responses = ResponseCache(fresh_s=BRIEFLY_S)
        self.list_responses = ResponseCache(fresh_s=BRIEFLY_S)
        self.writers = CapacityLimiter(SQLITE_WRITERS if self.engine.dialect.name == "sqlite" else POSTGRES_WRITERS)
        self.closing = threading.Event()
        self._lint = load(settings.solvers.lint)
        self._keys_in_use: set[str] = set()
        self._keys_lock = threading.Lock()
        self.direct_places = Shares(settings.num_direct_solves, settings.max_direct_per_key)

    async def write(self, action: Callable[[], Stored]) -> Stored:
        """What an action that stores something answers; others wait in line here without a thread each, for so long.

        In the threads of those who read they would leave none to tell a monitor that nothing can be stored.
        """
        place = object()
        try:
            with fail_after(PATIENCE_S):
                await self.writers.acquire_on_behalf_of(place)
        except TimeoutError:
            raise sa.exc.TimeoutError("those before it store nothing") from None
        try:
            return await run_sync(action, limiter=CapacityLimiter(1))
        finally:
            self.writers.release_on_behalf_of(place)

    def forget(self, plan_id: str | None = None) -> None:
        """Let go of what is kept in memory of a plan, or of all plans, and of every list."""
        for kept in (self.responses, self.status_responses):
            if plan_id is None:
                kept.clear()
            else:
                kept.forget(plan_id)
        self.list_responses.clear()

    def close(self) -> None:
        """Let go of the database."""
        self.closing.set()
        self.engine.dispose()

    def submit(
        self,
        request: PlanRequest,
        key: str | None = None,
        *,
        caller: Caller = ANYBODY,
        urgency: int | None = None,
        parent_id: str | None = None,
        tag: Tag = Tag(),
        begins_with: KeptSearch | None = None,
    ) -> Submitted:
        """Queue a request, or find the plan that the same key already made; without an urgency it is the usual one."""
        urgency = USUAL_URGENCY if urgency is None else urgency
        check_urgency(caller, urgency)
        check_webhook(tag.webhook, self.settings)
        request = self.with_profile(request, caller)
        self.check(request)
        new = new_plan(request, caller, urgency, name=tag.name, labels=tag.labels, key=key)
        new = replace(new, parent_id=parent_id, webhook=tag.webhook, begins_with=begins_with)
        position = 0

        def admit(connection: sa.Connection) -> None:
            nonlocal position
            position = self.quotas.admit(connection, caller, urgency=urgency)

        def queue() -> Submitted:
            row = self.plans.insert(new, admit)
            return Submitted(row.id, is_new=True, row=row, queue_position=position)

        submitted = submitted_once(self.plans, new.owner, key, new.request_digest, queue)
        if not submitted.is_new:
            check_replayed(self.plans.get(submitted.plan_id, with_outcome=False), new)
        return submitted

    def check(self, request: PlanRequest) -> None:
        """Refuse what is too large, and what arithmetic alone shows to be impossible; no search could change that."""
        check_request_limits(request, self.settings)
        reasons: tuple[Reason, ...] = self._lint(request)
        if reasons:
            raise Refused([from_reason(reason) for reason in reasons])

    @contextmanager
    def holding_key(self, idempotency_key: str | None, owner: str = "") -> Iterator[None]:
        """While a request with a key is being answered, another one with the same key is refused."""
        key = scoped_key(owner, idempotency_key)
        if key is None:
            yield
            return
        with self._keys_lock:
            if key in self._keys_in_use:
                fault = Fault("idempotency-key-in-use", "another request with this Idempotency-Key is being answered "
                              "right now", allowed="one request at a time per key", remedy="Wait for the answer of "
                              "the first request, or send it again a little later.")  # fmt: skip
                raise Busy(fault, retry_after_s=1)
            self._keys_in_use.add(key)
        try:
            yield
        finally:
            with self._keys_lock:
                self._keys_in_use.discard(key)

    def validate(self, request: PlanRequest, caller: Caller = ANYBODY) -> bytes:
        """What arithmetic and the linter say of the request, as JSON text of a `RequestCheck`."""
        check_request_limits(request, self.settings)
        return self._directly(caller, self._task("validate", self.settings.solvers.validate_request, request))[0]

    def evaluate(self, request: PlanRequest, plan: Plan, caller: Caller = ANYBODY) -> tuple[bytes, bytes]:
        """The judge's verdict on a plan and its iteration time by replay, as JSON texts."""
        check_request_limits(request, self.settings)
        judge = self._task("evaluate", self.settings.solvers.judge, request, plan)
        verdict, time = self._directly(caller, judge, self._task("time", self.settings.solvers.replay, request, plan))
        return verdict, time

    def with_profile(self, request: PlanRequest, caller: Caller) -> PlanRequest:
        """The request with the profile of the calibration that it names by id; a name of nothing is refused."""
        name = request.options.stack_profile
        if not isinstance(name, str) or name in ("auto", *entry_names("stacks")):
            return request
        if not name.startswith(CALIBRATION_PREFIX):
            raise refused("unknown-name", f"no stack profile is called {name!r}", "/options/stack_profile",
                          f"auto, {', '.join(entry_names('stacks'))}, the id of a calibration, a whole profile",
                          "Correct the name.")  # fmt: skip
        row = self.calibrations.get(name, owner=caller.sees)
        if row is None:
            raise refused("unknown-name", f"there is no calibration {name!r}", "/options/stack_profile",
                          "the id of a calibration", "Use an id that GET /v1/calibrations lists.")  # fmt: skip
        profile = StackProfile.model_validate(json.loads(row.document)["profile"])
        return request.with_options(stack_profile=profile)

    def calibrate(self, order: bytes, caller: Caller = ANYBODY) -> bytes:
        """A profile fitted to measured rows, as JSON text."""
        task = self._task("compute", self.settings.solvers.calibrate, order)
        return self._directly(caller, task, limit_s=self.settings.calibration_limit_s)[0]

    def import_texts(self, order: bytes, caller: Caller = ANYBODY) -> bytes:
        """The cluster or the model that texts of other tools describe, as JSON text."""
        (answer,) = self._directly(caller, self._task("compute", self.settings.solvers.import_texts, order))
        if answer.startswith(b'{"faults"'):
            raise Refused([Fault(**fault) for fault in json.loads(answer)["faults"]])
        return answer

    def schedule(
        self, problem: PipelineProblem, caller: Caller = ANYBODY, *, stop_asked: Callable[[], bool] = lambda: False
    ) -> bytes:
        """The schedule of a pipeline, as JSON text."""
        limits, limit_s = self.settings, problem.options.time_limit_s
        check_limits(
            ("/num_microbatches", "operations", problem.num_operations, limits.max_pipeline_operations),
            ("/options/time_limit_s", "seconds", limit_s, limits.max_schedule_time_limit_s),
        )
        task = self._task("schedule", self.settings.solvers.schedule, problem)
        return self._directly(caller, task, limit_s=limit_s, stop_asked=stop_asked)[0]

    def _task(self, kind: str, function: str, *documents: BaseModel | bytes) -> Task:
        texts = tuple(one if isinstance(one, bytes) else canonical(one) for one in documents)
        return Task(kind, function, texts, self.settings.child_memory_bytes)

    def _directly(
        self,
        caller: Caller,
        *tasks: Task,
        limit_s: float = DIRECT_LIMIT_S,
        stop_asked: Callable[[], bool] = lambda: False,
    ) -> list[bytes]:
        """The answers of tasks that make one direct computation, which counts among the submissions of its key."""
        if caller.key_id:
            with writing(self.engine) as connection:
                self.quotas.admit_direct(connection, caller)
        with self.direct_places.place(caller) as there_is_room:
            if not there_is_room:
                raise _too_busy(self.direct_places)
            limits = replace(Limits.of(limit_s, self.settings), empty_grace_s=STARVED_S)
            return [_answer(run_in_child(task, limits, stop_asked=stop_asked)) for task in tasks]


def _too_busy(shares: Shares) -> Busy:
    fault = Fault(code="too-busy", what="as many direct computations run already as may",
                  allowed=f"at most {shares.total} at once, {shares.per_key} of one key",
                  remedy="Send the request again after the time in Retry-After.")  # fmt: skip
    return Busy(fault, retry_after_s=2)


def _answer(ended: Ended) -> bytes:
    if ended.ending == "answered":
        return ended.answer
    if ended.ending == "refused":
        raise Refused((Fault(**json.loads(ended.detail)),))
    if ended.best is not None:
        return ended.best
    fault = Fault(**json.loads(fault_of(ended)))
    if fault.code == "solver-stopped":
        fault = replace(fault, what=fault.what.replace("search", "computation"), remedy=SMALLER)
    raise Busy(fault, retry_after_s=5) if fault.code == "solver-stopped" else Refused((fault,))
