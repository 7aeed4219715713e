"""Compiled dynamic programme over the GPU type and the layers of every pipeline rank, within a time.

What it means is in `stage_partition.py`, why it bounds in docs/bounds.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.compiled import compiled, inlined, uncounted

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NEEDS = (
    "work",
    "late",
    "through",
    "last",
    "between",
    "early",
    "early_back",
    "trips",
    "held_own",
    "held_per_s",
    "own_both",
    "home",
    "whole",
    "spare_others",
    "first_chunk",
    "before_last",
    "forward",
    "both",
    "weighted",
    "others",
)
WORK, LATE, THROUGH, LAST, BETWEEN, EARLY, EARLY_BACK = range(7)
TRIPS, HELD_OWN, HELD_PER_S, OWN_BOTH, HOME, WHOLE, SPARE_OTHERS, FIRST_SUM = range(7, 15)
NUM_SUMS = len(NEEDS) - FIRST_SUM
BEFORE_LAST, FORWARD, BOTH, WEIGHTED, OTHERS = range(1, NUM_SUMS)


NO_WORK: Floats = np.zeros(0)


class PartitionProblem(NamedTuple):
    """What a rank takes at least, and what the ranks have in common.

    `after_r` and `after_last_r` are both passes and input gradients behind a rank that no choice of types changes.
    `others_forward_s` and `others_both_s` are passes of all layers of the other kind on the quickest type: the sums
    have what those that are counted take beyond that. `num_others` is how many there are, and `other_work_c` the work
    of one of them on all micro-batches by GPU type; a rank has `others` of them, counted below 0, or up to
    `spare_others` more.
    `needs` has the rows of `NEEDS` by kind of rank, GPU type and layers; the last of them are summed up over the ranks.
    """

    kind_r: Ints
    held_c: Ints
    least_n: int
    num_layers: int
    num_chunks: int
    looped: bool
    back: float
    layer_both_c: Floats
    after_r: Floats
    after_last_r: Floats
    needs: Floats
    embedding_s: float = 0.0
    slack_s: float = 0.0
    update_s: float = 0.0
    others_forward_s: float = 0.0
    others_both_s: float = 0.0
    num_others: int = 0
    other_work_c: Floats = NO_WORK
    hop_s: float = 0.0
    ahead_delay_s: float = 0.0
    turnaround_delay_s: float = 0.0
    held_delay_s: float = 0.0


class PartitionStates(NamedTuple):
    """States of the dynamic programme: ranks used of each type, fewest ranks first, and the number of each use."""

    used: Ints
    state: Ints
    stride_c: Ints


def least_sums(problem: PartitionProblem, states: PartitionStates, known: Floats, limit_s: float) -> Floats:
    """Least sums over all ranks of partitions within `limit_s`, given least sums of all; infinite without any."""
    sizes = np.arange(problem.needs.shape[-1])
    most = np.where(problem.needs[WORK] <= limit_s, sizes, -1).max(axis=-1)
    widest = np.maximum(most.max(axis=0), 0)
    sums = np.full((int(states.state.max()) + 1, problem.num_layers + 1, NUM_SUMS), np.inf)
    sums[0, 0] = 0.0
    _search(problem, states, LayerLimits(most, widest, np.argsort(-widest)), known, limit_s, sums)
    whole = states.used.sum(axis=1) == len(problem.kind_r)
    least: Floats = sums[states.state[whole], problem.num_layers].min(axis=0, initial=np.inf)
    return least


class LayerLimits(NamedTuple):
    """Most layers of one rank in a time, by kind of rank and type, by type, and the types with the most first."""

    layers: Ints
    widest: Ints
    widest_first: Ints


@compiled
def _search(
    problem: PartitionProblem, states: PartitionStates, most: LayerLimits, known: Floats, limit_s: float, sums: Floats
) -> None:
    """Add one rank after the other, of every type."""
    problem, states, most, known, sums = uncounted((problem, states, most, known, sums))
    left = np.zeros(len(problem.held_c), dtype=np.int64)
    for number in range(len(states.state)):
        state, rank = states.state[number], 0
        for gpu in range(len(left)):
            left[gpu] = problem.held_c[gpu] - states.used[number, gpu]
            rank += states.used[number, gpu]
        if rank == len(problem.kind_r):
            continue
        for gpu in range(len(left)):
            if left[gpu]:
                left[gpu] -= 1
                then = sums[state + states.stride_c[gpu]]
                _extend(problem, (rank, gpu), left, most, known, limit_s, sums[state], then)
                left[gpu] += 1


@inlined
def _extend(
    problem: PartitionProblem,
    step: tuple[int, int],
    left: Ints,
    most: LayerLimits,
    known: Floats,
    limit_s: float,
    sums: Floats,
    then: Floats,
) -> None:
    """Add a rank of one type, with any layers that leave the others no more than they can hold."""
    rank, gpu = step
    kind, others = problem.kind_r[rank], len(problem.kind_r) - 1 - rank
    capacity, free = 0, others
    for one in most.widest_first:
        taken = min(free, left[one])
        capacity, free = capacity + taken * most.widest[one], free - taken
    for have in range(problem.num_layers + 1):
        if sums[have, 0] == np.inf:
            continue
        to_go = problem.num_layers - have
        largest = min(most.layers[kind, gpu], to_go - problem.least_n * others)
        for n in range(max(problem.least_n, to_go - capacity), largest + 1):
            behind_s = problem.after_r[rank] + _behind_s(problem, left, most.widest, to_go - n)
            fewest = _last_chunks(problem, others, to_go - n)
            last_s = _behind_s(problem, left, most.widest, fewest) * problem.back / (1.0 + problem.back)
            last_s += problem.after_last_r[rank]
            if _need_s(problem, (kind, gpu, n), known, (rank, sums[have, 0]), (behind_s, last_s)) <= limit_s:
                for one in range(NUM_SUMS):
                    total = sums[have, one] + problem.needs[FIRST_SUM + one, kind, gpu, n]
                    if one == OTHERS and problem.num_others:
                        total -= _more_others(problem, (kind, gpu, n), limit_s - rank * problem.hop_s - sums[have, 0])
                    then[have + n, one] = min(then[have + n, one], total)


@inlined
def _more_others(problem: PartitionProblem, at: tuple[int, int, int], time_s: float) -> float:
    """Most other layers that a rank may have beyond those that its costs count: its work is done in this time."""
    kind, gpu, n = at
    left_s, each_s = time_s - problem.needs[WHOLE, kind, gpu, n], problem.other_work_c[gpu]
    spare = problem.needs[SPARE_OTHERS, kind, gpu, n]
    if each_s <= 0:
        return float(spare)
    return float(min(spare, np.floor(max(left_s, 0.0) / each_s + 1e-6)))


@inlined
def _behind_s(problem: PartitionProblem, left: Ints, widest: Ints, layers: int) -> float:
    """Least forward and input gradient of so many layers: on the quickest types that are left, as many as fit."""
    total = 0.0
    for gpu in range(len(left)):
        taken = min(layers, left[gpu] * widest[gpu])
        total, layers = total + taken * problem.layer_both_c[gpu], layers - taken
    return total


@inlined
def _last_chunks(problem: PartitionProblem, ranks: int, layers: int) -> int:
    """Fewest of these layers in the last chunks of these ranks, where those come after a rank's own last chunk."""
    if problem.num_chunks == 1:
        return layers
    if not problem.looped or not problem.least_n:
        return 0
    return max(ranks, (layers - ranks * (problem.num_chunks - 1)) // problem.num_chunks)


@inlined
def _need_s(
    problem: PartitionProblem,
    at: tuple[int, int, int],
    known: Floats,
    before: tuple[int, float],
    behind: tuple[float, float],
) -> float:
    """The largest part of the bound for one rank; before it are so many ranks and their first chunks, behind it both
    passes, and input gradients of last chunks.
    """
    kind, gpu, n = at
    (rank, sum_s), (behind_s, last_s) = before, behind
    needs, others = problem.needs, len(problem.kind_r) - 1 - rank
    folded = problem.num_chunks > 1 and not problem.looped
    before_hops_s, behind_hops_s = rank * problem.hop_s, others * problem.hop_s
    lead_layers_s = max(sum_s - problem.embedding_s, 0.0)
    lead_s, lead_back_s = sum_s + before_hops_s, problem.back * lead_layers_s + before_hops_s
    ahead_s = known[BEFORE_LAST] + (lead_layers_s if problem.looped else 0.0)
    need_s = max(lead_s + needs[WORK, kind, gpu, n], lead_s + lead_back_s + needs[THROUGH, kind, gpu, n])
    back_s = problem.back * max(ahead_s - problem.embedding_s, 0.0)
    ahead_hops_s = problem.ahead_delay_s + (behind_hops_s if folded else before_hops_s)
    ahead_s, back_s = ahead_s + ahead_hops_s, back_s + ahead_hops_s  # messages go back, too
    need_s = max(need_s, ahead_s + needs[LATE, kind, gpu, n], ahead_s + back_s + needs[LAST, kind, gpu, n])
    need_s = max(need_s, ahead_s + lead_back_s + needs[BETWEEN, kind, gpu, n])
    turnaround_s = known[FORWARD] + problem.others_forward_s + problem.turnaround_delay_s + last_s
    turnaround_s += before_hops_s if folded else behind_hops_s
    need_s = max(need_s, turnaround_s + needs[EARLY, kind, gpu, n])
    need_s = max(need_s, turnaround_s + lead_back_s + needs[EARLY_BACK, kind, gpu, n])
    there_and_back_s = known[BOTH] + problem.others_both_s + 2.0 * problem.turnaround_delay_s
    need_s = max(need_s, there_and_back_s + needs[HOME, kind, gpu, n])
    own_s = needs[HELD_OWN, kind, gpu, n] + problem.update_s
    if needs[TRIPS, kind, gpu, n] > 1:
        life_s = needs[OWN_BOTH, kind, gpu, n] + behind_s + 2.0 * behind_hops_s
        need_s = max(need_s, lead_s + lead_back_s + needs[TRIPS, kind, gpu, n] * life_s + own_s)
    if needs[HELD_PER_S, kind, gpu, n] > 0:
        life_s = known[WEIGHTED] + problem.held_delay_s + (behind_s if problem.looped else 0.0)
        need_s = max(need_s, needs[HELD_PER_S, kind, gpu, n] * life_s + own_s)
    return float(need_s)
