"""Large neighbourhood search (Shaw 1998) over the states of ranks and channels: better orders from the best one.

A neighbourhood leaves the order as it is but in one window, which starts and ends at a time of its own on every rank:
there all pairs are open, and the exact search is asked whether a schedule that ends earlier is among them. Orders that
are given leave few states, so that a question takes milliseconds and mostly ends with an answer. Questions go side by
side where two threads are allowed, each with its share of work: the same answers come in the same order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.clock import charge
from solver.pipeline.exact.columns import StateSpace, state_space_of
from solver.pipeline.exact.decision import OPEN, FeasibilitySearch, Given, new_rows, num_states
from solver.pipeline.exact.horizon_search import MOST_STATES, WORK_S, state_space_tick_s
from solver.pipeline.exact.resource_kernel import Rows
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.local_search.tabu import in_order, new_order, nodes_of, queue_of
from solver.pipeline.local_search.tabu_kernel import critical_path
from solver.pipeline.local_search.tabu_steps import load
from solver.pipeline.problem import Floats, Ints, PipelineOrder
from solver.pipeline.quantise import TickShape, quantise
from solver.pipeline.simulate import BrokenOrderError, replay_shape

Flags: TypeAlias = NDArray[np.bool_]
Times: TypeAlias = float | Floats  # of all machines, or by machine
FIRST_STREAM, SECOND_STREAM = [0, 0, 1], [1, 2, 2]  # of the three pairs of a machine
QUESTION_WORK = 300_000  # states that one question may look at: about 0.01 s
QUESTION_S = 2e-3  # to prepare a question, beside its states
# Chosen on `jittered`, `memory` and `heterogeneous` of `pipeline_cases`, where each of these ways finds better orders.
SHARES = (1.0, 0.5, 0.2)  # of the ranks, one next to the other
SLOPES = (-1.0, 0.0, 1.0)  # by how many F the window starts later on the next rank
FIRST_LENGTH, LEAST_LENGTH, MOST_LENGTH = 8.0, 3.0, 200.0  # of a window, in operations
LONGER, SHORTER = 1.03, 0.93  # after an answer, and after none
FADES, LEAST_WEIGHT = 0.03, 0.02  # what the last question counts of a way's weight, the share of those with orders
MOST_IDLE = 2_000  # questions in a row without a better order: the rest is for proofs
PATIENT, EQUAL_SHARE = 60, 0.3  # after so many questions without, some ask for another order of the same value


@dataclass
class Way:
    """A kind of window: share of the ranks and slope; `length` follows what its questions can answer.

    The weight by which it is drawn follows its success (adaptive large neighbourhood search, Ropke and Pisinger 2006).
    """

    share: float
    slope: float
    length: float = FIRST_LENGTH
    weight: float = 0.3

    def learn(self, *, found: bool, answered: bool) -> None:
        """What a question has brought."""
        self.weight = max(self.weight + FADES * (found - self.weight), LEAST_WEIGHT)
        self.length = min(max(self.length * (LONGER if answered else SHORTER), LEAST_LENGTH), MOST_LENGTH)


@dataclass(frozen=True)
class Incumbent:
    """The best order in ticks: its value, starts by machine, stream and job, and how many go before each job.

    `before[k, pair, x]`: jobs of the pair's first stream before the x-th of its second. `early`, `late`: by job, its
    earliest and latest start in this order.
    """

    order: PipelineOrder
    value: int
    start: Floats
    before: Ints
    early: Ints
    late: Ints


@dataclass(frozen=True)
class Neighbourhood:
    """A question before it is asked: what is given outside of the window, the horizon, how the search chooses."""

    given: Given
    horizon: int
    way: Way
    rule: tuple[float, float] = (0.0, 1.0)


def improve_by_windows(search: PipelineSearch, seconds: float) -> None:
    """Better orders from the best one, for so long, until one meets the bound or until nothing better comes.

    Nothing where the state space of `columns` has no exact answers: several stages on a rank, exchanges on shared links.
    """
    until_s = search.elapsed_s + min(seconds, search.left_s)
    if search.order is None or search.over or search.problem.objective != "makespan" or search.shape.blocking:
        return
    ticks = quantise(search.shape, state_space_tick_s(search.shape))
    state_space = state_space_of(ticks.shape)
    if not state_space.complete or num_states(state_space) > MOST_STATES:
        return
    windows = WindowSearch(ticks, state_space, seed=search.problem.options.seed)
    incumbent = windows.incumbent(in_order(search.shape, search.order))
    scratch = [windows.scratch() for _ in range(search.num_threads)]
    with ThreadPoolExecutor(search.num_threads) as pool:
        while not search.over and search.elapsed_s < until_s and windows.idle < MOST_IDLE:
            drawn = [windows.drawn(incumbent) for _ in scratch]
            answers = list(pool.map(windows.asked, drawn, scratch))
            charge(search.clock, QUESTION_S + WORK_S * max(work for _, work in answers))
            for order in (order for order, _ in answers if order is not None):
                incumbent = windows.better(incumbent, order)
                search.offer(incumbent.order, "windows")


class WindowSearch:
    """Windows of one problem: drawn around critical operations of an order, and asked."""

    def __init__(self, ticks: TickShape, state_space: StateSpace, *, seed: int) -> None:
        self._shape, self.state_space = ticks.shape, state_space
        self._random = np.random.default_rng(seed)
        self._ways = [Way(share, slope) for share in SHARES for slope in SLOPES]
        machines, shape = state_space.machines, ticks.shape
        number = np.arange(int(machines.length.max(initial=1)))
        self._known = number < machines.length[:, :, None]
        self._jobs = np.where(self._known, machines.first[:, :, None] + number, 0)
        stage = self._stage_of(self._jobs)
        self._stage_k = (stage * self._known).sum(axis=(1, 2)) / self._known.sum(axis=(1, 2))
        self._nodes, self._of_message = nodes_of(shape)
        self._messages = np.flatnonzero(self._of_message >= 0)
        self._graph = new_order(self._nodes)
        self.idle = 0  # questions since the last better order

    def scratch(self) -> Rows:
        """For the questions of one thread."""
        return new_rows(self.state_space.machines)

    def _stage_of(self, job: Ints) -> Ints:
        shape = self._shape
        stage: Ints = job % shape.num_operations // shape.num_microbatches % shape.num_stages
        return stage

    def incumbent(self, order: PipelineOrder) -> Incumbent:
        """An order, with micro-batches in order, in the form that windows are drawn from."""
        shape, n = self._shape, self._shape.num_operations
        run = replay_shape(shape, order)
        place = np.zeros(2 * n, dtype=np.int64)
        for queue in order.rank_ops:
            place[queue] = np.arange(len(queue))
        for queue in order.channel_ops:
            place[n + queue] = np.arange(len(queue))
        start = np.where(self._known, np.concatenate([run.start, run.message_start])[self._jobs], np.inf)
        places = np.where(self._known, place[self._jobs], len(place))
        before = (places[:, FIRST_STREAM, None, :] < places[:, SECOND_STREAM, :, None]).sum(axis=3)
        value = round(load(self._nodes, self._graph, queue_of(order, self._of_message)))
        early, late = np.zeros(2 * n, dtype=np.int64), np.full(2 * n, value)
        jobs = np.concatenate([np.arange(n), n + self._messages])
        early[jobs] = np.rint(self._graph.head)
        late[jobs] = value - np.rint(self._graph.tail + self._nodes.duration)
        return Incumbent(order, value, start, before, early, late)

    def better(self, incumbent: Incumbent, order: PipelineOrder) -> Incumbent:
        """The order instead of the incumbent, where it is no worse."""
        try:
            other = self.incumbent(order)
        except BrokenOrderError:  # operations of no time have tied it into a circle
            return self.incumbent(incumbent.order)
        if other.value > incumbent.value:
            return self.incumbent(incumbent.order)
        self.idle = 0 if other.value < incumbent.value else self.idle
        return other

    def drawn(self, incumbent: Incumbent) -> Neighbourhood:
        """A window around a critical operation, and what is asked of it."""
        random = self._random
        weight = np.array([way.weight for way in self._ways])
        way = self._ways[random.choice(len(weight), p=weight / weight.sum())]
        self.idle += 1
        equal = self.idle > PATIENT and random.uniform() < EQUAL_SHARE
        horizon = incumbent.value - (0 if equal else 1)
        begin, end = self._window(incumbent, way)
        drawn = self.neighbourhood(incumbent, begin, end, horizon)
        return replace(drawn, way=way, rule=(float(random.uniform()), 1.0))

    def neighbourhood(self, incumbent: Incumbent, begin: Times, end: Times, horizon: int) -> Neighbourhood:
        """The question whether a window, from `begin` to `end` on all machines or each, has so early an end.

        Proof that starts outside are given. What a job waits for starts before it in the incumbent. So no job that
        starts up to the first in the window waits for one of these: its earliest start is that of the incumbent. The
        same backwards in time.
        """
        order, inside = opened(incumbent, begin, end)
        jobs = self._jobs[inside]
        first = incumbent.early[jobs].min(initial=incumbent.value)
        last = incumbent.late[jobs].max(initial=0)
        early = np.where(incumbent.early <= first, incumbent.early, 0)
        late = np.where(incumbent.late >= last, incumbent.late + horizon - incumbent.value, horizon)
        return Neighbourhood(Given(order, early, late), horizon, self._ways[0])

    def _window(self, incumbent: Incumbent, way: Way) -> tuple[Floats, Floats]:
        """Begin and end by machine, around a critical operation."""
        random, shape = self._random, self._shape
        time, stage = self._turn(incumbent.value)
        length = way.length * float(shape.duration_ks.mean()) * random.uniform(0.5, 1.5)
        ahead = way.slope * float(shape.duration_ks[0].mean()) * (self._stage_k - stage)
        begin = time - random.uniform() * length + ahead
        count = min(max(2, round(way.share * shape.num_stages)), shape.num_stages)
        lowest = min(max(stage - int(random.integers(count)), 0), shape.num_stages - count)
        begin = np.where((self._stage_k < lowest) | (self._stage_k >= lowest + count), np.inf, begin)
        return begin, begin + length

    def _turn(self, value: int) -> tuple[float, int]:
        """Time and stage of an operation by which a longest path comes to a rank or leaves one, by chance."""
        path = np.zeros(len(self._nodes.duration), dtype=np.int64)
        self._graph.random_state[0] = self._random.integers(1 << 40)
        path = path[: critical_path(self._nodes, self._graph, float(value), path)]
        machine = self._nodes.machine[path]
        turns = np.flatnonzero(machine[1:] != machine[:-1])
        at = self._random.choice(turns) + self._random.integers(2) if len(turns) else self._random.integers(len(path))
        node, n = path[at], self._shape.num_operations
        job = node if node < n else self._messages[node - n]
        return float(self._graph.head[node]), int(self._stage_of(job))

    def asked(self, drawn: Neighbourhood, rows: Rows) -> tuple[PipelineOrder | None, int]:
        """The best order that the question has met, if any, and its work; the way learns from it."""
        question = FeasibilitySearch(self.state_space, drawn.horizon, rule=drawn.rule, given=drawn.given, rows=rows)
        found = question.improve(QUESTION_WORK, self._shape)
        drawn.way.learn(found=found is not None, answered=found is not None or question.status != OPEN)
        return found, question.work


def opened(incumbent: Incumbent, begin: Times, end: Times) -> tuple[Ints, Flags]:
    """Least and most counts of all pairs by machine: given outside of its window, open for jobs that start within.

    Jobs that start before the window stay before all in it, and those that start after it stay after. The second
    answer says by machine, stream and job which start within.
    """
    start, before = incumbent.start, incumbent.before
    begin, end = (np.reshape(time, (-1, 1, 1)) for time in (begin, end))
    first = (start < begin).sum(axis=2)[:, FIRST_STREAM, None]
    last = (start < end).sum(axis=2)[:, FIRST_STREAM, None]
    inside = (start >= begin) & (start < end)
    second = inside[:, SECOND_STREAM]
    least = np.where(second, np.minimum(first, before), before)
    most = np.where(second, np.maximum(last, before), before)
    return np.stack([least, most], axis=2), inside
