"""What is to be least, as one number per candidate: seconds, or cost, GPUs or bytes between buildings within a target.

Iteration time becomes that number and back, for whole columns of bounds and for one evaluation; the `size` of a
configuration is what of it counts beside time. Without prices the cost is counted in GPU-seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.request import Objective
from solver.arrays import FloatArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.least_cost import least_paid_usd_per_s
from solver.bounds.least_traffic import least_crossing_bytes
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.cost.layer import Setting
from solver.cost.uncertainty import least_time_factor, time_factor

SHARPNESS = 16.0  # a guess 10 % below the target is met five times of six, one 10 % above once of six
SLIGHT = 0.01  # of the largest size
LONGEST_S = 1e6  # iterations of more than eleven days are those of a wrong unit; documents state no more than 1e7 s
LATEST = 1e6  # times the target, where guesses no longer differ


@dataclass(frozen=True)
class Goal:
    """The objective of a request. `usd_per_gpu_s` is the least price of a GPU-second, 1 where a price is missing."""

    objective: Objective
    usd_per_gpu_s: float
    priced: bool

    @classmethod
    def of(cls, context: Context) -> Goal:
        """The goal of the request, with the cheapest GPU's price."""
        prices = context.usd_per_gpu_s
        return cls(context.request.objective, min(prices.values(), default=1.0), priced=bool(prices))

    def least_sizes(self, context: Context, space: Space) -> FloatArray:
        """The `sizes` or less: uncertainty without that of the constants, whose slopes take longer than bounds."""
        if self.counts_doubt:
            return np.full(len(space), least_time_factor(context.job, context.stack, self.objective.confidence))
        return self.sizes(context, space)

    def sizes(self, context: Context, space: Space) -> FloatArray:
        """What each configuration has to pay beside time: GPUs, bytes that must leave a building, least uncertainty.

        GPUs that have to be dearer than the cheapest count for as many of these as they cost.
        """
        if self.counts_bytes:
            return least_crossing_bytes(context, space)
        if self.counts_doubt:
            job, stack, share = context.job, context.stack, self.objective.confidence
            known = [
                time_factor(Setting.of(job, one.gpu, one.fabric, stack, space.columns), share)
                for one in context.gpu_classes.values()
            ]
            return np.asarray(np.min(known, axis=0))
        if self.counts_usd and self.usd_per_gpu_s:
            return least_paid_usd_per_s(context, space.columns.num_gpus) / self.usd_per_gpu_s
        return space.columns.num_gpus.astype(np.float64)

    def values(self, iteration_s: FloatArray, sizes: FloatArray) -> FloatArray:
        """The least objective at these times; infinite where a target is missed, or beyond what plans state."""
        return np.where(iteration_s <= LONGEST_S, self._values(iteration_s, sizes), np.inf)

    def _values(self, iteration_s: FloatArray, sizes: FloatArray) -> FloatArray:
        if self.objective.kind == "cost_per_token":
            paid_s = np.minimum(iteration_s, LONGEST_S)  # what takes longer has no value, and no price makes it 0
            return np.where(iteration_s <= self.target_s, paid_s * sizes * self.usd_per_gpu_s, np.inf)
        if self.counts_doubt:
            return iteration_s * sizes
        if self.has_target:
            return np.where(iteration_s <= self.target_s, sizes, np.inf)
        return iteration_s

    def least_values(self, bound_s: FloatArray, sizes: FloatArray) -> FloatArray:
        """The least objective of plans that take no less. A target is missed by more than rounding only."""
        return self.values(bound_s * (1.0 - ROUNDING) if self.has_target else bound_s, sizes)

    def value(self, iteration_s: float, size: float, extra_usd: float = 0.0) -> float:
        """The objective of one plan; `extra_usd` is egress and what dearer GPUs cost more."""
        return float(self.values(np.array([iteration_s]), np.array([size]))[0]) + extra_usd

    def priority(self, guess_s: FloatArray, sizes: FloatArray, largest: float) -> FloatArray:
        """What the search goes by, least first: the value at the guessed time, or size over the chance to be in time.

        Where a target is to be reached, guesses near it are as often too low as too high: as a chance counts
        1 / (1 + (guess / target)^SHARPNESS). Of sizes that are next to nothing beside the `largest` one the more likely
        goes first.

        >>> goal = Goal(Objective(kind="fewest_gpus", target_iteration_s=2.0), usd_per_gpu_s=1.0, priced=False)
        >>> goal.priority(np.array([1.0, 2.0, 4.0]), np.array([64.0, 32.0, 16.0]), 64.0).round(1).tolist()
        [64.6, 65.3, 1090535.7]
        """
        cost = guess_s * sizes * (self.usd_per_gpu_s or 1.0)  # GPU-seconds where GPUs cost nothing: 0 tells none apart
        if not self.has_target:
            return cost if self.counts_usd else self._values(guess_s, sizes)
        late = np.minimum(guess_s / self.target_s, LATEST)
        spent = sizes + SLIGHT * largest
        if self.objective.kind == "cost_per_token":
            spent = cost
        return spent * (1.0 + late**SHARPNESS)

    def assumed(self, context: Context) -> str:
        """What is assumed of prices that are not stated, in one sentence; empty where nothing is.

        The cost is then counted in GPU-seconds, as if all GPUs had one price.
        """
        unpriced = [m.gpu.name for m in context.gpu_classes.values() if m.gpu.usd_per_gpu_hour is None]
        if self.objective.kind != "cost_per_token" or self.priced or not unpriced:
            return ""
        names = ", ".join(dict.fromkeys(unpriced))
        return f"{names} state no price: the least cost is that in GPU-seconds, as if all GPUs cost the same"[:400]

    @property
    def counts_usd(self) -> bool:
        """Egress and dearer GPUs count."""
        return self.objective.kind == "cost_per_token" and self.priced

    @property
    def counts_doubt(self) -> bool:
        """A time counts as it may turn out, not as it is predicted."""
        return self.objective.kind == "time_at_confidence"

    @property
    def counts_bytes(self) -> bool:
        """What travels between buildings counts, not how many GPUs work."""
        return self.objective.kind == "least_cross_building_traffic"

    @property
    def has_target(self) -> bool:
        """Time has to reach a target and counts no further, or only in the cost."""
        return self.objective.kind != "iteration_time" and self.objective.target_iteration_s is not None

    def seconds(self, value: float, size: float) -> float:
        """The iteration time that a candidate of this size has to beat to get below `value`."""
        if self.objective.kind == "cost_per_token":
            paid = size * self.usd_per_gpu_s
            within_s = value / paid if paid else float("inf") if value > 0.0 else 0.0
            return min(within_s, float(np.nextafter(self.target_s, np.inf)))
        if self.counts_doubt:
            return value / size
        if self.has_target:
            return float(np.nextafter(self.target_s, np.inf)) if size < value else 0.0
        return value

    @property
    def target_s(self) -> float:
        """The iteration time to reach; infinite where none is asked for."""
        return self.objective.target_iteration_s or float("inf")
