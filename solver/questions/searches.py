"""Searches that a question makes: changed requests, planned within what is left of the question's time.

One software profile is under them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from models.outcome import NotFound, Outcome, Planned
from models.plan import Plan
from models.question_parts import Change, QuestionBase, Witness
from models.request import PlanRequest
from solver.clock import Clock
from solver.context import stack_for
from solver.planner import plan
from solver.questions.changes import changed_document
from solver.search.warm_start import WarmStart
from solver.verify.judge import judge

Thing = TypeVar("Thing")
LEAST_S = 0.3  # a search of less would end before it has looked at anything
ANY_PLAN_SHARE = 0.5  # of what is left of a question's time, for any plan of its base where its share brought none


@dataclass(frozen=True)
class RunHooks:
    """When a question was asked, when it has to stop, and what counts as time."""

    clock: Clock
    cancelled: Callable[[], bool]
    started_s: float
    ends_s: float

    @classmethod
    def of(cls, question: QuestionBase, cancelled: Callable[[], bool], clock: Clock) -> RunHooks:
        """The hooks of a question that is asked now."""
        started_s = clock()
        return cls(clock, cancelled, started_s, started_s + question.options.time_limit_s)

    @property
    def elapsed_s(self) -> float:
        """Since the question was asked."""
        return max(self.clock() - self.started_s, 0.0)

    @property
    def left_s(self) -> float:
        """Until the question's time is over."""
        return self.ends_s - self.clock()

    def stopped(self) -> bool:
        """No further search begins."""
        return self.cancelled() or self.left_s < LEAST_S

    def is_late(self, until_s: float) -> bool:
        """Whether it is past a time on the clock, or the question is over."""
        return self.stopped() or self.clock() >= until_s

    def shares(self, things: Sequence[Thing]) -> Iterator[tuple[Thing, float]]:
        """Each thing with its part of the seconds left when its turn comes, all equal, until the question is over."""
        for number, thing in enumerate(things):
            if self.stopped():
                return
            yield thing, self.left_s / (len(things) - number)


@dataclass
class SearchRuns:
    """Makes and counts the searches of one question."""

    base: PlanRequest
    hooks: RunHooks
    num_searches: int = 0
    known: Planned | None = None

    @classmethod
    def of(cls, question: QuestionBase, hooks: RunHooks) -> SearchRuns:
        """Searches around a request, its changes made and its software profile settled once for all of them.

        A plan that the question brings is `known` where the judge accepts it for its request as that was stated.
        """
        base = with_profile(changed(question.asked, question.changes))
        plan_there = question.plan
        fits = plan_there is not None and not question.changes and plan_there.stack_profile == stack_for(base).name
        if plan_there is None or not fits or not is_plan_of(question.asked, plan_there):
            return cls(base, hooks)
        return cls(base, hooks, known=Planned(plan=plan_there, complete=True, elapsed_s=0.0))

    def for_time(self) -> None:
        """From now on the iteration time is to be least; a plan sought for something else is not known then."""
        if self.base.objective.kind != "iteration_time":
            self.known = None
        self.base = changed(self.base, (Change(pointer="/objective", value={"kind": "iteration_time"}),))

    def base_outcome(
        self, limit_s: float, *, first: bool = False, heard: Callable[[Planned], None] = lambda _: None
    ) -> Outcome:
        """The plan that is known of the request as it is, or what a search of it ends with.

        Everything else is measured against it: where there is no plan after `limit_s`, any plan is looked for with a
        part of what is left.
        """
        outcome = self.known or self.searched(self.base, limit_s, first=first, heard=heard)
        if isinstance(outcome, NotFound):
            longer = self.searched(self.base, ANY_PLAN_SHARE * self.hooks.left_s, first=True, heard=heard)
            is_better = not isinstance(longer, NotFound) or longer.lower_bound_s > outcome.lower_bound_s
            return longer if is_better else outcome
        return outcome

    def searched(
        self,
        request: PlanRequest,
        limit_s: float,
        *,
        first: bool = False,
        until_s: float = float("inf"),
        enough: Callable[[Planned], bool] = lambda _: False,
        begin: Plan | None = None,
        heard: Callable[[Planned], None] = lambda _: None,
    ) -> Outcome:
        """What a search of a request ends with.

        `first`: any plan will do; `enough`: a plan will do of which it is true; `until_s` on the clock it is stopped.
        It may `begin` with the plan of another request. Plans are `heard` of as they are found.
        """
        ends_s = min(until_s, self.hooks.ends_s)
        limit_s = limit_s if until_s < float("inf") else min(limit_s, self.hooks.left_s)
        if self.hooks.stopped():
            return NotFound(lower_bound_s=0.0, detail="no time was left", elapsed_s=0.0)
        self.num_searches += 1
        there_is_one: list[Planned] = []

        def take(found: Planned) -> None:
            there_is_one.append(found)
            heard(found)

        def over() -> bool:
            late = self.hooks.clock() >= ends_s
            does = bool(there_is_one) and (first or enough(there_is_one[-1]))
            return late or self.hooks.cancelled() or does

        outcome = plan(
            request.with_options(time_limit_s=limit_s),
            incumbent=take,
            cancelled=over,
            clock=self.hooks.clock,
            begin_with=WarmStart(begin),
        )
        return there_is_one[-1] if there_is_one and not isinstance(outcome, Planned) else outcome


def changed(request: PlanRequest, changes: Sequence[Change], where: str = "/changes") -> PlanRequest:
    """The request with changes made; itself without any. Raises InvalidRequest, or ValidationError of the result."""
    return PlanRequest.model_validate(changed_document(request, changes, where)) if changes else request


def is_plan_of(request: PlanRequest, found: Plan) -> bool:
    """Whether the judge accepts a plan for a request, whatever time the search had that found it."""
    limit_s = found.timelines[0].problem.options.time_limit_s
    return judge(request.with_options(time_limit_s=limit_s), found).accepted


def with_profile(request: PlanRequest) -> PlanRequest:
    """The request with the software profile that it names, or that is chosen for it, spelt out."""
    return request.with_options(stack_profile=stack_for(request))


def witness_of(plan_found: Plan) -> Witness:
    """A plan in short."""
    return Witness(
        iteration_s=plan_found.metrics.iteration_s,
        num_gpus=plan_found.metrics.num_gpus,
        crossing=plan_found.placement.crossing,
        configuration=plan_found.configuration,
        routes=plan_found.placement.routes,
    )
