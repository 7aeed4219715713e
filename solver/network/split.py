"""Bytes that travel from place to place split over several paths: what each edge carries, and all paths as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from solver.network.topology import PathFacts, Topology

Step = tuple[str, str]  # places from and to
Parts = tuple[tuple[tuple[int, ...], float], ...]  # paths of one step and the part of its bytes that each takes


def part_by_edge(steps: Iterable[Parts]) -> dict[int, float]:
    """What each edge carries when every step sends one unit.

    >>> part_by_edge([(((0, 1), 0.75), ((2,), 0.25)), (((0,), 1.0),)])
    {0: 1.75, 1: 0.75, 2: 0.25}
    """
    carried: dict[int, float] = {}
    for parts in steps:
        for path, part in parts:
            for edge in path:
                carried[edge] = carried.get(edge, 0.0) + part
    return carried


@dataclass(frozen=True)
class AlikeSteps:
    """Steps of a ring whose paths offer and lose the same on one tier: one transport serves them.

    `path` is that of the `narrowest` step over the longest way of any, and over the longest round trip.
    """

    narrowest: Step
    path: PathFacts
    paths: tuple[PathFacts, ...]

    @classmethod
    def of(cls, steps: Sequence[tuple[Step, PathFacts]]) -> AlikeSteps:
        """All these steps."""
        narrowest, narrow = min(steps, key=lambda one: (one[1].capacity_bytes_per_s, one[0]))
        paths = tuple(path for _, path in steps)
        latency_s, round_trip_s = (
            max(one) for one in zip(*((p.latency_s, p.round_trip_s) for p in paths), strict=True)
        )
        path = replace(narrow, latency_s=latency_s, round_trip_s=round_trip_s)
        return cls(narrowest, path, paths)


def alike_steps(topology: Topology, ring: Iterable[tuple[Step, Parts]]) -> list[AlikeSteps]:
    """The steps of a ring by tier and by what their paths offer and lose, in the order of the first of each kind."""
    kinds: dict[tuple[object, ...], list[tuple[Step, PathFacts]]] = {}
    for step, parts in ring:
        path = step_facts(topology, step, parts)
        offers = (path.technology, path.load_balancing, path.out_of_order_receivers)
        losses = (path.loss_probability, path.planes, path.mtu_bytes, path.flow_bytes_per_s)
        kinds.setdefault((topology.tier(*step), *offers, *losses), []).append((step, path))
    return [AlikeSteps.of(steps) for steps in kinds.values()]


def step_facts(topology: Topology, step: Step, parts: Parts) -> PathFacts:
    """All paths of a step as one: rates add up as the parts allow, the worst of everything else counts."""
    facts = [topology.path_facts(*step, along=path) for path, _ in parts]
    if len(facts) == 1:
        return facts[0]
    alone = part_by_edge((parts,))
    rates = topology.capacity_bytes_per_s
    narrow = {min(path, key=lambda edge: float(rates[edge])) for path, _ in parts}
    longest = max(facts, key=lambda one: one.latency_s)
    return replace(
        longest,
        edges=tuple(sorted(alone)),
        capacity_bytes_per_s=min(float(rates[edge]) / part for edge, part in alone.items()),
        loss_probability=max(one.loss_probability for one in facts),
        planes=sum(topology.edges[edge].planes for edge in narrow),
        load_balancing=tuple(way for way in longest.load_balancing if all(way in one.load_balancing for one in facts)),
        out_of_order_receivers=all(one.out_of_order_receivers for one in facts),
        mtu_bytes=min(one.mtu_bytes for one in facts),
        flow_bytes_per_s=min(one.flow_bytes_per_s for one in facts),
    )
