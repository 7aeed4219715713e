"""DualPipeV: the V-shaped half of DualPipe, as eight steps per rank. Source: DeepSeek-AI, DualPipe (cut in half).

Forwards and backwards that DualPipe overlaps in one kernel run one after the other here, so its overlap gain is not
modelled. Needs a V layout and at least two micro-batches per rank.
"""

from collections import deque
from collections.abc import Iterator

from solver.pipeline.generators.orders import Step, is_v, planned
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, PipelineOrder, PipelineShape


def dual_pipe_v(shape: PipelineShape) -> PipelineOrder | None:
    """The eight steps; None for another layout or fewer than 2 ranks micro-batches."""
    if not is_v(shape) or shape.num_microbatches < 2 * shape.num_ranks:
        return None
    return planned(shape, [_Rank(shape, rank).steps() for rank in range(shape.num_ranks)])


class _Rank:
    """Counts what each chunk has run and queues the W that a zero-bubble backward leaves for later."""

    def __init__(self, shape: PipelineShape, rank: int) -> None:
        self._stages = (rank, shape.num_stages - 1 - rank)
        self._before, self._after = rank + 1, shape.num_ranks - rank - 1
        self._main = shape.num_microbatches - 2 * shape.num_ranks + rank + 1
        self._odd = rank % 2 == 1
        self._counts = {(kind, chunk): 0 for kind in (FORWARD, BACKWARD) for chunk in (0, 1)}
        self._later: deque[Step] = deque()

    def steps(self) -> Iterator[Step]:
        """The whole order of the rank."""
        for _ in range(2 * self._after):
            yield self._forward(0)
        for _ in range(self._before):
            yield self._forward(0)
            yield self._forward(1)
        for _ in range(self._after):
            yield from self._backward(1, split=True)
            yield self._later.popleft()
            yield self._forward(1)
        for _ in range(self._main):
            yield self._forward(0)
            yield from self._backward(1)
            yield self._forward(1)
            yield from self._backward(0)
        for _ in range(self._after):
            yield from self._backward(1)
            yield self._forward(1)
            yield from self._backward(0)
        yield from self._cool_down()

    def _cool_down(self) -> Iterator[Step]:
        split = False
        for index in range(self._before):
            split = split or (index == self._before // 2 and self._odd)
            yield from self._backward(1, split=split)
            split = split or index == self._before // 2
            yield from self._backward(0, split=split)
        for _ in range(self._after):
            if self._later:
                yield self._later.popleft()
            yield from self._backward(0, split=True)
        yield from self._later

    def _next(self, kind: int, chunk: int) -> Step:
        microbatch = self._counts[kind, chunk]
        self._counts[kind, chunk] += 1
        return kind, self._stages[chunk], microbatch

    def _forward(self, chunk: int) -> Step:
        return self._next(FORWARD, chunk)

    def _backward(self, chunk: int, *, split: bool = False) -> Iterator[Step]:
        step = self._next(BACKWARD, chunk)
        yield step
        weight = (WEIGHT, step[1], step[2])
        if split:
            self._later.append(weight)
        else:
            yield weight
