"""The compiled bound of one machine: jobs with heads and tails, which may be interrupted (Jackson's rule).

Proof: docs/bounds.md, "One pipeline".
"""

from __future__ import annotations

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints


@compiled
def one_machine(head: Floats, duration: Floats, tail: Floats) -> float:
    """Jackson's preemptive rule: always run, of what is available, the longest tail; its value is the bound."""
    jobs = head, duration, tail, np.argsort(head, kind="mergesort")
    return _preemptive(jobs, np.empty(len(head)), np.empty(len(head)))


@compiled
def _preemptive(jobs: tuple[Floats, Floats, Floats, Ints], tails: Floats, left: Floats) -> float:
    """The loop of `one_machine`; `tails` and `left` are room for the heap of jobs that are available."""
    (head, duration, tail, by_head), tails, left = uncounted((jobs, tails, left))
    now, best, position, size = 0.0, 0.0, 0, 0
    while position < len(by_head) or size > 0:
        if size == 0:
            now = max(now, head[by_head[position]])
        while position < len(by_head) and head[by_head[position]] <= now:
            job = by_head[position]
            _push(tails, left, size, (tail[job], duration[job]))
            size += 1
            position += 1
        until = head[by_head[position]] if position < len(by_head) else np.inf
        if now + left[0] <= until:
            now += left[0]
            best = max(best, now + tails[0])
            size -= 1
            _pop(tails, left, size)
        else:
            left[0] -= until - now
            now = until
    return best


@inlined
def _push(tails: Floats, left: Floats, size: int, job: tuple[float, float]) -> None:
    """One more job for a binary heap of so many, the longest tail first."""
    at = size
    while at > 0 and tails[(at - 1) >> 1] < job[0]:
        up = (at - 1) >> 1
        tails[at], left[at] = tails[up], left[up]
        at = up
    tails[at], left[at] = job


@inlined
def _pop(tails: Floats, left: Floats, size: int) -> None:
    """Without its first job the heap has so many."""
    at, below, last_tail, last_left = 0, 1, tails[size], left[size]
    while below < size:
        if below + 1 < size and tails[below + 1] > tails[below]:
            below += 1
        if tails[below] <= last_tail:
            break
        tails[at], left[at] = tails[below], left[below]
        at, below = below, 2 * below + 1
    tails[at], left[at] = last_tail, last_left
