"""Every way of whole ranks to lie in groups is found by crossing one boundary more at a time, and no other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solver.bounds.ways_over_groups import Boundaries, WaysOverGroups


def crossed(groups: tuple[int, ...], looped: bool) -> Boundaries:
    """Where ranks in these groups cross."""
    number = len(groups) if looped else len(groups) - 1
    return frozenset(one for one in range(number) if groups[one] != groups[(one + 1) % len(groups)])


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_ways_are_those_of_all_assignments(seed: int, looped: bool) -> None:
    random = np.random.default_rng(seed)
    num_groups, gpu_r = int(random.integers(2, 4)), random.integers(0, 2, random.integers(2, 6)).tolist()
    held = random.integers(0, 4, (num_groups, 2))
    ways = WaysOverGroups(gpu_r, held, list(range(num_groups)), looped=looped)
    expected = dict[Boundaries, set[tuple[int, ...]]]()
    for groups in itertools.product(range(num_groups), repeat=len(gpu_r)):
        used = np.zeros_like(held)
        np.add.at(used, (np.array(groups), np.array(gpu_r)), 1)
        if (used <= held).all():
            expected.setdefault(crossed(groups, looped), set()).add(groups)
    found, queue, looked_at = dict[Boundaries, set[tuple[int, ...]]](), [(ways.forced, ways.forced)], set[Boundaries]()
    while queue:
        at, decided = queue.pop()
        assert at not in looked_at
        looked_at.add(at)
        if assignments := ways.assignments(at):
            found[at] = set(assignments)
        queue += ways.that_cross_more(at, decided)
    assert found == expected
    assert ways.fits_in_one == any(not one for one in expected)


def test_groups_that_are_alike_count_once() -> None:
    ways = WaysOverGroups([0, 0, 0], np.array([[2], [2], [2]]), [0, 0, 0], looped=False)
    assert ways.assignments(frozenset([0])) == [(0, 1, 1)]
    assert ways.assignments(frozenset([0, 1])) == [(0, 1, 0), (0, 1, 2)]
