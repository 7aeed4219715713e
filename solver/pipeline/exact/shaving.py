"""A horizon search by shaved windows: what propagation alone leaves open is mostly refuted once windows are shaved.

Two horizons are asked side by side where two threads are allowed, by steps of fixed work, so that the same answers come
in the same order. Nothing is decided and no schedule is found: it only bounds, with any layout.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from solver.clock import charge
from solver.pipeline.exact.branch_kernel import OPEN, REFUTED, lower
from solver.pipeline.exact.columns import StateSpace, state_space_of
from solver.pipeline.exact.decision import FeasibilitySearch, num_states
from solver.pipeline.exact.horizon_search import MOST_STATES, STEP, WORK_S, state_space_tick_s
from solver.pipeline.exact.joint import joint_ranks_of, no_joint_ranks, with_open_states
from solver.pipeline.exact.joint_kernel import JointRanks, propagate_jointly
from solver.pipeline.exact.shaving_kernel import NO_LIMIT, Shaving, shave
from solver.pipeline.exact.window_kernel import FAILED, SERIAL, SIZE, WORK
from solver.pipeline.local_search.progress import Horizons, PipelineSearch, bound_ticks, value_ticks
from solver.pipeline.problem import Ints, PipelineShape
from solver.pipeline.quantise import quantise

FIRST_PART, LEAST_PART = 0.25, 0.05  # of a window that a question leaves; with a closer horizon no less
FIRST_WORK, FIRST_REACH = 128, 0.5  # of one horizon, in the work of its first windows; how far above the bound it lies
MORE = 2  # of both, once all horizons were open
MOST_JOINT_STATES = 2_000_000  # of all ranks of two stages, below the value: in `loop` more, and questions cut little
NEAR = 16  # horizons in this part of the gap are not told apart


class WindowShaving:
    """The windows of one horizon, shaved for as long as one wishes; `status` is OPEN or REFUTED."""

    def __init__(self, state_space: StateSpace, horizon: int, joint: JointRanks, jobs: Ints) -> None:
        question = FeasibilitySearch(state_space, horizon, joint=joint)
        self.horizon, self.status, self.first_work, self.most = horizon, question.status, question.work, 0
        self._state_space = state_space
        self._state, self._rows = question.windows
        self._joint = joint
        size = (2, len(jobs))
        wait, pause = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        at = np.zeros(1, dtype=np.int64)
        self._shaving = Shaving(jobs, np.full(size, FIRST_PART), wait, pause, at, joint.seen.copy())
        if self.status == OPEN:
            self._joint = with_open_states(joint, self._state)

    @property
    def work(self) -> int:
        """States seen so far."""
        return int(self._state.number[WORK])

    @property
    def starts(self) -> tuple[Ints, Ints]:
        """Earliest and latest starts of all jobs, in ticks."""
        return self._state.est, self._state.lst

    @property
    def settled(self) -> bool:
        """Whether no window can be shaved any more."""
        return not (self._shaving.wait < NO_LIMIT // 2).any()

    def go_on(self, work: int) -> None:
        """Shave for so much longer; states that no walk passes any more are dropped after every round."""
        most = self.work + work
        machines, waits = self._state_space.machines, self._state_space.waits
        while self.status == OPEN and self.work < most and not self.settled:
            if not shave(machines, waits, self._joint, self._state, self._rows, self._shaving, most):
                self.status = REFUTED
            elif self._shaving.at[0] >= self._shaving.part.size:
                self._shaving.at[0] = 0
                self._joint = with_open_states(self._joint, self._state)

    def lower(self, horizon: int) -> None:
        """Go on with a closer horizon: what was cut off remains so (`branch_kernel.lower`)."""
        machines, waits, state = self._state_space.machines, self._state_space.waits, self._state
        state.number[SERIAL] += 1
        lower(machines, waits, state, self._rows, self.horizon - horizon)
        self.horizon, self._joint.seen[:] = horizon, -1
        retained = state.number[FAILED] == 0 and (state.est <= state.lst).all()
        retained = retained and propagate_jointly(machines, waits, self._joint, state, self._rows, NO_LIMIT)
        state.number[SIZE] = 0
        self.status = OPEN if retained else REFUTED
        self._shaving.seen[:] = self._joint.seen
        self._shaving.wait[:] = self._shaving.pause[:] = 0
        np.maximum(self._shaving.part, LEAST_PART, out=self._shaving.part)


@dataclass
class ShavingSearch(Horizons):
    """Horizons up to `open` are asked, the least that was open after its work."""

    state_space: StateSpace
    joint: JointRanks
    open: int
    factor: int = FIRST_WORK // MORE
    part: float = FIRST_REACH / MORE
    asked: list[WindowShaving] = field(default_factory=list)

    def next_target(self) -> int:
        """In the middle of the widest interval between the horizons that are asked; further away with more work."""
        if self.open - self.low <= (self.high - self.low) // NEAR + len(self.asked):
            self.factor, self.part = MORE * self.factor, min(MORE * self.part, 1.0)
            self.open = self.low + ceil(self.part * (self.high - self.low))
        edges = np.array([self.low, *sorted(one.horizon for one in self.asked), self.open])
        widest = int(np.argmax(np.diff(edges)))
        return int(edges[widest] + edges[widest + 1]) // 2


def shave_windows(search: PipelineSearch, seconds: float) -> None:
    """Raise the bound for so long, or until it meets the value."""
    stop = search.stop_after(seconds)
    if search.over or search.problem.objective != "makespan":
        return
    ticks = quantise(search.shape, state_space_tick_s(search.shape))
    state_space = state_space_of(ticks.shape)
    if num_states(state_space) > MOST_STATES:
        return
    low, high = bound_ticks(search, ticks), value_ticks(search, ticks)
    joint = _open_ranks(search, state_space, ticks.shape, high)
    if np.diff(joint.graph_at)[joint.graph].sum() > MOST_JOINT_STATES:
        return
    horizons = ShavingSearch(search, ticks, low, high, state_space, joint, low)
    with ThreadPoolExecutor(search.num_threads) as pool:
        while horizons.low < horizons.high and not stop():
            for _ in range(search.num_threads - len(horizons.asked)):
                _ask(horizons)
            before = [one.work for one in horizons.asked]
            list(pool.map(lambda one: one.go_on(STEP), horizons.asked))
            done = [one.work - work for one, work in zip(horizons.asked, before, strict=True)]
            charge(search.clock, WORK_S * max(max(done), 1))
            _learn(horizons)


def _open_ranks(search: PipelineSearch, state_space: StateSpace, shape: PipelineShape, high: int) -> JointRanks:
    """The ranks of two stages with the states that a walk passes which ends with the best value."""
    joint = joint_ranks_of(shape)
    if joint is None:
        return no_joint_ranks(shape)
    question = FeasibilitySearch(state_space, high, joint=joint)
    charge(search.clock, WORK_S * question.work)
    return with_open_states(joint, question.windows[0])


def _ask(horizons: ShavingSearch) -> None:
    """One more horizon."""
    target = horizons.next_target()
    question = WindowShaving(horizons.state_space, target, horizons.joint, jobs_of(horizons.ticks.shape))
    charge(horizons.search.clock, WORK_S * question.work)
    question.most = question.work * (1 + horizons.factor)
    horizons.asked.append(question)


def _learn(horizons: ShavingSearch) -> None:
    """Answers move the bound; a horizon that is still open goes on as a closer one."""
    for one in horizons.asked:
        if one.status == REFUTED:
            horizons.refute(one.horizon, "shaving")
    horizons.asked = [one for one in horizons.asked if one.status == OPEN and one.horizon >= horizons.low]
    for one in list(horizons.asked):
        if one.work < one.most and not one.settled:
            continue
        horizons.open = min(horizons.open, one.horizon)
        horizons.asked.remove(one)
        target = horizons.next_target()
        if target < one.horizon:
            before = one.work
            one.lower(target)
            one.most = one.work + horizons.factor * one.first_work
            charge(horizons.search.clock, WORK_S * (one.work - before))
            horizons.asked.append(one)
    horizons.asked = [one for one in horizons.asked if one.horizon < horizons.open or one.horizon == horizons.low]


def jobs_of(shape: PipelineShape) -> Ints:
    """F and B of the stage in the middle of the model, micro-batch after micro-batch.

    What cuts off a part of its window there moves all stages before and behind.
    """
    middle = shape.num_stages // 2
    first = np.array([shape.operation_id(kind, middle, 0) for kind in (0, 1)], dtype=np.int64)
    return (np.arange(shape.num_microbatches)[:, None] + first).ravel()
