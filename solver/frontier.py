"""The open configurations of a search: priced when their turn comes, ordered by promise, bounded from below.

Owns the order of exploration and the least open bound, in the unit of the objective. Never places or times anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from models.plan import Configuration
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.evaluation.candidate import configuration_of
from solver.evaluation.polish import relaxed_bound_s
from solver.objective import Goal
from solver.space.bounds import cheap_bounds, lower_bounds
from solver.space.enumerate import Space

IntArray = npt.NDArray[np.int64]
ROWS_FACTOR = 2.0  # configurations whose cheap bound is within this factor of the least are priced together
MAX_ROWS_AT_ONCE, MAX_ROWS_LATER = 60_000, 20_000
REPEAT_PENALTY = 0.02  # each further configuration of one pipeline shape waits a little longer
MISSED = 1e6  # a guess beyond the target: tried last, the nearest first


@dataclass
class Frontier:
    """Rows of the space that fit into memory, with their bounds and guesses as values of the objective."""

    context: Context
    space: Space
    goal: Goal
    rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    bound: FloatArray = field(default_factory=lambda: np.zeros(0))
    guess: FloatArray = field(default_factory=lambda: np.zeros(0))
    explored: set[int] = field(default_factory=set)
    sharpened: set[int] = field(default_factory=set)
    fastest_s: float = float("inf")

    def __post_init__(self) -> None:
        self._size = self.goal.sizes(self.context, self.space.columns)
        cheap_s = cheap_bounds(self.context, self.space)
        self.cheapest_s = float(cheap_s.min())
        self._cheap = self.goal.values(cheap_s, self._size)
        order = np.argsort(self._cheap, kind="stable")
        self._pending = order[np.isfinite(self._cheap[order])]

    @property
    def exhausted(self) -> bool:
        """Every configuration has been priced."""
        return not len(self._pending)

    @property
    def pending_bound(self) -> float:
        """Least value that a configuration not yet priced may have."""
        return float(self._cheap[self._pending[0]]) if len(self._pending) else float("inf")

    @property
    def least_bound(self) -> float:
        """Least value that any configuration may have."""
        return min(float(self.bound.min(initial=float("inf"))), self.pending_bound)

    def load(self, cut: float, *, planned: bool, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Price the next configurations while they may hold the least bound or nothing else is left; says if it did.

        Between portions `stopped` may end it: what is not priced yet keeps its cheap bound.
        """
        before = len(self._pending)
        while len(self._pending) and (not len(self.rows) or self._must_load(cut, planned=planned)):
            limit = ROWS_FACTOR * self.pending_bound
            take = int(np.searchsorted(self._cheap[self._pending], limit, side="right"))
            most = MAX_ROWS_LATER if len(self.rows) else MAX_ROWS_AT_ONCE
            self._price(self._pending[: min(max(take, 1), most)])
            if stopped():
                break
        return len(self._pending) < before

    def _must_load(self, cut: float, *, planned: bool) -> bool:
        if self.next(cut) is None:
            return self.pending_bound < cut
        return planned and self.pending_bound < min(float(self.bound.min()), cut)

    def _price(self, rows: IntArray) -> None:
        self._pending = self._pending[len(rows) :]
        bounds = lower_bounds(self.context, self.space.take(rows))
        self.fastest_s = min(self.fastest_s, float(bounds.iteration_s[bounds.fits].min(initial=float("inf"))))
        value = self.goal.values(bounds.iteration_s, self._size[rows])
        keep = bounds.fits & np.isfinite(value)
        kept = rows[keep]
        guess = self.goal.values(bounds.guess_s[keep], self._size[kept])
        guess = np.where(np.isfinite(guess), guess, MISSED * bounds.guess_s[keep])
        self.rows = np.concatenate([self.rows, kept])
        self.bound = np.concatenate([self.bound, value[keep]])
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

    def next(self, cut: float) -> int | None:
        """The most promising configuration that is neither explored nor ruled out."""
        open_rows = np.flatnonzero(self.bound < cut)
        promising = open_rows[np.argsort(self.guess[open_rows], kind="stable")][: len(self.explored) + 1]
        return next((int(index) for index in promising if int(index) not in self.explored), None)

    def num_ruled_out(self, cut: float) -> int:
        """Configurations that do not fit or cannot improve on the cut."""
        return len(self.space) - len(self._pending) - int(np.count_nonzero(self.bound < cut))

    def configuration(self, index: int) -> Configuration:
        """The configuration behind an index."""
        return configuration_of(self.context, self.space, int(self.rows[index]))

    def sharpen(self, index: int) -> Configuration:
        """Replace a configuration's bound by the pipeline's own."""
        configuration = self.configuration(index)
        if index not in self.sharpened:
            self.sharpened.add(index)
            seconds = relaxed_bound_s(self.context, configuration)
            value = float(self.goal.values(np.array([seconds]), self._size[self.rows[index : index + 1]])[0])
            self.bound[index] = max(self.bound[index], value)
        return configuration

    def tighten(self, cut: float) -> bool:
        """Sharpen the least bound that is not sharp yet; false when none is left below the cut."""
        for index in np.argsort(self.bound, kind="stable")[: len(self.sharpened) + 1]:
            if self.bound[index] >= cut:
                return False
            if int(index) not in self.sharpened:
                self.sharpen(int(index))
                return True
        return False

    def taken(self) -> Space:
        """The priced configurations that fit, in the order of `guess`."""
        return self.space.take(self.rows)
