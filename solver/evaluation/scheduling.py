"""The schedulers that candidates are timed with, and a timing: an order with its exact replay, not yet written out.

Owns the choice of generators and the cache of problems already timed. Writing a schedule out costs more than finding
one, so only what becomes a plan is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from models.schedule import PipelineProblem, PipelineSchedule
from solver.clock import WORK_PER_OPERATION_S, Clock, charge
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.cpsat.solve import search_pipeline
from solver.schedules.assemble import assemble
from solver.schedules.bounds import lower_bound
from solver.schedules.portfolio import Candidate, best_of, candidates
from solver.verify.pipeline_shape import PipelineOrder, shape_of
from solver.verify.replay import PipelineReplay, replay_shape

ONE_WAY = ("one_f_one_b", "eager_one_f_one_b", "zb_h1", "greedy", "cross_greedy")
CHUNKED = ("greedy", "interleaved", "flexible_limited", "cross_greedy")


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


def portfolio_timing(
    problem: PipelineProblem, names: tuple[str, ...] | None, *, stopped: Callable[[], bool] = lambda: False
) -> Timing | None:
    """The best of the named generators (None: of all and the policy grid); None when none of them fits.

    Once there is one, `stopped` may leave the others out.
    """
    shape = shape_of(problem)
    best = best_of(shape, problem.objective, _while_going_on(candidates(shape, problem.objective, names), stopped))
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
        options = problem.options.model_copy(update={"time_limit_s": max(time_limit_s, 0.1), "workers": workers})
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
