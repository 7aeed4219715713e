"""Small clusters and random ones, built for routing."""

from __future__ import annotations

import numpy as np

from models.cluster import Cluster, Link, Place, Pool
from solver.network.split import Step
from solver.network.topology import Topology, build_topology


def network(edges, **common) -> Topology:
    """Buildings named by letters; edges are (from, to, capacity, latency)."""
    names = sorted({end for one in edges for end in one[:2]})
    return build_topology(
        Cluster(
            name="net",
            places=tuple(Place(id=name, level="building") for name in names),
            pools=(Pool(id="p", place=names[0], gpu="H100-SXM-80G", num_hosts=1, nic_bytes_per_s=5e10),),
            links=tuple(
                Link(
                    id=f"{number}:{tail}{head}",
                    from_place=tail,
                    to_place=head,
                    capacity_bytes_per_s=capacity,
                    latency_s=delay,
                    **common,
                )
                for number, (tail, head, capacity, delay) in enumerate(edges)
            ),
        )
    )


def random_network(num_places: int, num_links: int, seed: int) -> tuple[Topology, np.random.Generator]:
    """Connected, with parallel links; capacities over a factor of 20."""
    generator = np.random.default_rng(seed)
    ends = [(place, int(generator.integers(place))) for place in range(1, num_places)]
    while len(ends) < num_links:
        one, other = generator.integers(num_places, size=2)
        if one != other:
            ends.append((int(one), int(other)))
    edges = [
        (f"b{one:02d}", f"b{other:02d}", generator.uniform(1, 20) * 1e12, generator.uniform(1e-5, 2e-3))
        for one, other in ends
    ]
    return network(edges), generator


def random_sizes(generator: np.random.Generator, topology: Topology, num_demands: int) -> dict[Step, float]:
    """Bytes between random places."""
    names = [place.id for place in topology.places]
    size_of: dict[Step, float] = {}
    for _ in range(num_demands):
        source, target = generator.choice(names, size=2, replace=False)
        size_of[str(source), str(target)] = float(generator.exponential(1e12))
    return size_of
