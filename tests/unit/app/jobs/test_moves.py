"""What moved between two plans is counted per pipeline rank, replicas being interchangeable."""

from __future__ import annotations

from typing import Any

import pytest

from app.compared import MoveFigures
from app.jobs.comparison import moves_between
from models.plan import Plan, Route
from tests.unit.app.fake_solver import tiny_plan


def _plan(*routes: tuple[tuple[str, ...], int]) -> Plan:
    plan = tiny_plan(2.0)
    first = 0
    listed = []
    for number, (places, num_replicas) in enumerate(routes):
        pools = ("p1", "p2", "p3")[: len(places)]
        listed.append(Route(id=f"r{number}", places=places, pools=pools, num_replicas=num_replicas,
                            first_replica=first))  # fmt: skip
        first += num_replicas
    degrees = plan.configuration.degrees.model_copy(update={"dp": first})
    configuration = plan.configuration.model_copy(update={"degrees": degrees})
    placement = plan.placement.model_copy(update={"routes": tuple(listed)})
    return plan.model_copy(update={"configuration": configuration, "placement": placement})


def _moves(report: MoveFigures) -> list[tuple[int, str, str, int]]:
    return [(one.pipeline_rank, one.from_place, one.to_place, one.num_stage_groups) for one in report.moves]


def test_the_least_number_of_stage_groups_moves() -> None:
    before = _plan((("east", "west"), 3), (("west", "west"), 1))
    after = _plan((("east", "east"), 4))
    report = moves_between(before, after)
    assert (report.num_stage_groups, report.num_moved, report.comparable) == (8, 5, True)
    assert _moves(report) == [(0, "west", "east", 1), (1, "west", "east", 4)]


def test_fewer_replicas_move_nobody() -> None:
    assert moves_between(_plan((("east", "west"), 4)), _plan((("east", "west"), 3))).num_moved == 0


def _with(plan: Plan, *, degrees: dict[str, int] | None = None, **configuration: object) -> Plan:
    own = plan.configuration.degrees.model_copy(update=degrees or {})
    changed = plan.configuration.model_copy(update={"degrees": own, **configuration})
    return plan.model_copy(update={"configuration": changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"degrees": {"tp": 2}},
        {"degrees": {"ep": 2}},
        {"layers_per_stage": (3, 1)},
        {"degrees": {"vpp": 2}, "layers_per_stage": (1, 1, 1, 1), "family": "loop"},
    ],
    ids=["tp", "ep", "layers", "chunks"],
)
def test_where_no_group_holds_the_same_layers_every_group_is_another(changed: dict[str, Any]) -> None:
    before = _with(_plan((("east", "west"), 2)), layers_per_stage=(2, 2))
    report = moves_between(before, _with(before, **changed))
    assert (report.comparable, report.num_moved, report.num_with_other_layers, report.moves) == (False, 4, 4, [])


def test_the_fold_of_chunks_says_who_holds_what() -> None:
    chunks: dict[str, Any] = {"degrees": {"vpp": 2}, "layers_per_stage": (1, 1, 1, 1)}
    looped, folded = (_with(_plan((("east", "west"), 2)), **chunks, family=name) for name in ("loop", "v"))
    assert moves_between(looped, looped).num_moved == 0
    assert moves_between(looped, folded).num_with_other_layers == 4


def test_ranks_are_known_by_their_layers_not_by_their_number() -> None:
    """A rank is taken out in front: the last one holds what it held, under another number."""
    three = _plan((("east", "mid", "west"), 2))
    three = _with(three, degrees={"pp": 3}, layers_per_stage=(1, 1, 2))
    two = _with(_plan((("east", "east"), 2)), layers_per_stage=(2, 2))
    report = moves_between(three, two)
    assert (report.comparable, report.num_moved, report.num_with_other_layers) == (True, 4, 2)
    assert _moves(report) == [(1, "west", "east", 2)]


def test_another_pool_of_the_same_place_is_a_move() -> None:
    before = _plan((("east", "west"), 2))
    (route,) = before.placement.routes
    placement = before.placement.model_copy(update={"routes": (route.model_copy(update={"pools": ("p1", "p3")}),)})
    report = moves_between(before, before.model_copy(update={"placement": placement}))
    assert report.num_moved == 2
    assert [(one.from_pool, one.to_pool) for one in report.moves] == [("p2", "p3")]
