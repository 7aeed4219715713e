"""ZBV by hand: warm-up, steady state and cool-down of a V layout with no bubble in between. Source: Qi et al. 2024.

For any number of micro-batches: the phases are laid out for at least 2 ranks - 1, and what lies beyond the number is
left out. At most 2 ranks chunk activations are held.
"""

from collections.abc import Iterator

from solver.pipeline.generators.orders import Step, is_v, planned
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, PipelineOrder, PipelineShape


def zbv_phases(shape: PipelineShape) -> PipelineOrder | None:
    """The phases; None for another layout or a fused backward, whose W cannot wait."""
    if not is_v(shape) or shape.num_kinds == 2:
        return None
    ranks = [
        [step for step in _Rank(shape, rank).steps() if step[2] < shape.num_microbatches]
        for rank in range(shape.num_ranks)
    ]
    return planned(shape, ranks)


class _Rank:
    """Counts, by kind and chunk, what has run; chunk 0 goes down the V, chunk 1 comes back up."""

    def __init__(self, shape: PipelineShape, rank: int) -> None:
        self._rank, self._after = rank, shape.num_ranks - rank
        self._most = max(2 * shape.num_ranks - 1, shape.num_microbatches)
        self._stages = (rank, shape.num_stages - 1 - rank)
        self._counts = {(kind, chunk): 0 for kind in (FORWARD, BACKWARD, WEIGHT) for chunk in (0, 1)}

    def steps(self) -> Iterator[Step]:
        """The whole order of the rank, fictitious micro-batches included."""
        for _ in range(2 * self._after - 1):
            yield self._next(FORWARD, 0)
        for _ in range(self._rank):
            yield self._next(FORWARD, 1)
            yield self._next(FORWARD, 0)
        for _ in range(self._after):
            yield self._next(FORWARD, 1)
            yield from self._whole(1)
        while self._counts[FORWARD, 1] < self._counts[FORWARD, 0] or self._counts[FORWARD, 0] < self._most:
            if self._counts[FORWARD, 0] < self._most:
                yield self._next(FORWARD, 0)
            yield from self._whole(0)
            yield self._next(FORWARD, 1)
            yield from self._whole(1)
        yield from self._cool_down()

    def _cool_down(self) -> Iterator[Step]:
        for _ in range(self._rank):
            yield self._next(BACKWARD, 0)
            yield self._next(BACKWARD, 1)
        for _ in range(self._after):
            yield self._next(BACKWARD, 0)
            yield self._next(WEIGHT, 0)
        for chunk in (1, 0):
            while self._counts[WEIGHT, chunk] < self._counts[BACKWARD, chunk]:
                yield self._next(WEIGHT, chunk)

    def _whole(self, chunk: int) -> Iterator[Step]:
        yield self._next(BACKWARD, chunk)
        yield self._next(WEIGHT, chunk)

    def _next(self, kind: int, chunk: int) -> Step:
        microbatch = self._counts[kind, chunk]
        self._counts[kind, chunk] += 1
        return kind, self._stages[chunk], microbatch
