"""Groups of pools with something between them: what leaves each, and the limits of a connection between two."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.arrays import FloatArray
from solver.bounds.connections import ConnectionLimits, connection_limits
from solver.context import Context
from solver.network.topology import Edge


@dataclass(frozen=True)
class NetworkCut:
    """Groups of pools with something between them: places, buildings or regions. `rate_g` is what leaves each.

    `limits` are those of a connection between two of them.
    """

    group_of_pool: tuple[int, ...]
    rate_g: FloatArray
    nearest_s: float
    limits: ConnectionLimits
    of_places: bool = False

    @cached_property
    def exchange_rates(self) -> FloatArray:
        """Bytes per second that exchanges may send out of each of their groups together, for n = 0, 1, 2 ... groups.

        The least over j < n of (rates of all but the j widest groups) / (n - j); infinite below two groups.
        """
        narrow = np.cumsum(np.sort(self.rate_g))[::-1]
        rates = [min(narrow[j] / (n - j) for j in range(n)) for n in range(2, len(narrow) + 1)]
        return np.array([np.inf, np.inf, *(rate or np.inf for rate in rates)])

    @cached_property
    def ring_rates(self) -> FloatArray:
        """The `ring_rates` of exchanges between any of the groups."""
        return ring_rates(self.rate_g)


def ring_rates(rate_g: FloatArray) -> FloatArray:
    """Bytes per second that the exchange of one rank may send out of each of its n groups, for n = 0, 1, 2 ...

    Of groups that so much leaves what leaves the n-th widest; infinite below two groups.

    >>> ring_rates(np.array([3.0, 1.0, 2.0]))
    array([inf, inf,  2.,  1.])
    """
    widest = -np.sort(-rate_g)
    return np.array([np.inf, np.inf, *(rate or np.inf for rate in widest[1:].tolist())])


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
        crossing, leaving_g = list[Edge](), np.zeros(len(numbers), dtype=np.int64)
        for edge in topology.edges:
            left = set(topology.ancestors(edge.from_place)) - set(topology.ancestors(edge.to_place))
            for name in numbers.keys() & left:
                leaving_g[numbers[name]] += 1
                crossing.append(edge)
        nearest_s = min((edge.latency_s for edge in crossing), default=0.0)
        whole = level == "place" or all(name != pool.place for name, pool in zip(names, context.pools, strict=True))
        num_edges = max(int(leaving_g.sum() - leaving_g.max()), 1)
        limits = connection_limits(context, tuple(crossing) if whole else (), nearest_s, num_edges)
        yield NetworkCut(group_of_pool, rate_g, nearest_s, limits, of_places=level == "place")


def _around(context: Context, place: str, level: str) -> str:
    """The building or region around a place; without one the place, or the building, stands for itself."""
    if level == "place":
        return place
    building = context.topology.enclosing(place, "building") or place
    return building if level == "building" else context.topology.enclosing(place, "region") or building
