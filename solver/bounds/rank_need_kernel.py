"""Compiled: what a pipeline rank needs in a partition of layers over GPU types, with what the ranks around it take.

Why each part bounds: docs/bounds.md, "Partition of layers over GPU types".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.bounds.least_hops import MessageDelays
from solver.compiled import compiled, inlined
from solver.pipeline.problem import Floats, Ints

NEEDS = (
    "work",
    "late",
    "through",
    "last",
    "early",
    "early_back",
    "trips",
    "trip_cycles",
    "trip_last",
    "held_own",
    "held_per_s",
    "own_both",
    "home",
    "forwards",
    "cycles",
    "after_cycles",
    "first_chunk",
    "before_last",
    "forward",
    "both",
    "weighted",
    "gradient_before",
    "gradient_behind",
    "last_chunk",
    "even_both",
    "first_end",
    "input_gradient",
    "small_chunk",
    "first_gradient",
    "last_gradient",
    "gradient_before_last",
)
WORK, LATE, THROUGH, LAST, EARLY, EARLY_BACK = range(6)
TRIPS, TRIP_CYCLES, TRIP_LAST, HELD_OWN, HELD_PER_S, OWN_BOTH, HOME, FORWARDS = range(6, 14)
CYCLES, AFTER_CYCLES, FIRST_SUM = range(14, 17)
NUM_NEEDED = len(NEEDS) - FIRST_SUM  # sums over what ranks need
BEFORE_LAST, FORWARD, BOTH, WEIGHTED, GRADIENT_BEFORE, GRADIENT_BEHIND = range(1, 7)
LAST_CHUNK, EVEN_BOTH, FIRST_END, GRADIENT, SMALL_CHUNK = range(7, 12)
FIRST_GRADIENT, LAST_GRADIENT, GRADIENT_BEFORE_LAST = range(12, NUM_NEEDED)
NUM_SUMS = NUM_NEEDED + 3  # with messages between types: up to a rank, and from the last rank to the first, too;
WAY, CYCLE, PACE = range(NUM_NEEDED, NUM_SUMS)  # and, no sum, the longest forward of a first chunk
BEHIND = (
    BEFORE_LAST,
    BOTH,
    WEIGHTED,
    GRADIENT_BEHIND,
    LAST_CHUNK,
    EVEN_BOTH,
    GRADIENT,
    SMALL_CHUNK,
    LAST_GRADIENT,
    GRADIENT_BEFORE_LAST,
)  # of ranks behind, too
BEFORE_LAST_BEHIND, BOTH_BEHIND, WEIGHTED_BEHIND, GRADIENT_AFTER = range(4)
LAST_CHUNK_BEHIND, EVEN_BEHIND, ALL_GRADIENTS_BEHIND, SMALL_BEHIND = range(4, 8)
LAST_GRADIENT_BEHIND, GRADIENT_BEFORE_LAST_BEHIND = range(8, len(BEHIND))
WAY_BEHIND = len(BEHIND)


class PartitionProblem(NamedTuple):
    """What a rank takes at least, and what the ranks have in common.

    Rank r is of kind `kind_r[r]` and has `least_r[r]` layers or more.
    `needs` has the rows of `NEEDS` by kind of rank, GPU type and layers; the last of them are summed up over the ranks.
    `apart_cc` is how much longer than a hop a message from a rank on one type to one on another takes at least, a
    single 0 where types do not matter; `last_type` is the type of the last rank, -1 for any.
    """

    kind_r: Ints
    held_c: Ints
    least_r: Ints
    num_layers: int
    num_chunks: int
    looped: bool
    needs: Floats
    apart_cc: Floats
    last_type: int = -1
    update_s: float = 0.0
    delays: MessageDelays = MessageDelays()
    num_microbatches: int = 1


def all_ways_s(problem: PartitionProblem, sums: Floats) -> float:
    """What messages between types take from the first stage to the last, with these sums over all ranks."""
    return float(_all_ways_s(problem, sums[WAY], sums[CYCLE]))


@inlined
def row(problem: PartitionProblem, gpu: int) -> int:
    """Where `apart_cc` and the tables have a type."""
    return min(gpu, len(problem.apart_cc) - 1)


@inlined
def between_types_s(problem: PartitionProblem, gpu: int, then: int) -> float:
    """How much longer than others a message from one type to another takes."""
    return float(problem.apart_cc[row(problem, gpu), row(problem, then)])


@inlined
def into_s(problem: PartitionProblem, rank: int, last: int, gpu: int) -> tuple[float, float]:
    """What the message into a rank from one on another type takes: on the way over all ranks, and in the cycle of a
    loop, where the last rank is before the first.
    """
    if rank == 0 and last < 0:
        return 0.0, 0.0
    apart_s = between_types_s(problem, last, gpu)
    return (apart_s if rank > 0 else 0.0), apart_s


@inlined
def rank_need_s(
    problem: PartitionProblem, at: tuple[int, int, int, int, int], known: Floats, before: Floats, behind: Floats
) -> float:
    """The largest part of the bound for one rank: its number, its kind, the type of the rank before it, its own type
    and its layers; `before` and `behind` are sums over the ranks before it and behind it.
    """
    rank, kind, last, gpu, n = at
    needs, others, v = problem.needs, len(problem.kind_r) - 1 - rank, problem.num_chunks
    folded = v > 1 and not problem.looped
    way_s, cycle_s = into_s(problem, rank, last, gpu)
    before_way_s, behind_way_s = before[WAY] + way_s, behind[WAY_BEHIND]
    whole_way_s = max(known[WAY], before_way_s + behind_way_s)
    cycle_s = max(known[CYCLE], before[CYCLE] + cycle_s + behind_way_s)
    before_hops_s, behind_hops_s = (
        rank * problem.delays.hop_s + before_way_s,
        others * problem.delays.hop_s + behind_way_s,
    )
    lead_s, lead_back_s = before[0] + before_hops_s, before[FIRST_GRADIENT] + before_hops_s
    first_end_s = before[FIRST_END] + needs[FIRST_SUM + FIRST_END, kind, gpu, n]
    lead_back_s += first_end_s
    before_last_s = before[BEFORE_LAST] + needs[FIRST_SUM + BEFORE_LAST, kind, gpu, n] + behind[BEFORE_LAST_BEHIND]
    ahead_s = max(known[BEFORE_LAST], before_last_s)
    ahead_s += behind[LAST_CHUNK_BEHIND] if folded else before[LAST_CHUNK] if problem.looped else 0.0
    need_s = max(lead_s + needs[WORK, kind, gpu, n], lead_s + lead_back_s + needs[THROUGH, kind, gpu, n])
    gradients_s = before[GRADIENT_BEFORE_LAST] + needs[FIRST_SUM + GRADIENT_BEFORE_LAST, kind, gpu, n]
    back_s = max(known[GRADIENT_BEFORE_LAST], gradients_s + behind[GRADIENT_BEFORE_LAST_BEHIND])
    back_s += behind[LAST_GRADIENT_BEHIND] if folded else before[LAST_GRADIENT] if problem.looped else 0.0
    ahead_hops_s = problem.delays.ahead_s + (v - 1.0) * (whole_way_s if folded else cycle_s)
    ahead_hops_s += behind_hops_s if folded else before_hops_s
    ahead_s, back_s = ahead_s + ahead_hops_s, back_s + ahead_hops_s + first_end_s  # messages go back, too
    need_s = max(need_s, ahead_s + needs[LATE, kind, gpu, n], ahead_s + back_s + needs[LAST, kind, gpu, n])
    all_hops_s = problem.delays.turnaround_s + _all_ways_s(problem, whole_way_s, cycle_s)
    turnaround_s = before[GRADIENT_BEFORE] + needs[FIRST_SUM + FORWARD, kind, gpu, n] + behind[GRADIENT_AFTER]
    turnaround_s = max(known[FORWARD], turnaround_s) + all_hops_s
    turnaround_s += before_hops_s if folded else behind_hops_s
    need_s = max(need_s, turnaround_s + needs[EARLY, kind, gpu, n])
    need_s = max(need_s, turnaround_s + lead_back_s + needs[EARLY_BACK, kind, gpu, n])
    both_s = max(known[BOTH], before[BOTH] + needs[FIRST_SUM + BOTH, kind, gpu, n] + behind[BOTH_BEHIND])
    even_s = before[EVEN_BOTH] + needs[FIRST_SUM + EVEN_BOTH, kind, gpu, n] + behind[EVEN_BEHIND]
    both_s = max(both_s, known[EVEN_BOTH], even_s)
    need_s = max(need_s, both_s + 2.0 * all_hops_s + first_end_s + needs[HOME, kind, gpu, n])
    gradients_s = before[GRADIENT] + needs[FIRST_SUM + GRADIENT, kind, gpu, n] + behind[ALL_GRADIENTS_BEHIND]
    back_s = max(known[GRADIENT], gradients_s) + all_hops_s + first_end_s
    rest_s = before[LAST_CHUNK] + before_hops_s if folded else behind[LAST_CHUNK_BEHIND] + behind_hops_s
    need_s = max(need_s, lead_s + needs[FORWARDS, kind, gpu, n] + rest_s + back_s)
    if problem.looped and v > 1:
        small_s = before[SMALL_CHUNK] + needs[FIRST_SUM + SMALL_CHUNK, kind, gpu, n] + behind[SMALL_BEHIND]
        around_s = max(known[SMALL_CHUNK], small_s) + problem.delays.ahead_s / (v - 1.0) + cycle_s
        begin_s = needs[CYCLES, kind, gpu, n] * around_s + before[SMALL_CHUNK] + before_hops_s
        late_s = _late_forwards_s(
            problem, at, max(before[PACE], known[PACE] if needs[CYCLES, kind, gpu, n] > 1 else 0.0), around_s
        )
        need_s = max(need_s, begin_s + late_s + needs[AFTER_CYCLES, kind, gpu, n])
    held_s = _memory_need_s(problem, at, (known, before, behind), (lead_s + lead_back_s, behind_hops_s, cycle_s))
    return float(max(need_s, held_s))


@inlined
def _late_forwards_s(
    problem: PartitionProblem, at: tuple[int, int, int, int, int], pace_s: float, around_s: float
) -> float:
    """What the forwards of a rank's chunk add that come to it one `pace_s` after another and are not done before its
    next chunk can begin, `around_s` after the first of them.
    """
    _, kind, _, gpu, n = at
    forward_s = problem.needs[FIRST_SUM + SMALL_CHUNK, kind, gpu, n]
    pace_s = max(pace_s, problem.needs[FIRST_SUM, kind, gpu, n])
    if problem.needs[CYCLES, kind, gpu, n] < 1.0 or around_s >= problem.num_microbatches * pace_s:
        return 0.0
    number = np.floor(around_s / pace_s)
    left = problem.num_microbatches - number
    return float(max((left - 1.0) * forward_s, left * forward_s - (around_s - number * pace_s)))


@inlined
def _memory_need_s(
    problem: PartitionProblem,
    at: tuple[int, int, int, int, int],
    sums: tuple[Floats, Floats, Floats],
    ways_s: tuple[float, float, float],
) -> float:
    """What memory for few micro-batches costs a rank: `sums` are those known of all, before it and behind it, `ways_s`
    what leads to it and back from it, hops behind it, and messages between types in a cycle.
    """
    (_, kind, _, gpu, n), (known, before, behind), (there_and_back_s, behind_hops_s, cycle_s) = at, sums, ways_s
    needs, v, behind_s, need_s = problem.needs, problem.num_chunks, behind[BOTH_BEHIND], 0.0
    weighted_s = before[WEIGHTED] + needs[FIRST_SUM + WEIGHTED, kind, gpu, n] + behind[WEIGHTED_BEHIND]
    weighted_s = max(known[WEIGHTED], weighted_s)
    if needs[TRIPS, kind, gpu, n] > 1:
        life_s = needs[OWN_BOTH, kind, gpu, n] + 2.0 * behind_hops_s
        if problem.looped:
            cycles = needs[TRIP_CYCLES, kind, gpu, n]
            life_s += (cycles * weighted_s + behind[WEIGHTED_BEHIND]) * 2.0 / (v * (v - 1.0))
            life_s += 2.0 * cycles * (problem.delays.ahead_s / (v - 1.0) + cycle_s)
        else:
            life_s += behind_s
        own_s = needs[TRIP_LAST, kind, gpu, n] + problem.update_s
        need_s = there_and_back_s + needs[TRIPS, kind, gpu, n] * life_s + own_s
    if needs[HELD_PER_S, kind, gpu, n] > 0:
        life_s = weighted_s + problem.delays.held_s
        life_s += behind_s + v * (v - 1.0) * cycle_s if problem.looped else 0.0
        own_s = needs[HELD_OWN, kind, gpu, n] + problem.update_s
        need_s = max(need_s, needs[HELD_PER_S, kind, gpu, n] * life_s + own_s)
    return float(need_s)


@compiled
def _all_ways_s(problem: PartitionProblem, way_s: float, cycle_s: float) -> float:
    """What messages between types take from the first stage to the last."""
    if problem.looped:
        return (problem.num_chunks - 1.0) * cycle_s + way_s
    return problem.num_chunks * way_s
