"""How the transformer layers are shared out over the pipeline stages.

Two deterministic rules: even shares, vectorised over configurations, and shares by what a layer takes where it is.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from solver.arrays import FloatArray, IntArray


class LayerSplit(NamedTuple):
    """Layers of the first, the last and the stages between: `num_more` of these have one layer more than `middle`."""

    first: IntArray
    last: IntArray
    middle: IntArray
    num_more: IntArray


def split_layers(
    num_layers: int, num_stages: IntArray, *, first_extra: FloatArray | float, last_extra: FloatArray | float
) -> LayerSplit:
    """Balanced shares when the first and last stage carry extra work, measured in layers.

    The average share is (layers + extras) / stages; the last stage takes it less its extra, the first what the others
    have on average less its own, both rounded to nearest and at least one layer; the stages between share the rest
    evenly. The last stage has no layers where the slowest stage has half a layer less to do for it, as beside a large
    vocabulary.

    >>> split_layers(126, np.array([16]), first_extra=0.0, last_extra=1.4)
    LayerSplit(first=array([8]), last=array([7]), middle=array([7]), num_more=array([13]))
    >>> split_layers(62, np.array([32]), first_extra=0.0, last_extra=3.4)
    LayerSplit(first=array([2]), last=array([0]), middle=array([2]), num_more=array([0]))
    """
    stages = np.asarray(num_stages, dtype=np.int64)
    others = np.maximum(stages - 1, 1)
    share = (num_layers + first_extra + last_extra) / stages
    most = np.maximum(num_layers - (stages - 1), 1)
    last = np.clip(np.rint(share - last_extra), 1, most)
    with_one, with_none = (np.maximum(one + last_extra, np.ceil((num_layers - one) / others)) for one in (1, 0))
    last = np.where((last == 1) & (with_none <= with_one - 0.5), 0, last)
    last = np.where(stages > 1, last, num_layers).astype(np.int64)
    most_first = np.maximum(num_layers - last - (stages - 2), 1)
    first = np.rint((num_layers - last + first_extra) / others - first_extra)
    first = np.where(stages > 2, np.clip(first, 1, most_first), num_layers - last)
    first = np.where(stages > 1, first, num_layers).astype(np.int64)
    between = np.maximum(stages - 2, 1)
    middle, more = np.divmod(np.where(stages > 2, num_layers - first - last, 0), between)
    return LayerSplit(first=first, last=last, middle=middle, num_more=more)


def layers_per_stage(num_layers: int, num_stages: int, *, first_extra: float, last_extra: float) -> tuple[int, ...]:
    """The split of one configuration, stage by stage; longer stages come late, where less memory is in flight.

    >>> layers_per_stage(10, 4, first_extra=0.0, last_extra=1.0)
    (3, 2, 3, 2)
    """
    split = split_layers(num_layers, np.array([num_stages]), first_extra=first_extra, last_extra=last_extra)
    first, last, middle, more = (int(part[0]) for part in split)
    if num_stages == 1:
        return (first,)
    between = num_stages - 2
    return (first, *(middle + (1 if place >= between - more else 0) for place in range(between)), last)


def share_layers(
    num_layers: int,
    layer_s: Sequence[float],
    ends_s: Sequence[float],
    *,
    least: Sequence[int],
    most: Sequence[int],
) -> tuple[int, ...] | None:
    """Layers of every rank so that max of ends + layers * layer_s is least; None where they do not fit.

    Each layer goes to the rank that is then still the earliest, of equal ones to the last. That is optimal: the time of
    a rank only grows with its layers, so whoever takes a layer at more than the least price gains nothing later.

    >>> share_layers(10, (1.0, 1.0, 2.0, 2.0), (0.0, 0.0, 0.0, 1.0), least=(1,) * 4, most=(9,) * 4)
    (3, 4, 2, 1)
    >>> share_layers(10, (1.0, 2.0), (0.0, 0.0), least=(1, 1), most=(4, 5)) is None
    True
    """
    left = num_layers - sum(least)
    if left < 0 or any(low > high for low, high in zip(least, most, strict=True)):
        return None
    return next(itertools.islice(shares_one_by_one(layer_s, ends_s, least=least, most=most), left, None), None)


def shares_one_by_one(
    layer_s: Sequence[float], ends_s: Sequence[float], *, least: Sequence[int], most: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """What `share_layers` says of the least that all may have, of one layer more, and so on, up to the most.

    >>> list(shares_one_by_one((1.0, 2.0), (0.0, 0.0), least=(1, 1), most=(3, 2)))
    [(1, 1), (2, 1), (3, 1), (3, 2)]
    """
    shares = list(least)
    heap = [
        (end + (share + 1) * each, -rank)
        for rank, (share, each, end, high) in enumerate(zip(shares, layer_s, ends_s, most, strict=True))
        if share < high
    ]
    heapq.heapify(heap)
    yield tuple(shares)
    while heap:
        _, negative = heapq.heappop(heap)
        rank = -negative
        shares[rank] += 1
        if shares[rank] < most[rank]:
            heapq.heappush(heap, (ends_s[rank] + (shares[rank] + 1) * layer_s[rank], -rank))
        yield tuple(shares)
