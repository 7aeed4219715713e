"""Backwards of late chunks first, so that their gradients are exchanged beside the backwards of the others.

The exchanges of the chunks of a rank follow each other on its cards. Where all chunks are done with their last
micro-batch, none hides; where the last chunk has all its backwards before the others begin theirs, only the exchange
of the first one is left at the end. Lamy-Poirier's breadth-first order (2023) does so in loops; this one lists what
has arrived, in any layout of several chunks, and holds no more than memory allows.
"""

import numpy as np

from solver.pipeline.generators.list_scheduler import ListScheduler, order_of
from solver.pipeline.problem import FORWARD, PipelineOrder, PipelineShape

WAIT = 0.3  # of what would start; the others tried on folded and looped pipelines of 16 ranks, 0 and 1, end later


def last_chunks_first(shape: PipelineShape) -> PipelineOrder | None:
    """Forwards and backwards of the last chunk by micro-batch, then the chunks before it one after another.

    None where ranks have one chunk.
    """
    chunks, m = shape.num_stages // shape.num_ranks, shape.num_microbatches
    if chunks < 2:
        return None
    kind, rest = np.divmod(np.arange(shape.num_kinds * shape.num_stages * m), shape.num_stages * m)
    stage, microbatch = np.divmod(rest, m)
    later = np.where(kind == FORWARD, 0, chunks - 1 - stage // shape.num_ranks)
    guide = later * float(m) + microbatch
    record = ListScheduler(shape).order(guide, strict=False, wait=WAIT)
    return None if record is None else order_of(record)
