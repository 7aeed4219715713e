"""What lies between the parts of a pipeline, and between its replicas, where capacity groups are shared out in blocks.

A block holds consecutive ranks, with the replicas of each of them in its capacity groups: one block of everything is
DP-out, a block per capacity group PP-out, a block per region or GPU type what lies between. Messages go from block to
block, exchanges around the places of each.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2

import numpy as np

from models.cluster import Pool
from solver.arrays import FloatArray, IntArray
from solver.network.reach import connection_limit_bytes_per_s, largest_share
from solver.network.technology import TECHNOLOGIES, payload_fraction
from solver.network.topology import PathFacts, Topology
from solver.placement.capacity_groups import CapacityGroup, peaks_flops_per_s
from solver.placement.problem import Tier

ALL, EACH, EACH_BY_TYPE, TYPES = "all", "each", "each by type", "types"  # kinds, beside those of the tiers
MOST_CONNECTIONS = 1 << 16  # up to which shares of a link are tabled; set by hand
STEP = 2  # powers of two between the numbers of connections whose shares are known; others are interpolated
FLOWS = tuple(1 << power for power in range(0, MOST_CONNECTIONS.bit_length(), STEP))


@dataclass(frozen=True)
class BlockPath:
    """A chain of hops through blocks, or a ring around places: its narrowest hop, and the delays (s) of all hops.

    `load` messages (or ring steps) share the narrowest edge, which leaves each `free_bytes_per_s`, and `widening` times
    that where other paths take their parts. `edges` are all that the way takes, as indices of the topology.
    """

    free_bytes_per_s: float
    load: float
    path: PathFacts
    widening: float
    edges: frozenset[int]
    latency_s: float
    farthest_s: float
    num_places: int = 1

    def widened(self) -> BlockPath:
        """The way over several paths, as one of more planes."""
        planes = self.path.planes << max(round(log2(self.widening)), 0)
        rate = self.path.capacity_bytes_per_s * self.widening
        path = replace(self.path, capacity_bytes_per_s=rate, planes=planes)
        return replace(self, free_bytes_per_s=self.free_bytes_per_s * self.widening, path=path)


@dataclass(frozen=True)
class BlockPaths:
    """Paths through blocks as columns; row 0 is no path at all, with infinite rates and no delay."""

    free_bytes_per_s: FloatArray
    load: FloatArray
    capacity_bytes_per_s: FloatArray
    connection_bytes_per_s: FloatArray
    payload: FloatArray
    latency_s: FloatArray
    farthest_s: FloatArray
    num_places: FloatArray
    lost_per_byte: FloatArray
    round_trip_s: FloatArray
    share_f: FloatArray  # (n + 1) x len(FLOWS): part of the capacity that so many connections carry

    @classmethod
    def of(cls, ways: Sequence[BlockPath]) -> BlockPaths:
        """Columns of these ways, after the row of no way."""
        paths = [one.path for one in ways]

        def column(nothing: float, values: list[float]) -> FloatArray:
            return np.array([nothing, *values], dtype=np.float64)

        return cls(
            free_bytes_per_s=column(np.inf, [one.free_bytes_per_s for one in ways]),
            load=column(0.0, [one.load for one in ways]),
            capacity_bytes_per_s=column(np.inf, [one.capacity_bytes_per_s for one in paths]),
            connection_bytes_per_s=column(np.inf, [connection_limit_bytes_per_s(one) for one in paths]),
            payload=column(1.0, [payload_fraction(one.technology, one.mtu_bytes) for one in paths]),
            latency_s=column(0.0, [one.latency_s for one in ways]),
            farthest_s=column(0.0, [one.farthest_s for one in ways]),
            num_places=column(1.0, [float(one.num_places) for one in ways]),
            lost_per_byte=column(0.0, [_lost_per_byte(one) for one in paths]),
            round_trip_s=column(0.0, [one.round_trip_s for one in paths]),
            share_f=np.array([(1.0,) * len(FLOWS), *(_shares(one) for one in paths)]),
        )

    def rate_bytes_per_s(self, way: IntArray, num_connections: FloatArray, member_bytes_per_s: float) -> FloatArray:
        """What so many connections carry together over the narrowest hop of a way."""
        flows = np.clip(num_connections, 1.0, MOST_CONNECTIONS)
        power = np.log2(flows) / STEP
        low = np.minimum(power.astype(np.int64), len(FLOWS) - 2)
        share = self.share_f[way, low] + (power - low) * (self.share_f[way, low + 1] - self.share_f[way, low])
        each = np.minimum(member_bytes_per_s * self.payload[way], self.connection_bytes_per_s[way])
        shared = self.capacity_bytes_per_s[way] * share * self.payload[way]
        rate: FloatArray = np.minimum(num_connections * each, shared)
        return rate


def _shares(path: PathFacts) -> tuple[float, ...]:
    return tuple(
        largest_share(
            path.technology,
            path.load_balancing,
            out_of_order_receivers=path.out_of_order_receivers,
            num_planes=path.planes,
            num_connections=count,
        )
        for count in FLOWS
    )


def _lost_per_byte(path: PathFacts) -> float:
    """Losses that make a message wait for a round trip: none where a code or a window of its own hides them."""
    hidden = path.technology == "tcp" or path.out_of_order_receivers
    return 0.0 if hidden else path.loss_probability / path.mtu_bytes


@dataclass(frozen=True)
class Blocks:
    """A partition of the capacity groups, `groups_b` in the order of use.

    `chains` and `loops` are the ways through the first n blocks, the latter back to the first one too; `rings` those
    around each block, and where there is one block only, around its first n capacity groups: on the paths of least
    latency, and split over several where there are others. `shared` says that some edge carries both messages and
    exchanges.
    """

    kind: str
    groups_b: tuple[tuple[int, ...], ...]
    chains: tuple[BlockPaths, ...]
    loops: tuple[BlockPaths, ...]
    rings: tuple[BlockPaths, ...]
    shared: bool


@dataclass(frozen=True)
class Distances:
    """Partitions of the capacity groups of a request. `of` orders groups by region, the largest first, then by size."""

    topology: Topology
    pools: Sequence[Pool]
    capacity_groups: Sequence[CapacityGroup]
    splits: bool

    def blocks(self, kind: str, groups_b: Sequence[Sequence[int]]) -> Blocks:
        """A partition with its ways."""
        chain, loop = self._chains(groups_b)
        if len(groups_b) == 1:
            rings = [self._ring(groups_b[0][: n + 1]) for n in range(len(groups_b[0]))]
        else:
            rings = [self._ring(own) for own in groups_b]
        taken = {edge for one in rings for edge in one.edges}
        shared = any(not taken.isdisjoint(one.edges) for one in chain)
        chains, loops, circles = (
            (BlockPaths.of(ways), BlockPaths.of([one.widened() for one in ways]))
            if self.splits
            else (BlockPaths.of(ways),)
            for ways in (chain, loop, rings)
        )
        return Blocks(kind, tuple(map(tuple, groups_b)), chains, loops, circles, shared)

    @cached_property
    def _detour_bytes_per_s(self) -> float:
        return sum(self.topology.edges[edge].capacity_bytes_per_s for edge in self.topology.edges_with_detour)

    def _load(self) -> _Load:
        """No hop yet."""
        return _Load(self.topology, self._detour_bytes_per_s)

    def _place(self, group: int) -> str:
        return self.pools[self.capacity_groups[group].pools[0]].place

    def _chains(self, groups_b: Sequence[Sequence[int]]) -> tuple[list[BlockPath], list[BlockPath]]:
        """The way through the first n blocks for every n, and the same with the way back from the last to the first."""
        through, around = self._load(), list[BlockPath]()
        chain = list[BlockPath]()
        for number, own in enumerate(groups_b):
            if number:
                through.join(self._pairs(groups_b[number - 1], own))
            chain.append(through.way())
            closed = through.copied()
            if number:
                closed.join(self._pairs(own, groups_b[0]))
            around.append(closed.way())
        return chain, around

    def _pairs(self, one: Sequence[int], other: Sequence[int]) -> list[tuple[str, str]]:
        """Each replica goes on in a capacity group of the next block, as evenly as they are many."""
        most = max(len(one), len(other))
        pairs = [(one[k * len(one) // most], other[k * len(other) // most]) for k in range(most)]
        return [(self._place(u), self._place(w)) for u, w in pairs]

    def _ring(self, groups: Sequence[int]) -> BlockPath:
        """Around all places of these capacity groups, building by building."""
        indices = [pool for group in sorted(groups) for pool in self.capacity_groups[group].pools]
        places = list(dict.fromkeys(self.pools[pool].place for pool in indices))
        load = self._load()
        if len(places) > 1:
            for step in zip(places, [*places[1:], places[0]], strict=True):
                load.step(*step, part=1.0)
        return load.way(len(places))


def partitions(
    distances: Distances, size_u: Sequence[int], region_u: Sequence[int], tiers: Sequence[Tier]
) -> tuple[Blocks, ...]:
    """The ways to share out capacity groups in blocks: all together, each alone, by the groups of a tier, across them.

    A block across groups has one capacity group of each, so that replicas are whole in groups. Where there are several
    GPU types also by type, and each alone with the faster types first. Regions follow each other by size, and capacity
    groups in them.
    """
    region_size = Counter[int]()
    for region, size in zip(region_u, size_u, strict=True):
        region_size[region] += size
    order = sorted(range(len(size_u)), key=lambda u: (-region_size[region_u[u]], region_u[u], -size_u[u], u))
    found = [distances.blocks(ALL, [order]), distances.blocks(EACH, [[u] for u in order])]
    types = [group.gpu for group in distances.capacity_groups]
    peak_u = peaks_flops_per_s(distances.pools, distances.capacity_groups)
    fastest_first = sorted(order, key=lambda u: (-peak_u[u], types[u]))
    for number, tier in enumerate(tiers):
        groups = _grouped(order, tier.group_u)
        if 1 < len(groups) < len(order):
            found.append(distances.blocks(f"tier {number}", groups))
            across = _alike(_grouped(fastest_first, tier.group_u))
            of_one_type = all(len({types[u] for u in own}) == 1 for own in across)
            found.append(distances.blocks(f"{EACH if of_one_type else ALL} across tier {number}", across))
    if len(set(types)) > 1:
        found.append(distances.blocks(EACH_BY_TYPE, [[u] for u in fastest_first]))
        found.append(distances.blocks(TYPES, _grouped(order, types)))
        in_regions = _grouped(order, list(zip(region_u, types, strict=True)))
        if len(set(region_u)) > 1 and len(in_regions) < len(order):
            found.append(distances.blocks(f"{TYPES} by region", in_regions))
    return tuple(found)


def _grouped(order: Sequence[int], keys: Sequence[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for group in order:
        groups.setdefault(keys[group], []).append(group)
    return list(groups.values())


def _alike(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """The first of every group together, then the second ones, and so on.

    >>> _alike([[0, 1], [2]])
    [[0, 2], [1]]
    """
    return [[u for u in own if u is not None] for own in itertools.zip_longest(*groups)]


class _Load:
    """Directed edges with what runs over them, and the hops so far.

    Edges that may have another way round have `detour_bytes_per_s` together.
    """

    def __init__(self, topology: Topology, detour_bytes_per_s: float) -> None:
        self.topology, self.detour_bytes_per_s = topology, detour_bytes_per_s
        self.carried, self.left = defaultdict[int, float](float), defaultdict[str, float](float)
        self.hops: list[PathFacts] = []
        self.latency_s = 0.0

    def copied(self) -> _Load:
        """A copy that goes on by itself."""
        other = _Load(self.topology, self.detour_bytes_per_s)
        other.carried, other.left = self.carried.copy(), self.left.copy()
        other.hops, other.latency_s = list(self.hops), self.latency_s
        return other

    def step(self, source: str, target: str, *, part: float) -> None:
        """One direction of a hop."""
        if source != target and self.topology.connected(source, target):
            facts = self.topology.path_facts(source, target)
            self.hops.append(facts)
            for edge in facts.edges:
                self.carried[edge] += part
            for name in set(self.topology.ancestors(source)) - set(self.topology.ancestors(target)):
                self.left[name] += part

    def join(self, pairs: list[tuple[str, str]]) -> None:
        """Messages there and back between pairs of places, among which the replicas are shared out."""
        before = len(self.hops)
        for pair in pairs:
            self.step(*pair, part=1.0 / len(pairs))
            self.step(*pair[::-1], part=1.0 / len(pairs))
        self.latency_s += max((_delay_s(one) for one in self.hops[before:]), default=0.0)

    def way(self, num_places: int = 1) -> BlockPath:
        """The way of all hops so far; without hops nothing limits it."""
        rates = {edge: self.topology.edges[edge].capacity_bytes_per_s for edge in self.carried}
        if not rates:
            nothing = self.topology.path_facts(self.topology.places[0].id, self.topology.places[0].id)
            return BlockPath(np.inf, 0.0, nothing, 1.0, frozenset(), 0.0, 0.0, num_places)
        worst = min(rates, key=lambda edge: rates[edge] / self.carried[edge])
        path = min(
            (one for one in self.hops if worst in one.edges), key=lambda one: (one.capacity_bytes_per_s, one.edges)
        )
        farthest = max(_delay_s(one) for one in self.hops)
        load = self.carried[worst]
        free = rates[worst] / load
        leaving = (self.topology.leaving_bytes_per_s[name] / part for name, part in self.left.items())
        wide = min((*self._with_detours_bytes_per_s(rates), *leaving), default=free)
        edges = frozenset(self.carried)
        return BlockPath(free, load, path, max(wide / free, 1.0), edges, self.latency_s, farthest, num_places)

    def _with_detours_bytes_per_s(self, rates: dict[int, float]) -> Iterator[float]:
        """What all hops may carry at once as far as links go round, if they do: what is beyond one takes two others.

        With a_e of hops on the edges e that have another way round, of capacity c_e, and all these of capacity C the
        greatest rate r of which sum_e max(r a_e, 2 r a_e - c_e) <= C.
        """
        edges = self.topology.edges_with_detour
        taken = sorted((rates[edge] / part, rates[edge], part) for edge, part in self.carried.items() if edge in edges)
        if taken:
            _, capacity, part = np.array(taken).T
            full, rest = np.cumsum([0.0, *capacity]), part.sum() + np.cumsum([0.0, *part])
            yield float(((self.detour_bytes_per_s + full) / rest).min())


def _delay_s(path: PathFacts) -> float:
    return path.latency_s + TECHNOLOGIES[path.technology].step_s
