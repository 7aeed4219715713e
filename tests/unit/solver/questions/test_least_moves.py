"""The fewest moves of a configuration: as brute force over all placements finds them, and a placement that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from random import Random

import pytest

from solver.questions.least_moves import Counts, MoveProblem, chained_routes, least_moves, whole_routes

Routes = tuple[tuple[int, ...], ...]


def _problem(random: Random) -> MoveProblem:
    num_ranks, num_pools, num_replicas = random.randint(1, 3), random.randint(2, 3), random.randint(1, 3)
    buildings = sorted(random.choices(range(2), k=num_pools))
    building_u = tuple(one - buildings[0] for one in buildings)
    bundle = random.choice((1, 1, 2))
    return MoveProblem(
        num_replicas=num_replicas,
        bundle=bundle,
        capacity_u=tuple(random.randint(0, num_ranks * num_replicas) for _ in range(num_pools)),
        building_u=building_u,
        island_u=random.choice((building_u, (0,) * num_pools)),
        standing_pu=tuple(
            tuple(random.choice((0, 0, 1, 2, 3)) for _ in range(num_pools)) for _ in range(num_ranks)
        ),
        allowed_pu=tuple(tuple(random.random() < 0.9 for _ in range(num_pools)) for _ in range(num_ranks)),
        ranks_may_cross=random.random() < 0.7,
        replicas_may_cross=random.random() < 0.7,
    )  # fmt: skip


def _placements(problem: MoveProblem) -> Iterator[Routes]:
    """Every placement of the replicas that the problem allows."""
    ways = product(range(len(problem.capacity_u)), repeat=problem.num_ranks)
    allowed = [way for way in ways if all(problem.allowed_pu[p][u] for p, u in enumerate(way))]
    if not problem.ranks_may_cross:
        allowed = [way for way in allowed if len({problem.building_u[u] for u in way}) == 1]
    for routes in combinations_with_replacement(allowed, problem.num_replicas):
        used = Counter(u for route in routes for u in route)
        fits = all(used[u] <= capacity for u, capacity in enumerate(problem.capacity_u))
        together = problem.replicas_may_cross or all(
            len({problem.building_u[route[p]] for route in routes}) == 1 for p in range(problem.num_ranks)
        )
        if fits and together and len({problem.island_u[u] for u in used}) == 1:
            yield routes


def _counts(problem: MoveProblem, routes: Routes) -> Counts:
    return tuple(
        tuple(problem.bundle * sum(route[p] == u for route in routes) for u in range(len(problem.capacity_u)))
        for p in range(problem.num_ranks)
    )


def _moved(problem: MoveProblem, counts: Counts) -> int:
    return sum(
        max(0, counts[p][u] - problem.standing_pu[p][u])
        for p in range(problem.num_ranks)
        for u in range(len(problem.capacity_u))
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_placement_moves_fewer_groups(seed: int) -> None:
    problem = _problem(Random(seed))
    moved = [_moved(problem, _counts(problem, routes)) for routes in _placements(problem)]
    found = least_moves(problem)
    if not moved:
        assert found is None
        return
    assert found is not None
    assert (found.num_moved, found.bound) == (min(moved), min(moved))
    assert _moved(problem, found.counts) == found.num_moved
    straight = least_moves(problem, straight_first=True)
    assert straight is not None
    assert straight.num_moved >= found.num_moved


@pytest.mark.parametrize("seed", range(60))
def test_routes_have_the_counts_and_keep_what_may_not_cross_together(seed: int) -> None:
    random = Random(seed)
    problem = _problem(random)
    found = least_moves(problem)
    if found is None:
        return
    whole = [tuple(random.randrange(len(problem.capacity_u)) for _ in range(problem.num_ranks)) for _ in range(3)]
    if not problem.ranks_may_cross:
        whole = [way for way in whole if len({problem.building_u[u] for u in way}) == 1]
    routes = chained_routes(problem, found.counts, whole)
    assert all(route.num_replicas % problem.bundle == 0 for route in routes)
    single = tuple(route.capacity_groups for route in routes for _ in range(route.num_replicas // problem.bundle))
    assert _counts(problem, single) == found.counts
    if not problem.ranks_may_cross:
        assert all(len({problem.building_u[u] for u in way}) == 1 for way in single)


@pytest.mark.parametrize("seed", range(200))
def test_replicas_that_stand_whole_are_the_placement_wherever_they_are_enough(seed: int) -> None:
    random = Random(seed)
    problem = _problem(random)
    ways = list(product(range(len(problem.capacity_u)), repeat=problem.num_ranks))
    whole = [random.choice(ways[:4]) for _ in range(random.randint(0, 8))]
    room = Counter({u: capacity * problem.bundle for u, capacity in enumerate(problem.capacity_u)})
    for way in list(whole):
        room.subtract(way)
        if min(room.values()) < 0:
            room.update(way)
            whole.remove(way)
    stands = Counter(whole)
    there_are_enough = any(
        all(problem.bundle * number <= stands[way] for way, number in Counter(routes).items())
        for routes in _placements(problem)
    )
    found = list(whole_routes(problem, whole))
    assert bool(found) == there_are_enough
    placements = {tuple(sorted(routes)) for routes in _placements(problem)}
    for routes in found:
        assert all(one.num_replicas <= stands[one.capacity_groups] for one in routes)
        assert all(one.num_replicas % problem.bundle == 0 for one in routes)
        bundles = [one.capacity_groups for one in routes for _ in range(one.num_replicas // problem.bundle)]
        assert tuple(sorted(bundles)) in placements


def test_the_replicas_that_are_named_first_are_kept() -> None:
    problem = MoveProblem(num_replicas=2, bundle=1, capacity_u=(4, 4), building_u=(0, 1), island_u=(0, 0),
                          standing_pu=((2, 2), (2, 2)), allowed_pu=((True, True), (True, True)))  # fmt: skip
    ((only,),) = whole_routes(problem, [(1, 1), (1, 1), (0, 0), (0, 0)])
    assert (only.capacity_groups, only.num_replicas) == ((1, 1), 2)
