"""Compiled dynamic programme over the GPU type and the layers of every pipeline rank, within a time.

What it means is in `stage_partition.py`, what a rank needs in `rank_need_kernel.py`, why it bounds in docs/bounds.md.
"""

from __future__ import annotations

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
    WORK,
    PartitionProblem,
    between_types_s,
    into_s,
    rank_need_s,
    row,
)
from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints


class PartitionStates(NamedTuple):
    """States of the dynamic programme: ranks used of each type, fewest ranks first, and the number of each use."""

    used: Ints
    state: Ints
    stride_c: Ints


def least_sums(
    problem: PartitionProblem, states: PartitionStates, known: Floats, behind: Floats, limit_s: float
) -> tuple[Floats, Floats]:
    """Least sums over all ranks of partitions within `limit_s`, given least sums of all; infinite without any. And by
    state, type of its last rank and layers those over the first ranks.

    `behind` is what `sums_behind` finds for this limit.
    """
    sums = _table(problem, states, NUM_SUMS)
    sums[0, 0, 0] = 0.0
    _search(problem, states, most_layers(problem, limit_s), known, behind, limit_s, sums)
    whole = states.used.sum(axis=1) == len(problem.kind_r)
    least: Floats = sums[states.state[whole], :, problem.num_layers].min(axis=(0, 1), initial=np.inf)
    return least, sums


def sums_behind(
    problem: PartitionProblem, states: PartitionStates, limit_s: float, known: Floats, before: Floats
) -> Floats:
    """By state, type of the last rank before it and layers before it, least sums of `BEHIND` over the ranks that
    follow, each with time for the limit, and of the messages into them.

    Infinite where these cannot hold the other layers. `before` has the sums over the first ranks of `least_sums`: with
    none of them a rank needs time for its own work alone.
    """
    behind = _table(problem, states, len(BEHIND) + 1)
    _search_behind(problem, states, most_layers(problem, limit_s), known, limit_s, before, behind)
    return behind


def _table(problem: PartitionProblem, states: PartitionStates, num_sums: int) -> Floats:
    """Sums by state, type of the last rank and layers: infinite, nothing is known."""
    return np.full((int(states.state.max()) + 1, len(problem.apart_cc), problem.num_layers + 1, num_sums), np.inf)


def most_layers(problem: PartitionProblem, limit_s: float) -> Ints:
    """Most layers of one rank in a time, by kind of rank and type."""
    sizes = np.arange(problem.needs.shape[-1])
    most: Ints = np.where(problem.needs[WORK] <= limit_s, sizes, -1).max(axis=-1)
    return most


@compiled
def _search_behind(
    problem: PartitionProblem,
    states: PartitionStates,
    most: Ints,
    known: Floats,
    limit_s: float,
    before: Floats,
    behind: Floats,
) -> None:
    """Put one rank before the other, of every type, from the last one on."""
    problem, states, most, known, before, behind = uncounted((problem, states, most, known, before, behind))
    num_ranks, num_layers, num_rows = len(problem.kind_r), problem.num_layers, len(problem.apart_cc)
    for number in range(len(states.state) - 1, -1, -1):
        state, rank = states.state[number], 0
        for gpu in range(len(problem.held_c)):
            rank += states.used[number, gpu]
        for last in range(num_rows):
            if rank == num_ranks:
                if problem.last_type < 0 or last == row(problem, problem.last_type):
                    behind[state, last, num_layers] = 0.0
                continue
            sums = before[state, last] if len(before) > 0 and rank > 0 else before[:0, 0, 0]
            for gpu in range(len(problem.held_c)):
                if states.used[number, gpu] < problem.held_c[gpu]:
                    then = behind[state + states.stride_c[gpu], row(problem, gpu)]
                    _prepend(problem, (rank, last, gpu), most, known, limit_s, sums, then, behind[state, last])


@inlined
def _prepend(
    problem: PartitionProblem,
    step: tuple[int, int, int],
    most: Ints,
    known: Floats,
    limit_s: float,
    before: Floats,
    then: Floats,
    behind: Floats,
) -> None:
    """Put a rank of one type behind one of another, with any layers, before those whose least sums are `then`."""
    rank, last, gpu = step
    kind, num_layers = problem.kind_r[rank], problem.num_layers
    apart_s = between_types_s(problem, last, gpu) if rank > 0 else 0.0
    for n in range(problem.least_r[rank], most[kind, gpu] + 1):
        for have in range(num_layers - n + 1):
            if then[have + n, 0] == np.inf:
                continue
            if len(before) > 0:
                if before[have, 0] == np.inf:
                    continue
                at = rank, kind, last, gpu, n
                if rank_need_s(problem, at, known, before[have], then[have + n]) > limit_s:
                    continue
            for one in range(len(BEHIND)):
                total = then[have + n, one] + problem.needs[FIRST_SUM + BEHIND[one], kind, gpu, n]
                behind[have, one] = min(behind[have, one], total)
            behind[have, WAY_BEHIND] = min(behind[have, WAY_BEHIND], then[have + n, WAY_BEHIND] + apart_s)


@compiled
def _search(
    problem: PartitionProblem,
    states: PartitionStates,
    most: Ints,
    known: Floats,
    behind: Floats,
    limit_s: float,
    sums: Floats,
) -> None:
    """Add one rank after the other, of every type."""
    problem, states, most, known, behind, sums = uncounted((problem, states, most, known, behind, sums))
    for number in range(len(states.state)):
        state, rank = states.state[number], 0
        for gpu in range(len(problem.held_c)):
            rank += states.used[number, gpu]
        if rank == len(problem.kind_r):
            continue
        for gpu in range(len(problem.held_c)):
            if states.used[number, gpu] < problem.held_c[gpu]:
                then, of_gpu = state + states.stride_c[gpu], row(problem, gpu)
                for last in range(len(problem.apart_cc) if rank > 0 else 1):
                    step = rank, last if rank > 0 else problem.last_type, gpu
                    _extend(
                        problem, step, most, known, limit_s, behind[then, of_gpu], sums[state, last], sums[then, of_gpu]
                    )


@inlined
def _extend(
    problem: PartitionProblem,
    step: tuple[int, int, int],
    most: Ints,
    known: Floats,
    limit_s: float,
    behind: Floats,
    sums: Floats,
    then: Floats,
) -> None:
    """Add a rank of one type behind one of another, with any layers that the others can make up to the whole."""
    rank, last, gpu = step
    kind = problem.kind_r[rank]
    way_s, cycle_s = into_s(problem, rank, last, gpu)
    for have in range(problem.num_layers + 1):
        if sums[have, 0] == np.inf:
            continue
        for n in range(problem.least_r[rank], min(most[kind, gpu], problem.num_layers - have) + 1):
            if behind[have + n, 0] == np.inf:
                continue
            at = rank, kind, last, gpu, n
            if rank_need_s(problem, at, known, sums[have], behind[have + n]) <= limit_s:
                for one in range(NUM_NEEDED):
                    total = sums[have, one] + problem.needs[FIRST_SUM + one, kind, gpu, n]
                    then[have + n, one] = min(then[have + n, one], total)
                then[have + n, WAY] = min(then[have + n, WAY], sums[have, WAY] + way_s)
                then[have + n, CYCLE] = min(then[have + n, CYCLE], sums[have, CYCLE] + cycle_s)
                pace_s = max(sums[have, PACE], problem.needs[FIRST_SUM, kind, gpu, n])
                then[have + n, PACE] = min(then[have + n, PACE], pace_s)
