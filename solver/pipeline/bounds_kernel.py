"""Compiled parts of the lower bounds: heads, tails and the preemptive one-machine bound.

Their proofs: docs/bounds.md.
"""

from __future__ import annotations

import heapq

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.memory_kernel import MemoryWaits
from solver.pipeline.problem import Floats
from solver.pipeline.simulate_kernel import ShapeColumns


@compiled
def heads(columns: ShapeColumns, waits: MemoryWaits, first_stage: int) -> Floats:
    """Earliest start of every operation in the relaxed graph, stages before `first_stage` left out."""
    columns, waits = uncounted((columns, waits))
    m, num_stages, num_kinds = columns.num_microbatches, columns.num_stages, columns.num_kinds
    head = np.zeros((num_kinds, num_stages, m))
    duration = columns.duration_ks
    for j in range(m):
        for s in range(first_stage, num_stages):
            value = 0.0
            if j > 0:
                value = head[0, s, j - 1] + duration[0, s]
            if s > first_stage:
                value = max(value, head[0, s - 1, j] + duration[0, s - 1] + _hop_s(columns, s - 1))
            head[0, s, j] = max(value, _memory_wait_s(columns, waits, head, (s, j, first_stage)))
        for s in range(num_stages - 1, first_stage - 1, -1):
            value = head[0, s, j] + duration[0, s]
            if j > 0:
                value = max(value, head[1, s, j - 1] + duration[1, s])
            if s < num_stages - 1:
                value = max(value, head[1, s + 1, j] + duration[1, s + 1] + _hop_s(columns, s))
            head[1, s, j] = value
            if num_kinds == 3:
                before = head[2, s, j - 1] + duration[2, s] if j > 0 else 0.0
                head[2, s, j] = max(value + duration[1, s], before)
    return head


@compiled
def tails_after(columns: ShapeColumns, waits: MemoryWaits, first_stage: int, counted_s: Floats) -> Floats:
    """Least time from the end of every operation to the end of the counted stages, in the same graph.

    `counted_s[s]` is the gradient exchange after the last W of a counted stage, or minus infinity where the end of
    the stage does not count.
    """
    columns, waits, counted_s = uncounted((columns, waits, counted_s))
    m, num_stages, num_kinds = columns.num_microbatches, columns.num_stages, columns.num_kinds
    tail = np.full((num_kinds, num_stages, m), -np.inf)
    duration = columns.duration_ks
    for j in range(m - 1, -1, -1):
        for s in range(first_stage, num_stages):
            for kind in range(num_kinds - 1, 0, -1):
                value = _tail_on_rank(columns, tail, (kind, s, j))
                if kind == num_kinds - 1:
                    value = max(value, counted_s[s])
                if kind == 1 and s > first_stage:
                    value = max(value, tail[1, s - 1, j] + duration[1, s - 1] + _hop_s(columns, s - 1))
                tail[kind, s, j] = value
        for s in range(num_stages - 1, first_stage - 1, -1):
            value = tail[1, s, j] + duration[1, s]
            if j < m - 1:
                value = max(value, tail[0, s, j + 1] + duration[0, s])
            if s < num_stages - 1:
                value = max(value, tail[0, s + 1, j] + duration[0, s + 1] + _hop_s(columns, s))
            tail[0, s, j] = value
            _pass_on(columns, waits, tail, (s, j, first_stage))
    return tail


@inlined
def _hop_s(columns: ShapeColumns, stage: int) -> float:
    return float(columns.latency_s[stage] + columns.transfer_s[stage])


@inlined
def _memory_wait_s(columns: ShapeColumns, waits: MemoryWaits, head: Floats, at: tuple[int, int, int]) -> float:
    """End of the B and W that must have freed the memory which this F takes."""
    stage, microbatch, first_stage = at
    value = 0.0
    for wait in range(waits.at[stage], waits.at[stage + 1]):
        freed, kind, before = waits.stage[wait], waits.kind[wait], microbatch - waits.distance[wait]
        if freed >= first_stage and before >= 0:
            value = max(value, head[kind, freed, before] + columns.duration_ks[kind, freed])
    return value


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
def one_machine(head: Floats, duration: Floats, tail: Floats) -> float:
    """Jackson's preemptive rule: always run, of what is available, the longest tail; its value is the bound."""
    by_head = np.argsort(head, kind="mergesort")
    queue = [(0.0, 0.0)]
    queue.pop()
    now, best, position = 0.0, 0.0, 0
    while position < len(by_head) or len(queue) > 0:
        if len(queue) == 0:
            now = max(now, head[by_head[position]])
        while position < len(by_head) and head[by_head[position]] <= now:
            job = by_head[position]
            heapq.heappush(queue, (-tail[job], duration[job]))
            position += 1
        minus_tail, left = heapq.heappop(queue)
        until = head[by_head[position]] if position < len(by_head) else np.inf
        if now + left <= until:
            now += left
            best = max(best, now - minus_tail)
        else:
            heapq.heappush(queue, (minus_tail, left - (until - now)))
            now = until
    return best
