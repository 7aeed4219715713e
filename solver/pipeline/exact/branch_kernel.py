"""Depth-first search over the orders of pairs of jobs on one machine: compiled, resumable.

A pair is the i-th job of one stream and the x-th of another: either the one goes first or the other.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.compiled import compiled, uncounted
from solver.pipeline.exact.columns import Machines, Waits
from solver.pipeline.exact.resource_kernel import Rows
from solver.pipeline.exact.window_kernel import (
    DEPTH,
    FAILED,
    NODES,
    SERIAL,
    SIZE,
    STALE,
    WORK,
    State,
    mark_all_dirty,
    propagate,
    undo,
)
from solver.pipeline.exact.window_kernel import put as write
from solver.pipeline.problem import Floats, Ints

REFUTED, REACHED, OPEN, FULL = 0, 1, 2, 3


class Decisions(NamedTuple):
    """By depth: machine, pair, x, i, whether i went first, whether the other way is still open; length of the trail.

    `rule`: how much the narrower order of a pair counts, and the factor on pairs of the third stream.
    """

    pair: Ints
    trail: Ints
    rule: Floats


@compiled
def search(machines: Machines, waits: Waits, state: State, rows: Rows, decisions: Decisions, most_work: int) -> int:
    """Go on until everything is decided, everything is refuted, the trail is full, or so much work is done."""
    machines, waits, state, rows, decisions = uncounted((machines, waits, state, rows, decisions))
    number, pair = state.number, decisions.pair
    while number[WORK] < most_work:
        if number[SIZE] + state.value.size > state.trail_at.size:
            return FULL
        if number[FAILED] == 1:
            if not backtrack(machines, waits, state, rows, decisions):
                return REFUTED
            continue
        found = choose(machines, state, decisions.rule)
        if found[0] < 0:
            return REACHED
        depth = number[DEPTH]
        pair[depth, 0], pair[depth, 1], pair[depth, 2], pair[depth, 3], pair[depth, 4] = found
        pair[depth, 5] = 1
        decisions.trail[depth] = number[SIZE]
        number[DEPTH] += 1
        decide(machines, waits, state, rows, pair[depth], found[4] == 1)
    return OPEN


@compiled
def backtrack(machines: Machines, waits: Waits, state: State, rows: Rows, decisions: Decisions) -> bool:
    """Back to the last decision whose other way is open, and that way; False when there is none."""
    number = state.number
    depth = number[DEPTH] - 1
    while depth >= 0 and decisions.pair[depth, 5] == 0:
        depth -= 1
    if depth < 0:
        return False
    undo(state, decisions.trail[depth])
    number[DEPTH] = depth + 1
    decisions.pair[depth, 5] = 0
    if depth < number[STALE]:
        number[STALE] = depth
        mark_all_dirty(waits, state)
    decide(machines, waits, state, rows, decisions.pair[depth], decisions.pair[depth, 4] == 0)
    return True


@compiled
def lower(machines: Machines, waits: Waits, state: State, rows: Rows, by: int) -> None:
    """The horizon comes closer in the midst of a search.

    A schedule within the new horizon, taken so much later, is one within the old, for every decision: so every latest
    start comes closer by as much, the saved ones too.
    """
    machines, waits, state, rows = uncounted((machines, waits, state, rows))
    size, number = state.est.size, state.number
    state.lst[:] -= by
    for at in range(number[SIZE]):
        if size <= state.trail_at[at] < 2 * size:
            state.trail_old[at] -= by
    number[STALE] = number[DEPTH]
    mark_all_dirty(waits, state)
    number[FAILED] = 0 if propagate(machines, waits, state, rows, 1 << 60) else 1


@compiled
def decide(machines: Machines, waits: Waits, state: State, rows: Rows, pair: Ints, first: bool) -> None:
    """Job i of the one stream before (or after) job x of the other, and what follows from it."""
    k, which, x, i = pair[0], pair[1], pair[2], pair[3]
    width = state.order.shape[3]
    base = 2 * state.est.size + ((k * 3 + which) * 2) * width + x
    state.number[SERIAL] += 1
    state.number[NODES] += 1
    if first:
        write(state, base, i + 1)
    else:
        write(state, base + width, i)
    state.dirty_machine[k] = 1
    state.number[FAILED] = 0 if propagate(machines, waits, state, rows, 1 << 60) else 1


@compiled
def choose(machines: Machines, state: State, rule: Floats) -> tuple[int, int, int, int, int]:
    """The undecided pair of least slack on the machine that has refuted most; its likelier order; machine -1: none."""
    machines, state, rule = uncounted((machines, state, rule))
    est, lst, order = state.est, state.lst, state.order
    best = 1e300
    found = (-1, 0, 0, 0, 0)
    for k in range(machines.length.shape[0]):
        for pair in range(3):
            a, b = (0 if pair < 2 else 1), (1 if pair == 0 else 2)
            for x in range(machines.length[k, b]):
                low, high = order[k, pair, 0, x], order[k, pair, 1, x]
                late = machines.first[k, b] + x
                for i in range(low, high):
                    early = machines.first[k, a] + i
                    ahead = lst[late] - est[early] - machines.ticks[early]
                    behind = lst[early] - est[late] - machines.ticks[late]
                    value = (max(ahead, behind) + rule[0] * min(ahead, behind)) / state.weight[k]
                    if b == 2:
                        value *= rule[1]
                    if value < best:
                        best = value
                        found = (k, pair, x, i, 1 if ahead >= behind else 0)
    return found
