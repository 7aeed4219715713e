"""The corridor: is there a schedule of value at most T? Asked from below until bound and value meet.

Owns the choice of T. With a horizon T close to the optimum the windows of all starts are tight: below it presolve
refutes T at once, at it the search finds an order quickly, where plain minimisation wanders (decision 0102). Times are
rounded down, so every refuted T is a valid bound; every order found is replayed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from solver.cpsat.engine import Found, Limits, run
from solver.cpsat.search import Search
from solver.cpsat.variables import Instance
from solver.quantise import TickShape
from solver.verify.replay import replay_shape


@dataclass
class Corridor:
    """Bound and best value in ticks, and the least T that was asked in vain."""

    ticks: TickShape
    low: int
    high: int
    unknown: int


def close(search: Search, ticks: TickShape, *, probe_s: float, patient: bool = True) -> None:
    """Raise the bound by refutation, then look for orders ever further above it, until time is up."""
    corridor = _open(search, ticks)
    _refute(search, corridor, probe_s)
    patience_s = 4 * probe_s
    while patient and not search.over and corridor.low < corridor.high:
        if not _climb(search, corridor, patience_s):
            patience_s *= 2
        corridor.unknown = corridor.high


def _open(search: Search, ticks: TickShape) -> Corridor:
    low = floor(search.bound_s / ticks.tick_s * (1 - 1e-9)) if ticks.exact else 0
    high = _value_ticks(search, ticks)
    return Corridor(ticks, min(low, high), high, high)


def _value_ticks(search: Search, ticks: TickShape) -> int:
    assert search.order is not None, "the portfolio always finds an order"
    run_ticks = replay_shape(ticks.shape, search.order)
    return round(run_ticks.span_s if search.problem.objective == "span" else run_ticks.makespan_s)


def _refute(search: Search, corridor: Corridor, probe_s: float) -> None:
    """Bisect between the bound and the least T that was not refuted in the probe's time."""
    while not search.over and corridor.unknown - corridor.low > 1:
        middle = (corridor.low + corridor.unknown) // 2
        found = _ask(search, corridor, middle, probe_s)
        if not found.proven and found.order is None:
            corridor.unknown = middle


def _climb(search: Search, corridor: Corridor, patience_s: float) -> bool:
    """Ask at the bound, then at doubling distances above it; True when bound or value has moved."""
    before = (corridor.low, corridor.high)
    step = 0
    while not search.over and corridor.low + step < corridor.high:
        found = _ask(search, corridor, corridor.low + step, patience_s)
        if found.order is not None:
            break
        if not found.proven:
            step = max(2 * step, (corridor.high - corridor.low) // 16, 1)
    return before != (corridor.low, corridor.high)


def _ask(search: Search, corridor: Corridor, target: int, time_limit_s: float) -> Found:
    """One question; its answer moves the corridor and the search."""
    options = search.problem.options
    limits = Limits(
        min(time_limit_s, search.left_s),
        options.workers,
        options.seed,
        cancelled=search.cancelled,
        first_solution=True,
    )
    instance = Instance(corridor.ticks, target, corridor.low, search.problem.objective)
    found = run(instance, None, limits)
    if found.bound_ticks > corridor.low:
        corridor.low = min(found.bound_ticks, corridor.high)
        search.raise_bound(corridor.low * corridor.ticks.tick_s * (1 - 1e-12), "refuted")
    if found.order is not None:
        search.offer(found.order, "cpsat")
        corridor.high = min(corridor.high, found.value_ticks or corridor.high)
        corridor.low = min(corridor.low, corridor.high)
        corridor.unknown = min(corridor.unknown, corridor.high)
    return found
