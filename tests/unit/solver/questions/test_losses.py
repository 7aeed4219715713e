"""What is lost as changes of a request: the same whatever else is named, and never more GPUs in use than are left."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import InvalidRequest
from models.outcome import Planned
from models.question_parts import Change
from models.request import PlanRequest
from models.what_now import WhatIfLost, WhatNow
from solver.network.topology import build_topology
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.losses import KIND_OF, changes_of
from solver.questions.missing_links import are_missing
from solver.questions.searches import changed
from solver.questions.what_now import what_is_gone
from tests.build_job import FIXED, job
from tests.build_request import build_request, link, workload
from tests.build_request import pool as pool_of
from tests.counted import work_clock


def _request(**parts: Any) -> PlanRequest:
    """Two pools of two named hosts of eight GPUs, the first with these fields."""
    document = job(hosts=(2, 2), allowed={**FIXED, "dp": [1, 2]}).model_dump(mode="json")
    for pool in document["cluster"]["pools"]:
        pool["host_names"] = [f"{pool['id']}-h0", f"{pool['id']}-h1"]
    document["cluster"]["pools"][0] |= parts
    return PlanRequest.model_validate(document)


def _left(request: PlanRequest, *lost: str) -> list[int]:
    return [pool.num_free_gpus for pool in changed(request, changes_of(request, lost), "/lost").cluster.pools]


@pytest.mark.parametrize(
    ("parts", "num_left"),
    [
        ({"num_unhealthy_gpus": 9}, 0),
        ({"num_reserved_gpus": 8, "num_unhealthy_gpus": 4}, 0),
        ({"num_reserved_gpus": 12}, 0),
        ({"num_unhealthy_gpus": 3}, 5),
        ({}, 8),
    ],
)
def test_a_host_can_be_lost_whatever_part_of_its_pool_is_in_use_or_out_of_service(parts, num_left) -> None:
    request = _request(**parts)
    name = request.cluster.pools[0].host_names[0]
    assert _left(request, name) == [num_left, 16]


def test_what_is_named_twice_is_lost_once() -> None:
    request = _request()
    pool, link = request.cluster.pools[0], request.cluster.links[0].id
    for lost in ([pool.id, pool.id], [pool.id, pool.host_names[0]], [*pool.host_names, pool.id], [pool.place] * 2):
        named = changed(request, changes_of(request, lost), "/lost")
        forbidden = set(named.constraints.forbidden_places)
        assert sum(one.num_free_gpus for one in named.cluster.pools if one.place not in forbidden) == 16
    assert changes_of(request, [link, link]) == changes_of(request, [link])


def test_what_is_no_building_keeps_its_uplink_without_its_last_link() -> None:
    document = _request().model_dump(mode="json")
    hardware = document["cluster"]
    hardware["places"] = [{"id": "r", "level": "region"}, {"id": "b", "level": "building", "parent": "r"},
                          {"id": "z", "level": "zone", "parent": "r"}, {"id": "w", "level": "building"}]  # fmt: skip
    for pool, place in zip(hardware["pools"], "bz", strict=True):
        pool["place"] = place
    hardware["links"] = [{"id": "zw", "from_place": "z", "to_place": "w", "capacity_bytes_per_s": 1e11},
                         {"id": "rw", "from_place": "r", "to_place": "w", "capacity_bytes_per_s": 1e11}]  # fmt: skip
    before = PlanRequest.model_validate(document)
    after = changed(before, changes_of(before, ["zw"]), "/lost")
    assert build_topology(before.cluster).connected("b", "z")
    assert build_topology(after.cluster).connected("b", "z")


def test_nothing_passes_through_a_building_that_is_lost() -> None:
    """Three buildings in a row, of which a job needs two: without the middle one the others are apart."""
    request = job(hosts=(2, 2, 2), allowed={**FIXED, "dp": [4]})
    middle, pool = request.cluster.places[-2].id, request.cluster.pools[1].id
    assert {middle} == set.intersection(*({link.from_place, link.to_place} for link in request.cluster.links))
    outcomes = {}
    for lost in (middle, pool):
        question = WhatNow(request=request, lost=(lost,)).model_dump(mode="json") | {"options": {"time_limit_s": 3.0}}
        answer = ask(WhatNow.model_validate(question), clock=work_clock())
        assert answer.ask == "what_now"
        outcomes[lost] = answer.outcome
    assert outcomes == {middle: "infeasible", pool: "planned"}
    assert what_is_gone(request, "place", middle) != what_is_gone(request, "pool", pool)


def test_a_job_goes_on_in_one_building_when_the_last_link_is_lost() -> None:
    """Two replicas fit into either; the four of the plan before do not, so its degrees cannot be kept."""
    request = job(hosts=(2, 2), allowed={**FIXED, "dp": [2, 4]})
    lost = [link.id for link in request.cluster.links]
    question = {"request": request, "lost": lost, "options": {"time_limit_s": 9.0}}
    answer = ask(WhatNow.model_validate(question), clock=work_clock())
    assert answer.ask == "what_now"
    assert answer.outcome == "planned"
    assert not are_missing(changed(request, changes_of(request, lost)))
    assert answer.points[0].lower_bound_s > 0.0


def test_the_last_building_of_a_row_is_lost_as_its_pool_is() -> None:
    request = job(hosts=(2, 2, 2))
    last = request.cluster.pools[-1]
    assert what_is_gone(request, "place", last.place) == what_is_gone(request, "pool", last.id)


def test_what_goes_through_a_building_to_its_region_is_lost_with_it() -> None:
    """A building with a narrow uplink and a wide link to the next one, whose uplink its traffic takes."""
    uplinks = {"x": (200.0, 2e-2), "y": (1.5, 1e-4), "z": (1.5, 1e-4)}
    above = {name: {"oversubscription": over, "latency_s": delay_s} for name, (over, delay_s) in uplinks.items()}
    places = [{"id": name, "level": "building", "parent": "r", "uplink": above[name]} for name in uplinks]
    hardware = {
        "name": "three",
        "places": [{"id": "r", "level": "region"}, *places],
        "pools": [pool_of(name, num_hosts) for name, num_hosts in (("x", 4), ("y", 1), ("z", 4))],
        "links": [link("l", "x", "y", latency_s=1e-4)],
    }
    allowed = {"tp": [8], "cp": [1], "pp": [1], "vpp": [1]}
    request = build_request(workload=workload(72), cluster=hardware, constraints={"allowed": allowed})
    found = plan(request, clock=work_clock())
    assert isinstance(found, Planned)
    question = WhatIfLost(request=request, plan=found.plan, options={"time_limit_s": 12.0})
    answer = ask(question, clock=work_clock())
    assert answer.ask == "what_if_lost"
    after = plan(changed(request, changes_of(request, ["y-pool"])), clock=work_clock())
    assert isinstance(after, Planned)
    prepared = {(one.kind, one.name): one.answer for one in answer.losses}
    of_pool, of_building = prepared["pool", "y-pool"], prepared["building", "y"]
    assert of_pool is not None
    assert of_building is not None
    assert of_pool.points[0].lower_bound_s <= after.plan.metrics.iteration_s
    assert of_pool.points[0].iteration_s < 0.7 * of_building.points[0].iteration_s


def test_every_loss_is_prepared_for_also_where_a_pool_has_the_name_of_its_building() -> None:
    document = job(hosts=(2, 2), allowed={**FIXED, "dp": [4]}).model_dump(mode="json")
    for pool in document["cluster"]["pools"]:
        pool["id"] = pool["place"]
    question = {"request": document, "options": {"time_limit_s": 6.0}}
    answer = ask(WhatIfLost.model_validate(question), clock=work_clock())
    assert answer.ask == "what_if_lost"
    request = PlanRequest.model_validate(document)
    for one in answer.losses:
        assert one.answer is not None
        assert one.answer.lost_changes == changes_of(request, [one.name], KIND_OF[one.kind])
    found = {(one.kind, one.name): one.answer for one in answer.losses}
    assert {("building", "b0"), ("pool", "b0"), ("building", "b1"), ("pool", "b1")} <= found.keys()
    with pytest.raises(InvalidRequest, match="a place and a pool"):
        changes_of(request, ["b0"])


def test_a_pool_that_changes_made_larger_is_lost_whole() -> None:
    request = _request(host_names=[])
    lost = request.cluster.pools[0].id
    larger = Change(pointer=f"/cluster/pools/{lost}/num_hosts", value=4)
    question = WhatNow(request=request, changes=(larger,), lost=(lost,)).model_dump(mode="json")
    answer = ask(WhatNow.model_validate(question | {"options": {"time_limit_s": 3.0}}), clock=work_clock())
    assert answer.ask == "what_now"
    assert answer.points
    assert [one.value for one in answer.lost_changes] == [4 * 8]
    assert all(lost not in route.pools for point in answer.points for route in point.plan.routes)
