"""Is there a schedule of at most T? A bound by propagation over the states alone, or a search of so much work.

Same question, same work, same answer.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from solver.pipeline.exact.branch_kernel import FULL, OPEN, REACHED, REFUTED, Decisions, lower, search
from solver.pipeline.exact.columns import Machines, StateSpace
from solver.pipeline.exact.joint_kernel import JointRanks, propagate_jointly
from solver.pipeline.exact.resource_kernel import COLUMNS, Rows, sizes_of
from solver.pipeline.exact.window_kernel import FLAGS, NUMBERS, WORK, Flags, Groups, State, propagate
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape
from solver.pipeline.simulate import channel_messages

__all__ = ["OPEN", "REACHED", "REFUTED", "FeasibilitySearch"]

TRAIL = 32  # lengths of the vector that the trail holds at first
ROOT_WORK = 200_000_000  # the windows of a horizon are tightened for so long at most
RULE = (0.0, 1.0)


class Given(NamedTuple):
    """Least and most counts of all pairs (as in `State.order`); earliest and latest starts of all jobs."""

    order: Ints
    early: Ints
    late: Ints


class FeasibilitySearch:
    """One question: the windows of a horizon, and the search in them. `weight`: where an earlier one got stuck.

    `given`: what holds beside the horizon.
    """

    def __init__(
        self,
        state_space: StateSpace,
        horizon: int,
        *,
        weight: Floats | None = None,
        rule: tuple[float, float] = RULE,
        joint: JointRanks | None = None,
        given: Given | None = None,
    ) -> None:
        self.horizon = horizon
        self._state_space = state_space
        given = _nothing(state_space.machines, horizon) if given is None else given
        self._rows, num_pairs = _new_rows(state_space.machines, given.order)
        self._state = _new_state(state_space, horizon, given)
        if weight is not None:
            self._state.weight[:] = weight
        self.first_weight = self._state.weight.copy()
        depth = num_pairs + 1  # every decision settles at least one
        self._decisions = Decisions(
            np.zeros((depth, 6), dtype=np.int64), np.zeros(depth, dtype=np.int64), np.array(rule)
        )
        retained = (self._state.est <= self._state.lst).all() and self._narrow(joint)
        self.status = OPEN if retained else REFUTED

    def _narrow(self, joint: JointRanks | None) -> bool:
        machines, waits = self._state_space.machines, self._state_space.waits
        if joint is None:
            return bool(propagate(machines, waits, self._state, self._rows, ROOT_WORK))
        joint.seen[:] = -1
        return bool(propagate_jointly(machines, waits, joint, self._state, self._rows, ROOT_WORK))

    @property
    def work(self) -> int:
        """States seen so far."""
        return int(self._state.number[WORK])

    @property
    def windows(self) -> tuple[State, Rows]:
        """What propagation works on: for those who go on from there."""
        return self._state, self._rows

    @property
    def latest(self) -> Ints:
        """Latest start of every job, in ticks."""
        return self._state.lst

    @property
    def weight(self) -> Floats:
        """By machine: one more than the windows it has refuted."""
        return self._state.weight

    def go_on(self, work: int) -> int:
        """Search for so much longer; REFUTED, REACHED or OPEN."""
        most = self.work + work
        while self.status == OPEN and self.work < most:
            machines, waits = self._state_space.machines, self._state_space.waits
            found = search(machines, waits, self._state, self._rows, self._decisions, most)
            if found == FULL:
                self._grow()
            else:
                self.status = found
        return self.status

    def improve(self, work: int) -> list[Ints] | None:
        """Search for so much longer, below every order that is reached; the queues of the last of them."""
        best, most = None, self.work + work
        while self.work < most and self.go_on(most - self.work) == REACHED:
            best = self.queues()
            self.lower(self.value - 1)
        return best

    @property
    def value(self) -> int:
        """When the last job ends, once the horizon is reached."""
        return int((self._state.est + self._state_space.waits.last).max())

    def lower(self, horizon: int) -> None:
        """Go on with a closer horizon: what is refuted remains refuted."""
        if self.status != REFUTED and horizon < self.horizon:
            machines, waits = self._state_space.machines, self._state_space.waits
            lower(machines, waits, self._state, self._rows, self.horizon - horizon)
            self.horizon, self.status = horizon, OPEN

    def _grow(self) -> None:
        """Twice the space for the trail."""
        state = self._state
        trail_at, trail_old = (np.concatenate([one, np.zeros_like(one)]) for one in (state.trail_at, state.trail_old))
        self._state = state._replace(trail_at=trail_at, trail_old=trail_old)

    def queues(self) -> list[Ints]:
        """The jobs of all machines in their order, once the horizon is reached."""
        machines = self._state_space.machines
        return [_queue(machines, k, self._state.order[k]) for k in range(len(machines.length))]

    def order(self, shape: PipelineShape) -> PipelineOrder:
        """The order of all machines once the horizon is reached."""
        return order_of(shape, self.queues())


def order_of(shape: PipelineShape, queues: Sequence[Ints]) -> PipelineOrder:
    """The order in which stages, then shared channels have these queues."""
    stage_of = {int(rank): stage for stage, rank in enumerate(shape.rank_of_s)}
    ranks = tuple(queues[stage_of[rank]] for rank in range(shape.num_ranks))
    return PipelineOrder(ranks, with_shared(shape, queues[shape.num_stages :]))


def with_shared(shape: PipelineShape, queues: Sequence[Ints]) -> tuple[Ints, ...]:
    """Messages of all channels, those of the shared ones as in the queues of their jobs."""
    n = shape.num_operations
    shared = {int(job) - n: queue - n for queue in queues for job in queue}
    return tuple(
        shared.get(int(messages[0]), messages) if len(messages) else messages for messages in channel_messages(shape)
    )


def least_open(
    state_space: StateSpace,
    low: int,
    high: int,
    stop: Callable[[], bool],
    *,
    joint: JointRanks | None = None,
    apart: int = 1,
    spent: Callable[[int], None] = lambda _: None,
) -> tuple[int, int]:
    """The least horizon from `low` to `high` that propagation does not refute (`high` is not asked), and the work.

    With `apart` the answer is up to so many ticks too low. `spent` gets the work of every question.
    """
    work = 0
    while low + apart <= high and not stop():
        middle = (low + high) // 2
        question = FeasibilitySearch(state_space, middle, joint=joint)
        work += question.work
        spent(question.work)
        if question.status == REFUTED:
            low = middle + 1
        else:
            high = middle
    return low, work


def num_states(state_space: StateSpace) -> int:
    """States of all machines where nothing is decided: what one pass over all of them costs."""
    machines = state_space.machines
    return int(sizes_of(machines, _free_order(machines), _empty_rows(machines))[0])


def _queue(machines: Machines, k: int, order: Ints) -> Ints:
    """Jobs of a machine by their places: own number plus the numbers of other jobs before."""
    count, first = machines.length[k], machines.first[k]
    x, y, z = (np.arange(number) for number in count)
    x_before_y, x_before_z, y_before_z = order[0, 0, : count[1]], order[1, 0, : count[2]], order[2, 0, : count[2]]
    place_x = x + np.searchsorted(x_before_y, x, side="right") + np.searchsorted(x_before_z, x, side="right")
    place_y = y + x_before_y + np.searchsorted(y_before_z, y, side="right")
    queue = np.zeros(int(count.sum()), dtype=np.int64)
    queue[place_x] = first[0] + x
    queue[place_y] = first[1] + y
    queue[z + x_before_z + y_before_z] = first[2] + z
    return queue


def _free_order(machines: Machines) -> Ints:
    """Least and most counts where nothing is decided."""
    order = np.zeros((len(machines.length), 3, 2, int(machines.length.max(initial=1))), dtype=np.int64)
    order[:, 0, 1] = order[:, 1, 1] = machines.length[:, :1]
    order[:, 2, 1] = machines.length[:, 1:2]
    return order


def _nothing(machines: Machines, horizon: int) -> Given:
    """Every pair is open, and every start up to the horizon."""
    early = np.zeros_like(machines.ticks)
    return Given(_free_order(machines), early, np.full_like(early, horizon))


def _new_state(state_space: StateSpace, horizon: int, given: Given) -> State:
    machines, waits, order = state_space.machines, state_space.waits, given.order
    size, num_machines = len(machines.ticks), len(machines.length)
    value = np.concatenate([given.early, np.minimum(given.late, horizon - waits.last), order.ravel()])
    length = len(value)
    est_groups, dirty_est = _flags(len(state_space.waits.topo))
    lst_groups, dirty_lst = _flags(len(state_space.waits.topo))
    return State(
        value,
        value[:size],
        value[size : 2 * size],
        value[2 * size :].reshape(order.shape),
        np.zeros(length, dtype=np.int64),
        np.empty(TRAIL * length, dtype=np.int64),
        np.empty(TRAIL * length, dtype=np.int64),
        np.zeros(NUMBERS, dtype=np.int64),
        dirty_est,
        dirty_lst,
        np.ones(num_machines, dtype=np.uint8),
        np.ones(num_machines),
        est_groups,
        lst_groups,
    )


def _flags(count: int) -> tuple[Groups, Flags]:
    """So many flags, all set, and what fills up their last group, not set: as groups, and each by itself."""
    groups = np.zeros(-(-count // FLAGS), dtype=np.uint64)
    flags = groups.view(np.uint8)
    flags[:count] = 1
    return groups, flags


def _empty_rows(machines: Machines) -> Rows:
    """Scratch without capacity for states."""
    width = int(machines.length.max(initial=1))
    table = np.empty(((width + 1) ** 2, COLUMNS), dtype=np.int64)
    columns = [np.zeros(width + 1, dtype=np.int64) for _ in range(5)]
    window, order = np.zeros((2, 3, width), dtype=np.int64), np.zeros((3, 2, width), dtype=np.int64)
    return Rows(table, columns[0], columns[1], columns[2], columns[3], columns[4], window, order)


def _new_rows(machines: Machines, order: Ints) -> tuple[Rows, int]:
    """Scratch for passes over any of the machines with these pairs open, and how many these are."""
    rows = _empty_rows(machines)
    _, most, num_pairs = sizes_of(machines, order, rows)
    return rows._replace(reach=np.empty(most, dtype=np.int64), leave=np.empty(most, dtype=np.int64)), num_pairs
