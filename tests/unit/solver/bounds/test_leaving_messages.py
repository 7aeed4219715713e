"""What leaves the groups of a cut is no more than what leaves them in any assignment of stage groups to groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import pytest

from solver.bounds.cuts import rates_of_sets
from solver.bounds.leaving_messages import LeavingMessages
from solver.cost.columns import Columns, columns_from
from solver.pipeline.problem import Floats


class Fleet(NamedTuple):
    """Replicas of so many ranks, and groups with so much room and these rates."""

    num_replicas: int
    num_ranks: int
    held: tuple[int, ...]
    rates: tuple[float, ...]


Assignment = tuple[tuple[int, ...], ...]  # the group of every rank of every replica


def assignments(num_replicas: int, num_ranks: int, held: Sequence[int]) -> Iterator[Assignment]:
    """All of them for which groups have room."""
    ways = list(itertools.product(range(len(held)), repeat=num_ranks))
    for chosen in itertools.combinations_with_replacement(ways, num_replicas):
        used = np.bincount(np.array(chosen).ravel(), minlength=len(held))
        if (used <= held).all():
            yield chosen


def visited(way: Sequence[int], family: str, vpp: int) -> list[int]:
    """The groups of all stages in order."""
    passes = [way if family != "v" or at % 2 == 0 else way[::-1] for at in range(vpp)]
    return list(itertools.chain(*passes))


def leaving_of(assignment: Assignment, family: str, vpp: int, num_groups: int) -> Floats:
    """Messages of a micro-batch out of every group."""
    leaving = np.zeros(num_groups)
    for way in assignment:
        for here, there in itertools.pairwise(visited(way, family, vpp)):
            if here != there:
                leaving[[here, there]] += 1  # the activation leaves one, the gradient the other
    return leaving


def num_runs(assignment: Assignment, family: str, vpp: int) -> int:
    """Parts of the way of stages that follow each other on ranks that are not whole."""
    spanning = [len(set(ways)) > 1 for ways in zip(*assignment, strict=True)]
    return sum(one for one, _ in itertools.groupby(visited(spanning, family, vpp)))


def whole_ranks(assignment: Assignment) -> list[int]:
    """The group of every rank whose replicas are all in one."""
    return [ways[0] for ways in zip(*assignment, strict=True) if len(set(ways)) == 1]


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("held", [(4, 4, 4), (6, 3, 3), (5, 5), (4, 3, 3, 2), (9, 2, 2), (2, 2, 2, 2, 2)])
def test_replicas_inside_of_few_groups_leave_others_that_cross(
    together: int, num_ranks: int, held: tuple[int, ...]
) -> None:
    """Three replicas, or three times as many that share every place with their expert group."""
    row = dict.fromkeys([one.name for one in fields(Columns)], 1)
    columns = columns_from([{**row, "dp": 3 * together, "pp": num_ranks, "ep": together}])
    leaving = LeavingMessages(columns, np.array([False]), together * np.array([held]), np.ones(len(held)), np.zeros(0))
    most = dict.fromkeys(range(len(held) + 1), 0)
    for assignment in assignments(3, num_ranks, held):
        inside = [way[0] for way in assignment if len(set(way)) == 1]
        for way in zip(*assignment, strict=True):
            assert len(set(way)) >= len(set(inside))
        most[len(set(inside))] = max(most[len(set(inside))], len(inside))
    upto = np.maximum.accumulate([most[number] for number in range(1, len(held) + 1)])
    assert np.minimum(leaving.most_inside[0], 3 * together).tolist() == (together * upto).tolist()
    assert leaving.groups_for_all[0] == next((n for n, most in enumerate(upto, 1) if most == 3), len(held) + 1)


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize(("family", "vpp"), [("one_way", 1), ("v", 2), ("loop", 2), ("loop", 3)])
@pytest.mark.parametrize(
    "fleet",
    [
        Fleet(2, 3, (3, 2, 2), (1.0, 1.0, 1.0)),
        Fleet(2, 3, (2, 2, 2), (4.0, 1.0, 2.0)),
        Fleet(3, 3, (4, 4, 3), (1.0, 3.0, 2.0)),
        Fleet(2, 4, (4, 2, 2), (1.0, 2.0, 0.5)),
        Fleet(2, 4, (3, 3, 3), (1.0, 1.0, 1.0)),
        Fleet(3, 3, (6, 5), (1.0, 2.0)),
        Fleet(2, 5, (4, 4, 2), (1.0, 2.0, 3.0)),
        Fleet(2, 4, (3, 2, 2, 2), (1.0, 2.0, 1.0, 3.0)),
    ],
)
def test_no_assignment_sends_less(together: int, family: str, vpp: int, fleet: Fleet) -> None:
    num_replicas, num_ranks, held, rates = fleet
    row = dict.fromkeys([one.name for one in fields(Columns)], 1)
    columns = columns_from([{**row, "dp": num_replicas * together, "pp": num_ranks, "vpp": vpp, "ep": together}])
    room = together * np.array([held])
    leaving = LeavingMessages(columns, np.array([family == "loop"]), room, np.array(rates), np.zeros(0))
    least: dict[tuple[int, int], tuple[float, float, float]] = {}
    for assignment in assignments(num_replicas, num_ranks, held):
        whole, sent = whole_ranks(assignment), together * leaving_of(assignment, family, vpp, len(held))
        key = len(set(whole)), len(whole)
        if not whole:
            continue
        start, each = (float(one[0]) for one in leaving.around(key[0], np.array([key[1]])))
        around = sent.sum() - start - each * num_runs(assignment, family, vpp)
        new = float((sent / np.array(rates)).max()), float(sent.sum()), float(around)
        least[key] = tuple(map(min, zip(new, least.get(key, (np.inf,) * 3), strict=True)))  # type: ignore[assignment]
    bounds = {(h, n): [float(one[0]) for one in leaving.least(h, np.array([n]))[:2]] for h, n in least}
    assert all(bounds[key][0] <= least[key][0] * (1 + 1e-12) for key in least)
    assert all(bounds[key][1] <= least[key][1] for key in least)
    assert all(around >= 0 for _, _, around in least.values())
    assert any(by_rate > 0 for by_rate, _ in bounds.values())


@pytest.mark.parametrize(("family", "vpp"), [("one_way", 1), ("v", 2), ("loop", 2), ("loop", 3)])
@pytest.mark.parametrize("fleet", [(2, 3, (2, 2, 2)), (2, 4, (2, 2, 2, 2)), (2, 4, (4, 2, 2)), (1, 5, (2, 2, 1, 1))])
def test_no_assignment_keeps_links_out_of_a_set_of_groups_less_busy(
    family: str, vpp: int, fleet: tuple[int, int, tuple[int, ...]]
) -> None:
    """In a mesh of random links; all that leaves a set of groups takes those out of it, on whichever way."""
    num_replicas, num_ranks, held = fleet
    random, num_groups, sets = np.random.default_rng(3), len(held), np.arange(1 << len(held))
    mesh = [(one, other, random.uniform(1, 9)) for one, other in itertools.permutations(range(num_groups), 2)]
    rate_of_set = rates_of_sets(mesh, num_groups)
    row = dict.fromkeys([one.name for one in fields(Columns)], 1)
    columns = columns_from([{**row, "dp": num_replicas, "pp": num_ranks, "vpp": vpp}])
    rate_g = rate_of_set[1 << np.arange(num_groups)]
    leaving = LeavingMessages(columns, np.array([family == "loop"]), np.array([held]), rate_g, rate_of_set)
    alone = LeavingMessages(columns, np.array([family == "loop"]), np.array([held]), rate_g, np.zeros(0))
    least, most = dict[tuple[int, int], float](), 0.0
    for assignment in assignments(num_replicas, num_ranks, held):
        whole, sent = whole_ranks(assignment), np.zeros(len(sets))
        for way in assignment:
            for here, there in itertools.pairwise(visited(way, family, vpp)):
                sent += ((sets >> here) ^ (sets >> there)) & 1  # the activation leaves the set, or the gradient
        key = len(set(whole)), len(whole)
        if whole:
            least[key] = min(least.get(key, np.inf), float((sent[1:-1] / rate_of_set[1:-1]).max()))
    for (h, number), seconds in least.items():
        found, other = (float(one.least(h, np.array([number])).by_rate[0]) for one in (leaving, alone))
        assert other <= found <= seconds * (1 + 1e-12)
        most = max(most, found / other if other else 1.0)
    assert most > 1.0


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("held", [(6, 6), (6, 5), (4, 4), (9, 3), (8, 8), (12, 2), (4, 2), (4, 4, 3)])
def test_ranks_lie_whole_in_one_group_of_two_where_all_others_have_room_too(
    together: int, num_ranks: int, held: tuple[int, ...]
) -> None:
    """Three replicas, or three times as many that share every place with their expert group."""
    row = dict.fromkeys([one.name for one in fields(Columns)], 1)
    columns = columns_from([{**row, "dp": 3 * together, "pp": num_ranks, "ep": together}])
    leaving = LeavingMessages(columns, np.array([False]), together * np.array([held]), np.ones(len(held)), np.zeros(0))
    whole = [whole_ranks(one) for one in assignments(3, num_ranks, held)]
    most = max((len(own) for own in whole if len(set(own)) == 1), default=0)
    assert leaving.most_whole[0] >= most
    if len(held) == 2 and sum(held) >= 3 * num_ranks + 1:  # room for the others wherever they are
        assert leaving.most_whole[0] == most
