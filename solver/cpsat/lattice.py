"""The corridor of the lattice: bound by propagation, then questions with ever more work until bound and value meet.

Owns which horizon is asked with how much work. The bound is raised by refuted horizons, the value lowered by orders
found in open ones, both replayed exactly. Never builds a CP-SAT model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from solver.clock import charge
from solver.cpsat.search import Search
from solver.lattice.columns import Lattice, lattice_of
from solver.lattice.dive import OPEN, REACHED, REFUTED, Dive, least_open, num_states
from solver.quantise import TickShape, coarse_tick_s, exact_tick_s, quantise
from solver.verify.pipeline_shape import PipelineShape
from solver.verify.replay import BrokenOrderError, replay_shape

MOST_STATES = 6_000_000
FINEST_TICKS = 1_000_000_000  # per operation; windows are whole numbers of any size
WORK_S = 3e-8  # to look at one state, about twice what it takes on a core of 2020
CHUNK, FIRST_WORK = 1_000_000, 4_000_000
STEPS = 8  # each round closes in on the ends of what it can answer to this part of the gap


@dataclass
class Corridor:
    """Proven bound and best value, in ticks."""

    ticks: TickShape
    lattice: Lattice
    low: int
    high: int

    @property
    def closed(self) -> bool:
        """Nothing lies between."""
        return self.low >= self.high


def close_by_lattice(search: Search, *, until_s: float) -> bool:
    """Raise the bound by propagation, then search until `until_s`; says whether questions have exact answers here."""
    if search.over or search.problem.objective != "makespan":
        return False
    ticks = quantise(search.shape, lattice_tick_s(search.shape), "down")
    lattice = lattice_of(ticks.shape)
    if num_states(lattice) > MOST_STATES:
        return False
    low = floor(search.bound_s / ticks.tick_s * (1 - 1e-9)) if ticks.exact else 0
    corridor = Corridor(ticks, lattice, low, _value_ticks(search, ticks))
    _propagate(search, corridor)
    work = FIRST_WORK
    while lattice.complete and not (search.over or search.elapsed_s >= until_s or corridor.closed):
        _lower(search, corridor, work, until_s)
        _raise(search, corridor, work, until_s)
        work *= 4
    return lattice.complete


def lattice_tick_s(shape: PipelineShape) -> float:
    """The exact tick where there is one of at least a billionth of an operation, else about that."""
    floor_s = coarse_tick_s(shape, FINEST_TICKS)
    exact_s = exact_tick_s(shape)
    return floor_s if exact_s is None or exact_s < floor_s else exact_s


def _value_ticks(search: Search, ticks: TickShape) -> int:
    assert search.order is not None, "the portfolio always finds an order"
    return round(replay_shape(ticks.shape, search.order).makespan_s)


def _propagate(search: Search, corridor: Corridor) -> None:
    """Refute by propagation alone: the least horizon that is left is a bound."""
    low, work = least_open(corridor.lattice, corridor.low, corridor.high, lambda: search.over)
    charge(search.clock, work * WORK_S)
    _refuted(search, corridor, low - 1)


def _lower(search: Search, corridor: Corridor, work: int, until_s: float) -> None:
    """The least horizon that so much work reaches: the bound itself first, then halfway to the best value."""
    below, target = corridor.low, corridor.low
    while below < corridor.high and not search.over and search.elapsed_s < until_s:
        if _ask(search, corridor, target, work, until_s) == OPEN:
            below = target + 1
        below = max(below, corridor.low)
        if corridor.high - below <= (corridor.high - corridor.low) // STEPS:
            return
        target = (below + corridor.high) // 2


def _raise(search: Search, corridor: Corridor, work: int, until_s: float) -> None:
    """The most that so much work refutes: one tick below the best value first, whose refutation is the whole proof."""
    above, target = corridor.high, corridor.high - 1
    while corridor.low < above and not search.over and search.elapsed_s < until_s:
        if _ask(search, corridor, target, work, until_s) == OPEN:
            above = target
        above = min(above, corridor.high)
        if above - corridor.low <= (corridor.high - corridor.low) // STEPS:
            return
        target = (above + corridor.low) // 2


def _ask(search: Search, corridor: Corridor, target: int, work: int, until_s: float) -> int:
    """One question; its answer moves the corridor and the search."""
    dive = Dive(corridor.lattice, target)
    done = dive.work
    charge(search.clock, done * WORK_S)
    while dive.status == OPEN and dive.work < work and not search.over and search.elapsed_s < until_s:
        dive.go_on(CHUNK)
        charge(search.clock, (dive.work - done) * WORK_S)
        done = dive.work
    if dive.status == REFUTED:
        _refuted(search, corridor, target)
    elif dive.status == REACHED:
        return _reached(search, corridor, dive)
    return dive.status


def _refuted(search: Search, corridor: Corridor, target: int) -> None:
    corridor.low = max(corridor.low, target + 1)
    if corridor.ticks.bounds:
        search.raise_bound(min(corridor.low, corridor.high) * corridor.ticks.tick_s * (1 - 1e-12), "lattice")


def _reached(search: Search, corridor: Corridor, dive: Dive) -> int:
    """Offer the order; one that operations of no time have tied into a circle is no answer."""
    order = dive.order(corridor.ticks.shape)
    try:
        search.offer(order, "lattice")
        value = round(replay_shape(corridor.ticks.shape, order).makespan_s)
    except BrokenOrderError:
        return OPEN
    corridor.high = min(corridor.high, value)
    return REACHED
