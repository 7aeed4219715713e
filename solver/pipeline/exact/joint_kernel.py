"""A rank of two stages as one machine: windows by a pass over the counters of all that it has done. Compiled.

A state counts what is done: (f0, f1, b1, b0, w0, w1) are F of the first and of the second stage, B of the second and of
the first, W of the first and of the second. The path of a micro-batch makes f0 >= f1 >= b1 >= b0, b0 >= w0, b1 >= w1,
and memory keeps them close: `a0 (f0 - b0) + a1 (f1 - b1) + c0 (b0 - w0) + c1 (b1 - w1) <= budget`.

Proof that every schedule keeps the windows. What a rank does is a walk through these states. So the earliest time of a
state over all walks within the windows is no later than in any schedule, the latest time at which it may be left no
earlier; a job starts between the two for some state.

Where these are too many states, w counts W of both: `c (b0 + b1 - w)` with c the smaller context. The k-th W of the
walk lasts no less than the shorter kind of W; it starts no earlier than the k-th least of the earliest starts of all W,
as k of them have started by then, and no later than the k-th least of their latest starts for the same reason. Windows
of W are left as they are then.
Dynamic programming over states as in `resource_kernel`; horizons as in Klein and Scholl (1999).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.exact.columns import Machines, Waits
from solver.pipeline.exact.resource_kernel import FAR, Rows
from solver.pipeline.exact.window_kernel import WORK, State, mark, propagate, push_earliest, push_latest, put
from solver.pipeline.problem import Floats, Ints

STREAMS = 6  # F, F, B, B by the path of a micro-batch, then W of the first stage, or of both, and W of the second
WEIGHTS = 4  # the first stream of W
NO_WEIGHTS, MERGED, SEPARATE = 0, 1, 2  # how a graph counts W
LOOKS = 2  # states looked at in the time that one state of `resource_kernel` takes


Counts: TypeAlias = NDArray[np.int32]


class JointRanks(NamedTuple):
    """Columns by rank: its graph of states, how this counts W, first jobs and ticks of its streams.

    Graphs lie one after the other, from `graph_at[g]` to `graph_at[g + 1]`: `done` jobs of every stream done, `before`
    the state in which it was one less, or -1. Ranks of equal memory share a graph. `seen`: the sum of the windows that
    a rank was last looked at with, which only ever shrink.
    """

    graph: Ints
    graph_at: Ints
    weights: Ints
    first: Ints
    ticks: Ints
    num_microbatches: int
    done: Counts
    before: Counts
    reach: Ints
    leave: Ints
    window: Ints
    seen: Ints


@compiled
def list_states(memory: Floats, m: int, weights: int, most: Ints, count: Counts, before: Counts) -> int:
    """Number of states within memory; fills `count` and `before` when they have space for them.

    `memory`: activations of both stages, the contexts of both streams of W, the budget. `most`: F without B of either
    stage, B without W of either stream. States that lead into one have as many F of the first stage or one less, so
    the places of two counts of these are kept; memory looks at differences alone, so what fits goes on to fit with more
    done, and every place is overwritten before it is read.
    """
    first, second, waiting, again = most
    place = np.full((2, first + 1, second + 1, first + 1, waiting + 1, again + 1), -1, dtype=np.int32)
    size = 0
    for f0 in range(m + 1):
        for f1 in range(max(0, f0 - first), f0 + 1):
            for b1 in range(max(0, f1 - second), f1 + 1):
                for b0 in range(max(0, f0 - first), b1 + 1):
                    held = memory[0] * (f0 - b0) + memory[1] * (f1 - b1)
                    due = b0 if weights == SEPARATE else b0 + b1
                    due_again = b1 if weights == SEPARATE else 0
                    for w0 in range(max(0, due - waiting), due + 1):
                        for w1 in range(max(0, due_again - again), due_again + 1):
                            if held + memory[2] * (due - w0) + memory[3] * (due_again - w1) > memory[4]:
                                continue
                            place[f0 % 2, f0 - f1, f1 - b1, b1 - b0, due - w0, due_again - w1] = size
                            if size < count.shape[0]:
                                _fill_state(place, (f0, f1, b1, b0, w0, w1), weights, count[size], before[size])
                            size += 1
    return size


@inlined
def _fill_state(
    place: Counts, at: tuple[int, int, int, int, int, int], weights: int, count: Counts, before: Counts
) -> None:
    """One state and the states that lead into it."""
    now = np.array(at)
    count[:] = now
    before[:] = -1
    for stream in range(WEIGHTS + weights):
        now[stream] -= 1
        f0, f1, b1, b0 = now[0], now[1], now[2], now[3]
        due = b0 if weights == SEPARATE else b0 + b1
        waiting = 0 if weights == NO_WEIGHTS else due - now[WEIGHTS]
        again = b1 - now[WEIGHTS + 1] if weights == SEPARATE else 0
        inside = 0 <= b0 <= b1 <= f1 <= f0 and now[WEIGHTS] >= 0 and now[WEIGHTS + 1] >= 0
        inside = inside and 0 <= waiting < place.shape[4] and 0 <= again < place.shape[5]
        if inside and f0 - f1 < place.shape[1] and f1 - b1 < place.shape[2] and b1 - b0 < place.shape[3]:
            before[stream] = place[f0 % 2, f0 - f1, f1 - b1, b1 - b0, waiting, again]
        now[stream] += 1


@compiled
def propagate_jointly(
    machines: Machines, waits: Waits, joint: JointRanks, state: State, rows: Rows, most_work: int
) -> bool:
    """Machines to their fixed point, then ranks of two stages, again and again until neither has anything to add."""
    machines, waits, joint, state, rows = uncounted((machines, waits, joint, state, rows))
    moved = True
    while moved and state.number[WORK] <= most_work:
        if not propagate(machines, waits, state, rows, most_work):
            return False
        moved = False
        for visit in range(2 * joint.graph.size):
            k = visit if visit < joint.graph.size else 2 * joint.graph.size - 1 - visit
            if _sum_of_windows(joint, state, k) == joint.seen[k]:
                continue
            moved = True
            retained = _narrow(waits, joint, state, k)
            joint.seen[k] = _sum_of_windows(joint, state, k)
            if not (retained and push_earliest(waits, state) and push_latest(waits, state)):
                return False
    return True


@inlined
def _sum_of_windows(joint: JointRanks, state: State, k: int) -> int:
    total, m = 0, joint.num_microbatches
    for stream in range(joint.first.shape[1]):
        first = joint.first[k, stream]
        if first >= 0:
            total += (state.lst[first : first + m] - state.est[first : first + m]).sum()
    return int(total)


@compiled
def _narrow(waits: Waits, joint: JointRanks, state: State, k: int) -> bool:
    """Windows of F and B of one rank, and of W where they are counted apart, by all that it can do."""
    waits, joint, state = uncounted((waits, joint, state))
    begin, end = joint.graph_at[joint.graph[k]], joint.graph_at[joint.graph[k] + 1]
    m, size = joint.num_microbatches, state.est.size
    early, late = _windows(joint, state, k)
    apart = WEIGHTS if joint.weights[k] != SEPARATE else STREAMS
    state.number[WORK] += (end - begin) // LOOKS
    if not _walk(joint, joint.ticks[k], begin, end, early, late):
        return False
    for stream in range(apart):
        for number in range(m):
            job = joint.first[k, stream] + number
            earliest, latest = joint.window[0, stream, number], joint.window[1, stream, number]
            if earliest > latest:
                return False
            if earliest > state.est[job]:
                put(state, job, earliest)
                mark(waits, state, job, state.dirty_est)
            if latest < state.lst[job]:
                put(state, size + job, latest)
                mark(waits, state, job, state.dirty_lst)
    return True


@inlined
def _windows(joint: JointRanks, state: State, k: int) -> tuple[Ints, Ints]:
    """Earliest and latest starts of the jobs of a rank by stream."""
    m = joint.num_microbatches
    early, late = np.full((STREAMS, 2 * m), FAR), np.full((STREAMS, 2 * m), -FAR)
    for stream in range(WEIGHTS if joint.weights[k] != SEPARATE else STREAMS):
        first = joint.first[k, stream]
        early[stream, :m], late[stream, :m] = state.est[first : first + m], state.lst[first : first + m]
    if joint.weights[k] == MERGED:
        _merge_weights(joint, state, k, early[WEIGHTS], late[WEIGHTS])
    return early, late


@compiled
def list_open(joint: JointRanks, state: State, k: int, done: Counts, before: Counts) -> int:
    """Number of states of a rank that a walk within the windows passes; fills `done` and `before` that have space."""
    joint, state = uncounted((joint, state))
    begin, end = joint.graph_at[joint.graph[k]], joint.graph_at[joint.graph[k] + 1]
    early, late = _windows(joint, state, k)
    if not _walk(joint, joint.ticks[k], begin, end, early, late):
        return 0
    place, size = np.full(end - begin, -1, dtype=np.int32), 0
    for at in range(end - begin):
        if joint.reach[at] > joint.leave[at]:
            continue
        place[at] = size
        if size < done.shape[0]:
            done[size] = joint.done[begin + at]
            for stream in range(STREAMS):
                source = joint.before[begin + at, stream]
                before[size, stream] = place[source] if source >= 0 else -1
        size += 1
    return size


@inlined
def _merge_weights(joint: JointRanks, state: State, k: int, early: Ints, late: Ints) -> None:
    """Starts of W of both stages, each in order of time."""
    m = joint.num_microbatches
    for at in range(2):
        first = joint.first[k, WEIGHTS + at]
        early[at * m : (at + 1) * m] = state.est[first : first + m]
        late[at * m : (at + 1) * m] = state.lst[first : first + m]
    early.sort()
    late.sort()


@compiled
def _walk(joint: JointRanks, ticks: Ints, begin: int, end: int, early: Ints, late: Ints) -> bool:
    """Earliest times forwards, latest times backwards, and the windows of all jobs on the way; False: no walk."""
    count, before, reach = joint.done[begin:end], joint.before[begin:end], joint.reach
    reach[0] = 0
    for at in range(1, end - begin):
        now = FAR
        for stream in range(STREAMS):
            source = before[at, stream]
            if source >= 0:
                number = count[at, stream] - 1
                start = max(reach[source], early[stream, number])
                if start <= late[stream, number]:
                    now = min(now, start + ticks[stream])
        reach[at] = now
    if reach[end - begin - 1] >= FAR:
        return False
    _walk_back(joint, ticks, count, before, early, late)
    return True


@compiled
def _walk_back(joint: JointRanks, ticks: Ints, count: Counts, before: Counts, early: Ints, late: Ints) -> None:
    reach, leave, window = joint.reach, joint.leave, joint.window
    last = count.shape[0] - 1
    leave[:last] = -FAR
    leave[last] = FAR
    window[0], window[1] = FAR, -FAR
    for at in range(last, 0, -1):
        if reach[at] > leave[at]:
            continue
        for stream in range(STREAMS):
            source = before[at, stream]
            if source >= 0:
                number = count[at, stream] - 1
                start = max(reach[source], early[stream, number])
                latest = min(leave[at] - ticks[stream], late[stream, number])
                if start <= latest:
                    leave[source] = max(leave[source], latest)
                    window[0, stream, number] = min(window[0, stream, number], start)
                    window[1, stream, number] = max(window[1, stream, number], latest)
