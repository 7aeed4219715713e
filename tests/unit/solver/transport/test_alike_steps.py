"""Steps of a ring that one transport serves: as slow as the longest way and the longest round trip of any."""

from __future__ import annotations

import pytest

from solver.network.split import alike_steps
from tests.build_job import context_of
from tests.unit.solver.transport.meshes import meshed


@pytest.mark.parametrize("first", range(5))
def test_a_ring_takes_as_long_wherever_it_is_told_from(first: int) -> None:
    """Around a circle every way out and back is as long as all of it, the way out may be nearly all or nearly none."""
    links = tuple((f"l{one}", f"b{one}", f"b{(one + 1) % 5}", 1e11, (one + 1) / 1024) for one in range(5))
    topology = context_of(meshed(5, links)).topology
    steps = [(f"b{one}", f"b{(one + 1) % 5}") for one in range(5)]
    long_way = [tuple(topology.edge_index[f"l{(one - back) % 5}", True] for back in range(1, 5)) for one in range(5)]
    parts = [((topology.path(*step), 0.5), (path, 0.5)) for step, path in zip(steps, long_way, strict=True)]
    told = [*zip(steps, parts, strict=True)]
    (plain,), (turned,) = (alike_steps(topology, [*told[start:], *told[:start]]) for start in (0, first))
    assert (turned.narrowest, turned.path) == (plain.narrowest, plain.path)
    assert turned.path.latency_s == pytest.approx(14 / 1024, rel=0.01), "all but the shortest link"
