"""The schedulers that candidates are timed with, and a timing: an order with its exact replay, not yet written out.

Writing a schedule out costs more than finding one, so only what becomes a plan is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule
from solver.arrays import FloatArray
from solver.clock import WORK_PER_OPERATION_S, Clock, charge
from solver.context import Context
from solver.pipeline.assemble import assemble
from solver.pipeline.bounds import lower_bound
from solver.pipeline.generators import paced
from solver.pipeline.portfolio import OrderCandidate, best_of, candidates
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape, ragged, shape_of
from solver.pipeline.simulate import PipelineReplay, channel_messages, replay_complete, replay_shape
from solver.pipeline.solve import search_pipeline
from solver.pipeline.stated import read

ONE_WAY = ("one_f_one_b", "eager_one_f_one_b", "zb_h1", "greedy", "cross_greedy")
CHUNKED = ("greedy_depth_first", "interleaved", "flexible_double", "cross_look_ahead", "last_chunks_first", "paced")
MANY_PROBLEMS = 4  # up to so many different routes are scheduled one by one
MOST_ORDERS_TRIED = 3  # orders that a route tries before it is scheduled
NO_MESSAGES: Ints = np.zeros(0, dtype=np.int64)  # of the hops inside places, which are nearly all


@dataclass(frozen=True, eq=False)
class Timing:
    """An order of a problem with what its exact replay ends with; a search remembers thousands, so not the replay.

    `end_s` is the end of the last operation, `last_weight_gradients_s` that of the last weight gradient of every stage,
    `peak_memory_bytes` what each rank keeps of activations at most.
    """

    problem: PipelineProblem
    order: PipelineOrder
    end_s: float
    last_weight_gradients_s: FloatArray
    peak_memory_bytes: FloatArray
    generator: str

    @classmethod
    def of(cls, problem: PipelineProblem, order: PipelineOrder, replay: PipelineReplay, generator: str) -> Timing:
        """An order with its replay in the problem."""
        by_stage = replay.end.reshape(-1, problem.num_stages, problem.num_microbatches)
        end_s, last_s = float(replay.end.max()), by_stage[-1].max(axis=1)
        return cls(problem, order, end_s, last_s, replay.peak_memory_bytes, generator)

    def operation_ends_s(self) -> FloatArray:
        """End of every operation by id, replayed once more."""
        return replay_complete(shape_of(self.problem), self.order).end

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
    distinct = sorted(dict.fromkeys(problems), key=rough_time_s, reverse=True)
    orders = _Orders() if len(distinct) > MANY_PROBLEMS else None

    def ask(problem: PipelineProblem) -> Timing | None:
        if problem not in known:
            known[problem] = scheduler(problem) if orders is None else orders.timing_of(problem, scheduler)
        return known[problem]

    if orders is not None:
        all(ask(problem) is not None for problem in distinct)
    return ask


def rough_time_s(problem: PipelineProblem) -> float:
    """About the seconds of a problem: one micro-batch there and back, the others on the busiest rank or link."""
    work_r, taken_s = [0.0] * len(problem.ranks), dict[str, float]()
    for rank, stage in zip(problem.placement, problem.stages, strict=True):
        work_r[rank] += stage.forward_s + stage.input_grad_s + stage.weight_grad_s
    for hop in problem.hops:
        taken_s[hop.link_name] = taken_s.get(hop.link_name, 0.0) + hop.occupancy_s
    way_s = sum(2.0 * (hop.latency_s + hop.occupancy_s) for hop in problem.hops)
    return sum(work_r) + way_s + (problem.num_microbatches - 1) * max([*work_r, *taken_s.values()])


@dataclass(frozen=True)
class _Replayed:
    """A timing with the end of every operation (s), by id."""

    timing: Timing
    end_s: FloatArray

    def in_problem(self, problem: PipelineProblem, shape: PipelineShape) -> _Replayed | None:
        """The same order in another problem of the same operations; None where memory has no room for it."""
        own = self.timing
        same = own.problem.model_copy(update={"options": problem.options}) == problem
        channels = own.order.channel_ops if same else _as_ready(self.end_s, channel_messages(shape))
        order = PipelineOrder(own.order.rank_ops, channels)
        replay = replay_complete(shape, order)
        if not replay.fits(shape):
            return None
        return _Replayed(Timing.of(problem, order, replay, own.generator), replay.end)


@dataclass
class _Orders:
    """The orders found so far, each with its latest timing, and the latest end (s) of all."""

    latest_s: float = 0.0
    found: list[_Replayed] = field(default_factory=list)

    def timing_of(self, problem: PipelineProblem, scheduler: Scheduler) -> Timing | None:
        """An order that is known, or else the scheduler's."""
        one = self._for_problem(problem)
        if one is None:
            timing = scheduler(problem)
            if timing is None:
                return None
            one = _Replayed(timing, timing.operation_ends_s())
        self._add(one)
        return one.timing

    def _add(self, found: _Replayed) -> None:
        """One more timing."""
        self.latest_s = max(self.latest_s, found.timing.end_s)
        known = [one.timing.order.rank_ops is found.timing.order.rank_ops for one in self.found]
        if any(known):
            self.found[known.index(True)] = found
        else:
            self.found.append(found)

    def _for_problem(self, problem: PipelineProblem) -> _Replayed | None:
        """The first order of the same layout that fits into memory here and ends no later than the latest of all."""
        shape = shape_of(problem)
        alike = (one for one in self.found if same_operations(one.timing.problem, problem))
        for one in islice(alike, MOST_ORDERS_TRIED):
            found = one.in_problem(problem, shape)
            if found is not None and found.timing.end_s <= self.latest_s:
                return found
        return None


def timing_of(problem: PipelineProblem, schedule: PipelineSchedule) -> Timing | None:
    """A written schedule with its order and its times by replay; None where it does not name every operation."""
    stated, objections = read(problem, schedule)
    if stated is None or objections:
        return None
    channels = tuple(
        one[np.argsort(stated.message_start[one], kind="stable")] for one in channel_messages(stated.shape)
    )
    order = PipelineOrder(stated.rank_ops, channels)
    return Timing.of(problem, order, replay_shape(stated.shape, order), schedule.generator)


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
    replayed = (_Replayed(one, one.operation_ends_s()) for one in alike.values())
    return [same.timing for one in replayed if (same := one.in_problem(problem, shape)) is not None]


def same_operations(one: PipelineProblem, other: PipelineProblem) -> bool:
    """Whether an order of the operations of one problem is one of the other's."""
    sizes = [(problem.num_microbatches, problem.backward, problem.placement) for problem in (one, other)]
    return sizes[0] == sizes[1]


def _as_ready(end_s: FloatArray, channels: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """The messages of every channel in the order in which these ends let them exist; gradient exchanges come last."""
    messages, offsets = ragged(channels)
    ready_s = np.where(messages < len(end_s), end_s[np.minimum(messages, len(end_s) - 1)], np.inf)
    channel = np.repeat(np.arange(len(channels)), np.diff(offsets))
    ready = messages[np.lexsort((ready_s, channel))]
    return tuple(ready[first:end] if end > first else NO_MESSAGES for first, end in pairwise(offsets.tolist()))


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
    return Timing.of(problem, best.order, plain, best.name)


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
            num_orders = len(names) + (paced.num_orders(shape_of(problem)) if "paced" in names else 0)
            charge(self.clock, num_orders * problem.num_operations * WORK_PER_OPERATION_S)
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
        order = found.best_order
        return Timing.of(problem, order, replay_shape(found.shape, order), found.generator)

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
