"""Windows are shaved (Martin and Shmoys 1996): a part of a window that propagation refutes is cut off. Compiled.

A question confines one job to the first or to the last part of its window. Every schedule within the horizon has the
job in that part or in the rest. Where propagation empties a window, the part holds no schedule, so the rest holds all;
where the rest is refuted too, there is none within the horizon. Proof: docs/bounds.md, "Shaved windows".
"""

from __future__ import annotations

from typing import NamedTuple

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.exact.columns import Machines, Waits
from solver.pipeline.exact.joint_kernel import JointRanks, propagate_jointly
from solver.pipeline.exact.resource_kernel import Rows
from solver.pipeline.exact.window_kernel import SERIAL, SIZE, WORK, State, mark, put, undo
from solver.pipeline.problem import Floats, Ints

NO_LIMIT = 1 << 60  # more work and more rounds than there are
LESS, MORE, MOST_PART = 0.5, 1.4, 0.5  # the part of a window asked next: after no refutation, after one, at most
MOST_PAUSE = 7  # rounds in which a question is left out that was open some times in a row
EARLY, LATE = 0, 1  # sides of a window


class Shaving(NamedTuple):
    """Jobs in the order in which they are asked; by side and place in it the part of the window that is asked next.

    `wait`: for so many rounds a side is left out, after so many (`pause`) when it was last open. `at`: where the round
    stands. `seen`: the column of `JointRanks` at the windows of no question.
    """

    job: Ints
    part: Floats
    wait: Ints
    pause: Ints
    at: Ints
    seen: Ints


@compiled
def shave(
    machines: Machines, waits: Waits, joint: JointRanks, state: State, rows: Rows, shaving: Shaving, most_work: int
) -> bool:
    """One question after another until so much work is done or the round is over; False: the horizon is refuted."""
    machines, waits, joint, state, rows = uncounted((machines, waits, joint, state, rows))
    while shaving.at[0] < 2 * shaving.job.size and state.number[WORK] < most_work:
        at, side = shaving.at[0] // 2, shaving.at[0] % 2
        if shaving.wait[side, at] > 0:
            shaving.wait[side, at] -= 1
        elif not _shave_side(machines, waits, joint, state, rows, shaving, (at, side, most_work)):
            return False
        shaving.at[0] += 1
    return True


@compiled
def _shave_side(
    machines: Machines,
    waits: Waits,
    joint: JointRanks,
    state: State,
    rows: Rows,
    shaving: Shaving,
    which: tuple[int, int, int],
) -> bool:
    """Parts of one side of a window, until one is open or so much work is done; False: the horizon is refuted."""
    at, side, most_work = which
    job, number = shaving.job[at], state.number
    while number[WORK] < most_work:
        width = int((state.lst[job] - state.est[job]) * shaving.part[side, at])
        if width <= 0:
            shaving.wait[side, at] = NO_LIMIT
            break
        edge = state.est[job] + width if side == EARLY else state.lst[job] - width
        number[SERIAL] += 1
        holds = _confine(machines, waits, joint, state, rows, (job, 1 - side, edge))
        undo(state, 0)
        joint.seen[:] = shaving.seen
        if holds:
            shaving.part[side, at] *= LESS
            shaving.wait[side, at] = shaving.pause[side, at]
            shaving.pause[side, at] = min(2 * shaving.pause[side, at] + 1, MOST_PAUSE)
            break
        shaving.part[side, at], shaving.pause[side, at] = min(shaving.part[side, at] * MORE, MOST_PART), 0
        number[SERIAL] += 1
        beyond = edge + 1 if side == EARLY else edge - 1
        if not _confine(machines, waits, joint, state, rows, (job, side, beyond)):
            return False
        number[SIZE] = 0
        shaving.seen[:] = joint.seen
    return True


@inlined
def _confine(
    machines: Machines, waits: Waits, joint: JointRanks, state: State, rows: Rows, which: tuple[int, int, int]
) -> bool:
    """A job starts at an edge or later (side `EARLY`), or there or earlier, and what follows; False: refuted."""
    job, side, edge = which
    if edge > state.lst[job] or edge < state.est[job]:
        return False
    put(state, job if side == EARLY else state.est.size + job, edge)
    mark(waits, state, job, state.dirty_est if side == EARLY else state.dirty_lst)
    return bool(propagate_jointly(machines, waits, joint, state, rows, NO_LIMIT))
