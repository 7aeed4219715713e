"""Times the two ways in which the replicas of a route may send, all at once or in time slots, and keeps the better one.

Time slots are scheduled by themselves only where the order found for all at once would end earlier with them.
The delays are those of `solver/transport/time_division.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.schedule import PipelineProblem
from solver.evaluation.scheduling import Scheduler, Timing
from solver.pipeline.simulate import replay
from solver.transport.hops import HopDelay, Sharing
from solver.transport.time_division import LEAST_GAIN


@dataclass(frozen=True)
class Way:
    """A way of sending: the problem of one replica, its delays, and by how many seconds the last replicas run later."""

    problem: PipelineProblem
    delays: tuple[HopDelay, ...]
    stagger_s: float = 0.0


@dataclass(frozen=True)
class TimedWay:
    """A way with its timing; `other` is the other way under the same order, where there is one."""

    way: Way
    timing: Timing
    other: TimedWay | None = None

    @property
    def end_s(self) -> float:
        """End of the last operation of the last replicas."""
        return self.timing.end_s + self.way.stagger_s

    @property
    def sharing(self) -> Sharing | None:
        """Ends of both ways."""
        if self.other is None:
            return None
        at_once, in_time_slots = (self.other, self) if self.way.stagger_s > 0 else (self, self.other)
        return Sharing(at_once_s=at_once.end_s, in_time_slots_s=in_time_slots.end_s)


def better_way(
    at_once: Way, in_time_slots: Way | None, scheduler: Scheduler, *, divided: bool | None = None
) -> TimedWay | None:
    """The way that ends first; None when the scheduler has no order.

    With `divided` the scheduler is asked for that way alone; its order still runs the other way if that ends first.
    """
    if in_time_slots is None:
        return _timed(at_once, scheduler)
    first, second = (in_time_slots, at_once) if divided else (at_once, in_time_slots)
    timed = _timed(first, scheduler)
    if timed is None:
        return None
    best = _better_of_order(timed, second)
    if divided is None and best.way is second:
        found = _timed(second, scheduler)
        if found is not None and found.end_s < best.end_s:
            best = _better_of_order(found, first)
    return best


def _better_of_order(timed: TimedWay, second: Way) -> TimedWay:
    """The better of two ways under one order; time slots have to gain `LEAST_GAIN` or more."""
    own, problem = timed.timing, second.problem
    crossed = TimedWay(second, Timing.of(problem, own.order, replay(problem, own.order), own.generator))
    at_once, in_time_slots = (crossed, timed) if timed.way.stagger_s > 0 else (timed, crossed)
    if in_time_slots.end_s < at_once.end_s * (1.0 - LEAST_GAIN):
        return replace(in_time_slots, other=at_once)
    return replace(at_once, other=in_time_slots)


def _timed(way: Way, scheduler: Scheduler) -> TimedWay | None:
    timing = scheduler(way.problem)
    return None if timing is None else TimedWay(way, timing)
