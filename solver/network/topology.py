"""The directed link graph of a cluster: uplinks of the place tree and explicit links, both directions, as indices."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from models.cluster import (
    Cluster,
    Link,
    LinkTechnology,
    LoadBalancing,
    Place,
    PlaceId,
    PlaceLevel,
    Tier,
    Uplink,
    places_around,
)
from solver.arrays import FloatArray, IntArray
from solver.network import latency
from solver.network.places import ancestors_of, buildings_of

UPLINK_PREFIX = "uplink:"
UPLINK_MTU_BYTES = 4096  # the largest of InfiniBand and RoCE; requests state that of links only


@dataclass(frozen=True)
class Edge:
    """One direction of an uplink or a link, with what is left of it for the job."""

    id: str
    reverse: bool
    from_place: PlaceId
    to_place: PlaceId
    capacity_bytes_per_s: float
    latency_s: float
    loss_probability: float
    planes: int
    technology: LinkTechnology
    load_balancing: tuple[LoadBalancing, ...]
    out_of_order_receivers: bool
    mtu_bytes: int
    background_bytes_per_s: float = 0.0
    flow_bytes_per_s: float = float("inf")

    def turned(self) -> Edge:
        """The other direction, with the same numbers."""
        return replace(self, reverse=True, from_place=self.to_place, to_place=self.from_place)


@dataclass(frozen=True)
class PathFacts:
    """A path end to end: what the transfer model needs to know of it; by default one that remains inside a place.

    `plain_ecmp`: its connections shall not balance load, where its links offer that.
    """

    edges: tuple[int, ...]
    latency_s: float
    round_trip_s: float
    capacity_bytes_per_s: float = float("inf")
    loss_probability: float = 0.0
    planes: int = 1
    technology: LinkTechnology = "roce"
    load_balancing: tuple[LoadBalancing, ...] = ("ecmp",)
    out_of_order_receivers: bool = True
    mtu_bytes: int = UPLINK_MTU_BYTES
    flow_bytes_per_s: float = float("inf")
    plain_ecmp: bool = False


@dataclass(frozen=True)
class Topology:
    """Places and directed edges by index. `edges[i]` is edge i everywhere, in routings and duals as well."""

    places: tuple[Place, ...]
    edges: tuple[Edge, ...]
    plain_ecmp: bool = False
    _trees: dict[PlaceId, dict[PlaceId, int]] = field(default_factory=dict, repr=False, compare=False)
    _paths: dict[tuple[PlaceId, PlaceId], tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    _ends: dict[tuple[PlaceId, PlaceId], PathFacts] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def index_of(self) -> Mapping[PlaceId, int]:
        """Place id to index."""
        return {place.id: index for index, place in enumerate(self.places)}

    @cached_property
    def edge_index(self) -> Mapping[tuple[str, bool], int]:
        """(link or uplink id, reverse) to index."""
        return {(edge.id, edge.reverse): index for index, edge in enumerate(self.edges)}

    @cached_property
    def ends(self) -> IntArray:
        """Indices of the places that each edge leaves, and of those that it enters, in two rows."""
        ends = ((self.index_of[edge.from_place], self.index_of[edge.to_place]) for edge in self.edges)
        return np.array([*ends], dtype=np.int64).reshape(-1, 2).T

    @cached_property
    def capacity_bytes_per_s(self) -> FloatArray:
        """Usable rate of each edge."""
        return np.array([edge.capacity_bytes_per_s for edge in self.edges], dtype=np.float64)

    @cached_property
    def latency_s(self) -> FloatArray:
        """One-way delay of each edge."""
        return np.array([edge.latency_s for edge in self.edges], dtype=np.float64)

    @cached_property
    def _around(self) -> Mapping[PlaceId, Mapping[PlaceId, Place]]:
        """Each place and those that hold it by id, the nearest first."""
        return {place: {one.id: one for one in around} for place, around in places_around(self.places).items()}

    def ancestors(self, place: PlaceId) -> tuple[PlaceId, ...]:
        """The place itself, then its parents up to the root."""
        return tuple(self._around[place])

    def enclosing(self, place: PlaceId, level: PlaceLevel) -> PlaceId | None:
        """The place of this level that holds `place`, or None."""
        return next((one.id for one in self._around[place].values() if one.level == level), None)

    def tier(self, place_a: PlaceId, place_b: PlaceId) -> Tier:
        """Tier at which GPUs of two places meet; two GPUs of one place meet at its own level."""
        above_b = set(self.ancestors(place_b))
        meeting = next((one for one in self._around[place_a].values() if one.id in above_b), None)
        if meeting is not None:
            return latency.MEETING_TIER[meeting.level]
        in_regions = any(self.enclosing(place, "region") for place in (place_a, place_b))
        return "cross_region" if in_regions else "cross_building"

    def path(self, place_a: PlaceId, place_b: PlaceId) -> tuple[int, ...]:
        """Edges of the path of least latency; empty inside one place.

        Raises ValueError where no path exists: ask `connected` first.
        """
        pair = (place_a, place_b)
        if pair not in self._paths:
            tree, edges, at = self._tree(place_a), list[int](), place_b
            while at != place_a:
                if at not in tree:
                    raise ValueError(
                        f"no path leads from place {place_a!r} to {place_b!r}: add a link or a common parent"
                    )
                edges.append(tree[at])
                at = self.edges[tree[at]].from_place
            self._paths[pair] = tuple(reversed(edges))
        return self._paths[pair]

    def connected(self, place_a: PlaceId, place_b: PlaceId) -> bool:
        """Whether a path leads from one place to the other."""
        return place_a == place_b or place_b in self._tree(place_a)

    @cached_property
    def edges_with_detour(self) -> frozenset[int]:
        """Edges that may have another way round: what is left of the graph when loose ends are cut off again and again.

        Empty in a tree, where every pair of places has one path.
        """
        pairs = {index: frozenset((edge.from_place, edge.to_place)) for index, edge in enumerate(self.edges)}
        while True:
            links_at = Counter(end for ends in pairs.values() for end in ends)  # both directions of a link count
            retained = {index: ends for index, ends in pairs.items() if all(links_at[end] > 2 for end in ends)}
            if len(retained) == len(pairs):
                return frozenset(retained)
            pairs = retained

    @cached_property
    def leaving_bytes_per_s(self) -> Mapping[PlaceId, float]:
        """Rate of all edges out of each place with all that lies in it; none where no edge leads out."""
        rates: defaultdict[PlaceId, float] = defaultdict(float)
        for edge in self.edges:
            for place in set(self.ancestors(edge.from_place)).difference(self.ancestors(edge.to_place)):
                rates[place] += edge.capacity_bytes_per_s
        return rates

    def path_facts(self, place_a: PlaceId, place_b: PlaceId, along: tuple[int, ...] | None = None) -> PathFacts:
        """A path, by default that of least latency, end to end from GPU to GPU; answers come back the shortest way."""
        usual = self.path(place_a, place_b)
        if along is not None and along != usual:
            return _end_to_end(self, place_a, place_b, along)
        if (place_a, place_b) not in self._ends:
            self._ends[place_a, place_b] = _end_to_end(self, place_a, place_b, usual)
        return self._ends[place_a, place_b]

    def _tree(self, source: PlaceId) -> dict[PlaceId, int]:
        """Edge that enters each reachable place on its best path: least latency, then fewest hops, then index."""
        if source not in self._trees:
            self._trees[source] = _least_latency_tree(self.edges, source)
        return self._trees[source]


def leaves_building(topology: Topology, edge: Edge) -> bool:
    """Whether what an edge carries counts as traffic between buildings: links between them, and uplinks upwards."""
    ends = {topology.enclosing(place, "building") or place for place in (edge.from_place, edge.to_place)}
    arrives = edge.reverse and edge.id.startswith(UPLINK_PREFIX)
    return len(ends) == 2 and not arrives


def _end_to_end(topology: Topology, place_a: PlaceId, place_b: PlaceId, forward: tuple[int, ...]) -> PathFacts:
    levels = (topology.places[topology.index_of[place]].level for place in (place_a, place_b))
    access = sum(map(latency.access_s, levels))
    one_way_s = access + sum(topology.edges[index].latency_s for index in forward)
    back = access + sum(topology.edges[index].latency_s for index in topology.path(place_b, place_a))
    round_trip_s = one_way_s + back
    edges = [topology.edges[index] for index in forward]
    if not edges:
        return PathFacts((), one_way_s, round_trip_s)
    survives = float(np.prod([1.0 - edge.loss_probability for edge in edges]))
    narrow = min(edges, key=lambda edge: edge.capacity_bytes_per_s)
    long = max(edges, key=lambda edge: edge.latency_s)  # what recovers losses there decides
    is_tcp = any(edge.technology == "tcp" for edge in edges)  # a stream is one end to end, or not at all
    common = tuple(one for one in narrow.load_balancing if all(one in edge.load_balancing for edge in edges))
    return PathFacts(
        edges=forward,
        latency_s=one_way_s,
        round_trip_s=round_trip_s,
        capacity_bytes_per_s=narrow.capacity_bytes_per_s,
        loss_probability=1.0 - survives,
        planes=narrow.planes,
        technology="tcp" if is_tcp else long.technology,
        load_balancing=common or ("ecmp",),
        out_of_order_receivers=all(edge.out_of_order_receivers for edge in edges),
        mtu_bytes=min(edge.mtu_bytes for edge in edges),
        flow_bytes_per_s=min(edge.flow_bytes_per_s for edge in edges),
        plain_ecmp=topology.plain_ecmp,
    )


def _least_latency_tree(edges: tuple[Edge, ...], source: PlaceId) -> dict[PlaceId, int]:
    """Dijkstra's algorithm: the edge that enters each reachable place."""
    leaving: dict[PlaceId, list[int]] = {}
    for index, edge in enumerate(edges):
        leaving.setdefault(edge.from_place, []).append(index)
    entered: dict[PlaceId, int] = {}
    done: set[PlaceId] = set()
    best: dict[PlaceId, tuple[float, int, int]] = {source: (0.0, 0, -1)}
    queue = [(0.0, 0, -1, source)]
    while queue:
        delay, hops, via, at = heapq.heappop(queue)
        if at in done:
            continue
        done.add(at)
        if via >= 0:
            entered[at] = via
        for index in leaving.get(at, ()):
            edge = edges[index]
            key = (delay + edge.latency_s, hops + 1, index)
            if edge.to_place not in done and (edge.to_place not in best or key < best[edge.to_place]):
                best[edge.to_place] = key
                heapq.heappush(queue, (*key, edge.to_place))
    return entered


def build_topology(cluster: Cluster) -> Topology:
    """The link graph of a cluster.

    An uplink carries the network cards below it over its oversubscription. A building with explicit links and an
    uplink left at its default has no uplink: there the region only groups, and the links are the network, unless the
    request says that the buildings of a region are inside one fabric. Where it says that they are separate, no building
    has an uplink that nobody stated. Places and edges are by name, whatever order the cluster has them in.
    """
    around, buildings = ancestors_of(cluster), buildings_of(cluster)
    regions = {place.id for place in cluster.places if place.level == "region"}
    nic_rate = _nic_rate_below(cluster, around)
    one_fabric, separate = cluster.fabric == "one", cluster.fabric == "separate"
    linked = {buildings[end] for link in cluster.links for end in (link.from_place, link.to_place)}
    edges: list[Edge] = []
    places = tuple(sorted(cluster.places, key=_by_name))
    for place in places:
        unstated = place.level == "building" and place.uplink == Uplink()
        only_grouped = unstated and (separate or place.id in linked)
        if place.parent is not None and nic_rate[place.id] > 0 and (one_fabric or not only_grouped):
            edges.extend(_uplink_edges(place, place.parent, nic_rate[place.id]))
    for link in sorted(cluster.links, key=_by_name):
        ends = [regions.intersection(around[end]) for end in (link.from_place, link.to_place)]
        edges.extend(_link_edges(link, cross_region=ends[0] != ends[1]))
    return Topology(places, tuple(edges))


def _by_name(one: Place | Link) -> tuple[int, str]:
    """As numbers count: l2 before l10."""
    return len(one.id), one.id


def _nic_rate_below(cluster: Cluster, around: Mapping[PlaceId, tuple[PlaceId, ...]]) -> dict[PlaceId, float]:
    """Bytes per second of all network cards in every place."""
    rate = dict.fromkeys(around, 0.0)
    for pool in cluster.pools:
        for place in around[pool.place]:
            rate[place] += pool.num_hosts * pool.gpus_per_host * pool.card_bytes_per_s_per_gpu
    return rate


def _uplink_edges(place: Place, parent: PlaceId, nic_rate: float) -> tuple[Edge, Edge]:
    uplink = place.uplink
    delay = latency.uplink_s(place.level) if uplink.latency_s is None else uplink.latency_s

    up = Edge(
        id=f"{UPLINK_PREFIX}{place.id}",
        reverse=False,
        from_place=place.id,
        to_place=parent,
        capacity_bytes_per_s=nic_rate / uplink.oversubscription,
        latency_s=delay,
        loss_probability=uplink.loss_probability,
        planes=uplink.planes,
        technology=uplink.technology,
        load_balancing=uplink.load_balancing,
        out_of_order_receivers="spray" in uplink.load_balancing,
        mtu_bytes=UPLINK_MTU_BYTES,
    )
    return up, up.turned()


def _link_edges(link: Link, *, cross_region: bool) -> tuple[Edge, Edge]:
    delay = latency.link_s(link.latency_s, link.distance_km, cross_region=cross_region)

    there = Edge(
        id=link.id,
        reverse=False,
        from_place=link.from_place,
        to_place=link.to_place,
        capacity_bytes_per_s=link.usable_bytes_per_s(reverse=False),
        latency_s=delay,
        loss_probability=link.loss_probability,
        planes=link.planes - link.num_failed_planes,
        technology=link.technology,
        load_balancing=link.load_balancing,
        out_of_order_receivers=link.out_of_order_receivers,
        mtu_bytes=link.mtu_bytes,
        background_bytes_per_s=link.background(reverse=False),
        flow_bytes_per_s=link.flow_bytes_per_s or float("inf"),
    )
    usable, background = link.usable_bytes_per_s(reverse=True), link.background(reverse=True)
    return there, replace(there.turned(), capacity_bytes_per_s=usable, background_bytes_per_s=background)
