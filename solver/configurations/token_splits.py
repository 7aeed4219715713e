"""Which degrees split the tokens of micro-batches as the framework of a request needs."""

from __future__ import annotations

import numpy as np

from models.request import PlanRequest
from solver.arrays import BoolArray, IntArray


def token_splits(request: PlanRequest, tp: IntArray, cp: IntArray, sizes: IntArray) -> BoolArray:
    """Whether the framework splits the tokens of n rows of degrees with m sizes of micro-batches (sequences), n x m."""
    framework = request.constraints.framework
    if framework is None or framework.token_split == "any":
        return np.ones((len(tp), len(sizes)), dtype=np.bool_)
    pairs, row = np.unique(np.stack([tp, cp], axis=1), axis=0, return_inverse=True)
    each, column = np.unique(sizes, return_inverse=True)
    splits = [
        [
            not framework.token_limit(request.workload, tp=tp, cp=cp, micro_batch_sequences=size)
            for size in each.tolist()
        ]
        for tp, cp in pairs.tolist()
    ]
    return np.array(splits, dtype=np.bool_).reshape(len(pairs), len(each))[row.ravel()][:, column]
