"""Bounds of all configurations of a request at once, refined only where an answer hangs on them.

A configuration is a row of the space.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np

from models.plan import Configuration
from models.request import PlanRequest
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.work import lower_bounds
from solver.clock import WORK_PER_ROW_S, Clock, charge, charge_priced, charge_refined_bound
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import Space, enumerate_space
from solver.configurations.framework import within_framework
from solver.context import Context
from solver.cost.columns import Columns
from solver.evaluation.candidate import configuration_of
from solver.objective import Goal
from solver.search.choice import alike_configurations
from solver.search.frontier import Frontier

PORTION = 4_096  # rows priced before the clock is looked at: about a tenth of a second
SCREENED, PRICED, REFINED = range(3)


class RowBounds:
    """A time that no plan is below, of every configuration of a request; infinite where it does not fit.

    `seconds[row]` starts with the screening bound and only rises. What is not `guessed` costs half. `clock` is charged
    for listing, pricing and refining.
    """

    def __init__(self, request: PlanRequest, clock: Clock = time.monotonic, *, guessed: bool = True) -> None:
        self.request, self._clock = within_framework(request), clock
        self.context = Context.of(self.request)
        self.space: Space = enumerate_space(self.request)
        charge(clock, WORK_PER_ROW_S * len(self.space))
        self.seconds: FloatArray = np.zeros(0)
        self.guess_s: FloatArray = np.zeros(0)
        if len(self.space):
            screened = screening_bounds(self.context, self.space, late=lambda: not guessed)
            self.seconds, self.guess_s = screened.bound_s.copy(), screened.guess_s.copy()
        self.state = np.full(len(self.space), SCREENED, dtype=np.int8)

    def __len__(self) -> int:
        return len(self.space)

    def configuration(self, row: int) -> Configuration:
        """The configuration of a row."""
        return configuration_of(self.context, self.space, row)

    def price(self, wanted: BoolArray, cutoff_s: float, stopped: Callable[[], bool]) -> None:
        """Price the wanted rows whose bound is below the cutoff, the least first, as far as time allows."""
        while not stopped():
            rows = np.flatnonzero(wanted & (self.state < PRICED) & (self.seconds < cutoff_s))
            if not len(rows):
                return
            if len(rows) > PORTION:
                rows = rows[np.argpartition(self.seconds[rows], PORTION)[:PORTION]]
            bounds = lower_bounds(self.context, self.space.take(rows))
            charge_priced(self._clock, len(rows), len(self.context.gpu_classes))
            priced = np.where(bounds.fits, bounds.iteration_s, np.inf)
            self.seconds[rows] = np.maximum(self.seconds[rows], priced)
            self.guess_s[rows] = bounds.guess_s
            self.state[rows] = PRICED

    def refine(self, wanted: BoolArray, cutoff_s: float, stopped: Callable[[], bool]) -> None:
        """Raise the bounds of wanted rows to the cutoff where their own pipelines allow, the least first."""
        while not stopped():
            rows = np.flatnonzero(wanted & (self.state == PRICED) & (self.seconds < cutoff_s))
            if not len(rows):
                return
            row = int(rows[np.argmin(self.seconds[rows])])
            charge_refined_bound(self._clock, len(self.context.pools))
            bound_s = refined_bound_s(self.context, [self.configuration(row)], cutoff_s, self._clock)
            self.seconds[row] = max(self.seconds[row], bound_s)
            self.state[row] = REFINED


def row_numbers(spaces: Sequence[Space]) -> list[IntArray]:
    """For each space the number of every row: equal configurations have equal numbers."""
    names = [field.name for field in fields(Columns)]
    tables = [
        np.stack([*(getattr(space.columns, name) for name in names), space.family, space.layer_split]).astype(np.int64)
        for space in spaces
    ]
    if all(np.array_equal(tables[0], table) for table in tables):
        return [np.arange(len(space)) for space in spaces]
    _, number = distinct_rows(*np.concatenate(tables, axis=1))
    return list(np.split(number, np.cumsum([len(space) for space in spaces])[:-1]))


def least_bound_s(request: PlanRequest, cutoff_s: float, stopped: Callable[[], bool], clock: Clock) -> float:
    """What no plan of a request falls below, without looking for one, as far as it is below `cutoff_s`.

    Prices what may hold the least bound, then refines it, until time is up or the cutoff is reached; `clock` is charged
    for both. Only for requests whose objective is the iteration time.
    """
    request = within_framework(request)
    context, space = Context.of(request), enumerate_space(request)
    charge(clock, WORK_PER_ROW_S * len(space))
    if not len(space):
        return cutoff_s
    frontier = Frontier(context, space, Goal.of(context), late=lambda: True)  # no guesses: no plan is sought
    while not stopped() and frontier.least_bound < cutoff_s:
        num_priced = frontier.load(cutoff_s, planned=True)
        charge_priced(clock, num_priced, len(context.gpu_classes))
        if not num_priced and not _refined(frontier, cutoff_s, clock):
            break
    return min(frontier.least_bound, cutoff_s)


def _refined(frontier: Frontier, cutoff_s: float, clock: Clock) -> bool:
    """Replace the least bound that is not refined yet by the pipeline's own; false when none is below the cutoff."""
    context = frontier.context
    for indices in frontier.unrefined(cutoff_s, 1):
        one = alike_configurations(frontier, indices, cutoff_s)
        frontier.set_refined(indices)
        charge_refined_bound(clock, len(context.pools))
        bound_s = refined_bound_s(
            context, one.configurations, one.target_bound_s, clock, quick=one.quick, effort=one.effort
        )
        for index in indices:
            frontier.raise_bound(index, bound_s)
        return True
    return False
