"""Parts of a search's work that any process can do, and what they bring back.

`choice.py` and `branch_and_bound.py` decide what is worth doing, `acceptance.py` judges what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from models.plan import Configuration
from models.request import PlanRequest
from models.stack import StackProfile
from solver.baselines.policies import POLICIES
from solver.baselines.run import BaselineResult, Effort, try_policy
from solver.bounds.relaxation import refined_bound_s
from solver.clock import (
    WORK_PER_EVALUATION_S,
    WORK_PER_PLACED_RANK_S,
    WORK_PER_PLACING_S,
    Clock,
    charge,
    charge_refined_bound,
)
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.evaluation.by_type import best_partitioned, memory_first_placements, typed_placements
from solver.evaluation.candidate import Candidate, space_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.improve import improve, improved_schedules
from solver.evaluation.places import CLOSED, Pattern, placements
from solver.evaluation.reordering import reordered
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.incumbent import Incumbent

PATTERNS: tuple[Pattern, ...] = tuple(CLOSED)


@dataclass(frozen=True)
class AlikeConfigurations:
    """Configurations to be bounded together, their places in the frontier, and how far their bound matters.

    They differ in expert parallelism and sharding alone. `quick`: without the pipelines of partitions, later they have
    those. `effort`: how many times as many pipelines as usual.
    """

    indices: tuple[int, ...]
    configurations: tuple[Configuration, ...]
    target_bound_s: float
    quick: bool = False
    effort: int = 1


@dataclass(frozen=True)
class TaskContext:
    """What every task needs: the request with all that is derived from it, schedulers with the end of the search, and
    the incumbent, which in another process remains empty: there a task knows only what it was told.
    """

    context: Context
    goal: Goal
    schedulers: Schedulers
    best: Incumbent

    @property
    def clock(self) -> Clock:
        """The clock of the search."""
        return self.schedulers.clock

    def cutoff_s(self, configuration: Configuration, cutoff: float) -> float:
        """Seconds from which on a plan of a configuration is not below cutoff and incumbent's value."""
        size = float(self.goal.sizes(self.context, space_of(configuration))[0])
        return self.goal.seconds(min(cutoff, self.best.cutoff), size)

    def evaluated(self, candidate: Candidate, cutoff_s: float) -> Iterator[Evaluation]:
        """A candidate with quick schedules; none where it does not fit or a bound shows that it takes so long."""
        placed_ranks = len(candidate.routes) * candidate.configuration.degrees.pp
        charge(self.clock, WORK_PER_EVALUATION_S + WORK_PER_PLACED_RANK_S * placed_ranks)
        found = evaluate(self.context, candidate, self.schedulers.quick, cutoff_s=cutoff_s)
        if found is not None:
            yield found

    def placed(self, configuration: Configuration, cutoff: float) -> Iterator[Candidate]:
        """Where a configuration may be; layers by GPU type also as the best partitions below the cutoff have them."""
        yield from placed(self.context, configuration)
        if configuration.layer_split == "by_gpu_type":
            cutoff_s = self.cutoff_s(configuration, cutoff)
            yield from best_partitioned(self.context, configuration, cutoff_s, self.clock)

    def refined(self, refinement: AlikeConfigurations) -> Bounded:
        """The bound of some configurations' own pipeline, which need not go much beyond the target."""
        charge_refined_bound(self.clock, len(self.context.pools), len(refinement.indices) - 1)
        alike, high_s = refinement.configurations, refinement.target_bound_s
        bound_s = refined_bound_s(
            self.context, alike, high_s, self.clock, quick=refinement.quick, effort=refinement.effort
        )
        return Bounded(refinement.indices, bound_s)

    def least_value(self, configuration: Configuration, bound_s: float) -> float:
        """The least objective of plans of a configuration that take no less."""
        size = self.goal.sizes(self.context, space_of(configuration))
        return float(self.goal.least_values(np.array([bound_s]), size)[0])

    def effort(self, seconds: float) -> Effort:
        """So long from now, and never beyond the end."""
        ends_s = self.schedulers.ends_s
        return Effort(self.clock, self.schedulers.cancelled, min(self.clock() + seconds, ends_s), ends_s)


@dataclass(frozen=True)
class WorkerInit:
    """What another process needs to know to have a context of its own."""

    request: PlanRequest
    stack: StackProfile
    ends_s: float

    @classmethod
    def of(cls, task_context: TaskContext) -> WorkerInit:
        """The context's, with one thread for every solver: the processes share the cores."""
        context = task_context.context
        return cls(context.request.with_options(workers=1), context.stack, task_context.schedulers.ends_s)

    def task_context(self, clock: Clock, cancelled: Callable[[], bool] = lambda: False) -> TaskContext:
        """A context in this process."""
        context = Context(self.request, self.stack)
        goal = Goal.of(context)
        schedulers = Schedulers(context, clock, cancelled, self.ends_s)
        return TaskContext(context, goal, schedulers, Incumbent(context, goal))


@dataclass(frozen=True)
class Bounded:
    """No plan of the configurations at these places of the frontier is faster."""

    indices: tuple[int, ...]
    bound_s: float


@dataclass(frozen=True)
class Unfinished:
    """An evaluation that was left for later, after so many placements."""

    index: int
    num_timed: int


PartialResult = Evaluation | Bounded | BaselineResult | Unfinished


@dataclass(frozen=True)
class EvaluateTask:
    """Refine the bound of a configuration, unless there is no target for it (None), then place and time it.

    The first so many placements were timed before.
    """

    index: int
    configuration: Configuration
    cutoff: float
    target_bound_s: float | None
    num_timed: int = 0

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """Its bound, then what is found of each placement that the bound does not rule out.

        The first plan does not wait for its other placements: they have their turn after it.
        """
        planned = task_context.best.plan is not None
        if self.target_bound_s is not None:
            refined = task_context.refined(
                AlikeConfigurations((self.index,), (self.configuration,), self.target_bound_s)
            )
            yield refined
            value = task_context.least_value(self.configuration, refined.bound_s)
            if value >= min(self.cutoff, task_context.best.cutoff):
                return
        charge(task_context.clock, WORK_PER_PLACING_S)
        candidates = enumerate(task_context.placed(self.configuration, self.cutoff), start=1)
        for number, candidate in islice(candidates, self.num_timed, None):
            yield from task_context.evaluated(candidate, task_context.cutoff_s(self.configuration, self.cutoff))
            if not planned and task_context.best.plan is not None:
                yield Unfinished(self.index, number)
                return


@dataclass(frozen=True)
class BreakTieTask:
    """Place and time a configuration that may be as good as the plan, for a faster one."""

    index: int
    configuration: Configuration
    within_s: float

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """What is found that may be faster."""
        for candidate in task_context.placed(self.configuration, float("inf")):
            cutoff_s = min(self.within_s, task_context.best.iteration_s)
            yield from task_context.evaluated(candidate, cutoff_s)


@dataclass(frozen=True)
class AlternativeTask:
    """Time a candidate that an earlier search had among its best: it may be improved."""

    candidate: Candidate

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """The candidate timed with quick schedules, if it fits."""
        yield from task_context.evaluated(self.candidate, float("inf"))


@dataclass(frozen=True)
class RefineBoundTask:
    """Refine the bounds of some configurations."""

    refinements: tuple[AlikeConfigurations, ...]

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """The bounds one by one."""
        for refinement in self.refinements:
            yield task_context.refined(refinement)


@dataclass(frozen=True)
class BaselineTask:
    """Try a baseline on these configurations for so many seconds, then let the search have its turn with it.

    The search has no turn when less than `spare_s` is left to its end. `seconds` is known when the task is begun: its
    share of what is left until `until_s`.
    """

    policy: int
    space: Space
    cutoff: float
    spare_s: float
    until_s: float
    seconds: float = 0.0

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """What the search makes of its best evaluation, then the baseline."""
        effort = task_context.effort(self.seconds)
        tried = try_policy(task_context.context, POLICIES[self.policy], self.space, effort)
        yield from self._evaluations(task_context, tried, effort)
        yield tried

    def _evaluations(self, task_context: TaskContext, tried: BaselineResult, effort: Effort) -> Iterator[Evaluation]:
        """Its best candidate: its own schedules with all else that a plan may use, as it is, and with ours."""
        own, context = tried.best, task_context.context
        if own is None:
            return

        def stopped() -> bool:
            return effort.over(self.spare_s) or task_context.best.is_good_enough

        if not tried.as_it_is and not stopped():
            first = evaluate(context, own.candidate, tried.policy.scheduler(context, effort.over))
            if first is not None:
                yield first
        yield own
        if not stopped():
            yield from task_context.evaluated(
                own.candidate, task_context.cutoff_s(own.candidate.configuration, self.cutoff)
            )


@dataclass(frozen=True)
class ImproveTask:
    """Make an evaluation better, within so many seconds: its share of what is left until `until_s` when it is begun.

    `schedules_only`: the placement is that of an earlier improvement.
    """

    found: Evaluation
    until_s: float
    seconds: float = 0.0
    schedules_only: bool = False

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """What may be better."""
        until_s = task_context.effort(self.seconds).deadline
        better = improved_schedules if self.schedules_only else improve
        yield from better(task_context.context, self.found, task_context.schedulers, until_s)


@dataclass(frozen=True)
class ReorderTask:
    """Time a placement by GPU type with its ranks in another order and layers moved between them."""

    found: Evaluation

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """The most promising order, if it may be faster, with quick schedules."""
        for candidate in reordered(task_context.context, self.found.candidate, task_context.clock):
            yield from task_context.evaluated(candidate, self.found.iteration_s)


SearchTask = EvaluateTask | BreakTieTask | AlternativeTask | RefineBoundTask | BaselineTask | ImproveTask | ReorderTask


def topic_of(task: SearchTask) -> object:
    """What a task is about, whenever it is given."""
    about: object
    match task:
        case EvaluateTask() | BreakTieTask():
            about = task.index
        case AlternativeTask():
            about = task.candidate
        case RefineBoundTask():
            about = task.refinements[0].indices
        case BaselineTask():
            about = task.policy
        case ImproveTask() | ReorderTask():
            about = task.found.candidate
    return type(task), about


def placed(context: Context, configuration: Configuration) -> Iterator[Candidate]:
    """Where a configuration may be."""
    if configuration.layer_split == "by_gpu_type":
        return typed_placements(context, configuration)
    return chain(placements(context, configuration, PATTERNS), memory_first_placements(context, configuration))
