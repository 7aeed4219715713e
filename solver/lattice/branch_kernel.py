"""Depth-first search over the orders of pairs of jobs on one machine: compiled, resumable.

Owns which pair is decided next and the way back. A pair is the i-th job of one stream and the x-th of another: either
the one goes first or the other. Never decides when to stop.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.lattice.columns import Machines, Waits
from solver.lattice.machine_kernel import Rows
from solver.lattice.window_kernel import DEPTH, NODES, SERIAL, SIZE, WORK, State, propagate, undo
from solver.lattice.window_kernel import put as write
from solver.verify.compiled import compiled
from solver.verify.pipeline_shape import Floats, Ints

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
    number = state.number
    while number[WORK] < most_work:
        if number[SIZE] + state.value.size > state.trail_at.size:
            return FULL
        found = choose(machines, state, decisions.rule)
        if found[0] < 0:
            return REACHED
        number[NODES] += 1
        depth = number[DEPTH]
        for at in range(5):
            decisions.pair[depth, at] = found[at]
        decisions.pair[depth, 5] = 1
        decisions.trail[depth] = number[SIZE]
        number[DEPTH] += 1
        number[SERIAL] += 1
        first = found[4] == 1
        while not decide(machines, waits, state, rows, (found[0], found[1], found[2], found[3]), first):
            depth = number[DEPTH] - 1
            while depth >= 0 and decisions.pair[depth, 5] == 0:
                depth -= 1
            if depth < 0:
                return REFUTED
            undo(state, decisions.trail[depth])
            number[DEPTH] = depth + 1
            number[SERIAL] += 1
            decisions.pair[depth, 5] = 0
            pair = decisions.pair[depth]
            found = (pair[0], pair[1], pair[2], pair[3], pair[4])
            first = found[4] == 0
    return OPEN


@compiled
def decide(
    machines: Machines, waits: Waits, state: State, rows: Rows, pair: tuple[int, int, int, int], first: bool
) -> bool:
    """Job i of the one stream before (or after) job x of the other, and what follows from it."""
    k, which, x, i = pair
    width = state.order.shape[3]
    base = 2 * state.est.size + ((k * 3 + which) * 2) * width + x
    if first:
        write(state, base, i + 1)
    else:
        write(state, base + width, i)
    state.dirty_machine[k] = 1
    return propagate(machines, waits, state, rows, 1 << 60)


@compiled
def choose(machines: Machines, state: State, rule: Floats) -> tuple[int, int, int, int, int]:
    """The undecided pair of least room on the machine that has refuted most; its likelier order; machine -1: none."""
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
                    ahead = lst[late] - est[early] - machines.duration[k, a]
                    behind = lst[early] - est[late] - machines.duration[k, b]
                    value = (max(ahead, behind) + rule[0] * min(ahead, behind)) / state.weight[k]
                    if b == 2:
                        value *= rule[1]
                    if value < best:
                        best = value
                        found = (k, pair, x, i, 1 if ahead >= behind else 0)
    return found
