"""Compiled listing of all partitions that may keep within a time, rank after rank.

What it means is in `stage_partition.py`, what a rank needs in `rank_need_kernel.py`, what is known of other ranks in
`stage_partition_kernel.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from solver.bounds.rank_need_kernel import (
    BEHIND,
    CYCLE,
    FIRST_SUM,
    NUM_NEEDED,
    NUM_SUMS,
    PACE,
    WAY,
    WAY_BEHIND,
    PartitionProblem,
    into_s,
    rank_need_s,
    row,
)
from solver.bounds.stage_partition_kernel import PartitionStates, most_layers
from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints

MOST_STEPS = 4_000_000  # of the search for partitions: less than a hundred milliseconds


class Partitions(NamedTuple):
    """Partitions, a row each: GPU type and layers of every rank, and the largest part of the bound of any (seconds)."""

    gpu: Ints
    layers: Ints
    need_s: Floats

    def at(self, rows: Ints | slice) -> Partitions:
        """The partitions of these rows."""
        return Partitions(self.gpu[rows], self.layers[rows], self.need_s[rows])


def joined(parts: Sequence[Partitions]) -> Partitions:
    """The partitions of all parts, one after another."""
    return Partitions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def partitions_within(
    problem: PartitionProblem, states: PartitionStates, sums: tuple[Floats, Floats], limit_s: float, most: int
) -> Partitions | None:
    """All partitions within `limit_s`; None where there are `most` or more.

    `sums` are the least over all ranks, and over those behind each, of partitions within this limit.
    """
    shape = most, len(problem.kind_r)
    found = Partitions(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), np.zeros(most))
    number = _enumerate(problem, states, most_layers(problem, limit_s), sums, limit_s, found)
    return None if number < 0 else found.at(slice(number))


@compiled
def _enumerate(
    problem: PartitionProblem,
    states: PartitionStates,
    most: Ints,
    others: tuple[Floats, Floats],
    limit_s: float,
    found: Partitions,
) -> int:
    """Depth first, rank after rank: every type, and of it every number of layers; how many, -1 for too many."""
    num_ranks, used = len(problem.kind_r), np.zeros(len(problem.held_c), dtype=np.int64)
    chosen = np.zeros(num_ranks, dtype=np.int64), problem.least_r - 1, used, np.zeros((num_ranks + 1, NUM_SUMS))
    return _walk(problem, states, most, others, limit_s, chosen, found)


@compiled
def _walk(
    problem: PartitionProblem,
    states: PartitionStates,
    most: Ints,
    others: tuple[Floats, Floats],
    limit_s: float,
    chosen: tuple[Ints, Ints, Ints, Floats],
    found: Partitions,
) -> int:
    """The loop of `_enumerate`; `chosen` are types and layers of ranks, ranks by type, and sums before each rank."""
    problem, states, most, others, chosen, found = uncounted((problem, states, most, others, chosen, found))
    (known, behind), (gpu_r, layers_r, used, sums) = others, chosen
    num_ranks, num_types, number, rank, have, state = len(problem.kind_r), len(problem.held_c), 0, 0, 0, 0
    for _ in range(MOST_STEPS):
        gpu, kind = gpu_r[rank], problem.kind_r[rank]
        layers_r[rank] += 1
        n, then = layers_r[rank], state + states.stride_c[gpu]
        if used[gpu] == problem.held_c[gpu] or n > min(most[kind, gpu], problem.num_layers - have):
            if gpu + 1 < num_types:
                gpu_r[rank], layers_r[rank] = gpu + 1, problem.least_r[rank] - 1
                continue
            rank -= 1
            if rank < 0:
                return number
            have, state = have - layers_r[rank], state - states.stride_c[gpu_r[rank]]
            used[gpu_r[rank]] -= 1
            continue
        others_s = behind[then, row(problem, gpu), have + n]
        if others_s[0] == np.inf:
            continue
        last = gpu_r[rank - 1] if rank > 0 else problem.last_type
        if rank_need_s(problem, (rank, kind, last, gpu, n), known, sums[rank], others_s) > limit_s:
            continue
        way_s, cycle_s = into_s(problem, rank, last, gpu)
        sums[rank + 1, :NUM_NEEDED] = sums[rank, :NUM_NEEDED] + problem.needs[FIRST_SUM:, kind, gpu, n]
        sums[rank + 1, WAY], sums[rank + 1, CYCLE] = sums[rank, WAY] + way_s, sums[rank, CYCLE] + cycle_s
        sums[rank + 1, PACE] = max(sums[rank, PACE], problem.needs[FIRST_SUM, kind, gpu, n])
        if rank + 1 < num_ranks:
            have, state, rank = have + n, then, rank + 1
            used[gpu] += 1
            gpu_r[rank], layers_r[rank] = 0, problem.least_r[rank] - 1
        elif not _add(problem, gpu_r, layers_r, sums, limit_s, number, found):
            continue
        elif number + 1 == len(found.need_s):
            return -1
        else:
            number += 1
    return -1


@inlined
def _add(
    problem: PartitionProblem,
    gpu_r: Ints,
    layers_r: Ints,
    sums: Floats,
    limit_s: float,
    number: int,
    found: Partitions,
) -> bool:
    """Note a partition where it is within the limit; `sums` are those before every rank, and of all."""
    need_s, behind = 0.0, np.zeros(len(BEHIND) + 1)
    for rank in range(len(gpu_r) - 1, -1, -1):
        kind, gpu, n = problem.kind_r[rank], gpu_r[rank], layers_r[rank]
        last = gpu_r[rank - 1] if rank > 0 else problem.last_type
        need_s = max(need_s, rank_need_s(problem, (rank, kind, last, gpu, n), sums[-1], sums[rank], behind))
        for one in range(len(BEHIND)):
            behind[one] += problem.needs[FIRST_SUM + BEHIND[one], kind, gpu, n]
        behind[WAY_BEHIND] += into_s(problem, rank, last, gpu)[0]
    found.gpu[number], found.layers[number], found.need_s[number] = gpu_r, layers_r, need_s
    return need_s <= limit_s
