"""One request under trial: what the planner says of it, every evaluation of its search, and counts."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
from pydantic import ValidationError

from models.outcome import Outcome, Planned, Progress
from models.plan import Plan, Proof, Verdict
from models.request import PlanRequest
from solver.configurations.enumerate import Space, enumerate_space
from solver.configurations.framework import framework_reasons, within_framework
from solver.context import Context
from solver.evaluation.evaluate import Evaluation
from solver.lint import lint
from solver.planner import plan
from solver.search.incumbent import Incumbent
from tests.laws.dice import Dice
from tests.laws.evaluations import Drawn, random_evaluations

Json = dict[str, Any]
MOST_CPU_S = 120.0  # of one law on one request, which usually takes one: what takes longer hangs
NUM_CONFIGURATIONS = 20  # of a request that random evaluations are made of


@dataclass
class Watched:
    """What a search did: values and times of all its evaluations, and what the judge said of those it submitted."""

    best: Incumbent | None = None
    evaluations: list[tuple[float, float]] = field(default_factory=list)
    verdicts: list[tuple[Evaluation, Verdict]] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Watched]:
    """Note every evaluation that a search weighs, and every one that it has judged."""
    seen, value_of, submit = Watched(), Incumbent.value_of, Incumbent.submit

    def weigh(self: Incumbent, found: Evaluation) -> float:
        value = value_of(self, found)
        seen.evaluations.append((value, found.iteration_s))
        return value

    def put(self: Incumbent, found: Evaluation, value: float, proof: Proof) -> Verdict:
        seen.best = self
        verdict = submit(self, found, value, proof)
        seen.verdicts.append((found, verdict))
        return verdict

    with patch.object(Incumbent, "value_of", weigh), patch.object(Incumbent, "submit", put):
        yield seen


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so many CPU seconds, where the main thread is in Python code again."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"no end after {seconds:g} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class Raised(Exception):
    """The planner raised something for a request, which is kept with it."""

    def __init__(self, document: Json, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.document, self.error = document, error


@dataclass
class Trial:
    """A request with everything that laws ask of it, each computed once."""

    document: Json
    seed: str
    counts: Counter[str] = field(default_factory=Counter)

    def dice(self, law: str) -> Dice:
        """Draws of one law: the same for this seed, whatever else was drawn and however the request was shrunk."""
        return Dice(f"{self.seed}/{law}")

    @cached_property
    def request(self) -> PlanRequest:
        """The request as the planner reads it."""
        return PlanRequest.model_validate(self.document)

    @cached_property
    def watched(self) -> tuple[Outcome, Watched]:
        """The outcome, and what the search did."""
        with watching() as seen:
            outcome = self.outcome_of(self.document, seen.progress)
        self.counts["evaluations"] += len(seen.evaluations)
        self.counts["plans judged"] += len(seen.verdicts)
        self.counts[outcome.status] += 1
        if isinstance(outcome, Planned):
            self.counts["optimal"] += outcome.plan.proof.status == "optimal"
        return outcome, seen

    @property
    def outcome(self) -> Outcome:
        """What the planner says."""
        return self.watched[0]

    @property
    def plan(self) -> Plan | None:
        """The plan, where there is one."""
        return self.outcome.plan if isinstance(self.outcome, Planned) else None

    def outcome_of(self, document: Json, progress: list[Progress] | None = None) -> Outcome:
        """What the planner says of another request, in counted work unless it asks for wall-clock time."""
        self.counts["plans asked for"] += 1
        request = PlanRequest.model_validate(document)
        clock = (lambda: 0.0) if request.options.reproducible else time.process_time
        tell = (lambda _: None) if progress is None else progress.append
        try:
            return plan(request, clock=clock, progress=tell)
        except Exception as error:
            raise Raised(document, error) from error

    @cached_property
    def is_refused(self) -> bool:
        """Whether arithmetic alone shows that there is no plan."""
        return bool(lint(self.request) or framework_reasons(self.request))

    @cached_property
    def context(self) -> Context:
        """What the search derives from the request."""
        request = within_framework(self.request)
        return Context.of(request)

    @cached_property
    def space(self) -> Space:
        """All configurations; only where the request is not refused."""
        return enumerate_space(self.context.request)

    @cached_property
    def drawn(self) -> list[Drawn]:
        """Random evaluations of random configurations."""
        if self.is_refused or not len(self.space):
            return []
        random = np.random.default_rng(self.dice("drafts").whole(0, 2**31))
        found = list(random_evaluations(self.context, self.space, random, NUM_CONFIGURATIONS))
        self.counts["evaluations"] += len(found)
        return found


def is_valid(document: Json) -> bool:
    """Whether the service would take the document."""
    try:
        PlanRequest.model_validate(document)
    except (ValidationError, ValueError):
        return False
    return True
