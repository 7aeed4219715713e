"""Parts of a search's work that any process can do, and what they bring back.

Owns how each is done. Never decides which are worth doing, and never judges: the search does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models.plan import Configuration
from models.request import PlanRequest
from models.stack import StackProfile
from solver.baselines.policies import POLICIES
from solver.baselines.run import BaselineResult, Effort, try_policy
from solver.bounds.relaxation import refined_bound_s
from solver.clock import WORK_PER_EVALUATION_S, Clock, charge
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import Candidate, space_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.improve import improve
from solver.evaluation.places import Pattern, placements
from solver.evaluation.scheduling import Schedulers
from solver.evaluation.where import crossing_of
from solver.objective import Goal

PATTERNS: tuple[Pattern, ...] = ("replicas_whole", "ranks_whole", "ranks_in_groups", "ranks_spread")


@dataclass(frozen=True)
class TaskContext:
    """What every task needs: the request with all that is derived from it, schedulers, and when all must end."""

    context: Context
    goal: Goal
    schedulers: Schedulers

    @property
    def clock(self) -> Clock:
        """The clock of the search."""
        return self.schedulers.clock

    def timed(self, candidate: Candidate, cutoff: float) -> Evaluation | None:
        """A candidate with quick schedules, unless a bound shows that its value is not below the cutoff."""
        return self.timed_within(candidate, self.cutoff_s(candidate.configuration, cutoff))

    def timed_within(self, candidate: Candidate, cutoff_s: float) -> Evaluation | None:
        """A candidate with quick schedules, unless a bound shows that its iteration takes so long."""
        charge(self.clock, WORK_PER_EVALUATION_S)
        return evaluate(self.context, candidate, self.schedulers.quick, cutoff_s=cutoff_s)

    def cutoff_s(self, configuration: Configuration, cutoff: float) -> float:
        """The iteration time below which a configuration's value is below the cutoff."""
        size = self.goal.sizes(self.context, space_of(configuration))
        return self.goal.seconds(cutoff, float(size[0]))

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
        request = task_context.context.request
        options = request.options.model_copy(update={"workers": 1})
        return cls(
            request.model_copy(update={"options": options}), task_context.context.stack, task_context.schedulers.ends_s
        )

    def task_context(self, clock: Clock, cancelled: Callable[[], bool] = lambda: False) -> TaskContext:
        """A context in this process."""
        context = Context(self.request, self.stack)
        return TaskContext(context, Goal.of(context), Schedulers(context, clock, cancelled, self.ends_s))


@dataclass(frozen=True)
class Bounded:
    """No plan of the configuration at this place of the frontier is faster."""

    index: int
    bound_s: float


PartialResult = Evaluation | Bounded | BaselineResult


@dataclass(frozen=True)
class EvaluateTask:
    """Place and time a configuration, but for the candidates that were timed before."""

    index: int
    configuration: Configuration
    cutoff: float
    target_bound_s: float
    timed: frozenset[Candidate] = frozenset()

    @property
    def topic(self) -> object:
        """What the task is about, whenever it is given."""
        return (EvaluateTask, self.index)

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """Its sharper bound, then of each way to cross buildings every evaluation that is better than those before."""
        bound_s = refined_bound_s(task_context.context, self.configuration, self.target_bound_s)
        yield Bounded(self.index, bound_s)
        if bound_s >= task_context.cutoff_s(self.configuration, self.cutoff):
            return
        best_s: dict[str, float] = {}
        for candidate in placed(task_context.context, self.configuration):
            found = None if candidate in self.timed else task_context.timed(candidate, self.cutoff)
            crossing = crossing_of(task_context.context, candidate)
            if found is not None and found.iteration_s < best_s.get(crossing, float("inf")):
                best_s[crossing] = found.iteration_s
                yield found


@dataclass(frozen=True)
class RefineBoundTask:
    """Refine the bounds of some configurations: their places in the frontier, and how far that matters."""

    configurations: tuple[tuple[int, Configuration, float], ...]

    @property
    def topic(self) -> object:
        """What the task is about, whenever it is given."""
        return (RefineBoundTask, self.configurations[0][0])

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """The bounds one by one."""
        for index, configuration, target_bound_s in self.configurations:
            yield Bounded(index, refined_bound_s(task_context.context, configuration, target_bound_s))


@dataclass(frozen=True)
class BaselineTask:
    """Try a baseline for so long, then let the search have its turn with it."""

    policy: int
    configurations: tuple[Configuration, ...]
    seconds: float
    cutoff: float

    @property
    def topic(self) -> object:
        """What the task is about, whenever it is given."""
        return (BaselineTask, self.policy)

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """What the search makes of its best evaluation, then the baseline."""
        effort = task_context.effort(self.seconds)
        tried = try_policy(task_context.context, POLICIES[self.policy], self.configurations, effort)
        yield from rivals(task_context, tried, effort, cutoff=lambda: self.cutoff, stopped=effort.over)
        yield tried


@dataclass(frozen=True)
class ImproveTask:
    """Make an evaluation better, within so long."""

    found: Evaluation
    seconds: float

    @property
    def topic(self) -> object:
        """What the task is about, whenever it is given."""
        return (ImproveTask, self.found.candidate)

    def do(self, task_context: TaskContext) -> Iterator[PartialResult]:
        """What may be better."""
        yield from improve(
            task_context.context, self.found, task_context.schedulers, task_context.effort(self.seconds).deadline
        )


SearchTask = EvaluateTask | RefineBoundTask | BaselineTask | ImproveTask


def placed(context: Context, configuration: Configuration) -> Iterator[Candidate]:
    """Where a configuration may be."""
    if configuration.layer_split == "by_gpu_type":
        return typed_placements(context, configuration)
    return placements(context, configuration, PATTERNS)


def rivals(
    task_context: TaskContext,
    tried: BaselineResult,
    effort: Effort,
    *,
    cutoff: Callable[[], float],
    stopped: Callable[[], bool],
) -> Iterator[Evaluation]:
    """A baseline's best candidate: its own schedules with all else that a plan may use, as it is, and with ours."""
    own = tried.best
    if own is None:
        return
    if not tried.as_it_is and not stopped():
        first = evaluate(task_context.context, own.candidate, tried.policy.scheduler(task_context.context, effort.over))
        if first is not None:
            yield first
    yield own
    if not stopped():
        second = task_context.timed(own.candidate, cutoff())
        if second is not None:
            yield second
