"""GPipe: all forwards, then all backwards. Source: Huang et al. 2019. Memory grows with the micro-batches."""

from collections.abc import Iterator

import numpy as np

from solver.pipeline.generators.orders import Step, planned, whole_backward
from solver.pipeline.problem import FORWARD, PipelineOrder, PipelineShape


def gpipe(shape: PipelineShape) -> PipelineOrder | None:
    """All F of a rank stage by stage, then all B and W from the last stage back; any layout."""
    return planned(shape, [_rank(shape, rank) for rank in range(shape.num_ranks)])


def _rank(shape: PipelineShape, rank: int) -> Iterator[Step]:
    stages = np.flatnonzero(shape.rank_of_s == rank).tolist()
    for stage in stages:
        for microbatch in range(shape.num_microbatches):
            yield FORWARD, stage, microbatch
    for stage in reversed(stages):
        for microbatch in range(shape.num_microbatches):
            yield from whole_backward(stage, microbatch)
