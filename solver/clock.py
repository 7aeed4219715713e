"""A clock that counts work instead of time, so that a search stops at the same point on every computer.

This is what a second of work is; whoever works charges for it. Without such a clock every charge is lost on purpose.
"""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]
WORK_PER_EVALUATION_S = 0.03  # to place and time one candidate, beside its ranks and orders: 0.005 to 0.025 s
WORK_PER_PLACED_RANK_S = 5e-4  # beside it for each pipeline rank of each route
WORK_PER_PLACING_S = 0.015  # to look for the placements of one configuration, found or not
WORK_PER_OPERATION_S = 1e-6  # to order and to replay one operation, up to twice what it takes on a core of 2020
WORK_PER_ROW_S = 2e-6  # to enumerate one configuration and to look it over
WORK_PER_PRICED_ROW_S = 2e-5  # to price one configuration, per GPU class; about what it takes on a core of 2020
WORK_PER_REFINED_BOUND_S = 0.012  # with all kinds of layouts, beside the capacity pools
WORK_PER_ALIKE_BOUND = 0.05  # of that for each further configuration bounded with the first: more rows of its tables
WORK_PER_BOUNDED_POOL = 0.06  # of that for each capacity pool: numbers of replicas that one place may hold
WORK_PER_PIPELINE_BOUND_S = 1e-4  # to bound one pipeline, beside its operations
WORK_PER_BOUNDED_OPERATION_S = 3e-7  # of such a pipeline
WORK_PER_PLAN_S = 0.2  # to write out and judge one plan, beside its operations
WORK_PER_WRITTEN_OPERATION_S = 2e-5  # to write out and to judge one operation with its messages


class WorkClock:
    """Seconds of work charged so far. `until_s` on the wall clock is a cap that an idle computer never reaches."""

    def __init__(self, wall: Clock, until_s: float) -> None:
        self._wall, self._until_s = wall, until_s
        self._spent_s = 0.0

    def __call__(self) -> float:
        """Work so far."""
        return self._spent_s

    def charge(self, seconds: float) -> None:
        """Some work was done.

        >>> clock = WorkClock(lambda: 0.0, 10.0)
        >>> clock.charge(2.5)
        >>> clock(), clock.left_s
        (2.5, 10.0)
        """
        self._spent_s += seconds

    @property
    def left_s(self) -> float:
        """Wall-clock seconds until the cap."""
        return self._until_s - self._wall()


def charge_pipeline_bounds(clock: Clock, num_operations: int, count: int = 1) -> None:
    """Charge what it takes to bound so many pipelines of so many operations each."""
    charge(clock, count * (WORK_PER_PIPELINE_BOUND_S + WORK_PER_BOUNDED_OPERATION_S * num_operations))


def charge_priced(clock: Clock, num_rows: float, num_gpu_classes: int) -> None:
    """Charge what it takes to price so many configurations."""
    charge(clock, WORK_PER_PRICED_ROW_S * num_rows * num_gpu_classes)


def charge_refined_bound(clock: Clock, num_pools: int, num_others: int = 0) -> None:
    """Charge what it takes to refine the bound of a configuration and of so many others that are alike."""
    factor = (1.0 + WORK_PER_ALIKE_BOUND * num_others) * (1.0 + WORK_PER_BOUNDED_POOL * num_pools)
    charge(clock, WORK_PER_REFINED_BOUND_S * factor)


def charge(clock: Clock, seconds: float) -> None:
    """Tell a clock of work done; a wall clock has seen it pass."""
    if isinstance(clock, WorkClock):
        clock.charge(seconds)
