"""What every step of planning needs of a request, derived once.

The list of usable pools, GPU types with their fabrics, the job's arithmetic, the topology and the memory limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from models.catalogue import entry_names
from models.cluster import GpuType, Pool
from models.errors import UnknownName
from models.framework import FrameworkProfile
from models.request import PlanRequest
from models.stack import StackProfile, packaged_stack
from models.workload import Workload
from solver.arrays import IntArray
from solver.cost.compute import strength_of
from solver.cost.fabric import Fabric, fabric_of
from solver.cost.job import Job, job_of
from solver.memo import Memo
from solver.network.places import usable_gpus, usable_pools
from solver.network.topology import Topology, build_topology
from solver.placement.along_links import along_links
from solver.placement.capacity_groups import CapacityGroup, capacity_groups_of
from solver.placement.distances import Blocks, Distances, partitions
from solver.placement.geography import Geography

SECONDS_PER_HOUR = 3600.0  # the unit
GENERAL_FRAMEWORKS = frozenset({"Megatron", "Megatron-LM"})


@dataclass(frozen=True)
class GpuClass:
    """A GPU type behind one kind of fabric."""

    gpu: GpuType
    fabric: Fabric
    num_gpus: int


@dataclass(frozen=True)
class Known:
    """Results that the steps of planning remember with a context, by what they depend on."""

    splits: Memo = field(default_factory=Memo)
    """Paths and parts of the steps of exchange rings."""
    rings: Memo = field(default_factory=partial(Memo, 4_096))
    """Orders in which rings lead through places."""
    parts: Memo = field(default_factory=partial(Memo, 4_096))
    """Costs of single layers and ends by what they depend on."""
    stages: Memo = field(default_factory=partial(Memo, 64))
    """Stages of the latest configurations on some pool."""
    exchanges: Memo = field(default_factory=partial(Memo, 16_384))
    """Times of exchanges inside a place, as lines in the number of parameters."""
    partitions: Memo = field(default_factory=partial(Memo, 64))
    """Partitions of the latest configurations over GPU types whose pipelines have the least bounds."""
    cuts: Memo = field(default_factory=Memo)
    """Cuts between places, buildings and regions, once they are looked for."""


@dataclass(frozen=True)
class Context:
    """A request with everything that only depends on it; `plain_ecmp` keeps connections from balancing load."""

    request: PlanRequest
    stack: StackProfile
    plain_ecmp: bool = False
    known: Known = field(default_factory=Known, compare=False, repr=False)

    @classmethod
    def of(cls, request: PlanRequest) -> Context:
        """The context of a request, with the stack profile that it brings or names."""
        return cls(request, stack_for(request))

    def for_framework(self, framework: FrameworkProfile) -> Context:
        """The context for another framework, with what is derived already: none of it depends on the framework."""
        other = replace(self, request=self.request.with_constraints(framework=framework))
        vars(other).update({name: value for name, value in vars(self).items() if name != "request"})
        return other

    @cached_property
    def job(self) -> Job:
        """Per-layer arithmetic of the workload."""
        return job_of(self.request.workload)

    @cached_property
    def moe_before(self) -> IntArray:
        """MoE layers before layer 0, 1, 2 ... and in all."""
        architecture = self.job.architecture
        return np.cumsum([0, *(architecture.is_moe_layer(layer) for layer in range(architecture.num_layers))])

    @cached_property
    def pools(self) -> list[Pool]:
        """Pools with GPUs to use, along the links; every pool index refers to this list.

        An iteration's activations are what every step would carry.
        """
        workload = self.request.workload
        num_bytes = workload.tokens_per_iteration * workload.architecture.hidden_size * workload.value_bytes
        usable = usable_pools(self.request)
        return along_links(self.topology, usable, num_bytes, _strengths(workload, usable))

    @cached_property
    def capacity_groups(self) -> tuple[CapacityGroup, ...]:
        """Pools of one GPU type in one building."""
        pinned = {pin.place for pin in self.request.constraints.pins}
        return capacity_groups_of(self.request.cluster, self.pools, pinned)

    @cached_property
    def group_of_pool(self) -> list[int]:
        """The capacity group of every pool."""
        group_of = {pool: u for u, group in enumerate(self.capacity_groups) for pool in group.pools}
        return [group_of[pool] for pool in range(len(self.pools))]

    @cached_property
    def gpu_classes(self) -> dict[tuple[str, Fabric], GpuClass]:
        """GPU types by name and fabric, the strongest first: it shares out layers.

        In whatever order the pools are, and whatever the types are called.
        """
        found: dict[tuple[str, Fabric], GpuClass] = {}
        for pool in self.pools:
            key = (pool.gpu.name, fabric_of(pool))
            total = pool.num_free_gpus + (found[key].num_gpus if key in found else 0)
            found[key] = GpuClass(gpu=pool.gpu, fabric=key[1], num_gpus=total)
        own = _strengths(self.request.workload, self.pools)

        def strength(one: GpuClass) -> tuple[object, ...]:
            return own[one.gpu.name], one.fabric.nic_bytes_per_s, one.fabric.gpus_per_host

        return dict(sorted(found.items(), key=lambda one: strength(one[1]), reverse=True))

    @cached_property
    def usd_per_gpu_s(self) -> dict[str, float]:
        """Price of a GPU-second of every type, by its name; empty where not all state one, or none costs anything."""
        hourly = {one.gpu.name: one.gpu.usd_per_gpu_hour for one in self.gpu_classes.values()}
        known = {name: price / SECONDS_PER_HOUR for name, price in hourly.items() if price is not None}
        return known if len(known) == len(hourly) and any(known.values()) else {}

    @cached_property
    def topology(self) -> Topology:
        """The link graph."""
        return replace(build_topology(self.request.cluster), plain_ecmp=self.plain_ecmp)

    @cached_property
    def geography(self) -> Geography:
        """Where the capacity groups lie, and what joins their buildings."""
        return Geography(self.request.cluster, self.topology, self.pools, self.capacity_groups)

    @property
    def detours_matter(self) -> bool:
        """Whether bytes between buildings are limited or minimised, so that no detour may carry some of them twice."""
        limited = self.request.constraints.max_cross_building_bytes_per_iteration is not None
        return limited or self.request.objective.kind in ("cost_per_token", "least_cross_building_traffic")

    @cached_property
    def partitions(self) -> tuple[Blocks, ...]:
        """Partitions of the capacity groups into blocks, with the ways between and inside these."""
        sizes = [sum(self.pools[pool].num_free_gpus for pool in group.pools) for group in self.capacity_groups]
        splits = bool(self.topology.edges_with_detour)
        distances = Distances(self.topology, self.pools, self.capacity_groups, splits)
        return partitions(distances, sizes, self.geography.region_u, self.geography.crossing_tiers)

    def memory_limit_bytes(self, gpu: GpuType) -> float:
        """HBM less the headroom asked for."""
        return gpu.memory_bytes * (1.0 - self.request.constraints.memory_headroom_fraction)

    @cached_property
    def usable_gpus(self) -> int:
        """GPUs that a plan may use at most."""
        return usable_gpus(self.request)


def _strengths(workload: Workload, pools: Iterable[Pool]) -> dict[str, tuple[object, ...]]:
    """Of every GPU type, by its name, what times on it follow from, of each the more the better.

    Of types alike in all of it the one that was measured comes first.
    """
    measured: dict[str, list[tuple[object, ...]]] = {}
    for profile in workload.layer_profiles:
        measured.setdefault(profile.gpu, []).append(tuple(dict(profile.model_copy(update={"gpu": ""})).values()))
    types = {pool.gpu.name: pool.gpu for pool in pools}
    return {
        name: (*strength_of(workload, gpu), gpu.num_multiprocessors or 0, sorted(measured.get(name, ())))
        for name, gpu in types.items()
    }


def stack_for(request: PlanRequest) -> StackProfile:
    """The profile that the request brings or names, or for `auto` the newest.

    Raises UnknownName for a profile that is not in the catalogue.
    """
    wanted, known = request.options.stack_profile, entry_names("stacks")
    if isinstance(wanted, StackProfile):
        return wanted
    if wanted == "auto":
        return _newest_stack()
    if wanted not in known:
        raise UnknownName(
            f"no stack profile is called {wanted!r}",
            pointer="/options/stack_profile",
            remedy=f"use auto, one of {', '.join(known)}, or a whole profile",
        )
    return packaged_stack(wanted)


def _newest_stack() -> StackProfile:
    """The latest general profile, whatever the fleet: plans of two fleets must differ by the fleet alone."""
    general = [
        one for one in map(packaged_stack, entry_names("stacks")) if GENERAL_FRAMEWORKS.intersection(one.frameworks)
    ]
    return max(general, key=lambda one: (one.released, one.name))
