"""The configurations of a search that are not priced yet, and which of them are next.

Screening gives each a cheap bound and a guess.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from solver.bounds.screening import screening_bounds
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.objective import Goal
from solver.search.params import SearchParams

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Unpriced:
    """`rows` of the space that wait; `least_value` is the least objective that any of them may have.

    `bound_s` (seconds) and `size` (of the objective) are columns of the whole space. `missed_s` is the least bound of
    what misses the target for certain and never waited.
    """

    def __init__(
        self, context: Context, space: Space, goal: Goal, params: SearchParams, late: Callable[[], bool]
    ) -> None:
        self._params = params
        self._portion = params.first_portion
        self.size = goal.sizes(context, space)
        self.largest = max(float(self.size.max()), 1.0)
        screened = screening_bounds(context, space, late=late)
        self.bound_s = screened.bound_s
        self._value = goal.least_values(screened.bound_s, self.size)
        self._priority = goal.priority(screened.guess_s, self.size, self.largest)
        in_time = np.isfinite(self._value)
        self.target_rules_out = bool(np.isinf(self._value).any())
        self.missed_s = float(self.bound_s[~in_time].min(initial=float("inf")))
        self.rows = np.flatnonzero(in_time)
        self.least_value = self._least(self._value)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def least_s(self) -> float:
        """No waiting configuration takes less than this."""
        return self._least(self.bound_s)

    def _least(self, column: FloatArray) -> float:
        return float(column[self.rows].min(initial=float("inf")))

    def holds(self, considered: BoolArray) -> bool:
        """Some of these configurations wait."""
        return bool(considered[self.rows].any())

    def drop(self, priced: BoolArray) -> None:
        """These configurations (a mask of the whole space) were priced before."""
        self.rows = self.rows[~priced[self.rows]]
        self.least_value = self._least(self._value)

    def next_portion(self, most: int, *, planned: bool) -> IntArray:
        """Rows that wait no longer: the most promising, half of them by bound where there is a plan."""
        most = min(most, self._portion)
        self._portion = min(self._params.growth * self._portion, self._params.portion)
        if not planned:
            return self._take(least_places(self._priority[self.rows], most))
        values = (self._priority[self.rows], self._value[self.rows])
        return self._take(np.concatenate([least_places(value, -(-most // 2)) for value in values]))

    def portion_of(self, considered: BoolArray, most: int) -> IntArray:
        """Rows that wait no longer: the most promising of these configurations."""
        places = np.flatnonzero(considered[self.rows])
        most = min(most, self._params.sample)
        return self._take(places[least_places(self._priority[self.rows[places]], most)])

    def _take(self, places: IntArray) -> IntArray:
        chosen = np.zeros(len(self.rows), dtype=np.bool_)
        chosen[places] = True
        taken, self.rows = self.rows[chosen], self.rows[~chosen]
        self.least_value = self._least(self._value)
        return taken


def least_places(values: FloatArray, most: int) -> IntArray:
    """Places of the least values, in no order."""
    if len(values) <= most:
        return np.arange(len(values))
    return np.argpartition(values, most - 1)[:most]
