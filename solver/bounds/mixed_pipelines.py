"""A bound of even pipelines on several GPU types: the pipelines of every choice of their ranks on the slower ones.

Some replica has so many ranks on slower types (`slower_ranks.py`); its pipeline, with the costs and the memory of these
types on these ranks, is bounded for every choice of them. Best first: in a choice that is not complete the ranks not
yet decided have the least costs and the most memory of all types, which bounds all its completions. Proof:
docs/bounds.md, "Ranks on slower GPU types".
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from solver.arrays import BoolArray
from solver.clock import Clock, charge_pipeline_bounds
from solver.pipeline.bounds import makespan_bound
from solver.pipeline.problem import PipelineShape

MOST_PIPELINES = 48  # of one configuration and split of the types: about a millisecond each


@dataclass(frozen=True)
class MixedPipelines:
    """Pipelines of which some ranks are on slower types, `num_slow` of them or more.

    `least` has every cost of all ranks at its least over all types, `slow` over the slower ones alone, where memory
    holds one micro-batch on the ranks of the mask `fits_r`. `update_s` follows every pipeline.
    """

    least: PipelineShape
    slow: PipelineShape
    fits_r: BoolArray
    num_slow: int
    update_s: float

    def least_s(self, low_s: float, high_s: float, clock: Clock) -> float:
        """No choice of the ranks takes less (seconds), as far as it matters between these two.

        `clock` is charged for the pipelines.
        """
        nothing: tuple[bool, ...] = ()  # decided: of ranks 0, 1, ... whether each is on slower types
        queue = [(low_s, 0, nothing)]
        for _ in range(MOST_PIPELINES):
            bound_s, _, decided = queue[0]
            if bound_s >= high_s or sum(decided) == self.num_slow:
                break
            heapq.heappop(queue)
            charge_pipeline_bounds(clock, self.least.num_operations)
            number = len(decided) + 1
            slower_s = self._time_s((*decided, True), high_s)
            heapq.heappush(queue, (max(bound_s, slower_s), -number, (*decided, True)))
            if self.least.num_ranks - number >= self.num_slow - sum(decided):
                heapq.heappush(queue, (bound_s, -number, (*decided, False)))
        return min(queue[0][0], high_s)

    def _time_s(self, decided: tuple[bool, ...], enough_s: float) -> float:
        """The bound with these of the first ranks on slower types, and all others on any (seconds)."""
        slow_r = np.zeros(self.least.num_ranks, dtype=np.bool_)
        slow_r[: len(decided)] = decided
        if (slow_r & ~self.fits_r).any():
            return float("inf")
        slow_s = slow_r[self.least.rank_of_s]
        mixed = replace(
            self.least,
            duration_ks=np.where(slow_s, self.slow.duration_ks, self.least.duration_ks),
            activation_s=np.where(slow_s, self.slow.activation_s, self.least.activation_s),
            context_s=np.where(slow_s, self.slow.context_s, self.least.context_s),
            budget_r=np.where(slow_r, self.slow.budget_r, self.least.budget_r),
        )
        return self.update_s + makespan_bound(mixed, enough_s - self.update_s)
