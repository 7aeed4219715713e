"""What is to be least, as one number per candidate: seconds, cost, or GPUs within a target time.

Owns the translation between iteration time and that number, for whole columns of bounds and for one draft. Without
prices the cost is counted in GPU-seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.request import Objective
from solver.context import Context
from solver.cost.columns import FloatArray

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Goal:
    """The objective of a request. `usd_per_gpu_s` is the least price of a GPU-second, 1 where a price is missing."""

    objective: Objective
    usd_per_gpu_s: float
    priced: bool

    @classmethod
    def of(cls, context: Context) -> Goal:
        """The goal of the request, with the cheapest GPU's price."""
        prices = [machine.gpu.usd_per_gpu_hour for machine in context.machines.values()]
        known = [price for price in prices if price is not None]
        priced = len(known) == len(prices) and min(known, default=0.0) > 0
        return cls(context.request.objective, min(known) / SECONDS_PER_HOUR if priced else 1.0, priced)

    def values(self, iteration_s: FloatArray, num_gpus: npt.NDArray[np.int64]) -> FloatArray:
        """The least objective at these times; infinite where a target is missed."""
        if self.objective.kind == "cost_per_token":
            cost: FloatArray = iteration_s * num_gpus * self.usd_per_gpu_s
            return cost
        if self.objective.kind == "fewest_gpus":
            return np.where(iteration_s <= self.target_s, num_gpus.astype(np.float64), np.inf)
        return iteration_s

    def value(self, iteration_s: float, num_gpus: int, extra_usd: float = 0.0) -> float:
        """The objective of one plan; `extra_usd` is egress and what dearer GPUs cost more."""
        one = self.values(np.array([iteration_s]), np.array([num_gpus]))
        return float(one[0]) + extra_usd

    @property
    def counts_usd(self) -> bool:
        """Egress and dearer GPUs count."""
        return self.objective.kind == "cost_per_token" and self.priced

    def seconds(self, value: float, num_gpus: int) -> float:
        """The iteration time that a candidate of so many GPUs has to beat to get below `value`."""
        if self.objective.kind == "cost_per_token":
            return value / (num_gpus * self.usd_per_gpu_s)
        if self.objective.kind == "fewest_gpus":
            return float(np.nextafter(self.target_s, np.inf)) if num_gpus < value else 0.0
        return value

    @property
    def target_s(self) -> float:
        """The iteration time to reach; infinite where none is asked for."""
        return self.objective.target_iteration_s or float("inf")
