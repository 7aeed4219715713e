"""Compiled placing of one round of a periodic schedule: every operation and message of a few micro-batches.

A reservation table (a rank or channel, time modulo the length of the round) is filled by a rule: an operation goes to
the earliest time at which the rest of its rank still fits. A round of u micro-batches is repeated for
ever, so what is held in memory at a time is a count of rounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints
from solver.pipeline.simulate_kernel import ShapeColumns

NEAR = 1e-9  # in rounds: times closer than this are the same time
MOST_IN_PAIRS = 5  # with more left to place, places are aligned with one of them, not with two


class ReservationTable(NamedTuple):
    """What is taken on every rank, then channel: phases in rising order, lengths, counts; and what is left to place.

    `rest` holds, by rank, the durations of operations not yet placed, the longest first.
    """

    phase: Floats
    length: Floats
    taken: Ints
    rest: Floats
    rest_count: Ints
    gap: Floats


class Round(NamedTuple):
    """The question: length of the round, delays by choice (2 x stages x u, in rounds), and the stages of every rank."""

    length: float
    delay: Floats
    stage_flat: Ints
    stage_offsets: Ints


@compiled
def place_round(columns: ShapeColumns, question: Round, table: ReservationTable, start: Floats) -> float:
    """Fill `start` (kind, stage, micro-batch of the round); returns by how many activations memory is exceeded.

    Infinity when a rank or channel cannot hold its part of the round.
    """
    columns, question, table, start = uncounted((columns, question, table, start))
    over, size = 0.0, start.shape[2]
    table.taken[:] = 0
    for rank in range(columns.num_ranks):
        _fill_rest(columns, question, table, rank, size)
    for one in range(size):
        ready = one * question.length / size
        for step in range(2 * columns.num_stages):
            kind = 0 if step < columns.num_stages else 1
            stage = step if kind == 0 else 2 * columns.num_stages - 1 - step
            ready += question.delay[kind, stage, one] * question.length
            more = _place_operation(columns, question, table, start, kind, stage, one, ready)
            if more == np.inf:
                return np.inf
            over += more
            end = start[kind, stage, one] + columns.duration_ks[kind, stage]
            ready = _carry(columns, question, table, kind, stage, end)
            if ready == np.inf:
                return np.inf
    return over


@compiled
def _place_operation(
    columns: ShapeColumns,
    question: Round,
    table: ReservationTable,
    start: Floats,
    kind: int,
    stage: int,
    one: int,
    ready: float,
) -> float:
    """Place F or B; the last of a rank looks for the place after which W and memory fit, and returns the excess."""
    rank = columns.rank_of_s[stage]
    duration = columns.duration_ks[kind, stage]
    _take_rest(table, rank, duration)
    time = earliest(table, rank, ready, duration, question.length, False)
    if time == np.inf:
        return np.inf
    weights = (columns.num_kinds - 2) * (question.stage_offsets[rank + 1] - question.stage_offsets[rank])
    if table.rest_count[rank] > weights * start.shape[2]:
        start[kind, stage, one] = time
        _occupy(table, rank, time, duration, question.length)
        return 0.0
    best, best_time = np.inf, time
    while time < ready + (1 + NEAR) * question.length:
        over = _try_last(columns, question, table, start, kind, stage, one, time)
        if over < best:
            best, best_time = over, time
        if best == 0:
            return 0.0
        time = earliest(table, rank, time + 2 * NEAR * question.length, duration, question.length, True)
    if best < np.inf:
        _try_last(columns, question, table, start, kind, stage, one, best_time)
        _occupy(table, rank, best_time, duration, question.length)
    return best


@compiled
def _try_last(
    columns: ShapeColumns,
    question: Round,
    table: ReservationTable,
    start: Floats,
    kind: int,
    stage: int,
    one: int,
    time: float,
) -> float:
    """Excess of memory with the last F or B of a rank at this time and W in what is left; what fits is kept."""
    rank = columns.rank_of_s[stage]
    count, rest_count = table.taken[rank], table.rest_count[rank]
    phases, lengths = table.phase[rank].copy(), table.length[rank].copy()
    rest = table.rest[rank].copy()
    start[kind, stage, one] = time
    _occupy(table, rank, time, columns.duration_ks[kind, stage], question.length)
    over = np.inf
    if columns.num_kinds == 2 or _place_weights(columns, question, table, start, rank):
        over = _excess(columns, question, start, rank)
    if over > 0:
        table.taken[rank], table.rest_count[rank] = count, rest_count
        table.phase[rank], table.length[rank], table.rest[rank] = phases, lengths, rest
    return over


@inlined
def _carry(columns: ShapeColumns, question: Round, table: ReservationTable, kind: int, stage: int, end: float) -> float:
    """When the next stage on the way has the result of an operation that ends at `end`; takes its channel."""
    if kind == 0 and stage == columns.num_stages - 1:
        return end
    if kind == 1 and stage == 0:
        return end
    hop = stage if kind == 0 else stage - 1
    channel = columns.activation_channel_s[hop] if kind == 0 else columns.gradient_channel_s[hop]
    if channel < 0:
        return float(end + columns.latency_s[hop])
    server = columns.num_ranks + channel
    time = earliest(table, server, end, columns.transfer_s[hop], question.length, False)
    if time == np.inf:
        return np.inf
    _occupy(table, server, time, columns.transfer_s[hop], question.length)
    return float(time + columns.transfer_s[hop] + columns.latency_s[hop])


@compiled
def _place_weights(columns: ShapeColumns, question: Round, table: ReservationTable, start: Floats, rank: int) -> bool:
    """W of every B of the rank, in the order of their ends, each in the first gap; false when one finds none."""
    first, last = question.stage_offsets[rank], question.stage_offsets[rank + 1]
    for at in range(first, last):
        start[2, question.stage_flat[at], :] = np.inf
    for _ in range((last - first) * start.shape[2]):
        chosen, chosen_one, ready = -1, -1, np.inf
        for at in range(first, last):
            stage = question.stage_flat[at]
            for one in range(start.shape[2]):
                end = start[1, stage, one] + columns.duration_ks[1, stage]
                if start[2, stage, one] == np.inf and end < ready:
                    chosen, chosen_one, ready = stage, one, end
        duration = columns.duration_ks[2, chosen]
        _take_rest(table, rank, duration)
        time = earliest(table, rank, ready, duration, question.length, False)
        if time == np.inf:
            return False
        start[2, chosen, chosen_one] = time
        _occupy(table, rank, time, duration, question.length)
    return True


@compiled
def _excess(columns: ShapeColumns, question: Round, start: Floats, rank: int) -> float:
    """By how many activations the budget is exceeded when an F starts or a B leaves more than it frees; 0: it fits."""
    worst = 0.0
    budget = columns.budget_r[rank] * (1 + 1e-9)
    for at in range(question.stage_offsets[rank], question.stage_offsets[rank + 1]):
        stage = question.stage_flat[at]
        unit = max(columns.activation_s[stage], columns.context_s[stage])
        for kind in range(0 if unit == 0 else 1 if columns.activation_s[stage] >= columns.context_s[stage] else 2):
            for one in range(start.shape[2]):
                time = start[kind, stage, one] + kind * columns.duration_ks[1, stage]
                worst = max(worst, (held_at(columns, question, start, rank, time) - budget) / unit)
    return worst


@inlined
def held_at(columns: ShapeColumns, question: Round, start: Floats, rank: int, time: float) -> float:
    """What the rank holds at a time once all rounds run: those begun by then, less those that have freed it."""
    held, length = 0.0, question.length
    for at in range(question.stage_offsets[rank], question.stage_offsets[rank + 1]):
        stage = question.stage_flat[at]
        for one in range(start.shape[2]):
            begun = np.floor((time - start[0, stage, one]) / length + NEAR)
            back = np.floor((time - start[1, stage, one] - columns.duration_ks[1, stage]) / length + NEAR)
            held += (begun - back) * columns.activation_s[stage]
            if columns.num_kinds == 3:
                done = np.floor((time - start[2, stage, one] - columns.duration_ks[2, stage]) / length + NEAR)
                held += (back - done) * columns.context_s[stage]
    return held


@compiled
def earliest(
    table: ReservationTable, server: int, ready: float, duration: float, length: float, aligned: bool
) -> float:
    """The first start from `ready` on that is free in the table and leaves gaps for the rest of the rank.

    Tried are `ready` itself (not when `aligned`) and the places of every gap that leave at its left or right end
    nothing, or space for exactly one or two operations of the rest.
    """
    table = uncounted(table)
    count = table.taken[server]
    if count == 0:
        return np.inf if aligned else ready
    best, slack = np.inf, NEAR * length
    for slot in range(count):
        begin = table.phase[server, slot] + table.length[server, slot]
        follower = table.phase[server, slot + 1] if slot + 1 < count else table.phase[server, 0] + length
        gap = follower - begin - duration
        if gap < -slack:
            continue
        begin += np.ceil((ready - slack - begin - max(gap, 0.0)) / length) * length
        least = max(ready - begin, 0.0)
        if begin + least >= best:
            continue
        if not aligned or begin >= ready - slack:
            best = _settle(table, server, begin + least, duration, length, best)
        best = _aligned(table, server, begin, gap, duration, length, max(ready, begin), best)
    return best


@inlined
def _aligned(
    table: ReservationTable,
    server: int,
    begin: float,
    gap: float,
    duration: float,
    length: float,
    ready: float,
    best: float,
) -> float:
    """The best place of one gap that leaves space for none, one or two operations of the rest at either end."""
    slack = NEAR * length
    rest_count = table.rest_count[server] if server < table.rest_count.size else 0
    for first in range(-1, rest_count):
        left = 0.0 if first < 0 else table.rest[server, first]
        for second in range(-1, first if rest_count <= MOST_IN_PAIRS else 0):
            used = left + (0.0 if second < 0 else table.rest[server, second])
            for offset in (used, gap - used):
                time = begin + offset
                if ready - slack <= time < best and offset <= max(gap, 0.0) + slack:
                    best = _settle(table, server, max(time, ready), duration, length, best)
    return best


@inlined
def _settle(table: ReservationTable, server: int, time: float, duration: float, length: float, best: float) -> float:
    """The time if it beats the best and the rest still fits around it."""
    if time >= best:
        return best
    if server >= table.rest_count.size or table.rest_count[server] == 0:
        return time
    slot = _insert(table, server, time % length, duration)
    fits = _packs(table, server, length)
    _remove(table, server, slot)
    return time if fits else best


@inlined
def _packs(table: ReservationTable, server: int, length: float) -> bool:
    """The rest goes into the gaps, longest first, each into the tightest."""
    count = table.taken[server]
    for slot in range(count):
        follower = table.phase[server, slot + 1] if slot + 1 < count else table.phase[server, 0] + length
        table.gap[slot] = follower - table.phase[server, slot] - table.length[server, slot]
    for at in range(table.rest_count[server]):
        need = table.rest[server, at]
        chosen = -1
        for slot in range(count):
            if table.gap[slot] >= need - NEAR * length and (chosen < 0 or table.gap[slot] < table.gap[chosen]):
                chosen = slot
        if chosen < 0:
            return False
        table.gap[chosen] -= need
    return True


@inlined
def _occupy(table: ReservationTable, server: int, time: float, duration: float, length: float) -> None:
    """Reserve a piece of time for good; one of no length would cut what starts at the same time in two."""
    if duration > NEAR * length:
        _insert(table, server, time % length, duration)


@inlined
def _insert(table: ReservationTable, server: int, phase: float, duration: float) -> int:
    """Reserve a piece of time; returns its slot."""
    slot = table.taken[server]
    table.taken[server] += 1
    while slot > 0 and table.phase[server, slot - 1] > phase:
        table.phase[server, slot] = table.phase[server, slot - 1]
        table.length[server, slot] = table.length[server, slot - 1]
        slot -= 1
    table.phase[server, slot], table.length[server, slot] = phase, duration
    return int(slot)


@inlined
def _remove(table: ReservationTable, server: int, slot: int) -> None:
    table.taken[server] -= 1
    for at in range(slot, table.taken[server]):
        table.phase[server, at] = table.phase[server, at + 1]
        table.length[server, at] = table.length[server, at + 1]


@compiled
def _fill_rest(columns: ShapeColumns, question: Round, table: ReservationTable, rank: int, size: int) -> None:
    """All operations of a rank, the longest first."""
    count = 0
    for at in range(question.stage_offsets[rank], question.stage_offsets[rank + 1]):
        for kind in range(columns.num_kinds):
            duration = columns.duration_ks[kind, question.stage_flat[at]]
            for _ in range(size):
                slot = count
                while slot > 0 and table.rest[rank, slot - 1] < duration:
                    table.rest[rank, slot] = table.rest[rank, slot - 1]
                    slot -= 1
                table.rest[rank, slot] = duration
                count += 1
    table.rest_count[rank] = count


@inlined
def _take_rest(table: ReservationTable, rank: int, duration: float) -> None:
    """One operation of this duration is no longer left to place."""
    at = 0
    while table.rest[rank, at] != duration:
        at += 1
    table.rest_count[rank] -= 1
    for later in range(at, table.rest_count[rank]):
        table.rest[rank, later] = table.rest[rank, later + 1]
