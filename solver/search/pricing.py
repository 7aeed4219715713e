"""Prices configurations in portions that end in time.

How many configurations a portion may have follows from the pace of those before. The frontier chooses which they are.
"""

from collections.abc import Callable
from dataclasses import dataclass

from solver.arrays import BoolArray
from solver.clock import Clock, charge_priced
from solver.search.frontier import Frontier
from solver.search.phases import Phases


@dataclass
class Pricing:
    """The pace of pricing so far, in seconds per configuration; 0 before the first portion."""

    frontier: Frontier
    phases: Phases
    row_s: float = 0.0

    def load(self, cutoff: float, *, planned: bool, until_s: float) -> float:
        """Price the next portion of the frontier, if it can be done by then; as how many configurations it took."""
        return self._timed(until_s, lambda most: self.frontier.load(cutoff, planned=planned, most=most))

    def load_for(self, considered: BoolArray, until_s: float) -> float:
        """Price some of these configurations until a time on the clock; how many were priced."""
        return self._timed(until_s, lambda most: self.frontier.load_for(considered, most=most))

    def portion(self, until_s: float) -> int:
        """Configurations that can be priced by then, at most as many as one look at the clock may cost; 0 if too few.

        n = min(slice, time left) / (seconds per configuration).
        """
        left_s = until_s - self._clock()
        if left_s <= 0:
            return 0
        params = self.phases.params
        if not self.row_s:
            return params.portion
        if left_s < params.fewest_priced * self.row_s:
            return 0
        slice_s = max(params.slice_share * self.phases.limit_s, params.least_slice_s)
        return max(params.fewest_priced, min(params.portion, int(min(slice_s, left_s) / self.row_s)))

    @property
    def _clock(self) -> Clock:
        return self.phases.hooks.clock

    def _timed(self, until_s: float, price: Callable[[int], float]) -> float:
        most = self.portion(until_s)
        if not most:
            return 0.0
        began_s = self._clock()
        num_priced = price(most)
        charge_priced(self._clock, num_priced, len(self.frontier.context.gpu_classes))
        if num_priced:
            self.row_s = (self._clock() - began_s) / num_priced
        return num_priced
