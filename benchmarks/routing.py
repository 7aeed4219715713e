"""Times the routing of many commodities and prints its ratio to shortest paths and to an equal split.

`python -m benchmarks.routing`. Every case checks optimality (the bound that the duals prove), conservation and capacity
by `split_faults`, and that neither plain routing is faster; a failed check ends the run with status 1. The limit is
on processor time, which an idle machine shows on the wall too: everything runs in one thread.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.routing_rivals import equal_split, split_faults
from models.cluster import Cluster, Link, Place, Pool
from solver.network.split import Step
from solver.network.topology import Topology, build_topology
from solver.transport.routing import Commodities, PathFlow, commodities_of, fullest_edge_s, least_latency_split, route

GAP = 2e-6


@dataclass(frozen=True)
class Case:
    """A random network with its demands; the seed makes it repeatable."""

    name: str
    num_buildings: int
    num_links: int
    num_demands: int
    seed: int
    limit_s: float


CASES = (
    Case("24 buildings, 200 links, 500 flows", 24, 200, 500, 1, 2.0),
    Case("5 buildings, 10 links, 100 flows", 5, 10, 100, 4, 2.0),
    Case("2 buildings, 4 parallel links, 64 flows", 2, 4, 64, 5, 2.0),
    Case("8 buildings in a line, 64 flows", 8, 7, 64, 6, 2.0),
)


def build(case: Case) -> tuple[Topology, dict[Step, float]]:
    """A connected random network with parallel links, failed planes and background, and random bytes to ship."""
    generator = np.random.default_rng(case.seed)
    ends = [(place - 1, place) for place in range(1, case.num_buildings)]
    while len(ends) < case.num_links:
        one, other = (int(end) for end in generator.integers(case.num_buildings, size=2))
        if one != other:
            ends.append((one, other))
    topology = build_topology(
        Cluster(
            name=case.name,
            places=tuple(Place(id=f"b{index}", level="building") for index in range(case.num_buildings)),
            pools=(Pool(id="p", place="b0", gpu="H100-SXM-80G", num_hosts=1, nic_bytes_per_s=5e10),),
            links=tuple(_link(number, pair, generator) for number, pair in enumerate(ends)),
        )
    )
    size_of: Counter[Step] = Counter()
    for _ in range(case.num_demands):
        source, target = generator.choice(case.num_buildings, 2, replace=False)
        size_of[f"b{source}", f"b{target}"] += float(generator.exponential(1e12))  # type: ignore[assignment]
    return topology, dict(size_of)


def _link(number: int, pair: tuple[int, int], generator: np.random.Generator) -> Link:
    capacity = float(generator.uniform(1, 20)) * 1e12
    return Link(
        id=f"l{number}",
        from_place=f"b{pair[0]}",
        to_place=f"b{pair[1]}",
        capacity_bytes_per_s=capacity,
        distance_km=float(generator.uniform(1, 100)),
        planes=16,
        num_failed_planes=int(generator.integers(3)),
        background_bytes_per_s=float(generator.uniform(0, 0.2)) * capacity,
    )


def problems(commodities: Commodities, best: PathFlow, plain: Mapping[str, float]) -> list[str]:
    """What a case must not show; `plain` are the times of plain routings by name."""
    faults = split_faults(commodities, best.split_k, best.time_s)
    if best.time_s > best.bound_s * (1 + GAP):
        faults.append(f"not optimal: {best.time_s:g} s above the bound {best.bound_s:g} s")
    return faults + [f"slower than {name}" for name, time_s in plain.items() if best.time_s > time_s * (1 + GAP)]


def main() -> int:
    """Run all cases; the status is 1 if one fails a check or its time limit."""
    failed = 0
    sys.stdout.write(
        f"{'case':46s} {'cpu s':>6s} {'wall s':>7s} {'limit':>6s} {'shortest/best':>14s} {'equal/best':>11s} "
        f"{'gap':>9s}\n"
    )
    for case in CASES:
        topology, size_of = build(case)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        best = route(topology, size_of, topology.capacity_bytes_per_s)
        wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
        commodities = commodities_of(topology, size_of, topology.capacity_bytes_per_s)
        splits = {"shortest paths": least_latency_split(commodities), "equal split": equal_split(commodities)}
        plain = {name: fullest_edge_s(commodities, split) for name, split in splits.items()}
        ratios = [time_s / best.time_s for time_s in plain.values()]
        gap = 1 - best.bound_s / best.time_s
        sys.stdout.write(
            f"{case.name:46s} {cpu_s:6.2f} {wall_s:7.2f} {case.limit_s:6.1f} {ratios[0]:14.2f} {ratios[1]:11.2f} "
            f"{gap:9.1e}\n"
        )
        found = problems(commodities, best, plain)
        if cpu_s > case.limit_s:
            found.append(f"took {cpu_s:.2f} s, limit {case.limit_s:g} s")
        for text in found:
            sys.stdout.write(f"  FAILED {text}\n")
        failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
