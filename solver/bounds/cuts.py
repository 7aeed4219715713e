"""Groups of pools with something between them: what leaves each, and the limits of a connection between two."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.arrays import FloatArray
from solver.bounds.connections import ConnectionLimits, connection_limits
from solver.context import Context
from solver.network.topology import Edge

OUTSIDE = -1  # of every group
MOST_IN_SETS = 6  # groups whose sets are looked at: of more there are too many orders to visit them in


@dataclass(frozen=True)
class NetworkCut:
    """Groups of pools with something between them: places, buildings or regions. `rate_g` is what leaves each.

    `limits` are those of a connection between two of them. `rate_of_set` is what leaves each set of groups for others,
    by the sum of 2^g over its groups g; empty where there are more than `MOST_IN_SETS`.
    """

    group_of_pool: tuple[int, ...]
    rate_g: FloatArray
    nearest_s: float
    limits: ConnectionLimits
    rate_of_set: FloatArray
    of_places: bool = False

    @cached_property
    def exchange_rates(self) -> FloatArray:
        """The `exchange_rates` of exchanges between any of the groups."""
        return exchange_rates(self.rate_g)

    @cached_property
    def ring_rates(self) -> FloatArray:
        """The `ring_rates` of exchanges between any of the groups."""
        return ring_rates(self.rate_g)


def exchange_rates(rate_g: FloatArray) -> FloatArray:
    """Bytes per second that exchanges may send out of each of their groups together, for n = 0, 1, 2 ... groups.

    The least over j < n of (rates of all but the j widest groups) / (n - j); infinite below two groups.

    >>> exchange_rates(np.array([3.0, 1.0, 2.0]))
    array([inf, inf,  3.,  1.])
    """
    narrow = np.cumsum(np.sort(rate_g))[::-1]
    rates = [min(narrow[j] / (n - j) for j in range(n)) for n in range(2, len(narrow) + 1)]
    return np.array([np.inf, np.inf, *(rate or np.inf for rate in rates)])


def ring_rates(rate_g: FloatArray) -> FloatArray:
    """Bytes per second that the exchange of one rank may send out of each of its n groups, for n = 0, 1, 2 ...

    Of groups that so much leaves what leaves the n-th widest; infinite below two groups.

    >>> ring_rates(np.array([3.0, 1.0, 2.0]))
    array([inf, inf,  2.,  1.])
    """
    widest = -np.sort(-rate_g)
    return np.array([np.inf, np.inf, *(rate or np.inf for rate in widest[1:].tolist())])


def rates_of_sets(edges: Sequence[tuple[int, int, float]], num_groups: int) -> FloatArray:
    """What leaves each set of groups for others, at most, by the sum of 2^g over its groups g (bytes per second).

    `edges` lead from one group to another (`OUTSIDE` for neither) at a rate. All that leaves a set takes an edge out of
    it and an edge into one of the other groups.

    >>> rates_of_sets([(0, OUTSIDE, 5.0), (1, OUTSIDE, 3.0), (OUTSIDE, 2, 2.0), (0, 1, 1.0)], 3).tolist()
    [0.0, 3.0, 2.0, 2.0, 0.0, 1.0, 0.0, 0.0]
    """
    sets = np.arange(1 << num_groups)
    out, into = np.zeros((2, len(sets)))
    for here, there, rate in edges:
        from_set, to_set = ((sets >> one) & 1 if one != OUTSIDE else np.zeros_like(sets) for one in (here, there))
        to_others = 1 - to_set if there != OUTSIDE else np.zeros_like(sets)
        out += np.where((from_set == 1) & (to_set == 0), rate, 0.0)
        into += np.where((from_set == 1 if here != OUTSIDE else True) & (to_others == 1), rate, 0.0)
    return np.minimum(out, into)


def cuts(context: Context) -> Sequence[NetworkCut]:
    """The cuts between the places of pools, between their buildings and between their regions.

    A level of which one group lies inside another one has no cut.
    """
    return context.known.cuts.once("all", lambda: tuple(_cuts(context)))


def _cuts(context: Context) -> Iterator[NetworkCut]:
    topology, known = context.topology, set[tuple[int, ...]]()
    for level in ("place", "building", "region"):
        names = [_around(context, pool.place, level) for pool in context.pools]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        group_of_pool = tuple(numbers[name] for name in names)
        nested = any(numbers.keys() & set(topology.ancestors(name)[1:]) for name in numbers)
        if len(numbers) < 2 or group_of_pool in known or nested:
            continue  # a ring between a place and one inside it leaves neither
        known.add(group_of_pool)
        rate_g = np.array([topology.leaving_bytes_per_s[name] for name in numbers])
        crossing, leaving_g, ways = list[Edge](), np.zeros(len(numbers), dtype=np.int64), list[tuple[int, int, float]]()
        for edge in topology.edges:
            here, there = (
                next((numbers[name] for name in topology.ancestors(place) if name in numbers), OUTSIDE)
                for place in (edge.from_place, edge.to_place)
            )
            if here == there:
                continue
            ways.append((here, there, edge.capacity_bytes_per_s))
            if here != OUTSIDE:
                leaving_g[here] += 1
                crossing.append(edge)
        nearest_s = min((edge.latency_s for edge in crossing), default=0.0)
        whole = level == "place" or all(name != pool.place for name, pool in zip(names, context.pools, strict=True))
        num_edges = max(int(leaving_g.sum() - leaving_g.max()), 1)
        limits = connection_limits(context, tuple(crossing) if whole else (), nearest_s, num_edges)
        rate_of_set = rates_of_sets(ways, len(numbers)) if len(numbers) <= MOST_IN_SETS else np.zeros(0)
        yield NetworkCut(group_of_pool, rate_g, nearest_s, limits, rate_of_set, of_places=level == "place")


def _around(context: Context, place: str, level: str) -> str:
    """The building or region around a place; without one the place, or the building, stands for itself."""
    if level == "place":
        return place
    building = context.topology.enclosing(place, "building") or place
    return building if level == "building" else context.topology.enclosing(place, "region") or building
