"""Pins and rules on crossing that arithmetic refuses: never a request that some placement obeys."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from models.outcome import Infeasible
from models.request import Pin, PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.lint import lint
from solver.planner import plan
from tests.build_request import GPU

WITHIN = {"pipeline_may_cross_buildings": False}
TOGETHER = {"data_parallel_may_cross_buildings": False}
APART: dict[str, Any] = {"fabric": "separate", "links": []}


def pin(rank: int, place: str, num_replicas: int | None = None, last: int | None = None) -> dict[str, Any]:
    """A pin of one rank, or of all up to the last."""
    return {
        "first_pipeline_rank": rank,
        "last_pipeline_rank": rank if last is None else last,
        "place": place,
        "num_replicas": num_replicas,
    }


def request(
    *pins: dict[str, Any],
    gpus: tuple[int, int, int] = (16, 16, 16),
    cluster: dict[str, Any] | None = None,
    **constraints: Any,
) -> PlanRequest:
    """Buildings a, b and c of a region, in a row of links; `a1` is a zone of a that has its GPUs."""
    links = [
        {"id": one + other, "from_place": one, "to_place": other, "capacity_bytes_per_s": 1e11, "latency_s": 1e-3}
        for one, other in ("ab", "bc")
    ]
    return PlanRequest.model_validate({
        "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 64},
        "cluster": {
            "name": "three",
            "places": [{"id": "metro", "level": "region"},
                       *({"id": one, "level": "building", "parent": "metro"} for one in "abc"),
                       {"id": "a1", "level": "zone", "parent": "a"}],
            "pools": [{"id": f"p{place}", "place": place, "gpu": GPU, "num_hosts": count, "gpus_per_host": 1,
                       "nic_bytes_per_s": 5e10}
                      for place, count in zip(("a1", "b", "c"), gpus, strict=True)],
            "links": links,
            **(cluster or {}),
        },
        "constraints": {"pins": pins, **constraints},
        "options": {"time_limit_s": 5.0, "workers": 1},
    })  # fmt: skip


REFUSED: dict[str, tuple[PlanRequest, str, str]] = {
    "a replica spans two pinned places": (
        request(pin(0, "a"), pin(1, "b"), **WITHIN), "pins-contradict", "/constraints/pins/1/place"),
    "a zone is in its building": (
        request(pin(0, "a1"), pin(1, "b", 2), **WITHIN), "pins-contradict", "/constraints/pins/1/place"),
    "replicas of a rank in two places": (
        request(pin(0, "a", 2), pin(0, "b", 2), **TOGETHER), "pins-contradict", "/constraints/pins/1/place"),
    "a plan in one building": (
        request(pin(0, "a", 1), pin(1, "b", 1), **WITHIN, **TOGETHER), "pins-contradict", "/constraints/pins/1/place"),
    "a plan that sends nothing between buildings": (
        request(pin(0, "a", 1), pin(1, "b", 1), max_cross_building_bytes_per_iteration=0.0),
        "pins-contradict", "/constraints/pins/1/place"),
    "nothing joins the pinned places": (
        request(pin(0, "a", 1), pin(3, "b", 1), cluster=APART), "pins-contradict", "/constraints/pins/1/place"),
    "a region whose only other building is forbidden": (
        request(pin(0, "metro"), pin(1, "c"), pin(2, "b"), forbidden_places=["a"], **WITHIN),
        "pins-contradict", "/constraints/pins/2/place"),
    "more replicas than dp": (
        request(pin(0, "metro", 9), allowed={"dp": [4, 8]}), "pins-contradict", "/constraints/pins/0/num_replicas"),
    "more replicas than dp in two places": (
        request(pin(0, "a", 5), pin(0, "b", 4), allowed={"dp": [8]}),
        "pins-contradict", "/constraints/pins/1/num_replicas"),
    "two ranks in one place": (
        request(pin(0, "a"), pin(1, "a1"), allowed={"dp": [16]}), "pins-contradict", "/constraints/pins/1"),
    "fewer GPUs than pinned ranks": (request(pin(3, "a"), max_gpus=2), "too-few-gpus", "/constraints/max_gpus"),
    "fewer GPUs than pinned replicas": (
        request(pin(1, "a", 8), max_gpus=8), "too-few-gpus", "/constraints/max_gpus"),
    "a replica larger than a building": (
        request(allowed={"tp": [8], "pp": [4]}, **WITHIN),
        "too-few-gpus", "/constraints/pipeline_may_cross_buildings"),
    "a plan larger than what is joined": (
        request(allowed={"dp": [32]}, cluster=APART), "too-few-gpus", "/cluster/links"),
    "no plan uses two buildings": (
        request(use_all_gpus=True, **WITHIN, **TOGETHER), "nothing-allowed", "/constraints/use_all_gpus"),
    "a rank larger than a building": (
        request(allowed={"dp": [32]}, **TOGETHER), "too-few-gpus", "/constraints/data_parallel_may_cross_buildings"),
}  # fmt: skip


def test_places_that_are_too_small_are_told_from_the_inside_out() -> None:
    """Not in the order of a set of names, which is another one in every process."""
    reasons = lint(request(pin(0, "a1", 10), pin(1, "a1", 10), pin(2, "a", 10), pin(3, "metro", 30)))
    told = [one.pointer for one in reasons if one.code == "pins-contradict"]
    assert told == [f"/constraints/pins/{index}" for index in (1, 2, 3)]


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_plan_obeys_is_refused_at_once(case: str) -> None:
    refused, code, pointer = REFUSED[case]
    outcome = plan(refused)
    assert isinstance(outcome, Infeasible), outcome
    assert (code, pointer) in {(one.code, one.pointer) for one in outcome.reasons}
    assert all(one.remedies for one in outcome.reasons)


@pytest.mark.parametrize(
    "asked",
    [
        request(pin(0, "a"), pin(1, "metro"), **WITHIN),
        request(pin(0, "a"), pin(1, "a1"), **WITHIN, **TOGETHER),
        request(pin(0, "a", 2), pin(1, "b", 2), **WITHIN),
        request(pin(0, "a"), pin(1, "b"), **TOGETHER),
        request(pin(0, "a", 8), pin(1, "b", 8), allowed={"dp": [8]}),
        request(pin(0, "a"), pin(1, "metro"), cluster=APART),
    ],
)
def test_a_place_that_holds_both_contradicts_nothing(asked: PlanRequest) -> None:
    assert lint(asked) == ()


def test_a_rule_that_alone_is_in_the_way_may_be_given_up() -> None:
    (reason,) = lint(request(pin(0, "a"), pin(1, "b"), **WITHIN))
    assert reason.remedies[0] == "set pipeline_may_cross_buildings to true"
    assert lint(request(pin(0, "a"), pin(1, "b"))) == ()


def _some_placement(asked: PlanRequest, gpus: tuple[int, ...], islands: tuple[str, ...]) -> bool:
    """Whether any assignment of stage groups of one GPU to buildings obeys every rule."""
    stated = asked.constraints
    holds = {"metro": "abc", "a": "a", "a1": "a", "b": "b", "c": "c"}
    barred = {building for place in stated.forbidden_places for building in holds[place]}

    def obeyed(one: Pin, where: dict[tuple[int, int], str], pp: int, dp: int) -> bool:
        ranks = range(one.first_pipeline_rank, one.last_pipeline_rank + 1)
        if ranks[-1] >= pp:
            return False
        good = sum(all(where[rank, replica] in holds[one.place] for rank in ranks) for replica in range(dp))
        return good >= (one.num_replicas or dp)

    for pp, dp in product(stated.allowed.pp or (), stated.allowed.dp or ()):
        cells = list(product(range(pp), range(dp)))
        if len(cells) > (stated.max_gpus or len(cells)):
            continue
        for chosen in product("abc", repeat=len(cells)):
            where = dict(zip(cells, chosen, strict=True))
            replicas = [{where[rank, replica] for rank in range(pp)} for replica in range(dp)]
            ranks = [{where[rank, replica] for replica in range(dp)} for rank in range(pp)]
            if (
                not barred & set(chosen)
                and all(chosen.count(one) <= count for one, count in zip("abc", gpus, strict=True))
                and any(set(chosen) <= set(island) for island in islands)
                and (stated.pipeline_may_cross_buildings or all(len(one) == 1 for one in replicas))
                and (stated.data_parallel_may_cross_buildings or all(len(one) == 1 for one in ranks))
                and (stated.max_cross_building_bytes_per_iteration is None or len(set(chosen)) == 1)
                and all(obeyed(one, where, pp, dp) for one in stated.pins)
            ):
                return True
    return False


def test_nothing_is_refused_that_some_placement_obeys() -> None:
    """Every placement of up to six groups is tried; and the rules are strong enough to refuse most of the rest."""
    dice, refused, hopeless = random.Random(5), 0, 0
    for _ in range(250):
        gpus = tuple(dice.choice((1, 2, 4)) for _ in "abc")
        apart = dice.random() < 0.3
        pins = [
            pin(first, dice.choice(("metro", "a", "a1", "b", "c")), dice.choice((None, None, 1, 2)),
                dice.choice((first, first, 2)))
            for first in (dice.choice((0, 0, 1)) for _ in range(dice.randint(0, 3)))
        ]  # fmt: skip
        asked = request(
            *pins,
            gpus=(gpus[0], gpus[1], gpus[2]),
            cluster=APART if apart else None,
            allowed={"tp": [1], "cp": [1], "pp": dice.choice(([1, 2, 3], [2], [3])), "dp": dice.choice(([1, 2], [2]))},
            max_gpus=dice.choice((None, 2, 4)),
            forbidden_places=dice.choice(([], ["b"])),
            pipeline_may_cross_buildings=dice.random() < 0.5,
            data_parallel_may_cross_buildings=dice.random() < 0.5,
            max_cross_building_bytes_per_iteration=dice.choice((None, None, None, 0.0)),
        )
        found = lint(asked)
        possible = _some_placement(asked, gpus, ("a", "b", "c") if apart else ("abc",))
        assert not (found and possible), (asked.constraints, found)
        assert not possible or len(enumerate_space(asked)), asked.constraints
        hopeless += not possible
        refused += bool(found)
    assert refused > 0.8 * hopeless
