"""The schedulers that candidates are timed with, and a timing: an order with its exact replay, not yet written out.

Writing a schedule out costs more than finding one, so only what becomes a plan is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule
from solver.clock import WORK_PER_OPERATION_S, Clock, charge
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.pipeline.assemble import assemble
from solver.pipeline.bounds import lower_bound
from solver.pipeline.portfolio import TOLERANCE, OrderCandidate, best_of, candidates
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape, ragged, shape_of
from solver.pipeline.simulate import PipelineReplay, channel_messages, replay_complete, replay_shape
from solver.pipeline.solve import search_pipeline
from solver.pipeline.stated import read

ONE_WAY = ("one_f_one_b", "eager_one_f_one_b", "zb_h1", "greedy", "cross_greedy")
CHUNKED = ("greedy_depth_first", "interleaved", "flexible_double", "cross_look_ahead", "last_chunks_first")
MANY_PROBLEMS = 4  # up to so many different routes are scheduled one by one
MOST_ORDERS_TRIED = 3  # orders that a route tries before it is scheduled


@dataclass(frozen=True, eq=False)
class Timing:
    """An order of a problem with its exact replay (seconds)."""

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
        """The schedule as a plan states it, with its own bound."""
        bound_s = lower_bound(self.problem)
        return assemble(self.problem, self.order, generator=self.generator, lower_bound_s=bound_s, seconds=0.0)


Scheduler = Callable[[PipelineProblem], Timing | None]


def reusing_orders(scheduler: Scheduler, problems: Sequence[PipelineProblem]) -> Scheduler:
    """The scheduler for the routes with these problems, asked once per problem.

    The slowest route sets the pace. So where many problems differ, those with most to do are scheduled first, and the
    others take over an order that ends no later.
    """
    known: dict[PipelineProblem, Timing | None] = {}
    distinct = sorted(dict.fromkeys(problems), key=_least_s, reverse=True)
    orders = _Orders() if len(distinct) > MANY_PROBLEMS else None

    def ask(problem: PipelineProblem) -> Timing | None:
        if problem not in known:
            timing = (None if orders is None else orders.for_problem(problem)) or scheduler(problem)
            known[problem] = timing
            if orders is not None and timing is not None:
                orders.add(timing)
        return known[problem]

    if orders is not None:
        all(ask(problem) is not None for problem in distinct)
    return ask


def _least_s(problem: PipelineProblem) -> float:
    """About the seconds of a problem: one micro-batch all the way there and back, the others on the busiest rank."""
    work_r = [0.0] * len(problem.ranks)
    for rank, stage in zip(problem.placement, problem.stages, strict=True):
        work_r[rank] += stage.forward_s + stage.input_grad_s + stage.weight_grad_s
    way_s = sum(2.0 * (hop.latency_s + hop.occupancy_s) for hop in problem.hops)
    return sum(work_r) + way_s + (problem.num_microbatches - 1) * max(work_r)


@dataclass
class _Orders:
    """The orders found so far, each with its latest timing, and the latest end (s) of all."""

    latest_s: float = 0.0
    timings: list[Timing] = field(default_factory=list)

    def add(self, timing: Timing) -> None:
        """One more timing."""
        self.latest_s = max(self.latest_s, timing.end_s)
        known = [one.order.rank_ops is timing.order.rank_ops for one in self.timings]
        if any(known):
            self.timings[known.index(True)] = timing
        else:
            self.timings.append(timing)

    def for_problem(self, problem: PipelineProblem) -> Timing | None:
        """The first order of the same layout that fits into memory here and ends no later than the latest of all."""
        shape = shape_of(problem)
        alike = (one for one in self.timings if same_operations(one.problem, problem))
        for one in islice(alike, MOST_ORDERS_TRIED):
            found = in_problem(one, problem, shape)
            if found is not None and found.end_s <= self.latest_s:
                return found
        return None


def in_problem(timing: Timing, problem: PipelineProblem, shape: PipelineShape) -> Timing | None:
    """The order of a timing in another problem of the same operations; None where memory has no room for it."""
    same = timing.problem.model_copy(update={"options": problem.options}) == problem
    channels = timing.order.channel_ops if same else _as_ready(timing, channel_messages(shape))
    order = PipelineOrder(timing.order.rank_ops, channels)
    found = Timing(problem, order, replay_complete(shape, order), timing.generator)
    return found if np.all(found.replay.peak_memory_bytes <= shape.budget_r * TOLERANCE) else None


def timing_of(problem: PipelineProblem, schedule: PipelineSchedule) -> Timing | None:
    """A written schedule with its order and its times by replay; None where it does not name every operation."""
    stated, objections = read(problem, schedule)
    if stated is None or objections:
        return None
    channels = tuple(
        one[np.argsort(stated.message_start[one], kind="stable")] for one in channel_messages(stated.shape)
    )
    order = PipelineOrder(stated.rank_ops, channels)
    return Timing(problem, order, replay_shape(stated.shape, order), schedule.generator)


def or_same_order(timings: Sequence[Timing], scheduler: Scheduler) -> Scheduler:
    """The scheduler, or the order of one of these timings where that is faster."""

    def best(problem: PipelineProblem) -> Timing | None:
        timing = scheduler(problem)
        found = that_fit(timings, problem) if timing is None else [timing, *that_fit(timings, problem)]
        return min(found, key=lambda one: one.end_s, default=None)

    return best


def that_fit(timings: Sequence[Timing], problem: PipelineProblem) -> list[Timing]:
    """Each order of these timings once, in this problem, where it has the same operations and memory has room."""
    shape = shape_of(problem)
    alike = {one.order: one for one in timings if same_operations(one.problem, problem)}
    return [same for one in alike.values() if (same := in_problem(one, problem, shape)) is not None]


def same_operations(one: PipelineProblem, other: PipelineProblem) -> bool:
    """Whether an order of the operations of one problem is one of the other's."""
    sizes = [(problem.num_microbatches, problem.backward, problem.placement) for problem in (one, other)]
    return sizes[0] == sizes[1]


def _as_ready(timing: Timing, channels: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """The messages of every channel in the order in which they exist in a timing; gradient exchanges come last."""
    messages, offsets = ragged(channels)
    ends = timing.replay.end
    ready_s = np.where(messages < len(ends), ends[np.minimum(messages, len(ends) - 1)], np.inf)
    channel = np.repeat(np.arange(len(channels)), np.diff(offsets))
    return tuple(np.split(messages[np.lexsort((ready_s, channel))], offsets[1:-1])) if channels else ()


def portfolio_timing(
    problem: PipelineProblem, names: tuple[str, ...] | None, *, stopped: Callable[[], bool] = lambda: False
) -> Timing | None:
    """The best of the named generators (None: of all and the policy grid); None when none of them fits.

    Once there is one, `stopped` may leave the others out.
    """
    shape = shape_of(problem)
    best = best_of(_until_stopped(candidates(shape, problem.objective, names), stopped))
    if best is None:
        return None
    plain = best.run if problem.objective == "makespan" else replay_shape(shape, best.order)
    return Timing(problem, best.order, plain, best.name)


def _until_stopped(found: Iterator[OrderCandidate], stopped: Callable[[], bool]) -> Iterator[OrderCandidate]:
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

    def thorough(self, problem: PipelineProblem, time_limit_s: float, known: Sequence[Timing] = ()) -> Timing | None:
        """Portfolio and local search within `time_limit_s`, from what is known, too.

        A proof that no order of this problem is faster would settle nothing about other plans, so none is tried.

        Where a framework names its schedules, the best of these.
        """
        named = self._named
        if named is not None:
            charge(self.clock, len(named) * problem.num_operations * WORK_PER_OPERATION_S)
            return portfolio_timing(problem, named, stopped=self._late)
        workers = 1 if self.context.request.options.reproducible else self.context.request.options.workers
        limit_s = max(min(time_limit_s, self.ends_s - self.clock()), 0.1)
        options = problem.options.model_copy(update={"time_limit_s": limit_s, "workers": workers})
        limited = problem.model_copy(update={"options": options})
        orders = [one.order for one in that_fit(known, problem)]
        found = search_pipeline(limited, cancelled=self.cancelled, clock=self.clock, known=orders, prove=False)
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
