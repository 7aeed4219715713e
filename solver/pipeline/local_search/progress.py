"""The state of a search over one problem: best order, proven bound, clock, and callbacks.

Incumbent and bound (seconds) only ever get better. An order is taken only after an exact replay within the budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import floor

import numpy as np

from models.schedule import PipelineProblem, ScheduleProgress
from solver.clock import WORK_PER_OPERATION_S, charge
from solver.pipeline.local_search.late_starts import replayed
from solver.pipeline.problem import PipelineOrder, PipelineShape, shape_of
from solver.pipeline.quantise import TickShape

PROVEN = 1e-7  # relative; below the judge's and the answer's tolerance of 1e-6
PROOF_PATIENCE_S = 5.0  # longest search for a complete proof within the gap asked for
MOST_THREADS = 2  # of one local search; set by hand


@dataclass
class PipelineSearch:
    """Mutable on purpose: the one place where a solve keeps what it knows so far."""

    problem: PipelineProblem
    clock: Callable[[], float]
    progress: Callable[[ScheduleProgress], None] | None = None
    cancelled: Callable[[], bool] | None = None
    found: Callable[[PipelineSearch], None] = lambda _: None
    order: PipelineOrder | None = None
    value_s: float = np.inf
    bound_s: float = 0.0
    generator: str = ""
    slices: int = 0
    started_s: float = field(init=False)
    shape: PipelineShape = field(init=False)

    def __post_init__(self) -> None:
        self.started_s = self.clock()
        self.shape = shape_of(self.problem)

    def offer(self, order: PipelineOrder, generator: str) -> bool:
        """Take the order if it is better, replayed exactly and within memory; says whether it was."""
        run = replayed(self.shape, order, self.problem.objective)
        return run.fits(self.shape) and self.take(order, run.value_s(self.problem.objective), generator)

    def take(self, order: PipelineOrder, value_s: float, generator: str) -> bool:
        """Take an order that is known to be within memory and to have this value (seconds), if it is better."""
        if value_s >= self.value_s * (1 - 1e-12):
            return False
        self.order, self.value_s, self.generator = order, value_s, generator
        self.report(generator)
        return True

    @property
    def num_threads(self) -> int:
        """Threads of a local search."""
        return min(self.problem.options.workers, MOST_THREADS)

    @property
    def best_order(self) -> PipelineOrder:
        """The best order, once generators have been tried."""
        assert self.order is not None, "the portfolio always finds an order"
        return self.order

    def stop_after(self, seconds: float) -> Callable[[], bool]:
        """Whether the search is over or so long has passed from now on."""
        until_s = self.elapsed_s + min(seconds, self.left_s)
        return lambda: self.over or self.elapsed_s >= until_s

    def worked(self) -> None:
        """An order of this problem was made and replayed."""
        charge(self.clock, self.shape.num_operations * WORK_PER_OPERATION_S)

    def raise_bound(self, bound_s: float, phase: str) -> None:
        """A newly proven bound."""
        if bound_s > self.bound_s:
            self.bound_s = bound_s
            self.report(phase)

    def report(self, phase: str) -> None:
        """Call back with what is known."""
        if self.order is not None:
            self.found(self)
        if self.progress is not None and np.isfinite(self.value_s):
            self.progress(
                ScheduleProgress(
                    phase=phase,
                    objective_value_s=self.value_s,
                    lower_bound_s=min(self.bound_s, self.value_s),
                    generator=self.generator,
                    seconds=self.elapsed_s,
                )
            )

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return max(self.clock() - self.started_s, 0.0)

    @property
    def left_s(self) -> float:
        """Seconds left of the time limit."""
        return self.problem.options.time_limit_s - self.elapsed_s

    @property
    def gap(self) -> float:
        """(value - bound) / value."""
        return (self.value_s - self.bound_s) / self.value_s if self.value_s > 0 else 0.0

    @property
    def proven(self) -> bool:
        """Value and bound are the same number."""
        return self.gap <= PROVEN

    @property
    def over(self) -> bool:
        """Time is up, the proof is complete, the wished gap is reached, or somebody has asked to stop.

        Within the wished gap a complete proof is still tried for a short while, since it often comes next.
        """
        options = self.problem.options
        patient = self.elapsed_s < min(PROOF_PATIENCE_S, options.time_limit_s / 4)
        near = self.gap <= options.relative_gap and not patient
        return self.proven or near or self.left_s <= 0 or (self.cancelled is not None and self.cancelled())


@dataclass
class Horizons:
    """The proven bound and the best value of a search in whole ticks: what lies between them is open."""

    search: PipelineSearch
    ticks: TickShape
    low: int
    high: int

    @property
    def over(self) -> bool:
        """Whether nothing lies between bound and value, or the search is over."""
        return self.low >= self.high or self.search.over

    def refute(self, horizon: int, phase: str) -> None:
        """No schedule ends by this horizon."""
        self.low = max(self.low, horizon + 1)
        bound = min(self.low, self.high)
        self.search.raise_bound(bound * self.ticks.tick_s * (1 - 1e-12), phase)


def value_ticks(search: PipelineSearch, ticks: TickShape) -> int:
    """The value of the best order in whole ticks."""
    objective = search.problem.objective
    return round(replayed(ticks.shape, search.best_order, objective).value_s(objective))


def bound_ticks(search: PipelineSearch, ticks: TickShape) -> int:
    """The proven bound in whole ticks."""
    return floor(search.bound_s / ticks.tick_s * (1 - 1e-9))
