"""The schedulers that candidates are timed with, and a timing: an order with its exact replay, not yet written out.

Owns the choice of generators and the cache of problems already timed. Writing a schedule out costs more than finding
one, so only what becomes a plan is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule
from solver.clock import WORK_PER_OPERATION_S, Clock, charge
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.cpsat.solve import search_pipeline
from solver.schedules.assemble import assemble
from solver.schedules.bounds import lower_bound
from solver.schedules.portfolio import TOLERANCE, Candidate, best_of, candidates
from solver.verify.pipeline_shape import Ints, PipelineOrder, shape_of
from solver.verify.replay import PipelineReplay, channel_messages, replay_shape

ONE_WAY = ("one_f_one_b", "eager_one_f_one_b", "zb_h1", "greedy", "cross_greedy")
CHUNKED = ("greedy", "interleaved", "flexible_limited", "cross_greedy")
MANY_PROBLEMS = 4  # up to so many different routes are scheduled one by one
MOST_TAKEN_OVER = 3  # orders that a route tries before it is scheduled


@dataclass(frozen=True, eq=False)
class Timing:
    """An order of a problem and when everything in it happens."""

    problem: PipelineProblem
    order: PipelineOrder
    replay: PipelineReplay
    generator: str

    @property
    def end_s(self) -> float:
        """End of the last operation."""
        return float(self.replay.end.max())

    def last_weight_gradients_s(self) -> FloatArray:
        """End of the last weight gradient of every stage."""
        shape = (-1, self.problem.num_stages, self.problem.num_microbatches)
        last: FloatArray = self.replay.end.reshape(shape)[-1].max(axis=1)
        return last

    def written(self) -> PipelineSchedule:
        """The schedule in the words of the contract, with its own bound."""
        bound_s = lower_bound(self.problem)
        return assemble(self.problem, self.order, generator=self.generator, lower_bound_s=bound_s, seconds=0.0)


Scheduler = Callable[[PipelineProblem], Timing | None]


def sparing(scheduler: Scheduler, problems: Sequence[PipelineProblem]) -> Scheduler:
    """The scheduler for the routes with these problems, asked once per problem.

    The slowest route sets the pace. So where many problems differ, those with most to do are scheduled first, and the
    others take over an order that ends no later.
    """
    known: dict[PipelineProblem, Timing | None] = {}
    distinct = sorted(dict.fromkeys(problems), key=_least_s, reverse=True)
    many = len(distinct) > MANY_PROBLEMS

    def ask(problem: PipelineProblem) -> Timing | None:
        if problem not in known:
            others = [one for one in known.values() if one is not None] if many else []
            known[problem] = _taken_over(problem, others) or scheduler(problem)
        return known[problem]

    if many:
        all(ask(problem) is not None for problem in distinct)
    return ask


def _least_s(problem: PipelineProblem) -> float:
    """All work of one micro-batch and its way there and back, and the others on the busiest rank: a rough measure."""
    work_r = [0.0] * len(problem.ranks)
    for rank, stage in zip(problem.placement, problem.stages, strict=True):
        work_r[rank] += stage.forward_s + stage.input_grad_s + stage.weight_grad_s
    way_s = sum(2.0 * (hop.latency_s + hop.occupancy_s) for hop in problem.hops)
    return sum(work_r) + way_s + (problem.num_microbatches - 1) * max(work_r)


def _taken_over(problem: PipelineProblem, others: list[Timing]) -> Timing | None:
    """The order of a timing of the same layout that fits into memory here and ends no later than the latest of all."""
    shape, latest_s = shape_of(problem), max((one.end_s for one in others), default=0.0)
    alike = [one for one in others if one.problem.placement == problem.placement]
    for one in list({id(one.order.rank_ops): one for one in alike}.values())[:MOST_TAKEN_OVER]:
        messages = tuple(own[np.argsort(_ready_s(one, own), kind="stable")] for own in channel_messages(shape))
        order = PipelineOrder(one.order.rank_ops, messages)
        found = Timing(problem, order, replay_shape(shape, order), one.generator)
        if found.end_s <= latest_s and bool(np.all(found.replay.peak_memory_bytes <= shape.budget_r * TOLERANCE)):
            return found
    return None


def _ready_s(timing: Timing, messages: Ints) -> FloatArray:
    """When these messages exist in a timing; gradient exchanges come last."""
    ends = timing.replay.end
    ready: FloatArray = np.where(messages < len(ends), ends[np.minimum(messages, len(ends) - 1)], np.inf)
    return ready


def portfolio_timing(
    problem: PipelineProblem, names: tuple[str, ...] | None, *, stopped: Callable[[], bool] = lambda: False
) -> Timing | None:
    """The best of the named generators (None: of all and the policy grid); None when none of them fits.

    Once there is one, `stopped` may leave the others out.
    """
    shape = shape_of(problem)
    best = best_of(_while_going_on(candidates(shape, problem.objective, names), stopped))
    if best is None:
        return None
    return Timing(problem, best.order, replay_shape(shape, best.order), best.name)


def _while_going_on(found: Iterator[Candidate], stopped: Callable[[], bool]) -> Iterator[Candidate]:
    for one in found:
        yield one
        if stopped():
            return


@dataclass
class Schedulers:
    """Schedulers of one search that ends at `ends_s`."""

    context: Context
    clock: Clock
    cancelled: Callable[[], bool]
    ends_s: float = float("inf")
    _known: dict[PipelineProblem, Timing | None] = field(default_factory=dict)

    def quick(self, problem: PipelineProblem) -> Timing | None:
        """The best of a few generators; every problem is timed once."""
        if problem not in self._known:
            names = self._allowed(ONE_WAY if problem.layout == "one_way" else CHUNKED)
            charge(self.clock, len(names) * problem.num_operations * WORK_PER_OPERATION_S)
            self._known[problem] = portfolio_timing(problem, names, stopped=self._late)
        return self._known[problem]

    def thorough(self, problem: PipelineProblem, time_limit_s: float) -> Timing | None:
        """Portfolio, CP-SAT and improvement within `time_limit_s`; all that it has, where a framework names them."""
        named = self._named
        if named is not None:
            charge(self.clock, len(named) * problem.num_operations * WORK_PER_OPERATION_S)
            return portfolio_timing(problem, named, stopped=self._late)
        workers = 1 if self.context.request.options.reproducible else self.context.request.options.workers
        limit_s = max(min(time_limit_s, self.ends_s - self.clock()), 0.1)
        options = problem.options.model_copy(update={"time_limit_s": limit_s, "workers": workers})
        limited = problem.model_copy(update={"options": options})
        found = search_pipeline(limited, cancelled=self.cancelled, clock=self.clock)
        assert found.order is not None, "the portfolio always finds an order"
        return Timing(problem, found.order, replay_shape(found.shape, found.order), found.generator)

    @property
    def _named(self) -> tuple[str, ...] | None:
        framework = self.context.request.constraints.framework
        return None if framework is None else framework.schedules

    def _allowed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the names that the framework has, or else all that it has."""
        named = self._named
        return names if named is None else tuple(name for name in names if name in named) or named

    def _late(self) -> bool:
        return self.clock() >= self.ends_s
