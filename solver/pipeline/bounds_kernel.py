"""Compiled parts of the lower bounds: heads, tails, the preemptive one-machine bound, and ranks as such machines.

Their proofs: docs/bounds.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.memory_kernel import ROUNDING, MemoryWaits, least_end_s, rank_holds, waits_for_memory
from solver.pipeline.one_machine_kernel import one_machine
from solver.pipeline.problem import Floats, PipelineShape
from solver.pipeline.simulate_kernel import ShapeColumns
from solver.pipeline.sums_kernel import StageSums, stage_sums


class AlikePipelines(NamedTuple):
    """Pipelines of the same stages and ranks without channels: durations (pipelines x kinds x stages) and the like."""

    duration_pks: Floats
    latency_ps: Floats
    activation_ps: Floats
    context_ps: Floats
    budget_pr: Floats
    sync_ps: Floats

    def at(self, shape: PipelineShape, place: int) -> PipelineShape:
        """One of them; `shape` is what they have in common."""
        return replace(
            shape,
            duration_ks=self.duration_pks[place],
            latency_s=self.latency_ps[place],
            activation_s=self.activation_ps[place],
            context_s=self.context_ps[place],
            budget_r=self.budget_pr[place],
            sync_s=self.sync_ps[place],
        )


@compiled
def heads(columns: ShapeColumns, waits: MemoryWaits, first_stage: int) -> Floats:
    """Earliest start of every operation in the relaxed graph, stages before `first_stage` left out.

    None starts before its rank has done all that has to come before it, and no message before its channel has.
    """
    columns, waits = uncounted((columns, waits))
    head = np.zeros((columns.num_kinds, columns.num_stages, columns.num_microbatches))
    own = stage_sums(columns, first_stage), np.full(columns.num_channels, np.inf)
    _fill_heads(columns, waits, first_stage, own, head)
    return head


@compiled
def _fill_heads(
    columns: ShapeColumns, waits: MemoryWaits, first_stage: int, own: tuple[StageSums, Floats], head: Floats
) -> None:
    """The loop of `heads`, by sums and channels: as arguments these go uncounted."""
    columns, waits, own, head = uncounted((columns, waits, own, head))
    m, num_stages, num_kinds = columns.num_microbatches, columns.num_stages, columns.num_kinds
    (sums, channel_ready), duration = own, columns.duration_ks
    for j in range(m):
        for s in range(first_stage, num_stages):
            value = _forward_ready(columns, sums, head, (s, j))
            if s > first_stage:
                ready = head[0, s - 1, j] + duration[0, s - 1]
                channel, before = columns.activation_channel_s[s - 1], (j + 1) * sums.before_activation[s - 1]
                value = max(value, _arrival(columns, channel_ready, (channel, s - 1, j), (ready, before)))
            head[0, s, j] = max(value, _memory_wait_s(columns, waits, sums, head, (s, j, first_stage)))
        for s in range(num_stages - 1, first_stage - 1, -1):
            value = max(head[0, s, j] + duration[0, s], _backward_ready(columns, sums, head, (s, j)))
            if s < num_stages - 1:
                ready = head[1, s + 1, j] + duration[1, s + 1]
                channel, before = columns.gradient_channel_s[s], (j + 1) * sums.before_gradient[s]
                value = max(value, _arrival(columns, channel_ready, (channel, s, j), (ready, before)))
            head[1, s, j] = value
            if num_kinds == 3:
                head[2, s, j] = max(value + duration[1, s], _weight_ready(columns, sums, head, (s, j)))


@inlined
def _forward_ready(columns: ShapeColumns, sums: StageSums, head: Floats, at: tuple[int, int]) -> float:
    """When the F before it on its rank can be done."""
    s, j = at
    first = sums.first_r[columns.rank_of_s[s]]
    start = head[0, first, 0] if first < s or j > 0 else 0.0
    value = start + (j + 1) * sums.before[0, s] + j * columns.duration_ks[0, s]
    return float(max(value, head[0, s, j - 1] + columns.duration_ks[0, s]) if j > 0 else value)


@inlined
def _backward_ready(columns: ShapeColumns, sums: StageSums, head: Floats, at: tuple[int, int]) -> float:
    """When the F of all stages of its rank and the B behind it can be done."""
    s, j = at
    start = head[0, sums.first_r[columns.rank_of_s[s]], 0]
    value = start + (j + 1) * (sums.whole[0, s] + sums.behind[1, s]) + j * columns.duration_ks[1, s]
    return float(max(value, head[1, s, j - 1] + columns.duration_ks[1, s]) if j > 0 else value)


@inlined
def _weight_ready(columns: ShapeColumns, sums: StageSums, head: Floats, at: tuple[int, int]) -> float:
    """When the F of all stages of its rank, the B behind it and its own can be done, and the W before it."""
    s, j = at
    start = head[0, sums.first_r[columns.rank_of_s[s]], 0]
    work = sums.whole[0, s] + columns.duration_ks[1, s] + sums.behind[1, s]
    value = start + (j + 1) * work + j * columns.duration_ks[2, s]
    return float(max(value, head[2, s, j - 1] + columns.duration_ks[2, s]) if j > 0 else value)


@inlined
def _arrival(
    columns: ShapeColumns, channel_ready: Floats, at: tuple[int, int, int], times: tuple[float, float]
) -> float:
    """When a message over a hop arrives: after those before it on its channel, which has its first one when it had.

    `at` are its channel, hop and micro-batch, `times` when it is sent and what precedes it (seconds).
    """
    channel, hop, j = at
    sent, before = times
    if channel >= 0:
        channel_ready[channel] = min(channel_ready[channel], sent)
        sent = max(sent, channel_ready[channel] + before + j * columns.transfer_s[hop])
    return float(sent + columns.transfer_s[hop] + columns.latency_s[hop])


@inlined
def _memory_wait_s(
    columns: ShapeColumns, waits: MemoryWaits, sums: StageSums, head: Floats, at: tuple[int, int, int]
) -> float:
    """End of the B and W that must have freed the memory which this F takes, with all that precedes either."""
    s, j, first_stage = at
    value, duration = 0.0, columns.duration_ks
    for wait in range(waits.at[s], waits.at[s + 1]):
        freed, kind, before = waits.stage[wait], waits.kind[wait], j - waits.distance[wait]
        if freed >= first_stage and before >= 0:
            value = max(value, head[kind, freed, before] + duration[kind, freed])
            number = before + 1
            work = (j + 1) * sums.before[0, s] + j * duration[0, s] + number * sums.behind[0, s]
            work += number * (duration[1, freed] + sums.behind[1, freed])
            if kind == 2:
                work += number * duration[2, freed]
            value = max(value, head[0, sums.first_r[columns.rank_of_s[s]], 0] + work)
    return float(value)


@compiled
def tails_after(columns: ShapeColumns, waits: MemoryWaits, first_stage: int, counted_s: Floats) -> Floats:
    """Least time from the end of every operation to the end of the counted stages, in the same graph.

    `counted_s[s]` is the gradient exchange after the last W of a counted stage, or minus infinity where the end of
    the stage does not count.
    """
    columns, waits, counted_s = uncounted((columns, waits, counted_s))
    tail = np.full((columns.num_kinds, columns.num_stages, columns.num_microbatches), -np.inf)
    channel_left, least_r = np.full(columns.num_channels, np.inf), np.full(columns.num_ranks, np.inf)
    for s in range(first_stage, columns.num_stages):
        least_r[columns.rank_of_s[s]] = min(least_r[columns.rank_of_s[s]], counted_s[s])
    own = stage_sums(columns, first_stage), least_r, channel_left
    _fill_tails(columns, waits, first_stage, counted_s, own, tail)
    return tail


@compiled
def _fill_tails(
    columns: ShapeColumns,
    waits: MemoryWaits,
    first_stage: int,
    counted_s: Floats,
    own: tuple[StageSums, Floats, Floats],
    tail: Floats,
) -> None:
    """The loop of `tails_after`, by sums, least exchanges of ranks and channels: as arguments these go uncounted."""
    columns, waits, counted_s, own, tail = uncounted((columns, waits, counted_s, own, tail))
    m, num_stages, num_kinds = columns.num_microbatches, columns.num_stages, columns.num_kinds
    (sums, least_r, channel_left), duration = own, columns.duration_ks
    for j in range(m - 1, -1, -1):
        for s in range(first_stage, num_stages):
            for kind in range(num_kinds - 1, 0, -1):
                value = _tail_on_rank(columns, tail, (kind, s, j))
                if kind == num_kinds - 1:
                    value = max(value, counted_s[s])
                if kind == 1:
                    value = max(value, _after_backward(columns, sums, tail, (s, j, least_r[columns.rank_of_s[s]])))
                if kind == 1 and s > first_stage:
                    left = tail[1, s - 1, j] + duration[1, s - 1] + columns.latency_s[s - 1]
                    channel, after = columns.gradient_channel_s[s - 1], (m - j) * sums.after_gradient[s - 1]
                    value = max(value, _left(columns, channel_left, (channel, s - 1, j), (left, after)))
                tail[kind, s, j] = value
        for s in range(num_stages - 1, first_stage - 1, -1):
            value = tail[1, s, j] + duration[1, s]
            value = max(value, _after_forward(columns, sums, tail, (s, j, least_r[columns.rank_of_s[s]])))
            if s < num_stages - 1:
                left = tail[0, s + 1, j] + duration[0, s + 1] + columns.latency_s[s]
                channel, after = columns.activation_channel_s[s], (m - j) * sums.after_activation[s]
                value = max(value, _left(columns, channel_left, (channel, s, j), (left, after)))
            tail[0, s, j] = value
            _pass_on(columns, waits, tail, (s, j, first_stage))


@inlined
def _after_backward(columns: ShapeColumns, sums: StageSums, tail: Floats, at: tuple[int, int, float]) -> float:
    """What follows a B on its rank: the next B, those of stages before it, and the W of these; then `least`."""
    s, j, least = at
    left = columns.num_microbatches - j
    work = (left - 1) * columns.duration_ks[1, s] + left * sums.before[1, s]
    first = sums.first_r[columns.rank_of_s[s]]
    last = columns.num_microbatches - 1
    value = work + tail[1, first, last] if (first < s or j < last) else -np.inf
    if columns.num_kinds == 3:
        value = max(value, work + left * (columns.duration_ks[2, s] + sums.before[2, s]) + least)
    return float(value)


@inlined
def _after_forward(columns: ShapeColumns, sums: StageSums, tail: Floats, at: tuple[int, int, float]) -> float:
    """What follows an F on its rank: the next F, those of stages behind it, and all B and W; then `least`."""
    s, j, least = at
    left = columns.num_microbatches - j
    work = (left - 1) * columns.duration_ks[0, s] + left * (sums.behind[0, s] + sums.whole[1, s])
    value = work + tail[1, sums.first_r[columns.rank_of_s[s]], columns.num_microbatches - 1]
    if columns.num_kinds == 3:
        value = max(value, work + left * sums.whole[2, s] + least)
    if j < columns.num_microbatches - 1:
        value = max(value, tail[0, s, j + 1] + columns.duration_ks[0, s])
    return float(value)


@inlined
def _left(columns: ShapeColumns, channel_left: Floats, at: tuple[int, int, int], times: tuple[float, float]) -> float:
    """What follows the start of a message: itself, those after it on its channel, and what follows the last of them.

    `at` are its channel, hop and micro-batch, `times` what follows it and what comes after it on the channel (seconds).
    """
    channel, hop, j = at
    left, after = times
    if channel >= 0:
        channel_left[channel] = min(channel_left[channel], left)
        others = after + (columns.num_microbatches - 1 - j) * columns.transfer_s[hop]
        left = max(left, channel_left[channel] + others)
    return float(left + columns.transfer_s[hop])


@inlined
def _pass_on(columns: ShapeColumns, waits: MemoryWaits, tail: Floats, at: tuple[int, int, int]) -> None:
    """The tail of an F to the B and W that free its memory."""
    stage, microbatch, first_stage = at
    after = tail[0, stage, microbatch] + columns.duration_ks[0, stage]
    for wait in range(waits.at[stage], waits.at[stage + 1]):
        freed, kind, before = waits.stage[wait], waits.kind[wait], microbatch - waits.distance[wait]
        if freed >= first_stage and before >= 0:
            tail[kind, freed, before] = max(tail[kind, freed, before], after)


@inlined
def _tail_on_rank(columns: ShapeColumns, tail: Floats, at: tuple[int, int, int]) -> float:
    """What follows a B or W on its own rank: the F that wait for its memory, the next of its kind, its W."""
    kind, stage, microbatch = at
    value = tail[kind, stage, microbatch]
    if microbatch < columns.num_microbatches - 1:
        value = max(value, tail[kind, stage, microbatch + 1] + columns.duration_ks[kind, stage])
    if kind == 1 and columns.num_kinds == 3:
        value = max(value, tail[2, stage, microbatch] + columns.duration_ks[2, stage])
    return float(value)


@compiled
def ranks_bound(columns: ShapeColumns, head: Floats, tail: Floats, known_s: float, enough_s: float) -> float:
    """The largest of a bound that is known and those of all ranks, busy or full of activations.

    It need not go beyond `enough_s` (seconds): what it takes to find more is spared then.
    """
    columns, head, tail = uncounted((columns, head, tail))
    best = max(known_s, longest_path(columns, head, tail))
    for rank in range(columns.num_ranks):
        if best >= enough_s:
            return best
        best = max(best, busy_rank(columns, rank, head, tail))
    for rank in range(columns.num_ranks):
        if best >= enough_s:
            return best
        best = max(best, full_rank(columns, rank, head, tail))
        best = max(best, least_end_s(rank_holds(columns, rank, head, tail), best))
    return best


@compiled
def bounds_of_alike(columns: ShapeColumns, each: AlikePipelines, enough_p: Floats) -> Floats:
    """`ranks_bound` of each of the pipelines, written one after another into these columns."""
    columns, each, enough_p = uncounted((columns, each, enough_p))
    found = np.empty(len(enough_p))
    for p in range(len(enough_p)):
        columns.duration_ks[:], columns.latency_s[:] = each.duration_pks[p], each.latency_ps[p]
        columns.activation_s[:], columns.context_s[:] = each.activation_ps[p], each.context_ps[p]
        columns.budget_r[:], columns.sync_s[:] = each.budget_pr[p], each.sync_ps[p]
        waits = waits_for_memory(columns)
        head, tail = heads(columns, waits, 0), tails_after(columns, waits, 0, columns.sync_s)
        found[p] = ranks_bound(columns, head, tail, 0.0, enough_p[p])
    return found


@inlined
def longest_path(columns: ShapeColumns, head: Floats, tail: Floats) -> float:
    """The longest way through the graph: of an operation, head, duration and tail."""
    longest = 0.0
    for kind in range(columns.num_kinds):
        for s in range(columns.num_stages):
            for j in range(columns.num_microbatches):
                longest = max(longest, head[kind, s, j] + columns.duration_ks[kind, s] + tail[kind, s, j])
    return longest


@compiled
def busy_rank(columns: ShapeColumns, rank: int, head: Floats, tail: Floats) -> float:
    """A rank as one machine for all its operations."""
    columns, head, tail = uncounted((columns, head, tail))
    stages, m, count = np.flatnonzero(columns.rank_of_s == rank), columns.num_microbatches, 0
    jobs = np.empty((3, columns.num_kinds * len(stages) * m))
    for kind in range(columns.num_kinds):
        for s in stages:
            jobs[0, count : count + m], jobs[2, count : count + m] = head[kind, s], tail[kind, s]
            jobs[1, count : count + m] = columns.duration_ks[kind, s]
            count += m
    return one_machine(jobs[0], jobs[1], jobs[2])


@compiled
def full_rank(columns: ShapeColumns, rank: int, head: Floats, tail: Floats) -> float:
    """A rank as one machine whose forwards wait for memory that its own backwards free; 0 where memory never fills.

    The forwards, by work per byte, are pieces of length f_k; piece k begins at the first t with C + R(t) >= a_1 + ... +
    a_(k-1) or later, with C the rank's bytes and R(t) what B and W can have freed by t. Read backwards in time, the
    same holds for W, and for B: they are pieces as well, or have heads and tails of their own.
    """
    columns, head, tail = uncounted((columns, head, tail))
    stages, m, budget = np.flatnonzero(columns.rank_of_s == rank), columns.num_microbatches, columns.budget_r[rank]
    if columns.activation_s[stages].sum() * m <= budget:
        return 0.0
    n, count, last = len(stages) * m, 0, columns.num_kinds - 1
    held, retained, by_kind = np.empty(n), np.zeros(n), np.empty((3, columns.num_kinds, n))
    for s in stages:
        held[count : count + m] = columns.activation_s[s]
        if last == 2:
            retained[count : count + m] = min(columns.context_s[s], columns.activation_s[s])
        for kind in range(columns.num_kinds):
            by_kind[0, kind, count : count + m], by_kind[2, kind, count : count + m] = head[kind, s], tail[kind, s]
            by_kind[1, kind, count : count + m] = columns.duration_ks[kind, s]
        count += m
    jobs, freed, when = np.empty((3, columns.num_kinds * n)), np.empty(last * n), np.empty(last * n)
    jobs[:, :n] = by_kind[:, 1]
    freed[:n], when[:n] = held - retained, by_kind[0, 1] + by_kind[1, 1]
    if last == 2:
        freed[n:], when[n:] = retained, by_kind[0, 2] + by_kind[1, 2]
    length, start = _as_memory_allows(by_kind[1, 0], held, budget, when, freed)
    jobs[0, n : 2 * n], jobs[1, n : 2 * n] = np.maximum(start, by_kind[0, 0].min()), length
    jobs[2, n : 2 * n] = by_kind[2, 0].min()
    begun = by_kind[2, 0] + by_kind[1, 0]
    if last == 2:
        length, end = _as_memory_allows(by_kind[1, 2], retained, budget, begun, retained)
        jobs[0, 2 * n :], jobs[1, 2 * n :] = by_kind[0, 2].min(), length
        jobs[2, 2 * n :] = np.maximum(end, by_kind[2, 2].min())
    best = one_machine(jobs[0], jobs[1], jobs[2])
    length, end = _as_memory_allows(by_kind[1, 1], held, budget, begun, held)
    jobs[0, :n], jobs[1, :n], jobs[2, :n] = by_kind[0, 1].min(), length, np.maximum(end, by_kind[2, 1].min())
    return max(best, one_machine(jobs[0], jobs[1], jobs[2]))


@compiled
def _as_memory_allows(work: Floats, held: Floats, budget: float, when: Floats, freed: Floats) -> tuple[Floats, Floats]:
    """Pieces of work in order of work per byte, and the time from which memory allows each.

    Where all that is held are multiples of the least, memory counts in these, and a piece needs one more.
    """
    count, unit = len(work), np.inf
    per_byte = np.full(count, -np.inf)
    for k in range(count):
        if held[k] > 0:
            per_byte[k], unit = -work[k] / held[k], min(unit, held[k])
    order, by_time = np.argsort(per_byte, kind="mergesort"), np.argsort(when, kind="mergesort")
    in_units = unit < np.inf
    for k in range(count if in_units else 0):
        rounded = unit * np.rint(held[k] / unit)
        in_units = in_units and abs(held[k] - rounded) <= ROUNDING * rounded
    length, start = np.empty(count), np.empty(count)
    so_far, total_freed, at = 0.0, 0.0, 0
    for k in range(count):
        length[k] = work[order[k]]
        before = so_far + unit / 2 if in_units else so_far
        while at < len(when):
            total = (1 + ROUNDING) * (budget + total_freed)
            if (unit * np.floor(total / unit) if in_units else total) >= before:
                break
            total_freed += freed[by_time[at]]
            at += 1
        start[k] = when[by_time[at - 1]] if at > 0 else 0.0
        so_far += held[order[k]]
    return length, start
