"""What of the model's state has to travel into a new placement: bytes, from where, on which links, how long.

A group that moves fetches its weights and its part of the optimizer state from a group that holds the same layers, the
nearest that still stands; one that remains fetches only what its part has grown by. Parts of which no copy is left come
from a checkpoint. Seconds are those of all transfers at once at the full rate of links and network cards on paths of
least latency: no copy is faster on these paths. Reading a checkpoint from storage is not timed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from models.plan import Configuration
from models.what_now import StateMove
from solver.configurations.stages import pool_stages
from solver.context import Context
from solver.cost.data_parallel import replicas_sharing_experts
from solver.questions.slots import SlotPlacement
from solver.questions.standing import Standing

FromTo = tuple[str | None, str]


@dataclass(frozen=True)
class StateMoves:
    """All fetches, and the time until the last has ended, those of checkpoints left out."""

    fetches: tuple[StateMove, ...]
    seconds: float

    @property
    def num_bytes(self) -> float:
        """Bytes of all fetches."""
        return sum(one.num_bytes for one in self.fetches)

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes that no group has any longer."""
        return sum(one.num_bytes for one in self.fetches if one.from_place is None)


def state_moves(
    context: Context, configuration: Configuration, settled: SlotPlacement, standing: Standing
) -> StateMoves:
    """What a placement has to fetch."""
    holders, demand = _Holders(context, standing), dict[FromTo, tuple[int, float]]()

    def fetch(source: str | None, place: str, num_groups: int, num_bytes: float) -> None:
        if num_bytes > 0:
            before = demand.get((source, place), (0, 0.0))
            demand[source, place] = before[0] + num_groups, before[1] + num_bytes

    for rank, pool, num_retained, num_come in _arrivals(settled):
        place = context.pools[pool].place
        old, new = standing.ranks_retained(configuration)[rank], _state(context, configuration, pool, rank)
        whole, sharded = holders.without_copy(old)
        source = holders.nearest(old, place)
        grown = 0.0
        if num_retained and old is not None:
            before = _state(context, standing.configuration, pool, old)
            grown = num_retained * sum(max(has - had, 0.0) for has, had in zip(new, before, strict=True))
        come = num_come * sum(new)
        lost = grown if sharded else 0.0
        lost += num_come * (sharded * new[1] + whole * new[0])
        fetch(None, place, num_come, lost)
        fetch(source, place, num_come, grown + come - lost)
    return _timed(context, configuration, demand)


def _arrivals(settled: SlotPlacement) -> list[tuple[int, int, int, int]]:
    """Rank, pool, groups that stay there, groups that come."""
    total, retained_there = Counter[tuple[int, int]](), Counter[tuple[int, int]](settled.retained_groups)
    for route in settled.routes:
        for key in enumerate(route.pools):
            total[key] += route.num_replicas
    return [(*key, retained_there[key], number - retained_there[key]) for key, number in sorted(total.items())]


def _state(context: Context, configuration: Configuration, pool: int, rank: int) -> tuple[float, float]:
    """Bytes of one stage group: what every replica has whole, and its part of what replicas share out."""
    static = pool_stages(context, context.pools[pool], configuration).static
    gpus = configuration.degrees.gpus_per_stage_group
    weights, optimizer = gpus * float(static.weights_bytes[rank]), gpus * float(static.optimizer_bytes[rank])
    if configuration.sharding == "ddp":
        return weights + optimizer, 0.0
    if configuration.sharding == "zero1":
        return weights, optimizer
    return 0.0, weights + optimizer


class _Holders:
    """Which groups of a plan are left to fetch from."""

    def __init__(self, context: Context, standing: Standing) -> None:
        self._context, self._standing = context, standing
        of_rank = [{context.pools[slot.pool].place for slot in slots.values()} for slots in standing.slots]
        self._places: dict[int | None, list[str]] = {rank: sorted(places) for rank, places in enumerate(of_rank)}
        self._places[None] = sorted(set[str]().union(*of_rank))

    def without_copy(self, rank: int | None) -> tuple[float, float]:
        """Part of what the replicas of a rank hold whole, and of its shards, of which no copy is left.

        Copies are groups of consecutive replicas; the part of replica r is r modulo their number. Of layers that no
        rank held alone: the mean over all ranks.
        """
        if rank is None:
            found = [self.without_copy(one) for one in range(len(self._standing.slots))]
            whole, sharded = (float(np.mean(parts)) for parts in zip(*found, strict=True))
            return whole, sharded
        one = self._standing.configuration
        num_shards = 1 if one.sharding == "ddp" else one.shard_group_replicas
        num_experts = int(replicas_sharing_experts(one.degrees.ep, one.degrees.cp))
        alive = self._standing.slots[rank]
        whole = 1.0 - len({replica % num_experts for replica in alive}) / num_experts
        return whole, 1.0 - len({replica % num_shards for replica in alive}) / num_shards

    def nearest(self, rank: int | None, place: str) -> str | None:
        """The place to fetch from: that itself, or the one of least latency with a path to it."""
        topology, places = self._context.topology, self._places[rank]
        if place in places:
            return place
        reachable = [one for one in places if topology.connected(one, place)]
        return min(reachable, key=lambda one: topology.path_facts(one, place).latency_s, default=None)


def _timed(context: Context, configuration: Configuration, demand: dict[FromTo, tuple[int, float]]) -> StateMoves:
    """Every fetch with its links and the time it takes beside all the others."""
    topology = context.topology
    on_edge = np.zeros(len(topology.edges))
    paths = {(source, place): topology.path(source, place) for source, place in demand if source is not None}
    for (source, place), (_, num_bytes) in demand.items():
        if source is not None:
            for edge in paths[source, place]:
                on_edge[edge] += num_bytes
    edge_s = on_edge / topology.capacity_bytes_per_s if len(on_edge) else on_edge
    gpus, found = configuration.degrees.gpus_per_stage_group, []
    for (source, place), (num_groups, num_bytes) in demand.items():
        links: tuple[int, ...] = () if source is None else paths[source, place]
        seconds = 0.0
        if source is not None:
            # All network cards of groups that arrive; of groups that stay, those of one group at least.
            card = max(pool.nic_bytes_per_s_per_gpu for pool in context.pools if pool.place == place)
            cards = max(num_groups, 1) * gpus * card
            seconds = max([num_bytes / cards, *(float(edge_s[edge]) for edge in links)])
            seconds += topology.path_facts(source, place).latency_s
        names = tuple(dict.fromkeys(topology.edges[edge].id for edge in links))
        found.append(StateMove(from_place=source, to_place=place, num_groups=num_groups, num_bytes=num_bytes,
                               links=names, seconds=seconds))  # fmt: skip
    return StateMoves(tuple(found), max((one.seconds for one in found), default=0.0))
