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
    "trip_cycles",
    "trip_last",
    "held_own",
    "held_per_s",
    "own_both",
    "home",
    "first_chunk",
    "before_last",
    "forward",
    "both",
    "weighted",
    "gradient_before",
    "gradient_behind",
    "last_chunk",
    "even_both",
)
WORK, LATE, THROUGH, LAST, BETWEEN, EARLY, EARLY_BACK = range(7)
TRIPS, TRIP_CYCLES, TRIP_LAST, HELD_OWN, HELD_PER_S, OWN_BOTH, HOME, FIRST_SUM = range(7, 15)
NUM_SUMS = len(NEEDS) - FIRST_SUM
BEFORE_LAST, FORWARD, BOTH, WEIGHTED, GRADIENT_BEFORE, GRADIENT_BEHIND, LAST_CHUNK, EVEN_BOTH = range(1, NUM_SUMS)
MOST_STEPS = 4_000_000  # of the search for partitions: less than a hundred milliseconds
BEHIND = BEFORE_LAST, BOTH, WEIGHTED, GRADIENT_BEHIND, EVEN_BOTH  # of these the sums over the ranks behind one count
BEFORE_LAST_BEHIND, BOTH_BEHIND, WEIGHTED_BEHIND, GRADIENT_AFTER, EVEN_BEHIND = range(len(BEHIND))


class PartitionProblem(NamedTuple):
    """What a rank takes at least, and what the ranks have in common.

    Rank r is of kind `kind_r[r]` and has `least_r[r]` layers or more.
    `needs` has the rows of `NEEDS` by kind of rank, GPU type and layers; the last of them are summed up over the ranks.
    """

    kind_r: Ints
    held_c: Ints
    least_r: Ints
    num_layers: int
    num_chunks: int
    looped: bool
    back: float
    needs: Floats
    embedding_s: float = 0.0
    update_s: float = 0.0
    hop_s: float = 0.0
    ahead_delay_s: float = 0.0
    turnaround_delay_s: float = 0.0
    held_delay_s: float = 0.0


class PartitionStates(NamedTuple):
    """States of the dynamic programme: ranks used of each type, fewest ranks first, and the number of each use."""

    used: Ints
    state: Ints
    stride_c: Ints


def least_sums(
    problem: PartitionProblem, states: PartitionStates, known: Floats, behind: Floats, limit_s: float
) -> Floats:
    """Least sums over all ranks of partitions within `limit_s`, given least sums of all; infinite without any.

    `behind` is what `sums_behind` finds for this limit.
    """
    sums = np.full((int(states.state.max()) + 1, problem.num_layers + 1, NUM_SUMS), np.inf)
    sums[0, 0] = 0.0
    _search(problem, states, _most_layers(problem, limit_s), known, behind, limit_s, sums)
    whole = states.used.sum(axis=1) == len(problem.kind_r)
    least: Floats = sums[states.state[whole], problem.num_layers].min(axis=0, initial=np.inf)
    return least


def sums_behind(problem: PartitionProblem, states: PartitionStates, limit_s: float) -> Floats:
    """By state and layers before it, least sums of `BEHIND` over the ranks that follow, each with work for the limit.

    Infinite where these cannot hold the other layers.
    """
    behind = np.full((int(states.state.max()) + 1, problem.num_layers + 1, len(BEHIND)), np.inf)
    _search_behind(problem, states, _most_layers(problem, limit_s), behind)
    return behind


def _most_layers(problem: PartitionProblem, limit_s: float) -> Ints:
    """Most layers of one rank in a time, by kind of rank and type."""
    sizes = np.arange(problem.needs.shape[-1])
    most: Ints = np.where(problem.needs[WORK] <= limit_s, sizes, -1).max(axis=-1)
    return most


class Partitions(NamedTuple):
    """Partitions, a row each: GPU type and layers of every rank, and the largest part of the bound of any (seconds)."""

    gpu: Ints
    layers: Ints
    need_s: Floats

    def at(self, rows: Ints | slice) -> Partitions:
        """Some of them."""
        return Partitions(self.gpu[rows], self.layers[rows], self.need_s[rows])


def partitions_within(
    problem: PartitionProblem, states: PartitionStates, sums: tuple[Floats, Floats], limit_s: float, most: int
) -> Partitions | None:
    """All partitions within `limit_s`; None where there are `most` or more.

    `sums` are the least over all ranks, and over those behind each, of partitions within this limit.
    """
    shape = most, len(problem.kind_r)
    found = Partitions(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), np.zeros(most))
    number = _enumerate(problem, states, _most_layers(problem, limit_s), *sums, limit_s, found)
    return None if number < 0 else found.at(slice(number))


@compiled
def _search_behind(problem: PartitionProblem, states: PartitionStates, most: Ints, behind: Floats) -> None:
    """Put one rank before the other, of every type, from the last one on."""
    problem, states, most, behind = uncounted((problem, states, most, behind))
    num_ranks, num_layers = len(problem.kind_r), problem.num_layers
    for number in range(len(states.state) - 1, -1, -1):
        state, rank = states.state[number], 0
        for gpu in range(len(problem.held_c)):
            rank += states.used[number, gpu]
        if rank == num_ranks:
            behind[state, num_layers] = 0.0
            continue
        kind = problem.kind_r[rank]
        for gpu in range(len(problem.held_c)):
            if states.used[number, gpu] == problem.held_c[gpu]:
                continue
            then = behind[state + states.stride_c[gpu]]
            for n in range(problem.least_r[rank], most[kind, gpu] + 1):
                for have in range(num_layers - n + 1):
                    if then[have + n, 0] < np.inf:
                        for one in range(len(BEHIND)):
                            total = then[have + n, one] + problem.needs[FIRST_SUM + BEHIND[one], kind, gpu, n]
                            behind[state, have, one] = min(behind[state, have, one], total)


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
                then = state + states.stride_c[gpu]
                _extend(problem, (rank, gpu), most, known, limit_s, behind[then], sums[state], sums[then])


@inlined
def _extend(
    problem: PartitionProblem,
    step: tuple[int, int],
    most: Ints,
    known: Floats,
    limit_s: float,
    behind: Floats,
    sums: Floats,
    then: Floats,
) -> None:
    """Add a rank of one type, with any layers that leave the others no more than they can hold."""
    rank, gpu = step
    kind = problem.kind_r[rank]
    for have in range(problem.num_layers + 1):
        if sums[have, 0] == np.inf:
            continue
        for n in range(problem.least_r[rank], min(most[kind, gpu], problem.num_layers - have) + 1):
            if behind[have + n, 0] == np.inf:
                continue
            if _need_s(problem, (rank, kind, gpu, n), known, sums[have], behind[have + n]) <= limit_s:
                for one in range(NUM_SUMS):
                    total = sums[have, one] + problem.needs[FIRST_SUM + one, kind, gpu, n]
                    then[have + n, one] = min(then[have + n, one], total)


@inlined
def _need_s(
    problem: PartitionProblem, at: tuple[int, int, int, int], known: Floats, before: Floats, behind: Floats
) -> float:
    """The largest part of the bound for one rank, of this number and kind; `before` and `behind` are sums over the
    ranks before it and behind it.
    """
    rank, kind, gpu, n = at
    needs, others = problem.needs, len(problem.kind_r) - 1 - rank
    folded = problem.num_chunks > 1 and not problem.looped
    sum_s, before_hops_s, behind_hops_s = before[0], rank * problem.hop_s, others * problem.hop_s
    lead_layers_s = max(sum_s - problem.embedding_s, 0.0)
    lead_s, lead_back_s = sum_s + before_hops_s, problem.back * lead_layers_s + before_hops_s
    before_last_s = before[BEFORE_LAST] + needs[FIRST_SUM + BEFORE_LAST, kind, gpu, n] + behind[BEFORE_LAST_BEHIND]
    ahead_s = max(known[BEFORE_LAST], before_last_s) + (before[LAST_CHUNK] if problem.looped else 0.0)
    need_s = max(lead_s + needs[WORK, kind, gpu, n], lead_s + lead_back_s + needs[THROUGH, kind, gpu, n])
    back_s = problem.back * max(ahead_s - problem.embedding_s, 0.0)
    ahead_hops_s = problem.ahead_delay_s + (behind_hops_s if folded else before_hops_s)
    ahead_s, back_s = ahead_s + ahead_hops_s, back_s + ahead_hops_s  # messages go back, too
    need_s = max(need_s, ahead_s + needs[LATE, kind, gpu, n], ahead_s + back_s + needs[LAST, kind, gpu, n])
    need_s = max(need_s, ahead_s + lead_back_s + needs[BETWEEN, kind, gpu, n])
    turnaround_s = before[GRADIENT_BEFORE] + needs[FIRST_SUM + FORWARD, kind, gpu, n] + behind[GRADIENT_AFTER]
    turnaround_s = max(known[FORWARD], turnaround_s) + problem.turnaround_delay_s
    turnaround_s += before_hops_s if folded else behind_hops_s
    need_s = max(need_s, turnaround_s + needs[EARLY, kind, gpu, n])
    need_s = max(need_s, turnaround_s + lead_back_s + needs[EARLY_BACK, kind, gpu, n])
    both_s = max(known[BOTH], before[BOTH] + needs[FIRST_SUM + BOTH, kind, gpu, n] + behind[BOTH_BEHIND])
    even_s = before[EVEN_BOTH] + needs[FIRST_SUM + EVEN_BOTH, kind, gpu, n] + behind[EVEN_BEHIND]
    both_s = max(both_s, known[EVEN_BOTH], even_s)
    need_s = max(need_s, both_s + 2.0 * problem.turnaround_delay_s + needs[HOME, kind, gpu, n])
    behind_s, update_s = behind[BOTH_BEHIND], problem.update_s
    weighted_s = before[WEIGHTED] + needs[FIRST_SUM + WEIGHTED, kind, gpu, n] + behind[WEIGHTED_BEHIND]
    weighted_s = max(known[WEIGHTED], weighted_s)
    if needs[TRIPS, kind, gpu, n] > 1:
        life_s = needs[OWN_BOTH, kind, gpu, n] + 2.0 * behind_hops_s
        if problem.looped:
            v, cycles = problem.num_chunks, needs[TRIP_CYCLES, kind, gpu, n]
            life_s += (cycles * weighted_s + behind[WEIGHTED_BEHIND]) * 2.0 / (v * (v - 1.0))
            life_s += 2.0 * cycles * problem.ahead_delay_s / (v - 1.0)
        else:
            life_s += behind_s
        own_s = needs[TRIP_LAST, kind, gpu, n] + update_s
        need_s = max(need_s, lead_s + lead_back_s + needs[TRIPS, kind, gpu, n] * life_s + own_s)
    if needs[HELD_PER_S, kind, gpu, n] > 0:
        life_s = weighted_s + problem.held_delay_s + (behind_s if problem.looped else 0.0)
        own_s = needs[HELD_OWN, kind, gpu, n] + update_s
        need_s = max(need_s, needs[HELD_PER_S, kind, gpu, n] * life_s + own_s)
    return float(need_s)


@compiled
def _enumerate(
    problem: PartitionProblem,
    states: PartitionStates,
    most: Ints,
    known: Floats,
    behind: Floats,
    limit_s: float,
    found: Partitions,
) -> int:
    """Depth first, rank after rank: every type, and of it every number of layers; how many, -1 for too many."""
    num_ranks, used = len(problem.kind_r), np.zeros(len(problem.held_c), dtype=np.int64)
    chosen = np.zeros(num_ranks, dtype=np.int64), problem.least_r - 1, used, np.zeros((num_ranks + 1, NUM_SUMS))
    return _walk(problem, states, most, (known, behind), limit_s, chosen, found)


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
        if behind[then, have + n, 0] == np.inf:
            continue
        if _need_s(problem, (rank, kind, gpu, n), known, sums[rank], behind[then, have + n]) > limit_s:
            continue
        sums[rank + 1] = sums[rank] + problem.needs[FIRST_SUM:, kind, gpu, n]
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
    need_s, behind = 0.0, np.zeros(len(BEHIND))
    for rank in range(len(gpu_r) - 1, -1, -1):
        kind, gpu, n = problem.kind_r[rank], gpu_r[rank], layers_r[rank]
        need_s = max(need_s, _need_s(problem, (rank, kind, gpu, n), sums[-1], sums[rank], behind))
        for one in range(len(BEHIND)):
            behind[one] += problem.needs[FIRST_SUM + BEHIND[one], kind, gpu, n]
    found.gpu[number], found.layers[number], found.need_s[number] = gpu_r, layers_r, need_s
    return need_s <= limit_s
