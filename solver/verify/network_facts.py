"""What a plan must move between places and buildings, as the judge derives it.

No load of the plan is read.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple, get_args

from models.cluster import Pool, Tier
from models.transport import Dimension
from solver.cost.data_parallel import crossing_bytes
from solver.memo import Memo
from solver.network.topology import Topology, build_topology
from solver.verify.derived import Derived
from solver.verify.facts import Facts

TIERS: tuple[Tier, ...] = get_args(Tier)
BETWEEN_BUILDINGS: tuple[Tier, ...] = ("cross_building", "cross_region")


class Crossing(NamedTuple):
    """A tier between buildings that a dimension has to cross, with two of its places."""

    dimension: Dimension
    tier: Tier
    places: tuple[str, str]


class Boundary(NamedTuple):
    """The way from one stage to the next on one route, between two different pipeline ranks."""

    route: str
    from_stage: int
    sender: Pool
    receiver: Pool

    @property
    def ways(self) -> tuple[tuple[Pool, Pool], tuple[Pool, Pool]]:
        """From pool to pool there, as activations go, and back, as gradients do."""
        return (self.sender, self.receiver), (self.receiver, self.sender)

    @property
    def places(self) -> tuple[str, str]:
        """Where it leads from and to."""
        return self.sender.place, self.receiver.place


@dataclass(frozen=True)
class NetworkFacts:
    """Demands, and the link graph that carries them. Buildings are named as `Facts.building_of` names them."""

    facts: Facts
    derived: Derived
    _known: Memo = field(default_factory=Memo, repr=False, compare=False)

    @cached_property
    def topology(self) -> Topology:
        """The link graph of the request."""
        return build_topology(self.facts.request.cluster)

    @cached_property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Every stage boundary of every route that has to travel from one pipeline rank to another."""
        used = self.facts.configuration
        return tuple(
            Boundary(route, stage, pools[used.rank_of_stage(stage)], pools[used.rank_of_stage(stage + 1)])
            for route, pools in self.facts.pools_by_route.items()
            for stage in range(used.degrees.num_stages - 1)
            if used.rank_of_stage(stage) != used.rank_of_stage(stage + 1)
        )

    def boundary_bytes(self, boundary: Boundary) -> float:
        """One message of a whole stage group."""
        return float(self.derived.stage(boundary.sender, boundary.from_stage).boundary_bytes[0])

    def shares_scale_up(self, boundary: Boundary) -> bool:
        """Whether both stage groups may sit in one scale-up domain."""
        same = boundary.sender.id == boundary.receiver.id
        return same and 2 * self.facts.gpus_per_group <= boundary.sender.gpu.scale_up_domain_gpus

    @cached_property
    def replicas_by_pool(self) -> Mapping[int, Mapping[str, int]]:
        """Replicas of each pipeline rank in each pool."""
        held: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for group in self.facts.groups:
            held[group.pipeline_rank][group.pool.id] += group.route.num_replicas
        return held

    def places_of_rank(self, pipeline_rank: int) -> frozenset[str]:
        """Places that hold replicas of a pipeline rank."""
        pools = self.replicas_by_pool.get(pipeline_rank, {})
        return frozenset(self.facts.pool_by_id[pool].place for pool in pools)

    def buildings_of_rank(self, pipeline_rank: int) -> frozenset[str]:
        """Buildings that hold replicas of a pipeline rank."""
        return frozenset(self.facts.building_of(place) for place in self.places_of_rank(pipeline_rank))

    @cached_property
    def building_bytes_per_s(self) -> Mapping[str, float]:
        """Rate of all edges out of each building; of a place outside any, those out of it alone."""
        rates: defaultdict[str, float] = defaultdict(float)
        for edge in self.topology.edges:
            building = self.facts.building_of(edge.from_place)
            if building != self.facts.building_of(edge.to_place):
                rates[building] += edge.capacity_bytes_per_s
        return rates

    def exchange_bytes(self, stage: int, num_sites: int) -> float:
        """Bytes that each of so many sites sends to the others for one stage, when every site exchanges one copy."""
        if num_sites < 2:
            return 0.0
        return self._known.once((stage, num_sites), lambda: self._exchange_bytes(stage, num_sites))

    def _exchange_bytes(self, stage: int, num_sites: int) -> float:
        pipeline_rank = self.facts.configuration.rank_of_stage(stage)
        pool = self.facts.pool_by_id[next(iter(self.replicas_by_pool[pipeline_rank]))]
        cost, degrees = self.derived.stage(pool, stage), self.facts.configuration.degrees
        columns, job = self.derived.columns, self.derived.job
        dense = crossing_bytes(cost.parameters, columns, num_sites, job)
        expert = crossing_bytes(cost.expert_parameters, columns, num_sites, job)
        return float(degrees.tp * dense[0] + degrees.tp * degrees.ep * expert[0])

    @cached_property
    def least_data_parallel_bytes(self) -> Mapping[str, float]:
        """Bytes per iteration that leave each building for the exchange over replicas, one copy of each building."""
        sent: defaultdict[str, float] = defaultdict(float)
        for stage in range(self.facts.configuration.degrees.num_stages):
            buildings = self.buildings_of_rank(self.facts.configuration.rank_of_stage(stage))
            if len(buildings) > 1:
                for building in buildings:
                    sent[building] += self.exchange_bytes(stage, len(buildings))
        return sent

    def farthest_s(self, places: frozenset[str]) -> float:
        """Longest one-way delay from one of these places to another."""
        paths = (self.topology.path_facts(one, other) for one, other in combinations(sorted(places), 2))
        return self._known.once(places, lambda: max(max(p.latency_s, p.round_trip_s - p.latency_s) for p in paths))

    @cached_property
    def crossings(self) -> frozenset[Crossing]:
        """Tiers between buildings that stage boundaries and, at their widest, exchanges over replicas cross."""
        found = {one for one in self.pairs if one.dimension == "pp"}
        for pairs in self._exchanging_pairs:
            widest = max((TIERS.index(pair.tier) for pair in pairs), default=0)
            found |= {pair for pair in pairs if TIERS.index(pair.tier) == widest}
        return frozenset(one for one in found if one.tier in BETWEEN_BUILDINGS)

    @cached_property
    def pairs(self) -> frozenset[Crossing]:
        """Every pair of places that may send to each other: a ring of three places may pass tiers of several widths."""
        ends = {one.places for one in self.boundaries}
        messages = (_crossing(self.topology, "pp", *pair) for pair in ends)
        return frozenset(messages).union(*self._exchanging_pairs)

    @cached_property
    def _exchanging_pairs(self) -> list[frozenset[Crossing]]:
        """Pairs of the places of each rank whose replicas exchange."""
        ranks = {self.places_of_rank(rank) for rank in range(self.facts.configuration.degrees.pp)}
        return [
            frozenset(_crossing(self.topology, "dp", *pair) for pair in combinations(sorted(places), 2))
            for places in ranks
        ]


def _crossing(topology: Topology, dimension: Dimension, one: str, other: str) -> Crossing:
    first, second = sorted((one, other))
    return Crossing(dimension, topology.tier(first, second), (first, second))
