"""What every configuration of a changed world has to move at least, beside the time that no plan of it is below.

Moves of a configuration >= sum over its ranks of max(0, dp - groups still there that hold the rank's layers), however
it is placed.

A plan that keeps its degrees may keep its layers, too, where the changed world shares them out otherwise, as one that
has lost its fastest GPUs: configurations with these degrees count with either, and are bounded by what holds for any.
"""

from collections.abc import Callable, Iterator
from math import inf

import numpy as np

from models.plan import Configuration
from models.request import PlanRequest
from solver.arrays import IntArray
from solver.clock import Clock
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import BY_GPU_TYPE, EVEN
from solver.questions.own_rows import layer_split_of
from solver.questions.row_bounds import REFINED, RowBounds
from solver.questions.standing import Standing


class MoveBounds:
    """The fewest moves of any placement (`moved`) and bounds of the time, of every configuration of a request."""

    def __init__(self, request: PlanRequest, standing: Standing, clock: Clock) -> None:
        self.rows = RowBounds(request, clock, guessed=False)
        columns, layer_split = self.rows.space.columns, self.rows.space.layer_split
        self.moved: IntArray = columns.pp * columns.dp
        degrees = standing.configuration.degrees
        alike = np.flatnonzero((columns.tp == degrees.tp) & (columns.cp == degrees.cp) & (columns.ep == degrees.ep))
        held, own = [len(one) for one in standing.slots], standing.configuration
        for rows in _alike_ranks(self.rows, alike):
            found = self.rows.configuration(int(rows[0]))
            if _shares_out_otherwise(found, own):
                found = own
                self.rows.state[rows[layer_split[rows] == EVEN]] = REFINED  # no more than screened
            retained = [rank for rank in standing.ranks_retained(found) if rank is not None]
            self.moved[rows] -= sum(np.minimum(columns.dp[rows], held[rank]) for rank in retained)
        typed = alike[layer_split[alike] == BY_GPU_TYPE]  # layers follow the placement: any rank may hold any
        self.moved[typed] = np.maximum(columns.pp[typed] * columns.dp[typed] - sum(held), 0)

    def raise_bounds(self, num_moved: int, within_s: float, stopped: Callable[[], bool]) -> None:
        """Price, then refine, configurations that may have fewer moves within the time."""
        fewer, cutoff_s = self.moved < num_moved, float(np.nextafter(within_s, inf))
        self.rows.price(fewer, cutoff_s, stopped)
        self.rows.refine(fewer, cutoff_s, stopped)

    def least_moved(self, within_s: float) -> int:
        """Over configurations whose bound is within the time."""
        found = self.moved[self.rows.seconds <= within_s]
        return int(found.min()) if len(found) else int(np.iinfo(np.int64).max)

    def least_s(self, num_moved: int) -> float:
        """Over configurations that may have so few moves."""
        return float(self.rows.seconds[self.moved <= num_moved].min(initial=inf))


def _shares_out_otherwise(one: Configuration, own: Configuration) -> bool:
    """Whether a configuration with the ranks and chunks of an even split has other layers on its stages."""
    ranks, of_own = ((each.degrees.pp, each.degrees.vpp, each.family) for each in (one, own))
    return own.layer_split == "even" and ranks == of_own and one.layers_per_stage != own.layers_per_stage


def _alike_ranks(rows: RowBounds, among: IntArray) -> Iterator[IntArray]:
    """Of these rows those together that put the same layers on the same ranks; replicas do not matter."""
    if not len(among):
        return
    space = rows.space.take(among)
    layers = layer_split_of(rows.context, space)
    first, number = distinct_rows(space.columns.pp, space.columns.vpp, space.family, *layers)
    yield from (among[number == one] for one in range(len(first)))
