"""Large neighbourhood search (Shaw 1998) over the states of ranks and channels: better orders from the best one.

A neighbourhood leaves the order as it is but in one window, which starts and ends at a time of its own on every rank:
there all pairs are open, and the exact search is asked whether a schedule that ends earlier is among them. Orders that
are given leave few states, so that a question takes milliseconds and mostly ends with an answer. Questions go side by
side where two threads are allowed, each with its share of work: the same answers come in the same order.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solver.clock import charge
from solver.pipeline.exact.chains import ChainSpaces, NamedSpace, exchanged
from solver.pipeline.exact.columns import STREAMS, state_space_of
from solver.pipeline.exact.decision import OPEN, FeasibilitySearch, Given
from solver.pipeline.exact.horizon_search import WORK_S, state_space_tick_s
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.local_search.tabu import in_order, new_order, nodes_of, queue_of
from solver.pipeline.local_search.tabu_kernel import critical_path
from solver.pipeline.local_search.tabu_steps import load
from solver.pipeline.problem import Floats, Ints, PipelineOrder
from solver.pipeline.quantise import TickShape, quantise
from solver.pipeline.simulate import BrokenOrderError

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
MOST_OPERATIONS = 20_000  # of a pipeline: beyond, an order takes longer to look over than a question
BY_KIND_SHARE = 0.4  # of the questions about chains: F, B and W; else kinds and stages are put together by chance
GROUPED = 8  # questions of an order with the same groups: to make groups takes as long as four questions
EXCHANGED_SHARE, MOST_EXCHANGES = 0.3, 2  # of the questions about chains, with so many neighbours exchanged
FADES, LEAST_WEIGHT = 0.03, 0.02  # what the last question counts of a way's weight, the share of those with orders
MOST_IDLE = 0.6  # per operation: questions in a row without a better order, then comes the time for proofs
PATIENT, EQUAL_SHARE = 60, 0.3  # after so many questions without, some ask for another order of the same value


@dataclass
class WindowKind:
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
class TimedOrder:
    """The best order in ticks, its value, and by job, in the numbers of `columns`: place, earliest and latest start."""

    order: PipelineOrder
    value: int
    place: Ints
    early: Ints
    late: Ints


@dataclass(frozen=True)
class Streams:
    """An incumbent by the machines of a state space: starts by machine, stream and number (`known`: there is a job).

    `before[k, pair, x]`: jobs of the pair's first stream before the x-th of its second. `rank`: that of a machine's
    jobs on average. `chains`: those of the space.
    """

    named: NamedSpace
    job: Ints
    known: Flags
    start: Floats
    before: Ints
    rank: Floats
    chains: list[list[Ints]]


@dataclass(frozen=True)
class Neighbourhood:
    """A question before it is asked: what is given outside of the window, the horizon, how the search chooses."""

    named: NamedSpace
    given: Given
    horizon: int
    way: WindowKind
    rule: tuple[float, float] = (0.0, 1.0)


def improve_by_windows(search: PipelineSearch, seconds: float) -> None:
    """Better orders from the best one, for so long, until one meets the bound or until nothing better comes.

    Ranks of several stages and channels of many hops are searched by chains (`chains`).
    """
    stop = search.stop_after(seconds)
    if search.over or search.problem.objective != "makespan":
        return
    if (search.shape.sync_link_s >= 0).any() or search.shape.num_operations > MOST_OPERATIONS:
        return
    ticks = quantise(search.shape, state_space_tick_s(search.shape))
    windows = WindowSearch(ticks, seed=search.problem.options.seed)
    incumbent = windows.incumbent(in_order(search.shape, search.best_order))
    most_idle = MOST_IDLE * search.shape.num_operations
    with ThreadPoolExecutor(search.num_threads) as pool:
        while not stop() and windows.idle < most_idle:
            drawn = [windows.drawn(incumbent) for _ in range(search.num_threads)]
            answers = list(pool.map(windows.asked, drawn))
            charge(search.clock, QUESTION_S + WORK_S * max(work for _, work, _ in answers))
            for one, (order, _, answered) in zip(drawn, answers, strict=True):
                one.way.learn(found=order is not None, answered=answered)
                if order is not None:
                    incumbent = windows.better(incumbent, order)
                    search.offer(incumbent.order, "windows")


class WindowSearch:
    """Windows of one problem: drawn around critical operations of an order, and asked."""

    def __init__(self, ticks: TickShape, *, seed: int) -> None:
        self._shape = shape = ticks.shape
        self._random = np.random.default_rng(seed)
        self._ways = [WindowKind(share, slope) for share in SHARES for slope in SLOPES]
        state_space = state_space_of(shape)
        self._alone = NamedSpace(state_space, np.arange(len(state_space.machines.ticks)))
        self._spaces = None if state_space.complete else ChainSpaces(shape)
        self._nodes, self._of_message = nodes_of(shape)
        self._messages = np.flatnonzero(self._of_message >= 0)
        self._graph = new_order(self._nodes)
        self._streams: tuple[TimedOrder, Streams] | None = None  # of the last incumbent
        self._num_drawn = 0
        self.idle = 0  # questions since the last better order

    def _rank_of(self, job: Ints) -> Ints:
        """The rank that runs an operation or sends a message."""
        shape = self._shape
        return shape.rank_of_s[job % shape.num_operations // shape.num_microbatches % shape.num_stages]

    def incumbent(self, order: PipelineOrder) -> TimedOrder:
        """An order, with micro-batches in order, in the form that windows are drawn from."""
        n = self._shape.num_operations
        place = np.zeros(2 * n, dtype=np.int64)
        for queue in order.rank_ops:
            place[queue] = np.arange(len(queue))
        for queue in order.channel_ops:
            place[n + queue] = np.arange(len(queue))
        end = load(self._nodes, self._graph, queue_of(order, self._of_message))
        if not np.isfinite(end):
            raise BrokenOrderError("operations of no time have tied the order into a circle")
        value = round(end)
        early, late = np.zeros(2 * n, dtype=np.int64), np.full(2 * n, value)
        jobs = np.concatenate([np.arange(n), n + self._messages])
        early[jobs] = np.rint(self._graph.head)
        late[jobs] = value - np.rint(self._graph.tail + self._nodes.duration)
        return TimedOrder(order, value, place, early, late)

    def streams(self, incumbent: TimedOrder) -> Streams:
        """The incumbent in the state space of the shape, or in one of chains by chance."""
        last, self._num_drawn = self._streams, self._num_drawn + 1
        if last is not None and last[0] is incumbent and (self._spaces is None or self._num_drawn % GROUPED != 0):
            return last[1]
        if self._spaces is None:
            streams = self._streams_of(incumbent, self._alone, [])
        else:
            chains = self._spaces.chains(incumbent.order, self._group())
            streams = self._streams_of(incumbent, self._spaces.space(chains), chains)
        self._streams = incumbent, streams
        return streams

    def _streams_of(self, incumbent: TimedOrder, named: NamedSpace, chains: list[list[Ints]]) -> Streams:
        """The incumbent in a state space, that of these chains if any."""
        machines = named.state_space.machines
        number = np.arange(int(machines.length.max(initial=1)))
        known: Flags = number < machines.length[:, :, None]
        job = named.old[np.where(known, machines.first[:, :, None] + number, 0)]
        start = np.where(known, incumbent.early[job], np.inf)
        places = np.where(known, incumbent.place[job], len(incumbent.place))
        before = (places[:, FIRST_STREAM, None, :] < places[:, SECOND_STREAM, :, None]).sum(axis=3)
        rank = (self._rank_of(job) * known).sum(axis=(1, 2)) / known.sum(axis=(1, 2))
        return Streams(named, job, known, start, before, rank, chains)

    def _group(self) -> Ints:
        """The chain of every kind and chunk: its kind, or any by chance but that F alone go into the first."""
        assert self._spaces is not None, "one stage on every rank has streams of its own"
        kinds, chunks = self._shape.num_kinds, self._spaces.num_chunks
        if self._random.uniform() < BY_KIND_SHARE:
            return np.repeat(np.arange(kinds)[:, None], chunks, axis=1)
        group: Ints = self._random.integers(1, STREAMS, size=(kinds, chunks))
        group[0] = self._random.integers(0, STREAMS, size=chunks)
        return group

    def better(self, incumbent: TimedOrder, order: PipelineOrder) -> TimedOrder:
        """The order instead of the incumbent, where it is no worse."""
        try:
            other = self.incumbent(order)
        except BrokenOrderError:
            return self.incumbent(incumbent.order)
        if other.value > incumbent.value:
            return self.incumbent(incumbent.order)
        self.idle = 0 if other.value < incumbent.value else self.idle
        return other

    def drawn(self, incumbent: TimedOrder) -> Neighbourhood:
        """A window around a critical operation, and what is asked of it."""
        random = self._random
        weight = np.array([way.weight for way in self._ways])
        way = self._ways[random.choice(len(weight), p=weight / weight.sum())]
        self.idle += 1
        equal = self.idle > PATIENT and random.uniform() < EQUAL_SHARE
        horizon = incumbent.value - (0 if equal else 1)
        streams = self.streams(incumbent)
        begin, end = self._window(incumbent, streams, way)
        streams = self._exchanged(streams, begin, end)
        drawn = self.neighbourhood(incumbent, streams, begin, end, horizon)
        return replace(drawn, way=way, rule=(float(random.uniform()), 1.0))

    def neighbourhood(
        self, incumbent: TimedOrder, streams: Streams, begin: Times, end: Times, horizon: int
    ) -> Neighbourhood:
        """The question whether a window, from `begin` to `end` on all machines or each, has so early an end.

        Proof that starts outside are given. What a job waits for starts before it in the incumbent. So no job that
        starts up to the first in the window waits for one of these: its earliest start is that of the incumbent. The
        same backwards in time.
        """
        order, inside = opened(streams, begin, end)
        jobs = streams.job[inside]
        first = incumbent.early[jobs].min(initial=incumbent.value)
        last = incumbent.late[jobs].max(initial=0)
        early = np.where(incumbent.early <= first, incumbent.early, 0)
        late = np.where(incumbent.late >= last, incumbent.late + horizon - incumbent.value, horizon)
        old = streams.named.old
        return Neighbourhood(streams.named, Given(order, early[old], late[old]), horizon, self._ways[0])

    def _exchanged(self, streams: Streams, begin: Times, end: Times) -> Streams:
        """By chance with some neighbours of a chain exchanged that are in the window and of different stages."""
        if self._spaces is None or self._random.uniform() >= EXCHANGED_SHARE:
            return streams
        _, inside = opened(streams, begin, end)
        m = self._shape.num_microbatches
        places = [
            (k, number, int(at))
            for k, one in enumerate(streams.chains)
            for number, jobs in enumerate(one)
            for held in [inside[k, number][: len(jobs)]]
            for at in np.flatnonzero((jobs[1:] // m != jobs[:-1] // m) & held[:-1] & held[1:])
        ]
        if not places:
            return streams
        chains = [list(one) for one in streams.chains]
        for _ in range(self._random.integers(1, MOST_EXCHANGES + 1)):
            k, number, at = places[self._random.integers(len(places))]
            if chains[k][number][at] // m != chains[k][number][at + 1] // m:
                chains[k][number] = exchanged(chains[k][number], at)
        return replace(streams, named=self._spaces.space(chains, (streams.chains, streams.named)))

    def _window(self, incumbent: TimedOrder, streams: Streams, way: WindowKind) -> tuple[Floats, Floats]:
        """Begin and end by machine, around a critical operation."""
        random, shape = self._random, self._shape
        time, rank = self._change(incumbent.value)
        length = way.length * float(shape.duration_ks.mean()) * random.uniform(0.5, 1.5)
        of_machine = streams.rank
        begin = time - random.uniform() * length + way.slope * float(shape.duration_ks[0].mean()) * (of_machine - rank)
        count = min(max(2, round(way.share * shape.num_ranks)), shape.num_ranks)
        lowest = min(max(rank - int(random.integers(count)), 0), shape.num_ranks - count)
        begin = np.where((of_machine < lowest) | (of_machine >= lowest + count), np.inf, begin)
        return begin, begin + length

    def _change(self, value: int) -> tuple[float, int]:
        """Time and rank of an operation by which a longest path comes to a rank or leaves one, by chance."""
        path = np.zeros(len(self._nodes.duration), dtype=np.int64)
        self._graph.random_state[0] = self._random.integers(1 << 40)
        path = path[: critical_path(self._nodes, self._graph, float(value), path)]
        machine = self._nodes.machine[path]
        changes = np.flatnonzero(machine[1:] != machine[:-1])
        at = (
            self._random.choice(changes) + self._random.integers(2)
            if len(changes)
            else self._random.integers(len(path))
        )
        node, n = path[at], self._shape.num_operations
        job = node if node < n else self._messages[node - n]
        return float(self._graph.head[node]), int(self._rank_of(job))

    def asked(self, drawn: Neighbourhood) -> tuple[PipelineOrder | None, int, bool]:
        """The best order that the question has met, if any, its work, and whether it has an answer.

        Questions are asked side by side, so nothing that the next ones depend on changes here.
        """
        space = drawn.named.state_space
        question = FeasibilitySearch(space, drawn.horizon, rule=drawn.rule, given=drawn.given)
        queues = question.improve(QUESTION_WORK)
        order = None if queues is None else drawn.named.order(self._shape, queues)
        return order, question.work, order is not None or question.status != OPEN


def opened(streams: Streams, begin: Times, end: Times) -> tuple[Ints, Flags]:
    """Least and most counts of all pairs by machine: given outside of its window, open for jobs that start within.

    Jobs that start before the window stay before all in it, and those that start after it stay after. The second
    answer says by machine, stream and job which start within.
    """
    start, before = streams.start, streams.before
    begin, end = (np.reshape(time, (-1, 1, 1)) for time in (begin, end))
    first = (start < begin).sum(axis=2)[:, FIRST_STREAM, None]
    last = (start < end).sum(axis=2)[:, FIRST_STREAM, None]
    inside = (start >= begin) & (start < end)
    second = inside[:, SECOND_STREAM]
    least = np.where(second, np.minimum(first, before), before)
    most = np.where(second, np.maximum(last, before), before)
    return np.stack([least, most], axis=2), inside
