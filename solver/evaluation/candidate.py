"""One row of the space as a configuration, and one placement of it as routes over pools.

Replicas that share an expert-parallel or a sharding group stay together: they are a bundle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import lcm

import numpy as np

from models.plan import Configuration, Degrees
from solver.configurations.enumerate import FAMILY_CODES, LAYER_SPLIT_CODES, Space
from solver.configurations.layers import layers_per_stage
from solver.configurations.pricing import StageCosts
from solver.context import Context
from solver.cost.columns import RECOMPUTE_CODES, SHARDING_CODES, columns_of
from solver.cost.data_parallel import replicas_sharing_experts
from solver.placement.fill import PooledRoute


@dataclass(frozen=True)
class Candidate:
    """A configuration with a placement; counts and offsets of the routes are in replicas and stage groups."""

    configuration: Configuration
    routes: tuple[PooledRoute, ...]

    def gpu_types(self, context: Context) -> list[str]:
        """GPU type of every pipeline rank, which all routes share."""
        return [context.pools[pool].gpu.name for pool in self.routes[0].pools]

    @property
    def gpus_of_pool(self) -> Counter[int]:
        """GPUs in use by pool."""
        used = Counter[int]()
        for route in self.routes:
            for pool in route.pools:
                used[pool] += route.num_replicas * self.configuration.degrees.gpus_per_stage_group
        return used

    def is_connected(self, context: Context) -> bool:
        """Whether paths join all places that it uses; without one, its times are not defined."""
        first, *others = dict.fromkeys(context.pools[pool].place for route in self.routes for pool in route.pools)
        return all(context.topology.connected(first, place) for place in others)


def bundle_of(configuration: Configuration) -> int:
    """Replicas that must share a place, because they share expert groups or copies of the sharded state."""
    experts = replicas_sharing_experts(configuration.degrees.ep, configuration.degrees.cp)
    return lcm(int(experts), configuration.replicas_sharing_place)


def space_of(configuration: Configuration) -> Space:
    """A space of one configuration."""
    family, layer_split = FAMILY_CODES.index(configuration.family), LAYER_SPLIT_CODES.index(configuration.layer_split)
    return Space(columns_of(configuration), np.array([family]), np.array([layer_split]))


def pipeline_shape(configuration: Configuration) -> tuple[int, ...]:
    """The shape of one configuration's pipeline, as `Space.pipeline_shapes` has it."""
    return tuple(space_of(configuration).pipeline_shapes()[0].tolist())


def configuration_of(context: Context, space: Space, row: int) -> Configuration:
    """Row `row` with its layers split evenly; by GPU type they are shared out anew with every placement."""
    one = space.take(np.array([row]))
    value = {name: int(getattr(one.columns, name)[0]) for name in ("tp", "cp", "ep", "pp", "dp", "vpp")}
    reference = next(iter(context.gpu_classes.values()))
    first_extra, last_extra = StageCosts(context, reference, one.columns).end_extras()
    return Configuration(
        degrees=Degrees(**value),
        micro_batch_sequences=int(one.columns.micro_batch[0]),
        num_microbatches=int(one.columns.num_microbatches[0]),
        sharding=SHARDING_CODES[int(one.columns.sharding[0])],
        shard_group_replicas=int(one.columns.shard_group[0]),
        recompute=RECOMPUTE_CODES[int(one.columns.recompute[0])],
        family=FAMILY_CODES[int(one.family[0])],
        layer_split=LAYER_SPLIT_CODES[int(one.layer_split[0])],
        layers_per_stage=layers_per_stage(
            context.job.num_layers,
            value["pp"] * value["vpp"],
            first_extra=float(first_extra[0]),
            last_extra=float(last_extra[0]),
        ),
    )
