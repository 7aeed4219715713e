"""The configurations of a search that are not priced yet, and which of them are next.

Screening gives each a cheap bound and a guess.
"""

import sys
from collections.abc import Callable
from functools import cached_property

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.screening import Screening
from solver.bounds.work import light_bound_s, work_sharding
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.objective import Goal
from solver.search.params import SearchParams

SHAPE = ("tp", "cp", "ep", "pp", "dp", "vpp", "micro_batch", "num_microbatches", "recompute")


class Unpriced:
    """`rows` of the space that wait; `least_value` is the least objective that any of them may have.

    `bound_s` (seconds) and `size` (of the objective, the least it may be until a row is priced) are columns of the
    whole space. `missed_s` is the least bound of what misses the target for certain and never waited, or waits no
    longer. Those of a shape do the same work, however they shard state, and have one bound together before any of them
    is priced.
    """

    def __init__(
        self, context: Context, space: Space, goal: Goal, params: SearchParams, late: Callable[[], bool]
    ) -> None:
        self._params, self._goal, self._space, self._late = params, goal, space, late
        self._portion = params.first_portion
        self.size = goal.least_sizes(context, space)
        self.largest = max(float(self.size.max()), 1.0)
        self._screening = Screening(context, space)
        self.bound_s = np.full(len(space), light_bound_s(context))
        self._value = goal.least_values(self.bound_s, self.size)
        self._priority = np.full(len(space), np.inf)
        self.target_rules_out = bool(np.isinf(self._value).any())
        self.missed_s = float("inf")
        self.rows = np.arange(len(space))
        self._unbounded: IntArray | None = None
        self.look(params.first_look)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def least_s(self) -> float:
        """No waiting configuration takes less than this."""
        return self._least(self.bound_s)

    def _least(self, column: FloatArray) -> float:
        return float(column[self.rows].min(initial=float("inf")))

    def look(self, most: int = sys.maxsize) -> None:
        """Screen so many more, or all that were not looked at."""
        if self._screening.is_complete:
            return
        self._unbounded = None
        rows, found = self._screening.look(most, late=self._late)
        self.bound_s[rows] = np.maximum(self.bound_s[rows], found.bound_s)
        self._value[rows] = self._goal.least_values(self.bound_s[rows], self.size[rows])
        self._priority[rows] = self._goal.priority(
            np.maximum(found.guess_s, self.bound_s[rows]), self.size[rows], self.largest
        )
        self.target_rules_out = self.target_rules_out or bool(np.isinf(self._value[rows]).any())
        self._drop_missed()

    def _drop_missed(self) -> None:
        """What misses the target for certain waits no longer."""
        in_time = np.isfinite(self._value[self.rows])
        self.missed_s = min(self.missed_s, float(self.bound_s[self.rows[~in_time]].min(initial=float("inf"))))
        self.rows = self.rows[in_time]
        self.least_value = self._least(self._value)

    def num_at_least(self, cutoff: float) -> int:
        """Waiting configurations that cannot be better than that."""
        return int(np.count_nonzero(self._value[self.rows] >= cutoff))

    @cached_property
    def _shape_of(self) -> IntArray:
        """The number of every configuration's shape."""
        space = self._space
        columns = (getattr(space.columns, name) for name in SHAPE)
        return distinct_rows(*columns, space.family, space.layer_split, *work_sharding(space))[1]

    @cached_property
    def _has_bound(self) -> BoolArray:
        """Shapes that have been bounded."""
        return np.zeros(int(self._shape_of.max(initial=-1)) + 1, dtype=np.bool_)

    def shapes(self, cutoff: float, most: int) -> IntArray:
        """A row of each of at most so many shapes that may be better and have no bound yet, the least value first; none
        where shapes are hardly fewer than configurations."""
        if self._unbounded is None:  # put in order once, until more is screened
            waiting = self.rows[self._value[self.rows] < cutoff]
            waiting = waiting[~self._has_bound[self._shape_of[waiting]]][::-1]
            rows = waiting[distinct_rows(self._shape_of[waiting])[0]]  # the last of each shape, so the first that waits
            are_few = len(waiting) < self._params.least_alike * len(rows)
            self._unbounded = rows[:0] if are_few else rows[np.argsort(self._value[rows], kind="stable")]
        rows, self._unbounded = self._unbounded[:most], self._unbounded[most:]
        return rows[self._value[rows] < cutoff]

    def raise_shapes(self, rows: IntArray, seconds: FloatArray) -> None:
        """Iteration times that all configurations of these rows' shapes cannot be below."""
        shapes = self._shape_of[rows]
        self._has_bound[shapes] = True
        least_s = np.zeros(len(self._has_bound))
        least_s[shapes] = seconds
        raised = self.rows[least_s[self._shape_of[self.rows]] > self.bound_s[self.rows]]
        self.bound_s[raised] = least_s[self._shape_of[raised]]
        self._value[raised] = self._goal.least_values(self.bound_s[raised], self.size[raised])
        priority = self._goal.priority(self.bound_s[raised], self.size[raised], self.largest)
        self._priority[raised] = np.maximum(self._priority[raised], priority)
        if not np.isfinite(self._value[raised]).all():
            self._drop_missed()
        self.least_value = self._least(self._value)

    def drop(self, priced: BoolArray) -> None:
        """These configurations (a mask of the whole space) were priced before."""
        self.rows = self.rows[~priced[self.rows]]
        self.least_value = self._least(self._value)

    def next_portion(self, most: int, *, planned: bool) -> IntArray:
        """Rows that wait no longer: the most promising, half of them by bound where there is a plan."""
        most = min(most, self._portion)
        self._portion = min(self._params.growth * self._portion, self._params.portion)
        if not planned:
            places = least_places(self._priority[self.rows], most)
            if not np.isfinite(self._priority[self.rows[places]]).all() and not self._screening.is_complete:
                self.look()
                places = least_places(self._priority[self.rows], most)
            return self._take(places)
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
