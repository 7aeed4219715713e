"""No transport option carries more than the limits of its path say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solver.network.connection import Wire, connection_rate_bytes_per_s
from solver.network.options import path_options
from solver.network.reach import connection_limit_bytes_per_s, largest_share
from solver.network.topology import PathFacts


def path_of(random: np.random.Generator) -> PathFacts:
    """Some path: any technology, a few planes, near or far, with or without loss."""
    technology = ("roce", "infiniband", "tcp")[random.integers(3)]
    latency_s = float(10.0 ** random.uniform(-6, -1))
    return PathFacts(
        edges=(0,),
        latency_s=latency_s,
        round_trip_s=2.0 * latency_s,
        capacity_bytes_per_s=float(10.0 ** random.uniform(9, 12)),
        loss_probability=float((0.0, 1e-6, 1e-3)[random.integers(3)]),
        planes=int((1, 4, 16, 32)[random.integers(4)]),
        technology=technology,  # type: ignore[arg-type]
        load_balancing=(("ecmp",), ("ecmp", "ecmp_qp_scaling"), ("ecmp", "dqplb"), ("spray",))[random.integers(4)],  # type: ignore[arg-type]
        out_of_order_receivers=bool(random.integers(2)),
        mtu_bytes=4096,
    )


def test_no_option_exceeds_the_limits() -> None:
    random = np.random.default_rng(7)
    for _ in range(40):
        path, connections = path_of(random), int(random.integers(1, 200))
        share = largest_share(
            path.technology,
            path.load_balancing,
            out_of_order_receivers=path.out_of_order_receivers,
            num_planes=path.planes,
            num_connections=connections,
        )
        wire = Wire(path, 5e10, connections, path.capacity_bytes_per_s)
        rates = [connection_rate_bytes_per_s(option, wire) for option in path_options(path).options]
        assert max(rates) <= connection_limit_bytes_per_s(path) * (1 + 1e-9)
        assert max(rates) * connections <= share * path.capacity_bytes_per_s * (1 + 1e-3)


@pytest.mark.parametrize("offered", [("ecmp",), ("ecmp_qp_scaling",), ("dqplb",)])
def test_more_connections_fill_planes_better_and_more_planes_are_filled_less(offered: tuple[str, ...]) -> None:
    def share(connections: int, planes: int) -> float:
        return largest_share(
            "roce",
            offered,  # type: ignore[arg-type]
            out_of_order_receivers=False,
            num_planes=planes,
            num_connections=connections,
        )

    counts, planes = (1, 2, 4, 8, 32, 128), (2, 4, 8, 16, 64)
    for number in planes:
        assert all(share(b, number) >= share(a, number) * (1 - 1e-3) for a, b in itertools.pairwise(counts))
    for count in counts:
        assert all(share(count, b) <= share(count, a) * (1 + 1e-3) for a, b in itertools.pairwise(planes))
