"""Messages split over several paths: the fullest edge first, then what the other ways can have beside it."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from solver.context import Context
from solver.network.split import Step
from solver.transport.message_paths import MessagePaths, split_paths
from tests.unit.solver.transport.meshes import MeshLink, meshed

WIDE, NARROW = 3e11, 8e9
NUM_BUILDINGS = 6  # two groups of three, with wide links inside and narrow ones between


def two_groups(random: np.random.Generator | None = None) -> Context:
    """A link between any two buildings: wide inside a group, narrow and nearer between groups."""
    links: list[MeshLink] = []
    for one, other in itertools.combinations(range(NUM_BUILDINGS), 2):
        inside = one // 3 == other // 3
        factor = 1.0 if random is None else float(random.uniform(0.5, 2.0))
        capacity, latency_s = (WIDE, 5e-5) if inside else (NARROW, 1e-5)
        links.append((f"{one}-{other}", f"b{one}", f"b{other}", capacity * factor, latency_s))
    return Context.of(meshed(NUM_BUILDINGS, tuple(links)))


def both_ways(*ways: Step, queues: int = 8) -> Counter[Step]:
    return Counter({way: queues for one in ways for way in (one, one[::-1])})


def seconds_of(context: Context, paths: MessagePaths, num_queues: Counter[Step]) -> dict[Step, float]:
    """Seconds that the fullest edge of each way takes, per byte of one queue."""
    load: Counter[int] = Counter()
    for way, number in num_queues.items():
        for edge, part in paths.edges(*way):
            load[edge] += number * part
    free = context.topology.capacity_bytes_per_s
    return {way: max(load[edge] / free[edge] for edge, _ in paths.edges(*way)) for way in num_queues}


def test_ways_inside_a_group_take_other_paths_there_though_those_between_groups_are_the_fullest() -> None:
    """Of two neighbouring ways over three wide links each sends two thirds directly and a third over the third link."""
    context = two_groups()
    num_queues = both_ways(("b0", "b1"), ("b2", "b3"))
    paths = split_paths(context, num_queues, context.topology.capacity_bytes_per_s)
    assert paths is not None
    taken_s = seconds_of(context, paths, num_queues)
    assert taken_s["b2", "b3"] == pytest.approx(8 / (9 * NARROW), rel=1e-5), "all nine links between the groups"
    assert taken_s["b0", "b1"] < 0.9 * 8 / WIDE, "less than on the direct link alone"
    narrow = {edge for edge, one in enumerate(context.topology.edges) if one.capacity_bytes_per_s < WIDE / 2}
    assert not narrow & {edge for edge, _ in paths.edges("b0", "b1")}


def test_no_way_takes_longer_than_the_fullest_edge_of_one_programme() -> None:
    random = np.random.default_rng(11)
    pairs = list(itertools.combinations(range(NUM_BUILDINGS), 2))
    sooner = 0
    for _ in range(12):
        context = two_groups(random)
        free = context.topology.capacity_bytes_per_s
        chosen = random.choice(len(pairs), size=4, replace=False)
        num_queues = both_ways(*((f"b{pairs[n][0]}", f"b{pairs[n][1]}") for n in chosen))
        paths = split_paths(context, num_queues, free) or MessagePaths(context.topology)
        taken_s = seconds_of(context, paths, num_queues)
        least_s = seconds_of(context, MessagePaths(context.topology), num_queues)
        assert max(taken_s.values()) <= max(least_s.values()) * (1 + 1e-6)
        sooner += min(taken_s.values()) < 0.9 * max(taken_s.values())
        for way in num_queues:
            parts = paths.parts(*way)
            assert sum(part for _, part in parts) == pytest.approx(1.0)
    assert sooner > 3
