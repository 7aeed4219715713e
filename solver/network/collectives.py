"""Alpha-beta times of collectives: n ranks, S bytes, alpha seconds per step, B bytes per second.

Callers choose the algorithm and pass the rate that is really there, efficiency included. Delay and
rate of the way across may be arrays: one time for each pair of them.
"""

from dataclasses import dataclass
from functools import reduce
from math import ceil, log2
from typing import Any, Generic, TypeVar

import numpy as np

from models.transport import Collective
from solver.arrays import FloatArray

Amount = TypeVar("Amount", float, FloatArray)


def largest(first: Amount, *others: Amount | float) -> Amount:
    """The largest of numbers, or of arrays and numbers element by element.

    >>> largest(1.0, 3.0, 2.0)
    3.0
    """
    if isinstance(first, np.ndarray):
        return reduce(np.maximum, others, first)
    return max(first, *others)


def num_levels(num_ranks: int) -> int:
    """Depth of a binary exchange: ceil(log2 n).

    >>> [num_levels(n) for n in (1, 2, 5, 8)]
    [0, 1, 3, 3]
    """
    return ceil(log2(num_ranks)) if num_ranks > 1 else 0


def bus_factor(collective: Collective, num_ranks: int) -> float:
    """Bytes that one rank's link carries per byte of payload, as nccl-tests defines bus bandwidth.

    all-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all (n-1)/n; send/receive 1 (nccl-tests PERFORMANCE.md).
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("send_recv", 2)
    (1.75, 0.75, 1.0)
    """
    if collective == "send_recv":
        return 1.0
    share = (num_ranks - 1) / num_ranks
    return 2.0 * share if collective == "all_reduce" else share


def ring_gather_s(size_bytes: float, num_ranks: int, step_s: float, rate: float) -> float:
    """Ring all-gather or reduce-scatter, S the whole array: (n-1) alpha + (n-1)/n S/B.

    A pairwise all-to-all takes as long, where every rank sends S in all.

    >>> round(ring_gather_s(8e6, 4, 1e-3, 1e9), 9)
    0.009
    """
    return (num_ranks - 1) * (step_s + size_bytes / num_ranks / rate)


def flat_ring_across_sites_s(
    size_bytes: float, num_ranks: int, num_sites: int, *, inside: tuple[float, float], across: tuple[Amount, Amount]
) -> Amount:
    """Ring all-reduce whose ring runs through k sites; `inside` and `across` are (alpha, rate) of a hop.

    The longest of: the chunk whose 2(n-1) hops cross most often, 2k times, and the steady state of a marked graph,
    where every hop repeats with the period max(mean hop time, longest occupancy of one link) (Commoner et al. 1971).
    >>> flat_ring_across_sites_s(8e6, 4, 2, inside=(0.0, 1e9), across=(0.0, 1e9))
    0.012
    """
    hops = 2 * (num_ranks - 1)
    chunk = size_bytes / num_ranks
    hop_in, hop_x = inside[0] + chunk / inside[1], across[0] + chunk / across[1]
    crossings = num_sites if num_sites > 1 else 0
    # Two neighbouring hops of two rounds are left out: both inside where a site has three members or more.
    most = 2 * crossings - max(0, 3 - num_ranks // num_sites) if crossings else 0
    longest_way = most * hop_x + (hops - most) * hop_in
    mean_hop = (crossings * hop_x + (num_ranks - crossings) * hop_in) / num_ranks
    busy_link = chunk / across[1] if crossings else chunk / inside[1]
    return largest(longest_way, hops * mean_hop, hops * (chunk / inside[1]), hops * busy_link)


def tree_all_reduce_s(
    size_bytes: float, num_ranks: int, step_s: Amount, rate: Amount, *, chunk_bytes: float | None = None
) -> Amount:
    """Tree all-reduce, up and down: 2 log2(n) (alpha + c/B) + 2 (S - c)/B with chunks of c.

    One chunk (the default) is the plain binomial tree; c towards 0 is the double binary tree, 2 log2(n) alpha + 2 S/B
    (Sanders, Speck & Traeff 2009).
    >>> round(tree_all_reduce_s(1e9, 8, 1e-3, 1e9), 9)
    6.006
    """
    chunk = size_bytes if chunk_bytes is None else min(chunk_bytes, size_bytes)
    if num_ranks == 1:
        return 0.0 * step_s
    return 2 * num_levels(num_ranks) * (step_s + chunk / rate) + 2 * (size_bytes - chunk) / rate


def recursive_gather_s(size_bytes: float, num_ranks: int, step_s: Amount, rate: Amount) -> Amount:
    """Recursive doubling all-gather, recursive halving reduce-scatter, PAT: log2(n) alpha + (n-1)/n S/B.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 2005; PAT in NCCL 2.23.
    >>> recursive_gather_s(8e6, 8, 1e-3, 1e9)
    0.01
    """
    return num_levels(num_ranks) * step_s + (num_ranks - 1) / num_ranks * size_bytes / rate


@dataclass(frozen=True)
class Level(Generic[Amount]):
    """One level of a hierarchical collective: how many take part, the latency of a step and the rate of one member."""

    num_ranks: int
    step_s: Amount
    rate_bytes_per_s: Amount


def pipelined_stages_s(
    stage_s: tuple[float, Amount, float], across_latency_s: Amount, *, num_chunks: int, num_in_flight: Amount | float
) -> Amount:
    """Makespan of q equal chunks through inside, across, inside, when at most w chunks may be crossing.

    `stage_s` is what one chunk occupies of each stage, `across_latency_s` what it waits on the way. The inside serves
    both its stages, so the period is P = max(first + last, across). A chunk starts to cross P after the one before it,
    and not before the w-th before it has crossed: at i // w * max(w P, crossing) + i % w * P. With one chunk this is
    the plain sum.
    >>> pipelined_stages_s((1.0, 2.0, 1.0), 0.0, num_chunks=4, num_in_flight=4)
    10.0
    >>> round(pipelined_stages_s((0.0, 0.0, 0.0), 0.01, num_chunks=4, num_in_flight=2), 9)
    0.02
    """
    period, crossing = largest(stage_s[1], stage_s[0] + stage_s[2]), stage_s[1] + across_latency_s
    window = _window(num_in_flight, num_chunks)
    rounds, rest = divmod(num_chunks - 1, window)
    whole = stage_s[0] + stage_s[1] + stage_s[2]
    time: Amount = rounds * largest(window * period, crossing) + rest * period + whole + across_latency_s
    return time


def _window(num_in_flight: FloatArray | float, num_chunks: int) -> Any:
    """Chunks that may be crossing: one at least, and no more than there are."""
    if isinstance(num_in_flight, np.ndarray):
        return np.clip(num_in_flight, 1, num_chunks)
    return max(1, min(num_in_flight, num_chunks))


def hierarchical_all_reduce_s(
    size_bytes: float,
    inside: Level[float],
    across: Level[Amount],
    *,
    num_chunks: int = 1,
    num_in_flight: Amount | float = 1.0,
) -> Amount:
    """Reduce-scatter inside, ring all-reduce of S/n_l across, all-gather inside, in q chunks.

    Every chunk waits 2(k-1) latencies of the long way, so q/(chunks in flight) of them add up: many chunks with few in
    flight multiply distance.
    >>> hierarchical_all_reduce_s(8e6, Level(8, 0.0, 1e9), Level(2, 0.0, 1e9))
    0.015
    """
    chunk = size_bytes / num_chunks
    part = chunk / inside.num_ranks
    gather = ring_gather_s(chunk, inside.num_ranks, inside.step_s, inside.rate_bytes_per_s)
    steps = 2 * (across.num_ranks - 1)
    occupancy = steps * part / across.num_ranks / across.rate_bytes_per_s
    return pipelined_stages_s(
        (gather, occupancy, gather), steps * across.step_s, num_chunks=num_chunks, num_in_flight=num_in_flight
    )


def hierarchical_gather_s(
    size_bytes: float,
    inside: Level[float],
    across: Level[Amount],
    *,
    num_chunks: int = 1,
    num_in_flight: Amount | float = 1.0,
) -> Amount:
    """All-gather (or reduce-scatter mirrored): exchange S/n_l across, then gather S inside, in q chunks.

    >>> hierarchical_gather_s(8e6, Level(8, 0.0, 1e9), Level(2, 0.0, 1e9))
    0.0075
    """
    chunk = size_bytes / num_chunks
    gather = ring_gather_s(chunk, inside.num_ranks, inside.step_s, inside.rate_bytes_per_s)
    steps = across.num_ranks - 1
    occupancy = steps * chunk / inside.num_ranks / across.num_ranks / across.rate_bytes_per_s
    return pipelined_stages_s(
        (0.0, occupancy, gather), steps * across.step_s, num_chunks=num_chunks, num_in_flight=num_in_flight
    )
