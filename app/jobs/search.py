"""One attempt at one plan: a child searches, its news is stored, and its end becomes an honest state."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa
from opentelemetry import trace

from app.jobs.child import Task
from app.jobs.children import Ended, Limits, plan_task, run_in_child
from app.jobs.program import program
from app.jobs.resuming import documents_of
from app.settings import Settings
from app.storage.outages import is_outage
from app.storage.plans import State, StopReason, kind_of
from app.storage.queue import Claim, PlanQueue
from app.telemetry import TRACER
from models.outcome import NotFound
from models.statements import bounds_time

LOG = logging.getLogger("isthmus.search")
EVENTS_PER_DOUBLING = 50.0  # a search of any length stores some hundreds of events, not one per tick


@dataclass(frozen=True)
class EndState:
    """The terminal state of a plan, as one attempt ended."""

    state: State
    reason: StopReason
    outcome: bytes | None = None
    fault: bytes | None = None


@dataclass
class _News:
    """Stores what a child reports, at most so often, and remembers its best plan and its latest state."""

    queue: PlanQueue
    claim: Claim
    interval_s: float
    max_state_bytes: int
    best: bytes | None = None
    unsaved: bytes | None = None
    started: float = field(default_factory=time.monotonic)
    stored_at: float = -1e9
    phase: str = ""
    held_back: bytes | None = None
    latest: bytes | None = None
    state: bytes | None = None

    def take(self, kind: str, text: bytes) -> None:
        """One message of the child."""
        if kind == "incumbent":
            self.best = self.unsaved = text
            self.flush()
        elif kind == "progress":
            self._progress(text)
        elif kind == "state" and len(text) <= self.max_state_bytes:
            self.state = text
            self.flush()

    def _progress(self, text: bytes) -> None:
        now = time.monotonic()
        phase = str(json.loads(text).get("phase", ""))
        interval_s = max(self.interval_s, (now - self.started) / EVENTS_PER_DOUBLING)
        self.held_back = self.latest = text
        if phase != self.phase:
            trace.get_current_span().add_event(phase)
        if phase != self.phase or now - self.stored_at >= interval_s:
            self.phase = phase
            self.flush()

    def flush(self) -> None:
        """Store what was held back: the latest progress, a plan, a state; they wait while the database is away."""
        try:
            if self.held_back is not None:
                self.queue.record(self.claim.plan_id, self.claim.lease, "progress", self.held_back)
                self.stored_at, self.held_back = time.monotonic(), None
            if self.unsaved is not None:
                is_question = kind_of(self.claim.plan_id) == "question"
                figures = b"{}" if is_question else headline_of(self.unsaved)
                self.queue.record(self.claim.plan_id, self.claim.lease, "incumbent", figures, outcome=self.unsaved)
                self.unsaved = None
            if self.state is not None:
                self.queue.keep(self.claim.plan_id, self.claim.lease, self.state, program())
                self.state = None
        except sa.exc.SQLAlchemyError as error:
            if not is_outage(error):
                raise
            LOG.warning(
                "news waits for the database", extra={"plan_id": self.claim.plan_id, "detail": str(error)[:200]}
            )


def search(queue: PlanQueue, settings: Settings, claim: Claim, *, leaving: Callable[[], bool]) -> EndState | None:
    """Search a plan that is held; None when it was left for another worker."""
    plan_id, number, request = claim.plan_id, claim.attempt, claim.request
    time_limit_s = float(json.loads(request)["options"]["time_limit_s"])
    is_question = kind_of(plan_id) == "question"
    news = _News(queue, claim, settings.progress_interval_s, settings.max_search_bytes, best=claim.best)
    asked = _Asked(queue, claim, leaving, settings.event_poll_s)
    if is_question:
        task = Task("ask", settings.solvers.ask, (request,), settings.child_memory_bytes)
    else:
        task = plan_task((request, *documents_of(queue.kept(plan_id), claim.best)), settings)
    with TRACER.start_as_current_span(
        "solve", attributes={"isthmus.plan_id": plan_id, "isthmus.attempt": number}
    ) as span:
        ended = run_in_child(
            task,
            Limits.of(time_limit_s, settings),
            on_message=news.take,
            stop_asked=asked,
            # The best so far is stored already; what a search would still say is seldom worth the wait.
            patience_s=lambda: settings.cancel_grace_s,
        )
        span.set_attribute("isthmus.ending", ended.ending)
    news.flush()
    LOG.info("attempt ended", extra={"plan_id": plan_id, "attempt": number, "ending": ended.ending})
    if asked.reason == "leaving":
        return None
    cancelled = asked.reason == "cancelled"
    if is_question:
        return end_state_of_question(ended, best=news.best, cancelled=cancelled)
    return end_state_of(ended, best=news.best, cancelled=cancelled, progress=news.latest)


@dataclass
class _Asked:
    """Whether the child should stop, and why; asks the database only so often."""

    queue: PlanQueue
    claim: Claim
    leaving: Callable[[], bool]
    interval_s: float
    reason: str = ""
    asked_at: float = -1e9

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self.reason and self.leaving():
            self.reason = "leaving"
        if not self.reason and now - self.asked_at >= self.interval_s:
            self.asked_at = now
            if not self._is_wanted():
                self.reason = "cancelled"
        return bool(self.reason)

    def _is_wanted(self) -> bool:
        try:
            return self.queue.is_wanted(self.claim.plan_id, self.claim.lease)
        except sa.exc.SQLAlchemyError as error:
            if not is_outage(error):
                raise
            return True


_REASONS: dict[str, StopReason] = {
    "memory": "memory",
    "crashed": "crashed",
    "killed": "killed",
    "timed_out": "time",
    "refused": "refused",
}


_STATES: dict[str, State] = {"planned": "succeeded", "infeasible": "infeasible", "not_found": "not_found"}


def end_state_of(ended: Ended, *, best: bytes | None, cancelled: bool, progress: bytes | None = None) -> EndState:
    """What a child's end means for its plan; `best` is the last plan that it reported, `progress` its last news.

    A plan that was reported as complete is the finished answer, however the process ended after it.

    >>> end_state_of(Ended("killed"), best=None, cancelled=True)
    EndState(state='cancelled', reason='cancelled', outcome=None, fault=None)
    """
    answered = ended.ending == "answered"
    outcome = _better(ended.answer, best) if answered else best
    document = {} if outcome is None else json.loads(outcome)
    if cancelled:
        kept = None if document.get("status") == "not_found" else outcome
        return EndState("cancelled", "cancelled", outcome=kept)
    if answered or document.get("complete"):
        return EndState(_STATES[document["status"]], "finished", outcome=outcome)
    if outcome is not None:
        return EndState("incomplete", _REASONS[ended.ending], outcome=outcome, fault=fault_of(ended))
    if ended.ending == "timed_out":
        return EndState("not_found", "time", outcome=_nothing_found(ended, progress), fault=fault_of(ended))
    return EndState("failed", _REASONS[ended.ending], fault=fault_of(ended))


def end_state_of_question(ended: Ended, *, best: bytes | None, cancelled: bool) -> EndState:
    """What a child's end means for its question; `best` is its answer as far as it was reported.

    >>> end_state_of_question(Ended("killed"), best=b"{}", cancelled=False).state
    'incomplete'
    """
    answer = ended.answer if ended.ending == "answered" else best
    if cancelled:
        return EndState("cancelled", "cancelled", outcome=answer)
    if ended.ending == "answered":
        return EndState("succeeded", "finished", outcome=answer)
    return EndState("failed" if answer is None else "incomplete", _REASONS[ended.ending], answer, fault_of(ended))


def _better(answer: bytes, best: bytes | None) -> bytes:
    """The answer, unless it says that nothing was found although a plan was reported."""
    return best if best is not None and json.loads(answer)["status"] == "not_found" else answer


def _nothing_found(ended: Ended, progress: bytes | None) -> bytes:
    """What a search that was killed at its limit had proven."""
    bound_s = 0.0 if progress is None else json.loads(progress).get("lower_bound_s") or 0.0
    detail = "the search was killed at its time limit before it had a plan"
    return NotFound(lower_bound_s=bound_s, detail=detail, elapsed_s=ended.elapsed_s).model_dump_json().encode()


def headline_of(planned: bytes) -> bytes:
    """The figures of a plan that fit into an event and a table; a bound that is none of time is not among them."""
    document = json.loads(planned)
    plan = document["plan"]
    metrics, proof = plan["metrics"], plan["proof"]
    figures = {
        "elapsed_s": document["elapsed_s"],
        "iteration_s": metrics["iteration_s"],
        "lower_bound_s": proof["lower_bound_s"] if bounds_time(proof["proven"]) else None,
        "relative_gap": proof["relative_gap"],
        "tokens_per_s": metrics["tokens_per_s"],
        "model_flops_utilisation": metrics["model_flops_utilisation"],
        "num_gpus": metrics["num_gpus"],
        "usd_per_million_tokens": metrics["usd_per_million_tokens"],
        "degrees": plan["configuration"]["degrees"],
        "crossing": plan["placement"]["crossing"],
    }
    return json.dumps(figures, separators=(",", ":")).encode()


def headline(outcome: bytes | None) -> bytes | None:
    """The figures of an outcome; None when it holds no plan."""
    if outcome is None or json.loads(outcome).get("status") != "planned":  # an answer to a question has no status
        return None
    return headline_of(outcome)


_ADVICE: dict[str, tuple[str, str, str]] = {
    "memory": ("solver-stopped", "The search needed more memory than a search may use.",
               "Narrow the search by constraints.allowed, or raise the memory of a search."),
    "time": ("solver-stopped", "The search did not end in time and was killed.",
             "Send the request again with a longer options.time_limit_s."),
    "killed": ("solver-failed",
               "The process of the search was killed from outside: by somebody, or by a system out of memory.",
               "Send the request again; if it happens again, look for what kills processes on the worker's machine."),
    "crashed": ("solver-failed", "The search ended by a defect of this program.",
                "Report the request and the plan id to whoever runs the service."),
    "refused": ("invalid-request", "The search refused the request.", "Change the value that the message names."),
    "attempts": ("solver-failed", "The search was given up: in each attempt its worker went silent or met a defect.",
                 "Report the request and the plan id to whoever runs the service."),
}  # fmt: skip


def fault_of(ended: Ended) -> bytes:
    """The fault of a child that did not answer, as JSON text."""
    reason = _REASONS[ended.ending]
    detail = json.loads(ended.detail) if ended.detail else {}
    if reason == "crashed":
        LOG.error("search crashed", extra={"detail": detail.get("traceback", "")})
    return fault_text(reason, detail if reason == "refused" else {})


def fault_text(reason: StopReason, detail: dict[str, str]) -> bytes:
    """The fault that a failed plan shows."""
    code, what, remedy = _ADVICE[reason]
    fault = {"code": code, "pointer": "", "what": what, "allowed": "", "remedy": remedy}
    fault.update({key: value for key, value in detail.items() if value})
    return json.dumps(fault).encode()
