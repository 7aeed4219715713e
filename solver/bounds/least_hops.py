"""The least that stage messages take, whatever the placement: from rank to rank, and between GPU types far apart.

How often a pipeline crosses: docs/bounds.md, "Delays of messages".
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from models.plan import Configuration
from solver.bounds.crossing_messages import CrossingMessages
from solver.bounds.cuts import NetworkCut, cuts
from solver.bounds.leaving_messages import times_left
from solver.configurations.nearness import ranks_by_type
from solver.context import Context
from solver.cost.collectives import boundary_message_s
from solver.cost.columns import Columns, FloatArray, IntArray, columns_of_all
from solver.cost.fabric import fabric_of
from solver.cost.stage import boundary_bytes


class MessageDelays(NamedTuple):
    """Least seconds on messages: from a rank to the next, before the last chunk of the first rank that has one begins,
    before any gradient, and of all lives of chunks.

    `hop_s` is that of a message inside a group of GPUs. `held_s` is the sum over chunks of what lies between a chunk's
    forward and its input gradient.
    """

    hop_s: float = 0.0
    ahead_s: float = 0.0
    turnaround_s: float = 0.0
    held_s: float = 0.0

    @classmethod
    def of(cls, context: Context, configurations: Sequence[Configuration]) -> MessageDelays:
        """The least delays of configurations that have the same pipeline."""
        one = configurations[0]
        if one.degrees.pp == 1:
            return cls()
        hop_s, crossing_s = least_hop_s(context, configurations), 0.0
        if one.layer_split == "by_gpu_type":
            crossing_s = float(between_types_s(context, columns_of_all(configurations)).min())
        return cls.along(one, hop_s, crossing_s)

    @classmethod
    def along(cls, configuration: Configuration, hop_s: float, crossing_s: float, num_groups: int = 2) -> MessageDelays:
        """The delays of a pipeline over so many groups of GPUs, whose messages between groups take `crossing_s`.

        With g groups a cycle crosses g times and a way over the ranks g - 1 times.
        """
        pp, v = configuration.degrees.pp, configuration.degrees.vpp
        more_s = max(crossing_s - hop_s, 0.0)
        hops_s = hop_s * sum(here != there for here, there in pairwise(configuration.rank_of_stages))
        turnaround_s = hops_s + crossings_of(configuration, num_groups) / 2.0 * more_s
        if configuration.family == "loop":
            ahead_s = (v - 1) * (pp * hop_s + num_groups * more_s)
            return cls(hop_s, ahead_s, turnaround_s, v * ahead_s)
        return cls(hop_s, ((pp - 1) * hop_s + (num_groups - 1) * more_s) * (configuration.family == "v"), turnaround_s)


def crossings_of(configuration: Configuration, num_groups: int = 2) -> float:
    """How often a micro-batch and its gradients cross, at least, where every way over the ranks visits so many groups.

    >>> from models.plan import Degrees
    >>> ranks = Degrees(tp=1, cp=1, pp=4, dp=1, vpp=3)
    >>> crossings_of(Configuration.model_construct(degrees=ranks, family="loop"))
    10.0
    """
    vpp, looped = np.array([configuration.degrees.vpp]), np.array([configuration.family == "loop"])
    return float(times_left(vpp, looped, num_groups)[0])


def least_hop_s(context: Context, configurations: Sequence[Configuration]) -> float:
    """No message from one rank to another takes less, of any of these configurations."""
    return float(least_hops_s(context, columns_of_all(configurations)).min())


def least_hops_s(context: Context, columns: Columns) -> FloatArray:
    """Least seconds of a message between stages, by row: inside a place through the NICs, beyond it no faster.

    A message between places pays the same start-up and, over at most the fastest NIC of any pool, its bytes.
    """
    stack = context.stack
    size = boundary_bytes(context.job, columns)
    found = []
    for fabric in {fabric_of(pool) for pool in context.pools}:
        found.append(boundary_message_s(size, columns.tp, columns.cp, fabric, stack))
        rate = columns.tp * columns.cp * fabric.nic_bytes_per_s * stack.point_to_point_efficiency.value
        found.append(stack.collective_latency_s.value + size / rate)
    least: FloatArray = np.minimum.reduce(found)
    return least


def between_types_s(context: Context, columns: Columns) -> FloatArray:
    """Least time of each message of a replica between ranks on different GPU types, with layers by GPU type; of every
    row, 0 where none needs two types.

    Every rank of such a pipeline is on one type with all its replicas. Where no type holds all of the ranks, each
    replica has ranks on two types, and its messages go between places of different types.
    """
    held = ranks_by_type(context.pools, columns.tp, columns.cp, columns.dp)
    needs_two = np.maximum.reduce([*held.values()]) < columns.pp
    latency_s = _least_apart_s(context) if needs_two.any() else None
    if latency_s is None:
        return np.zeros(len(columns))
    cut = _between_places(context)
    if cut is None:
        return np.where(needs_two, latency_s, 0.0)
    messages = CrossingMessages.of(cut, columns, boundary_bytes(context.job, columns))
    return np.where(needs_two, messages.each_s(columns.dp) + max(latency_s - cut.nearest_s, 0.0), 0.0)


def _least_apart_s(context: Context) -> float | None:
    """Least latency between places of one GPU type and those of the others; None where a place has several types."""
    names = {pool.gpu.name for pool in context.pools}
    found = [_apart_s(context, {name}, names - {name}) for name in names]
    latencies = [one for one in found if one is not None]
    return min(latencies, default=None) if len(latencies) == len(found) else None


class TypeHop(NamedTuple):
    """A message from a rank on some GPU types to one on others at its least (seconds).

    `least_s` is what it takes of some replica, with what is lost; `plain_s` of any replica, as if nothing was lost,
    `after_s` of that is left when its bytes are off the links; `all_s` is what all replicas take on the links.
    """

    least_s: float
    plain_s: float
    after_s: float
    all_s: float


@dataclass(frozen=True)
class TypeHops:
    """The least that a message from one rank to another takes, by the GPU types that they may be on.

    `hop_s` is that of any message; `messages` are those over `cut`, between the places that are nearest to each other,
    of configurations with so many replicas. `known` has what was asked for.
    """

    context: Context
    hop_s: float
    cut: NetworkCut | None
    messages: CrossingMessages | None
    num_replicas: IntArray
    known: dict[tuple[frozenset[str], frozenset[str]], TypeHop] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Context, configurations: Sequence[Configuration]) -> TypeHops:
        """The messages of configurations that have the same pipeline, with layers by GPU type."""
        columns, cut = columns_of_all(configurations), _between_places(context)
        size = boundary_bytes(context.job, columns)
        messages = None if cut is None else CrossingMessages.of(cut, columns, size)
        return cls(context, least_hop_s(context, configurations), cut, messages, columns.dp)

    def between(self, names: frozenset[str], other_names: frozenset[str]) -> TypeHop:
        """From a rank on one of some types to one on one of others; nothing but a hop where they share a place."""
        key = names, other_names
        if key not in self.known:
            self.known[key] = self._between(*key)
        return self.known[key]

    def _between(self, names: frozenset[str], other_names: frozenset[str]) -> TypeHop:
        latency_s = _apart_s(self.context, names, other_names)
        if self.cut is None or self.messages is None or latency_s is None:
            return TypeHop(self.hop_s, self.hop_s, 0.0, 0.0)
        messages, further_s = self.messages, max(latency_s - self.cut.nearest_s, 0.0)
        after_s = messages.latency_s + further_s
        all_bytes = float((messages.message_bytes * self.num_replicas).min())
        return TypeHop(
            max(self.hop_s, float(messages.each_s(self.num_replicas).min()) + further_s),
            max(self.hop_s, after_s + float(messages.transfer_s.min())),
            after_s,
            all_bytes / self._leaving_rate(self.cut, names),
        )

    def _leaving_rate(self, cut: NetworkCut, names: frozenset[str]) -> float:
        """Bytes per second of the links that leave the places of some GPU types; infinite where nothing does."""
        pools = zip(cut.group_of_pool, self.context.pools, strict=True)
        groups = {group for group, pool in pools if pool.gpu.name in names}
        return float(sum(cut.rate_g[group] for group in groups)) or float("inf")


def _between_places(context: Context) -> NetworkCut | None:
    """The cut between all places; None where there is one place."""
    return next((cut for cut in cuts(context) if cut.of_places), None)


def _apart_s(context: Context, names: AbstractSet[str], other_names: AbstractSet[str]) -> float | None:
    """Least latency between places of some GPU types and those of others; None where a place has both."""
    places, others = ({pool.place for pool in context.pools if pool.gpu.name in some} for some in (names, other_names))
    if places & others:
        return None
    topology = context.topology
    ways = [way for way in product(places, others) if topology.connected(*way)]
    return min((topology.path_facts(*way).latency_s for way in ways), default=0.0)
