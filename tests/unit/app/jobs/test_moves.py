"""What moved between two plans is counted per pipeline rank, replicas being interchangeable."""

from __future__ import annotations

from app.jobs.comparison import moves_between
from models.plan import Plan, Route
from tests.unit.app.fake_solver import tiny_plan


def _plan(*routes: tuple[tuple[str, str], int]) -> Plan:
    plan = tiny_plan(2.0)
    first = 0
    listed = []
    for number, (places, num_replicas) in enumerate(routes):
        listed.append(Route(id=f"r{number}", places=places, pools=("p1", "p2"), num_replicas=num_replicas,
                            first_replica=first))  # fmt: skip
        first += num_replicas
    degrees = plan.configuration.degrees.model_copy(update={"dp": first})
    configuration = plan.configuration.model_copy(update={"degrees": degrees})
    placement = plan.placement.model_copy(update={"routes": tuple(listed)})
    return plan.model_copy(update={"configuration": configuration, "placement": placement})


def test_the_least_number_of_stage_groups_moves() -> None:
    before = _plan((("east", "west"), 3), (("west", "west"), 1))
    after = _plan((("east", "east"), 4))
    report = moves_between(before, after)
    assert (report.num_stage_groups, report.num_moved, report.comparable) == (8, 5, True)
    moves = [tuple(one.model_dump().values()) for one in report.moves]
    assert moves == [(0, "west", "east", 1), (1, "west", "east", 4)]


def test_fewer_replicas_move_nobody() -> None:
    assert moves_between(_plan((("east", "west"), 4)), _plan((("east", "west"), 3))).num_moved == 0


def test_other_degrees_are_not_comparable() -> None:
    before = _plan((("east", "west"), 2))
    degrees = before.configuration.degrees.model_copy(update={"tp": 2})
    after = before.model_copy(update={"configuration": before.configuration.model_copy(update={"degrees": degrees})})
    report = moves_between(before, after)
    assert (report.comparable, report.num_moved, report.moves) == (False, 4, [])
