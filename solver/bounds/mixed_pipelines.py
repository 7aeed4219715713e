"""A bound of even pipelines on several GPU types: the pipelines of every choice of their ranks on the slower ones.

Some replica has so many ranks on slower types (`slower_ranks.py`); its pipeline, with the costs and the memory of these
types on these ranks, is bounded for every choice of them. Best first: in a choice that is not complete the ranks not
yet decided have the least costs and the most memory of all types, which bounds all its completions. Where no place has
both slower and faster types, messages between ranks on the one and on the other take longer. Proof: docs/bounds.md,
"Ranks on slower GPU types".
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np

from solver.arrays import BoolArray
from solver.clock import Clock, charge_pipeline_bounds
from solver.pipeline.bounds import makespan_bound
from solver.pipeline.problem import PipelineShape

MOST_PIPELINES = 96  # of one configuration and split of the types: about a millisecond each


@dataclass(frozen=True)
class MixedPipelines:
    """Pipelines of which some ranks are on slower types, `num_slow` of them or more.

    `least` has every cost of all ranks at its least over all types, `slow` over the slower ones alone, `fast` over the
    others, where memory holds one micro-batch on the ranks of the masks. `update_s` follows every pipeline, and
    `apart_s` is the least of a message between the two: 0 where it is that of any message.
    """

    least: PipelineShape
    slow: tuple[PipelineShape, BoolArray]
    fast: tuple[PipelineShape, BoolArray]
    num_slow: int
    update_s: float
    apart_s: float

    def least_s(self, low_s: float, high_s: float, clock: Clock, effort: int = 1) -> float:
        """No choice of the ranks takes less (seconds), as far as it matters between these two.

        `clock` is charged for the pipelines, of which as many as usual are looked at, times `effort`.
        """
        nothing: tuple[bool, ...] = ()  # decided: of ranks 0, 1, ... whether each is on slower types
        queue = [(low_s, 0, nothing)]
        for _ in range(effort * MOST_PIPELINES):
            bound_s, _, decided = queue[0]
            if bound_s >= high_s or self._is_complete(decided):
                break
            heapq.heappop(queue)
            number = len(decided) + 1
            for is_slow in (True, False):
                if not is_slow and self.least.num_ranks - number < self.num_slow - sum(decided):
                    continue
                next_s = bound_s
                if is_slow or self.apart_s:
                    charge_pipeline_bounds(clock, self.least.num_operations)
                    next_s = max(bound_s, self._time_s((*decided, is_slow), high_s))
                heapq.heappush(queue, (next_s, -number, (*decided, is_slow)))
        return min(queue[0][0], high_s)

    def _is_complete(self, decided: tuple[bool, ...]) -> bool:
        """Whether no rank that is left makes the pipeline longer."""
        return len(decided) == self.least.num_ranks or (not self.apart_s and sum(decided) == self.num_slow)

    def _time_s(self, decided: tuple[bool, ...], enough_s: float) -> float:
        """The bound with these of the first ranks on slower types, the other first ones on faster types where that
        matters, and all others on any (seconds).
        """
        mixed, first = self.least, np.zeros((2, self.least.num_ranks), dtype=np.bool_)
        slow_r, fast_r = first
        slow_r[: len(decided)] = decided
        fast_r[: len(decided)] = ~slow_r[: len(decided)] & (self.apart_s > 0.0)
        for on_r, (shape, fits_r) in ((slow_r, self.slow), (fast_r, self.fast)):
            if (on_r & ~fits_r).any():
                return float("inf")
            mixed = _with_ranks_of(mixed, shape, on_r)
        slow_s, fast_s = slow_r[mixed.rank_of_s], fast_r[mixed.rank_of_s]
        apart = np.zeros(mixed.num_stages, dtype=np.bool_)
        apart[:-1] = (slow_s[:-1] & fast_s[1:]) | (fast_s[:-1] & slow_s[1:])
        mixed = replace(mixed, latency_s=np.where(apart, np.maximum(mixed.latency_s, self.apart_s), mixed.latency_s))
        return self.update_s + makespan_bound(mixed, enough_s - self.update_s)


def _with_ranks_of(shape: PipelineShape, other: PipelineShape, on_r: BoolArray) -> PipelineShape:
    """The pipeline with these ranks as they are in the other one."""
    on_s = on_r[shape.rank_of_s]
    return replace(
        shape,
        duration_ks=np.where(on_s, other.duration_ks, shape.duration_ks),
        activation_s=np.where(on_s, other.activation_s, shape.activation_s),
        context_s=np.where(on_s, other.context_s, shape.context_s),
        budget_r=np.where(on_r, other.budget_r, shape.budget_r),
    )
