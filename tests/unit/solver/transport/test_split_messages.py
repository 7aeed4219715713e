"""Messages split over several paths: the fullest edge first, then what the other ways can have beside it."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial

import numpy as np
import pytest

from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.scheduling import portfolio_timing
from solver.network.split import Step
from solver.placement.fill import PooledRoute
from solver.transport.message_paths import MessagePaths, split_paths
from tests.build_job import FIXED
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


@pytest.mark.parametrize("vpp", [1, 2, 4])
def test_near_narrow_links_beside_wide_ones_slow_neither_messages_nor_exchanges(vpp):
    """By the hub every way is shorter, so its links are those that everything takes by default. Messages split over
    all links would leave none of them to the exchanges of ranks that lie in two buildings: they leave half of a link
    only where it is on the nearest path of an exchange. With each message on one path that costs a little at most.
    """
    wide = [
        (f"{one}-{other}", f"b{one}", f"b{other}", WIDE, 5e-5) for one, other in itertools.combinations(range(4), 2)
    ]
    hub = [(f"h{one}", f"b{one}", "b4", NARROW, 1e-5) for one in range(4)]
    allowed = {**FIXED, "vpp": [vpp], "pp": [2], "dp": [32], "family": ["loop" if vpp > 1 else "one_way"]}
    alone, beside = (Context.of(meshed(5, tuple(both), allowed=allowed)) for both in (wide, wide + hub))
    usual, other = (_evaluated_over_two_pairs(one) for one in (alone, beside))
    assert other.iteration_s <= 1.06 * usual.iteration_s


def _evaluated_over_two_pairs(context: Context) -> Evaluation:
    """The first configuration with half of its replicas over b0 and b1, and half over b2 and b3."""
    pool_of = {pool.place: number for number, pool in enumerate(context.pools)}
    pairs = [(pool_of[one], pool_of[other]) for one, other in (("b0", "b1"), ("b2", "b3"))]
    configuration = configuration_of(context, enumerate_space(context.request), 0)
    half = configuration.degrees.dp // 2
    candidate = Candidate(configuration, tuple(PooledRoute(pair, half, (0, 0)) for pair in pairs))
    found = evaluate(context, candidate, partial(portfolio_timing, names=("greedy",)))
    assert found is not None
    return found
