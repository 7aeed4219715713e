"""Ranks by GPU type: what a layer costs on each, how many ranks each can hold, and the time of a rank by its layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.configurations.enumerate import Space
from solver.configurations.nearness import ranks_by_type
from solver.configurations.pricing import StageCosts, least_of
from solver.context import Context


@dataclass(frozen=True)
class Types:
    """Configurations with layers by GPU type: costs of the types, and the ranks that each can hold; one row per type.

    `prices` has every cost at its least over the fabrics of a type, `by_fabric` those on each.
    """

    context: Context
    space: Space
    prices: tuple[StageCosts, ...]
    by_fabric: tuple[tuple[StageCosts, ...], ...]
    held: FloatArray

    @classmethod
    def of(cls, context: Context, space: Space) -> Types:
        """All types that may be used."""
        columns = space.columns
        held = ranks_by_type(context.pools, columns.tp, columns.cp, columns.dp)
        by_fabric = tuple(
            tuple(StageCosts(context, one, columns) for one in context.gpu_classes.values() if one.gpu.name == name)
            for name in held
        )
        prices = tuple(least_of(own) for own in by_fabric)
        return cls(context, space, prices, by_fabric, np.stack(list(held.values())).astype(np.float64))

    @cached_property
    def least(self) -> StageCosts:
        """Every cost at its least over the types."""
        return least_of(self.prices)

    @property
    def layer_s(self) -> FloatArray:
        """Work of one layer of one micro-batch on every type."""
        return np.stack([price.usual_layer.total_s for price in self.prices])

    @property
    def num_usual(self) -> int:
        """Layers of the usual kind."""
        return self.context.job.num_moe_layers or self.context.job.num_dense_layers

    @property
    def num_others(self) -> int:
        """Layers of the other kind."""
        return self.context.job.num_layers - self.num_usual

    @property
    def least_between(self) -> int:
        """Fewest layers of the other kind between two usual ones of the model that follow each other."""
        moe, usual = np.diff(self.context.moe_before), bool(self.context.job.num_moe_layers)
        apart = np.diff(np.flatnonzero(moe == usual)) - 1
        return int(apart.min(initial=self.num_others))

    def least_usual(self, num_layers: IntArray) -> IntArray:
        """Fewest usual ones among so many layers of a rank."""
        return np.maximum(num_layers - self.num_others, 0)


class RankTime(NamedTuple):
    """A rank with n usual layers takes `per_layer_s` n + `start_s` or more."""

    per_layer_s: FloatArray
    start_s: FloatArray

    def most(self, limit_s: FloatArray) -> FloatArray:
        """Most usual layers within a time: any number where a layer takes none, fewer than none where it is over."""
        left_s = limit_s * (1.0 + ROUNDING) - self.start_s
        unlimited = np.where(left_s >= 0.0, np.inf, -np.inf)
        return np.floor(np.divide(left_s, self.per_layer_s, out=unlimited, where=self.per_layer_s > 0.0))
