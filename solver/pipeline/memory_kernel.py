"""Compiled parts of the bounds by memory: what F waits for until memory is free, and memory as a machine of its own.

Their proofs: docs/bounds.md, "One pipeline".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints
from solver.pipeline.simulate_kernel import ShapeColumns

ROUNDING = 1e-9  # relative: what sums of bytes may be off
EPSILON = 2.3e-16  # relative: what one sum of two floats may be off, rounded up
ROUNDS = 4  # of the search for the window of time that bounds most; two mostly suffice


class MemoryWaits(NamedTuple):
    """What F waits for until memory is free: F[j + distance] of a stage waits for the end of `kind`[j] of `stage`.

    Kind 1 is B, 2 is W. Entries at[s] up to at[s + 1] are those of stage s.
    """

    at: Ints
    stage: Ints
    kind: Ints
    distance: Ints


class Holds(NamedTuple):
    """Memory that a rank holds, by hold: each lasts from the start of an F to the end of a B or W.

    `share`: of the rank's memory; `life_s`: it lasts no less; `end_s`: it ends no earlier; `left_s`: from its start
    until the end of the schedule no less passes.
    """

    share: Floats
    life_s: Floats
    end_s: Floats
    left_s: Floats


@compiled
def waits_for_memory(columns: ShapeColumns) -> MemoryWaits:
    """Waits of all stages, without those that another one implies."""
    columns = uncounted(columns)
    m, num_stages, last_kind = columns.num_microbatches, columns.num_stages, columns.num_kinds - 1
    held_s, previous_s, pairs = _stages_of_ranks(columns)
    least = np.full((3, num_stages), m)  # distance of the waits for B (row 1) and W (row 2) of every stage so far
    found = np.empty((3, last_kind * pairs), dtype=np.int64)
    at = np.zeros(num_stages + 1, dtype=np.int64)
    count = 0
    for s in range(num_stages):
        free = columns.budget_r[columns.rank_of_s[s]] * (1 + ROUNDING) - held_s[s]
        freed = s
        while freed >= 0:
            earlier = previous_s[freed]
            for kind in range(1, last_kind + 1):
                held = held_s[freed] if kind == 1 else _retained_until_w(columns, freed)
                distance = _distance(free, held, m)
                implied = kind == 1 and earlier >= 0 and distance == _distance(free, held_s[earlier], m)
                if distance < least[kind, freed] and not implied:
                    found[0, count], found[1, count], found[2, count] = freed, kind, distance
                    count += 1
                least[kind, freed] = min(least[kind, freed], distance)
            freed = earlier
        at[s + 1] = count
    return MemoryWaits(at, found[0, :count].copy(), found[1, :count].copy(), found[2, :count].copy())


@inlined
def _stages_of_ranks(columns: ShapeColumns) -> tuple[Floats, Ints, int]:
    """By stage: activations of it and the earlier ones of its rank; the one before it there, or -1. Pairs of these."""
    held_s, previous_s = np.zeros(columns.num_stages), np.full(columns.num_stages, -1)
    last_r, number_r, pairs = np.full(columns.num_ranks, -1), np.zeros(columns.num_ranks, dtype=np.int64), 0
    for s in range(columns.num_stages):
        rank = columns.rank_of_s[s]
        previous_s[s] = last_r[rank]
        held_s[s] = columns.activation_s[s] + (held_s[last_r[rank]] if last_r[rank] >= 0 else 0.0)
        last_r[rank] = s
        number_r[rank] += 1
        pairs += number_r[rank]
    return held_s, previous_s, pairs


@inlined
def _retained_until_w(columns: ShapeColumns, stage: int) -> float:
    """Bytes that are held from the F to the W of a micro-batch; none where the backward is fused."""
    if columns.num_kinds == 2:
        return 0.0
    return float(min(columns.activation_s[stage], columns.context_s[stage]))


@inlined
def _distance(free: float, held: float, most: int) -> int:
    """The least number of micro-batches that do not fit into what is free, each with so much; no more than `most`."""
    if held <= 0 or free >= held * most:
        return most
    return max(int(np.floor(free / held)) + 1, 1)


@compiled
def rank_holds(columns: ShapeColumns, rank: int, head: Floats, tail: Floats) -> Holds:
    """All holds of a rank, or none where all its activations fit at once.

    What is retained until W, min(a, c), and the rest of a, which ends with B, are holds of their own.
    """
    columns = uncounted(columns)
    m, last = columns.num_microbatches, columns.num_stages - 1
    capacity, unit = _capacity(columns, rank)
    holds = np.empty((4, 2 * m * (columns.rank_of_s == rank).sum() if capacity > 0 else 0))
    count, life_s = 0, 0.0
    for s in range(last, -1 if capacity > 0 else last, -1):
        life_s += columns.duration_ks[0, s] + columns.duration_ks[1, s]
        life_s += 2 * (columns.latency_s[s] + columns.transfer_s[s]) if s < last else 0.0
        for kind in range(1, columns.num_kinds):
            held = _held(columns, s, kind)
            if columns.rank_of_s[s] != rank or held <= ROUNDING * columns.activation_s[s]:
                continue
            share = (np.rint(held / unit) if unit > 0 else held) / capacity
            after_s = columns.duration_ks[2, s] if kind == 2 else 0.0
            for j in range(m):
                holds[0, count], holds[1, count] = share, life_s + after_s
                holds[2, count] = head[kind, s, j] + columns.duration_ks[kind, s]
                holds[3, count] = tail[0, s, j] + columns.duration_ks[0, s]
                count += 1
    return Holds(holds[0, :count].copy(), holds[1, :count].copy(), holds[2, :count].copy(), holds[3, :count].copy())


@inlined
def _held(columns: ShapeColumns, stage: int, kind: int) -> float:
    """Bytes that are held from the F to the B (kind 1) or to the W (kind 2) of a micro-batch, and no longer."""
    retained = _retained_until_w(columns, stage)
    return retained if kind == 2 else columns.activation_s[stage] - retained


@inlined
def _capacity(columns: ShapeColumns, rank: int) -> tuple[float, float]:
    """What a rank has, in units if all it holds are multiples of the least, and the unit; in bytes and 0 otherwise.

    Nothing (0) where all fits at once.
    """
    budget, unit, total = columns.budget_r[rank], np.inf, 0.0
    for s in range(columns.num_stages):
        if columns.rank_of_s[s] == rank:
            total += columns.activation_s[s] * columns.num_microbatches
            for kind in range(1, columns.num_kinds):
                held = _held(columns, s, kind)
                if held > ROUNDING * columns.activation_s[s]:
                    unit = min(unit, held)
    if total <= budget:
        return 0.0, 0.0
    for s in range(columns.num_stages):
        for kind in range(1, columns.num_kinds if columns.rank_of_s[s] == rank else 1):
            held = _held(columns, s, kind)
            if held > ROUNDING * columns.activation_s[s]:
                rounded = unit * np.rint(held / unit)
                if abs(held - rounded) > ROUNDING * rounded:
                    return budget * (1 + ROUNDING), 0.0
    return np.floor(budget * (1 + 4 * ROUNDING) / unit), unit


@compiled
def least_end_s(holds: Holds, known_s: float) -> float:
    """The largest bound over windows of time found alternately: the best end for a start, then the best start for it.

    In a window that begins at `start` and ends `end` before the end of the schedule, a hold takes its share for no less
    than the least of `life_s`, `end_s` - start, `left_s` - end, and the window as long as `known_s` lets it be.
    """
    holds = uncounted(holds)
    if len(holds.share) == 0:
        return 0.0
    best, start = 0.0, max((holds.end_s - holds.life_s).min(), 0.0)
    for _ in range(ROUNDS):
        end = _other_side(holds, holds.end_s, holds.left_s, start, known_s)
        start = _other_side(holds, holds.left_s, holds.end_s, end, known_s)
        value = start + end
        for k in range(len(holds.share)):
            inside_s = min(holds.life_s[k], holds.end_s[k] - start, holds.left_s[k] - end, known_s - start - end)
            value += holds.share[k] * max(inside_s, 0.0)
        if value <= best:
            break
        best = value
    return best * (1 - EPSILON * len(holds.share))


@inlined
def _other_side(holds: Holds, near_s: Floats, far_s: Floats, side: float, known_s: float) -> float:
    """Where the window should end (0 or more) if it begins at `side`: sides count from either end of the schedule.

    A hold adds its share of `inside` up to the point reach - inside, and from there less and less until reach.
    """
    count = len(holds.share)
    point, change = np.empty(2 * count), np.empty(2 * count)
    for k in range(count):
        inside = max(min(holds.life_s[k], near_s[k] - side), 0.0)
        reach = min(far_s[k], known_s - side)
        point[2 * k], point[2 * k + 1] = reach - inside, reach
        change[2 * k], change[2 * k + 1] = -holds.share[k], holds.share[k]
    at, gain, most, slope, where = 0.0, 0.0, 0.0, 1.0, 0.0
    for k in np.argsort(point):
        gain += slope * (point[k] - at)
        at = point[k]
        slope += change[k]
        if gain > most:
            most, where = gain, at
    return where
