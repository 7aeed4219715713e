"""The corridor of the lattice: bound by propagation, then questions with ever more work until bound and value meet.

Owns which horizon is asked with how much work. One seeker looks for orders, another refutes; they go on side by side
where two workers are allowed, by steps of fixed work, so that the same answers come in the same turn. Orders found are
replayed exactly. Never builds a CP-SAT model.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from math import floor

import numpy as np

from solver.clock import charge
from solver.pipeline.exact.columns import Lattice, lattice_of
from solver.pipeline.exact.decision import OPEN, REACHED, REFUTED, Dive, least_open, num_states
from solver.pipeline.local_search.descent import CHUNK_WORK_S
from solver.pipeline.local_search.progress import Search
from solver.pipeline.local_search.tabu import tabu_orders
from solver.pipeline.problem import Floats, PipelineOrder, PipelineShape
from solver.pipeline.quantise import TickShape, coarse_tick_s, exact_tick_s, quantise
from solver.pipeline.simulate import BrokenOrderError, replay_shape

MOST_STATES = 6_000_000
FINEST_TICKS = 1_000_000_000  # per operation; windows are whole numbers of any size
WORK_S = 6e-8  # to look at one state, about twice what it takes on a core of 2020
STEP = 600_000
OPERATIONS_PER_PASS = 6  # a question's least work: a pass over all machines for so many F; it grows with both
FIRST_FACTOR, PROOF_FACTOR = 4, 16  # the bound itself and the proof are given so many times as much
NARROWING_RULES = (0.0, 1.0), (1.0, 1.0), (0.3, 1.0), (1.0, 3.0), (0.0, 0.5)  # an open question is asked otherwise
PROVING_RULES = (1.0, 1.0), (0.0, 1.0)
PATIENCE = 12  # chunks of tabu search without a better order
STALE = 3  # a corridor so many times narrower is worth a fresh start
PARTS = 8  # a seeker closes in on the end of what its work can answer to this part of the gap


@dataclass
class Corridor:
    """Proven bound and best value, in ticks; `weight`: where the questions so far got stuck."""

    search: Search
    ticks: TickShape
    lattice: Lattice
    low: int
    high: int
    weight: Floats
    least_work: int
    until_s: float
    polish: Iterator[PipelineOrder | None] | None = None
    idle: int = 0

    @property
    def over(self) -> bool:
        """Nothing lies between bound and value, or the time is up."""
        return self.low >= self.high or self.search.over or self.search.elapsed_s >= self.until_s

    @property
    def near(self) -> int:
        """How close to the end of what it can answer a seeker goes."""
        return (self.high - self.low) // PARTS


@dataclass
class Seeker:
    """A question, how much work it may take, which horizon comes next, and the order that the last step has found.

    `gap`: how wide the corridor was when the question was asked; its first decisions suit no other.
    """

    targets: Iterator[tuple[int, int]]
    rules: Iterator[tuple[float, float]]
    goes_on: bool
    dive: Dive | None = None
    work: int = 0
    gap: int = 0
    order: PipelineOrder | None = None


def close_by_lattice(search: Search, *, until_s: float) -> bool:
    """Raise the bound by propagation, then search until `until_s`; says whether questions have exact answers here."""
    if search.over or search.problem.objective != "makespan":
        return False
    ticks = quantise(search.shape, lattice_tick_s(search.shape), "down")
    lattice = lattice_of(ticks.shape)
    size = num_states(lattice)
    if size > MOST_STATES:
        return False
    low = floor(search.bound_s / ticks.tick_s * (1 - 1e-9)) if ticks.exact else 0
    weight = np.ones(len(lattice.machines.length))
    high = _value_ticks(search, ticks)
    corridor = Corridor(search, ticks, lattice, low, high, weight, _least_work(search, size), until_s)
    least, work = least_open(lattice, corridor.low, corridor.high, lambda: search.over)
    charge(search.clock, work * WORK_S)
    _refuted(corridor, least - 1)
    if lattice.complete and not corridor.over:
        _seek(corridor)
    return lattice.complete


def _least_work(search: Search, num_states: int) -> int:
    """What a search that never steps back takes, about."""
    return num_states * max(search.shape.num_stages * search.shape.num_microbatches // OPERATIONS_PER_PASS, 1)


def lattice_tick_s(shape: PipelineShape) -> float:
    """The exact tick where there is one of at least a billionth of an operation, else about that."""
    floor_s = coarse_tick_s(shape, FINEST_TICKS)
    exact_s = exact_tick_s(shape)
    return floor_s if exact_s is None or exact_s < floor_s else exact_s


def _value_ticks(search: Search, ticks: TickShape) -> int:
    assert search.order is not None, "the portfolio always finds an order"
    return round(replay_shape(ticks.shape, search.order).makespan_s)


def _seek(corridor: Corridor) -> None:
    """Both seekers in steps, side by side where two workers are allowed, until the corridor is closed."""
    search = corridor.search
    abreast = search.problem.options.workers > 1
    narrowing = Seeker(_narrowing(corridor), cycle(NARROWING_RULES), goes_on=False)
    proving = Seeker(_proving(corridor), cycle(PROVING_RULES), goes_on=True)
    with ThreadPoolExecutor(1) as pool:
        while not corridor.over:
            dives = [_turn(corridor, seeker) for seeker in (narrowing, proving)]
            before = [dive.work for dive in dives]
            aside = pool.submit(_step, corridor, proving)
            if not abreast:
                aside.result()
            _step(corridor, narrowing)
            _polish(corridor)
            aside.result()
            done = [dive.work - work for dive, work in zip(dives, before, strict=True)]
            charge(search.clock, WORK_S * (max(done) if abreast else sum(done)))
            for seeker in (narrowing, proving):
                _learn(corridor, seeker)


def _step(corridor: Corridor, seeker: Seeker) -> None:
    """Some work on the seeker's question."""
    dive, shape = seeker.dive, corridor.ticks.shape
    assert dive is not None, "every seeker has had its turn"
    if seeker.goes_on:
        seeker.order = dive.improve(STEP, shape)
    else:
        seeker.order = dive.order(shape) if dive.go_on(STEP) == REACHED else None


def _turn(corridor: Corridor, seeker: Seeker) -> Dive:
    """The seeker's question; the next one where the last is answered by now or has had its work."""
    dive = seeker.dive
    if dive is not None and corridor.low <= corridor.high - 1 < dive.horizon:
        dive.lower(corridor.high - 1)
    stale = corridor.high - corridor.low < seeker.gap // STALE
    if dive is None or dive.status != OPEN or dive.work >= seeker.work or dive.horizon < corridor.low or stale:
        target, seeker.work = next(seeker.targets)
        seeker.gap = corridor.high - corridor.low
        dive = seeker.dive = Dive(corridor.lattice, target, weight=corridor.weight, rule=next(seeker.rules))
    return dive


def _narrowing(corridor: Corridor) -> Iterator[tuple[int, int]]:
    """The bound itself, which is often the best value; then what little work can refute or reach, then more work.

    A horizon that is neither refuted nor reached when the next is drawn stayed open.
    """
    yield corridor.low, FIRST_FACTOR * corridor.least_work
    work = corridor.least_work
    while True:
        below, target = corridor.low, corridor.low + corridor.near
        while corridor.low < corridor.high:
            yield target, work
            below = max(below, corridor.low, target + 1 if target < corridor.high else 0)
            if corridor.high - below <= corridor.near:
                break
            target = (below + corridor.high) // 2
        work *= 2


def _proving(corridor: Corridor) -> Iterator[tuple[int, int]]:
    """A tick below the best value: the refutation is the whole proof, what is reached is better. Restarts know more."""
    work = PROOF_FACTOR * corridor.least_work
    while True:
        yield corridor.high - 1, work
        work *= 3


def _polish(corridor: Corridor) -> None:
    """One chunk of tabu search from the last order that the lattice has found, until some chunks bring nothing."""
    if corridor.polish is None or corridor.over:
        return
    order = next(corridor.polish, None)
    charge(corridor.search.clock, CHUNK_WORK_S)
    corridor.idle = corridor.idle + 1 if order is None else 0
    if order is not None:
        _take(corridor, order, "tabu")
    elif corridor.idle >= PATIENCE:
        corridor.polish = None


def _learn(corridor: Corridor, seeker: Seeker) -> None:
    """An answer moves the corridor and the search; where machines got stuck is kept, the older the less."""
    dive = seeker.dive
    if seeker.order is not None:
        _reached(corridor, seeker.order)
    if dive is None or (dive.status == OPEN and dive.work < seeker.work):
        return
    corridor.weight = 1 + (corridor.weight - 1) / 2 + (dive.weight - dive.first_weight) / 2
    if dive.status == REFUTED:
        _refuted(corridor, dive.horizon)


def _refuted(corridor: Corridor, target: int) -> None:
    corridor.low = max(corridor.low, target + 1)
    if corridor.ticks.bounds:
        bound = min(corridor.low, corridor.high)
        corridor.search.raise_bound(bound * corridor.ticks.tick_s * (1 - 1e-12), "lattice")


def _reached(corridor: Corridor, order: PipelineOrder) -> None:
    """Offer an order of the lattice, and let tabu search polish it."""
    search = corridor.search
    if _take(corridor, order, "lattice") and search.order is not None:
        search.slices += 1
        seed = search.problem.options.seed + search.slices
        corridor.polish = tabu_orders(
            search.shape, search.order, seed=seed, target_s=search.bound_s, stop=lambda: corridor.over
        )
        corridor.idle = 0


def _take(corridor: Corridor, order: PipelineOrder, generator: str) -> bool:
    """Whether it was better; an order that operations of no time have tied into a circle is none."""
    try:
        better = corridor.search.offer(order, generator)
        value = round(replay_shape(corridor.ticks.shape, order).makespan_s)
    except BrokenOrderError:
        return False
    corridor.high = min(corridor.high, value)
    return better
