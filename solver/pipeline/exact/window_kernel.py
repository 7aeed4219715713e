"""Windows and orders of all machines, made as tight as waits and machines can: compiled, with a trail to undo.

One vector (`State.value`) holds everything that a search decides; propagation runs to a fixed point. Every change is
a consequence of the windows it starts from, so an empty window refutes them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.exact.columns import Machines, Waits
from solver.pipeline.exact.resource_kernel import Rows, sweep
from solver.pipeline.problem import Floats, Ints

Flags: TypeAlias = NDArray[np.uint8]
Groups: TypeAlias = NDArray[np.uint64]
SIZE, SERIAL, WORK, DEPTH, NODES, FAILED, STALE, NUMBERS = 0, 1, 2, 3, 4, 5, 6, 7  # places in `State.number`
FLAGS = 8  # bytes of a number of 64 bits: so many flags are looked at together, as hardly any is set
LEAST_WORK = 200  # to look at a machine and at the waits after it


class State(NamedTuple):
    """`value`: earliest starts, latest starts, then least and most counts by (machine, pair, least or most, job).

    `est`, `lst` and `order` are views of it. The trail holds what was overwritten since each decision; `stamp` says at
    which decision a place was saved last: 0 before the first one, since nobody goes back behind it. A machine is dirty
    when a window of one of its jobs has changed. `weight` grows with every refutation by a machine. `est_groups`,
    `lst_groups`: views of the dirty flags, eight as one number.
    """

    value: Ints
    est: Ints
    lst: Ints
    order: Ints
    stamp: Ints
    trail_at: Ints
    trail_old: Ints
    number: Ints
    dirty_est: Flags
    dirty_lst: Flags
    dirty_machine: Flags
    weight: Floats
    est_groups: Groups
    lst_groups: Groups


@inlined
def put(state: State, at: int, value: int) -> None:
    """Overwrite one place of the vector; the first time since a decision the old value goes to the trail."""
    number = state.number
    if state.stamp[at] != number[SERIAL]:
        state.stamp[at] = number[SERIAL]
        state.trail_at[number[SIZE]] = at
        state.trail_old[number[SIZE]] = state.value[at]
        number[SIZE] += 1
    state.value[at] = value


@inlined
def mark(waits: Waits, state: State, job: int, dirty: Flags) -> None:
    """A start has changed: what waits for the job, or what it waits for, and its machine have more to learn."""
    dirty[waits.place[job]] = 1
    if waits.machine[job] >= 0:
        state.dirty_machine[waits.machine[job]] = 1


@compiled
def undo(state: State, size: int) -> None:
    """Back to the length of the trail at a decision."""
    for at in range(state.number[SIZE] - 1, size - 1, -1):
        state.value[state.trail_at[at]] = state.trail_old[at]
    state.number[SIZE] = size
    state.dirty_est[:] = 0
    state.dirty_lst[:] = 0
    state.dirty_machine[:] = 0


@compiled
def mark_all_dirty(waits: Waits, state: State) -> None:
    """Nothing is taken to be as tight as it can be."""
    state.dirty_est[: waits.topo.size] = 1
    state.dirty_lst[: waits.topo.size] = 1
    state.dirty_machine[:] = 1


@compiled
def propagate(machines: Machines, waits: Waits, state: State, rows: Rows, most_work: int) -> bool:
    """To the fixed point, or until so much work is done; False when a window is empty, which refutes the start.

    Machines are visited up and down the pipeline, and waits are followed after every one of them.
    """
    machines, waits, state, rows = uncounted((machines, waits, state, rows))
    dirty = state.dirty_machine
    if not (push_earliest(waits, state) and push_latest(waits, state)):
        return False
    moved = True
    while moved and state.number[WORK] <= most_work:
        moved = False
        for visit in range(2 * dirty.size):
            k = visit if visit < dirty.size else 2 * dirty.size - 1 - visit
            if dirty[k] == 0:
                continue
            dirty[k] = 0
            moved = True
            state.number[WORK] += LEAST_WORK
            retained = narrow(machines, waits, state, rows, k)
            if not (retained and push_earliest(waits, state) and push_latest(waits, state)):
                state.weight[k] += 1.0
                return False
    return True


@compiled
def push_earliest(waits: Waits, state: State) -> bool:
    """Earliest starts along the waits, every job after all it waits for; flags go by place in that order."""
    waits, state = uncounted((waits, state))
    est, lst, dirty, topo = state.est, state.lst, state.dirty_est, waits.topo
    out_at, out_to, out_lag = waits.out_at, waits.out_to, waits.out_lag
    groups = state.est_groups
    for group in range(groups.size):
        if groups[group] == 0:
            continue
        for here in range(FLAGS * group, FLAGS * (group + 1)):
            if dirty[here] == 0:
                continue
            dirty[here] = 0
            job = topo[here]
            for at in range(out_at[job], out_at[job + 1]):
                target, time = out_to[at], est[job] + out_lag[at]
                if time > est[target]:
                    if time > lst[target]:
                        return False
                    put(state, target, time)
                    mark(waits, state, target, dirty)
    return True


@compiled
def push_latest(waits: Waits, state: State) -> bool:
    """Latest starts against the waits."""
    waits, state = uncounted((waits, state))
    est, lst, dirty, topo = state.est, state.lst, state.dirty_lst, waits.topo
    in_at, in_from, in_lag = waits.in_at, waits.in_from, waits.in_lag
    size = est.size
    groups = state.lst_groups
    for group in range(groups.size - 1, -1, -1):
        if groups[group] == 0:
            continue
        for here in range(FLAGS * group + FLAGS - 1, FLAGS * group - 1, -1):
            if dirty[here] == 0:
                continue
            dirty[here] = 0
            job = topo[here]
            for at in range(in_at[job], in_at[job + 1]):
                source, time = in_from[at], lst[job] - in_lag[at]
                if time < lst[source]:
                    if time < est[source]:
                        return False
                    put(state, size + source, time)
                    mark(waits, state, source, dirty)
    return True


@compiled
def narrow(machines: Machines, waits: Waits, state: State, rows: Rows, k: int) -> bool:
    """One machine by itself; its own jobs then have nothing more to learn from it."""
    machines, waits, state, rows = uncounted((machines, waits, state, rows))
    num_states = sweep(machines, k, state.est, state.lst, state.order[k], rows)
    if num_states < 0:
        return False
    state.number[WORK] += num_states
    size = state.est.size
    for stream in range(3):
        for number in range(machines.length[k, stream]):
            job = machines.first[k, stream] + number
            earliest, latest = rows.window[0, stream, number], rows.window[1, stream, number]
            if earliest > latest:
                return False
            if earliest > state.est[job]:
                put(state, job, earliest)
                state.dirty_est[waits.place[job]] = 1
            if latest < state.lst[job]:
                put(state, size + job, latest)
                state.dirty_lst[waits.place[job]] = 1
    _keep_orders(machines, state, rows, k)
    return True


@inlined
def _keep_orders(machines: Machines, state: State, rows: Rows, k: int) -> None:
    order = state.order[k]
    width = order.shape[2]
    for pair in range(3):
        for number in range(machines.length[k, 1 if pair == 0 else 2]):
            base = 2 * state.est.size + ((k * 3 + pair) * 2) * width + number
            if rows.order[pair, 0, number] > order[pair, 0, number]:
                put(state, base, rows.order[pair, 0, number])
            if rows.order[pair, 1, number] < order[pair, 1, number]:
                put(state, base + width, rows.order[pair, 1, number])
