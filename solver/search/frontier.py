"""The open configurations of a search: priced when their turn comes, ordered by priority, bounded from below.

Owns the order of exploration and the least open bound, in the unit of the objective. Never places or times anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from models.plan import Configuration
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.evaluation.candidate import configuration_of
from solver.objective import Goal

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FIRST_PORTION, PORTION, SAMPLE = 512, 16_384, 1_024  # configurations priced together: the most promising first,
GROWTH = 4  # and so many times the portion before, so that the first plan waits for few of them
REPEAT_PENALTY = 0.02  # each further configuration of one pipeline shape waits a little longer
UNPLANNED = 4.0  # times the least bound: bounds need go no higher before there is a plan


@dataclass
class Frontier:
    """Rows of the space that fit into memory: bounds as values of the objective, guesses as what to go by, and times.

    `seconds` are the bounds as times. `pending_bound` is the least value that a configuration not yet priced may have.
    `least_need` is the least memory that any priced one needs, and its row.
    """

    context: Context
    space: Space
    goal: Goal
    late: Callable[[], bool] = lambda: False  # no time is left to look at all of the space before the first plan
    rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    bound: FloatArray = field(default_factory=lambda: np.zeros(0))
    seconds: FloatArray = field(default_factory=lambda: np.zeros(0))
    guess: FloatArray = field(default_factory=lambda: np.zeros(0))
    pace_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    explored: set[int] = field(default_factory=set)
    refined: set[int] = field(default_factory=set)
    fastest_s: float = float("inf")
    any_fits: bool = False
    least_need: tuple[float, int] = (float("inf"), -1)  # bytes and row of what was priced and needs least memory
    pending_bound: float = field(init=False)
    _portion: int = field(default_factory=lambda: FIRST_PORTION)

    def __post_init__(self) -> None:
        self._size = self.goal.sizes(self.context, self.space)
        ahead = screening_bounds(self.context, self.space, late=self.late)
        self._ahead_s = ahead.bound_s
        self._cheap = self.goal.least_values(ahead.bound_s, self._size)
        self.target_rules_out = bool(np.isinf(self._cheap).any())
        self._largest = max(float(self._size.max()), 1.0)
        self._priority = self.goal.priority(ahead.guess_s, self._size, self._largest)
        in_time = np.isfinite(self._cheap)
        self._missed_s = float(self._ahead_s[~in_time].min(initial=float("inf")))
        self._pending = np.flatnonzero(in_time)
        self.pending_bound = self._least_pending()

    @property
    def exhausted(self) -> bool:
        """Every configuration has been priced."""
        return not len(self._pending)

    @property
    def least_bound(self) -> float:
        """Least value that any configuration may have."""
        return min(float(self.bound.min(initial=float("inf"))), self.pending_bound)

    @property
    def least_s(self) -> float:
        """No plan takes less than this, whether it reaches the target or not; infinite where nothing fits."""
        pending_s = float(self._ahead_s[self._pending].min(initial=float("inf")))
        return min(self._missed_s, float(self.seconds.min(initial=float("inf"))), pending_s)

    def load(self, cutoff: float, *, planned: bool, most: int = PORTION) -> int:
        """Price a portion of at most so many configurations if it may hold the least bound or nothing else is left;
        how many it had.

        Before there is a plan these are the most promising, so that it does not wait for the rest.
        """
        if not len(self._pending) or (len(self.rows) and not self._must_load(cutoff, planned=planned)):
            return 0
        most = min(most, self._portion)
        self._portion = min(GROWTH * self._portion, PORTION)
        if not planned:
            return self._price_at(_least(self._priority[self._pending], most))
        values = (self._priority[self._pending], self._cheap[self._pending])
        return self._price_at(np.concatenate([_least(value, -(-most // 2)) for value in values]))

    def load_for(self, considered: BoolArray, *, most: int = SAMPLE) -> int:
        """Price the most promising of these configurations, at most so many; how many that were."""
        places = np.flatnonzero(considered[self._pending])
        return self._price_at(places[_least(self._priority[self._pending[places]], min(most, SAMPLE))])

    def is_pending(self, considered: BoolArray) -> bool:
        """Some of these configurations have not been priced yet."""
        return bool(considered[self._pending].any())

    def _least_pending(self) -> float:
        return float(self._cheap[self._pending].min(initial=float("inf")))

    def _price_at(self, places: IntArray) -> int:
        """Price what is pending at these places."""
        if not len(places):
            return 0
        chosen = np.zeros(len(self._pending), dtype=np.bool_)
        chosen[places] = True
        rows, self._pending = self._pending[chosen], self._pending[~chosen]
        self.pending_bound = self._least_pending()
        self._price(rows)
        return len(rows)

    def _must_load(self, cutoff: float, *, planned: bool) -> bool:
        if self.next(cutoff) is None:
            return self.pending_bound < cutoff
        return planned and self.pending_bound < min(float(self.bound.min()), cutoff)

    def _price(self, rows: IntArray) -> None:
        bounds = lower_bounds(self.context, self.space.take(rows))
        seconds = np.maximum(bounds.iteration_s, self._ahead_s[rows])
        value = self.goal.least_values(seconds, self._size[rows])
        keep = bounds.fits & np.isfinite(value)
        self.any_fits = self.any_fits or bool(bounds.fits.any())
        self.fastest_s = min(self.fastest_s, float(seconds[bounds.fits].min(initial=float("inf"))))
        self._missed_s = min(self._missed_s, float(seconds[bounds.fits & ~keep].min(initial=float("inf"))))
        tightest = int(np.argmin(bounds.least_memory_bytes))
        self.least_need = min(self.least_need, (float(bounds.least_memory_bytes[tightest]), int(rows[tightest])))
        kept = rows[keep]
        guess = self.goal.priority(bounds.guess_s[keep], self._size[kept], self._largest)
        self.rows = np.concatenate([self.rows, kept])
        self.bound = np.concatenate([self.bound, value[keep]])
        self.seconds = np.concatenate([self.seconds, seconds[keep]])
        self.pace_s = np.concatenate([self.pace_s, bounds.guess_s[keep]])
        self.guess = np.concatenate([self.guess, guess * (1.0 + REPEAT_PENALTY * self._repeats(kept, guess))])

    def _repeats(self, rows: IntArray, guess: FloatArray) -> FloatArray:
        """How many more promising configurations have the same pipeline shape, so that shapes are tried in turn."""
        order = np.argsort(guess, kind="stable")
        _, inverse = np.unique(self.space.take(rows[order]).pipeline_shapes(), axis=0, return_inverse=True)
        seen = np.zeros(int(inverse.max(initial=0)) + 1, dtype=np.int64)
        repeats = np.zeros(len(rows))
        for place, shape in zip(order, inverse.ravel(), strict=True):
            repeats[place] = seen[shape]
            seen[shape] += 1
        return repeats

    def next(self, cutoff: float, *, planned: bool = True) -> int | None:
        """The most promising configuration that is neither explored nor ruled out.

        Until something reaches the target, every other one is the one that is likeliest to.
        """
        open_rows = np.flatnonzero(self.bound < cutoff)
        likeliest = self.goal.has_target and not planned and len(self.explored) % 2
        order = self.pace_s if likeliest else self.guess
        promising = open_rows[np.argsort(order[open_rows], kind="stable")][: len(self.explored) + 1]
        return next((int(index) for index in promising if int(index) not in self.explored), None)

    def tied(self, value: float, most: int) -> list[int]:
        """Unexplored configurations that may be as good as this value and no better, the fastest guesses first."""
        alike = np.flatnonzero(self.bound == value)
        order = alike[np.argsort(self.pace_s[alike], kind="stable")]
        return list(islice((int(index) for index in order if int(index) not in self.explored), most))

    def num_ruled_out(self, cutoff: float) -> int:
        """Configurations that do not fit or cannot improve on the cutoff, but for those that were explored."""
        kept = self.bound < cutoff
        kept[list(self.explored)] = True
        return len(self.space) - len(self._pending) - int(np.count_nonzero(kept))

    def configuration(self, index: int) -> Configuration:
        """The configuration behind an index."""
        return configuration_of(self.context, self.space, int(self.rows[index]))

    def refine_bound(self, index: int, cutoff: float = float("inf")) -> Configuration:
        """Replace a configuration's bound by the pipeline's own, which need not go much beyond the cutoff."""
        configuration = self.configuration(index)
        if index not in self.refined:
            self.refined.add(index)
            self.raise_bound(index, refined_bound_s(self.context, configuration, self.target_bound_s(index, cutoff)))
        return configuration

    def target_bound_s(self, index: int, cutoff: float) -> float:
        """A configuration's bound need not go much beyond this."""
        size = float(self._size[self.rows[index]])
        return min(self.goal.seconds(cutoff, size), UNPLANNED * self.fastest_s)

    def raise_bound(self, index: int, seconds: float) -> None:
        """Some iteration time that the configuration cannot be below."""
        value = float(self.goal.least_values(np.array([seconds]), self._size[self.rows[index : index + 1]])[0])
        self.bound[index] = max(self.bound[index], value)
        self.seconds[index] = max(self.seconds[index], seconds)

    def refine_least(self, cutoff: float) -> bool:
        """Refine the least bound that is not refined yet; false when none is left below the cutoff."""
        for index in self.unrefined(cutoff, 1):
            self.refine_bound(index, cutoff)
            return True
        return False

    def unrefined(self, cutoff: float, most: int) -> list[int]:
        """The least bounds below the cutoff that are not refined yet."""
        least = np.argsort(self.bound, kind="stable")[: len(self.refined) + most]
        open_ones = (int(index) for index in least if self.bound[index] < cutoff)
        return list(islice((index for index in open_ones if index not in self.refined), most))

    def taken(self) -> Space:
        """The priced configurations that fit, in the order of `guess`."""
        return self.space.take(self.rows)


def _least(values: FloatArray, most: int) -> IntArray:
    """Places of the least values, in no order."""
    if len(values) <= most:
        return np.arange(len(values))
    return np.argpartition(values, most - 1)[:most]
