"""Horizon search: is there a schedule of value at most T? Asked from below until bound and value meet.

With a horizon T close to the optimum the windows of all starts are tight: below it presolve refutes T at once, at it
the search finds an order quickly, where plain minimisation wanders (decision 0102). Times are rounded down, so every
refuted T is a valid bound; every order found is replayed exactly.
"""

from dataclasses import dataclass
from math import floor

from solver.clock import charge
from solver.pipeline.bounds import bound_of
from solver.pipeline.cpsat.engine import Found, run
from solver.pipeline.cpsat.variables import Instance
from solver.pipeline.local_search.descent import descend
from solver.pipeline.local_search.progress import Horizons, PipelineSearch, bound_ticks, value_ticks
from solver.pipeline.quantise import TickShape

REFUTERS = ("default_lp", "quick_restart_no_lp")  # a fixed search instead refutes nothing in ten times the time
FINDERS = ("fixed", "default_lp")
LEAST_PART = 64  # a question lies at least 1/64 of the way above the bound; set by hand


@dataclass
class HorizonInterval(Horizons):
    """Which part of the way between bound and value is asked next."""

    part: int = 1


def close(search: PipelineSearch, ticks: TickShape, *, probe_s: float) -> None:
    """Raise the bound by refutation, then look for orders at it and above it, while there is time."""
    high = value_ticks(search, ticks)
    low = bound_ticks(search, ticks) if ticks.exact else floor(bound_of(ticks.shape, search.problem.objective))
    horizons = HorizonInterval(search, ticks, min(low, high), high)
    _refute(horizons, probe_s)
    patience_s = 4 * probe_s
    while not horizons.over:
        _alternate(horizons, patience_s)
        patience_s *= 1.6


def _refute(horizons: HorizonInterval, probe_s: float) -> None:
    """Ask upwards from the bound in doubling steps while refutations come quickly; no answer in time shortens the step.

    Most refutations take presolve alone, so no answer within the time mostly means that T can be reached.
    """
    step = 0
    first = max((horizons.high - horizons.low) // 16, 1)
    while not horizons.over:
        target = min(horizons.low + step, horizons.high - 1)
        found = _ask(horizons, target, probe_s if step else 2 * probe_s, probing=True)
        if found.proven and found.order is None:
            step = first if step == 0 else 2 * step
        elif step <= max(1, horizons.low // 2000):
            return
        else:
            step = first = step // 8


def _alternate(horizons: HorizonInterval, patience_s: float) -> None:
    """One after another: a question that may raise the bound, tabu search, a question for an order at the bound."""
    _raise_bound(horizons, patience_s)
    if horizons.over:
        return
    descend(horizons.search, patience_s)
    horizons.high = min(horizons.high, value_ticks(horizons.search, horizons.ticks))
    if not horizons.over:
        _ask(horizons, horizons.low, patience_s, subsolvers=FINDERS)


def _raise_bound(horizons: HorizonInterval, patience_s: float) -> None:
    """Ask one tick below the best, whose refutation is the whole proof; without an answer, nearer to the bound."""
    most = horizons.high - 1
    target = min(horizons.low + (horizons.high - horizons.low) // horizons.part, most)
    found = _ask(horizons, target, patience_s)
    refuted = found.proven and found.order is None
    horizons.part = max(horizons.part // 2, 1) if refuted else min(2 * horizons.part, LEAST_PART)


def _ask(
    horizons: HorizonInterval,
    target: int,
    time_limit_s: float,
    *,
    probing: bool = False,
    subsolvers: tuple[str, ...] = REFUTERS,
) -> Found:
    """One question; its answer moves the interval and the search."""
    search = horizons.search
    instance = Instance(horizons.ticks, target, horizons.low, search.problem.objective)
    found = run(search, instance, time_limit_s, subsolvers, probing=probing)
    charge(search.clock, found.work_s)
    if found.bound_ticks > horizons.low:
        horizons.refute(found.bound_ticks - 1, "refuted")
    if found.order is not None:
        search.offer(found.order, "cpsat")
        horizons.high = min(horizons.high, found.value_ticks or horizons.high)
    return found
