"""Changes by JSON Pointer do what they say, and are refused with the place and a remedy where they mean nothing."""

from __future__ import annotations

from typing import Any

import pytest

from models.cluster import GpuType, Link, LoadBalancing, Pool, Uplink
from models.errors import InvalidRequest, LimitExceeded
from models.question_parts import Change
from models.request import Constraints, Objective, PlanRequest
from solver.network.balancing import balanced_efficiency
from solver.network.technology import QUEUE_PAIRS
from solver.questions.changes import MOST_PLACES, changed_document
from solver.questions.curves import changes_over
from solver.questions.missing_links import are_missing
from solver.questions.more import DEMANDS, HELPS, HURTS, NO_LIMIT, PRICES, StatedWorld, direction
from solver.questions.resources import resources_of
from solver.questions.searches import changed
from tests.build_request import build_request, cluster


def _changed(*changes: dict[str, Any]) -> PlanRequest:
    return changed(build_request(), [Change.model_validate(one) for one in changes])


def by_uplinks() -> dict[str, Any]:
    """A cluster whose buildings are joined by their uplinks alone, 2 to 1 each."""
    hardware = cluster() | {"links": []}
    for place in hardware["places"][1:]:
        place["uplink"] = {"oversubscription": 2.0}
    return hardware


def test_every_kind_of_change_does_what_it_says() -> None:
    base = build_request()
    link = base.cluster.links[0]
    made = _changed(
        {"pointer": f"/cluster/links/{link.id}/capacity_bytes_per_s", "op": "multiply", "value": 2.0},
        {"pointer": "/cluster/links/0/loss_probability", "value": 1e-5},
        {"pointer": "/cluster/pools/*/gpu/memory_bytes", "op": "increase", "value": 1e9},
        {"pointer": "/constraints/forbidden_places", "op": "add", "value": "north"},
        {"pointer": "/constraints/max_gpus", "op": "remove"},
    )
    assert made.cluster.links[0].capacity_bytes_per_s == 2.0 * link.capacity_bytes_per_s
    assert made.cluster.links[0].loss_probability == 1e-5
    assert {pool.gpu.memory_bytes for pool in made.cluster.pools} == {base.cluster.pools[0].gpu.memory_bytes + 1e9}
    assert "north" in made.constraints.forbidden_places
    assert made.constraints.max_gpus is None


def test_an_element_goes_by_its_id_also_where_that_is_the_position_of_another() -> None:
    document = build_request().model_dump(mode="json")
    last = len(document["cluster"]["pools"]) - 1
    for index, pool in enumerate(document["cluster"]["pools"]):
        pool["id"] = f"{last - index}"
    base = PlanRequest.model_validate(document)
    hosts = {pool.id: pool.num_hosts for pool in base.cluster.pools}
    one = changed(base, [Change(pointer="/cluster/pools/0/num_reserved_gpus", value=1)])
    assert {pool.id: pool.num_reserved_gpus for pool in one.cluster.pools} == {**dict.fromkeys(hosts, 0), "0": 1}
    for resource in resources_of(base, ("pools",)):
        if resource.kind == "hosts" and not resource.together and resource.larger is not None:
            more = {pool.id: pool.num_hosts for pool in changed(base, resource.larger(0.5)).cluster.pools}
            name = resource.name.removeprefix("hosts of ")
            assert {pool for pool in hosts if more[pool] != hosts[pool]} == {name}
    with pytest.raises(InvalidRequest, match="leads nowhere"):
        changed(base, [Change(pointer="/cluster/links/00/latency_s", value=1.0)])


def test_elements_that_go_do_not_move_those_that_stay() -> None:
    base = build_request()
    last = base.cluster.pools[2].id
    made = changed_document(base, [Change(pointer="/cluster/pools/0", op="remove"),
                                   Change(pointer="/cluster/pools/1", op="remove"),
                                   Change(pointer="/cluster/pools/2/num_hosts", value=7)])  # fmt: skip
    assert [(pool["id"], pool["num_hosts"]) for pool in made["cluster"]["pools"]] == [(last, 7)]


@pytest.mark.parametrize(
    ("changes", "said", "pointer"),
    [
        ([{"pointer": "/cluster/lynks/0"}], "there is no 'lynks' in /cluster", "/changes/0/pointer"),
        ([{"pointer": "/cluster/links/9/latency_s"}], "there is no '9' in /cluster/links", "/changes/0/pointer"),
        ([{"pointer": "/cluster/name/x"}], "leads nowhere", "/changes/0/pointer"),
        ([{"pointer": "/options/seed", "value": 1}], "how the search is made", "/changes/0/pointer"),
        (
            [{"pointer": "/constraints/max_gpus", "value": 1}, {"pointer": "/constraints/max_gpus", "value": 2}],
            "both change /constraints/max_gpus",
            "/changes/1",
        ),
        (
            [{"pointer": "/cluster/pools/0/num_hosts", "value": 1}, {"pointer": "/cluster/pools/0", "op": "remove"}],
            "both change /cluster/pools/0/num_hosts",
            "/changes/1",
        ),
        (
            [{"pointer": "/cluster/pools/*/num_hosts", "value": 1},
             {"pointer": "/cluster/pools/1/num_hosts", "value": 2}],
            "both change /cluster/pools/1/num_hosts",
            "/changes/1",
        ),
        ([{"pointer": "/constraints/max_gpus", "op": "increase", "value": 1}], "is null", "/changes/0"),
        ([{"pointer": "/cluster/name", "op": "add", "value": 1}], "is no list", "/changes/0"),
    ],
)  # fmt: skip
def test_a_change_that_means_nothing_is_refused_with_its_place(
    changes: list[dict[str, Any]], said: str, pointer: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _changed(*changes)
    assert said in refused.value.message
    assert refused.value.pointer == pointer
    assert refused.value.remedy


POINTERS = (
    "/cluster/pools", "/cluster/pools/0", "/cluster/pools/*", "/cluster/pools/1/num_hosts",
    "/cluster/pools/*/num_hosts", "/cluster/pools/*/gpu/name", "/cluster/name", "/cluster", "/constraints/max_gpus",
)  # fmt: skip


def _places(pointer: str, number: int) -> set[tuple[str, ...]]:
    parts = pointer[1:].split("/")
    return {tuple(str(at) if part == "*" else part for part in parts) for at in range(number)}


@pytest.mark.parametrize("first", POINTERS)
@pytest.mark.parametrize("second", POINTERS)
def test_changes_meet_where_one_holds_what_the_other_changes(first: str, second: str) -> None:
    number = len(build_request().cluster.pools)
    meet = any(
        one[: len(other)] == other or other[: len(one)] == one
        for one in _places(first, number)
        for other in _places(second, number)
    )
    others = [Change(pointer="/constraints/forbidden_places", op="remove"), Change(pointer="/workload", op="remove")]
    changes = [others[0], Change(pointer=first, op="remove"), others[1], Change(pointer=second, op="remove")]
    if not meet:
        changed_document(build_request(), changes)
        return
    with pytest.raises(InvalidRequest, match=r"changes 1 .* and 3 .* both change"):
        changed_document(build_request(), changes)


def test_changes_of_very_many_places_are_refused_as_soon_as_they_are() -> None:
    base = build_request()
    (pool, *_), number = base.cluster.pools, 9_000
    pools = tuple(pool.model_copy(update={"id": f"p{at}"}) for at in range(number))
    fields = ("num_hosts", "gpus_per_host", "nics_per_gpu", "nic_bytes_per_s", "num_reserved_gpus", "place", "id")
    changes = [Change(pointer=f"/cluster/pools/*/{field}", value=1) for field in fields]
    large = base.model_copy(update={"cluster": base.cluster.model_copy(update={"pools": pools})})
    with pytest.raises(LimitExceeded) as refused:
        changed_document(large, changes)
    assert refused.value.pointer == f"/changes/{MOST_PLACES // number}/pointer"


def test_a_distance_that_does_not_count_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="counts only where latency_s is null"):
        _changed({"pointer": "/cluster/links/0/latency_s", "value": 1e-3},
                 {"pointer": "/cluster/links/0/distance_km", "value": 10.0})  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("/cluster/links/0/capacity_bytes_per_s", "multiply", 2.0)], "more"),
        ([("/cluster/links/0/capacity_bytes_per_s", "multiply", 0.5)], "less"),
        ([("/constraints/memory_headroom_fraction", "replace", 0.5)], "less"),
        ([("/constraints/max_gpus", "replace", 8)], "less"),
        ([("/cluster/links/0/capacity_bytes_per_s", "multiply", 2.0), ("/constraints/max_gpus", "replace", 8)], None),
        ([("/workload/global_batch_sequences", "replace", 32)], None),
        ([("/cluster/links/0/planes", "replace", 2)], None),
        ([("/cluster/links/0/num_failed_planes", "replace", 1)], "less"),
        ([("/cluster/links/0/background_bytes_per_s", "replace", 1e11)], "less"),
        ([("/cluster/links/0/reverse_background_bytes_per_s", "replace", 1e11)], "less"),
        ([("/cluster/links/0/reverse_capacity_bytes_per_s", "replace", 8e11)], "more"),
        ([("/cluster/links/0/reverse_capacity_bytes_per_s", "replace", 1e11)], "less"),
        ([("/cluster/links/0/reverse_capacity_bytes_per_s", "replace", 4e11)], None),
        ([("/cluster/links/0/flow_bytes_per_s", "replace", 1e9)], "less"),
        ([("/cluster/links/0/latency_s", "remove", None)], "more"),
        ([("/cluster/links/0/latency_s", "replace", 0.1)], "less"),
        ([("/cluster/links/0", "remove", None)], "less"),
        ([("/cluster/links/0/load_balancing", "add", "dqplb")], None),
        ([("/cluster/pools/0/num_unhealthy_gpus", "replace", 8)], "less"),
        ([("/cluster/pools/0/num_reserved_gpus", "replace", 8)], "less"),
        ([("/cluster/pools/0/nics_per_gpu", "multiply", 2.0)], "more"),
        ([("/cluster/pools/0/gpus_per_host", "replace", 16)], None),
        ([("/cluster/pools/0", "remove", None)], "less"),
        ([("/cluster/pools/*/gpu/bf16_flops_per_s", "multiply", 2.0)], None),
        ([("/cluster/pools/*/gpu/usd_per_gpu_hour", "multiply", 2.0)], None),
        ([("/constraints/forbidden_places", "add", "north")], "less"),
        ([("/constraints/pipeline_may_cross_buildings", "replace", False)], "less"),
        ([("/constraints/max_cross_building_bytes_per_iteration", "replace", 1e9)], "less"),
        ([("/constraints/allowed/tp", "replace", [4, 8])], "less"),
        ([("/constraints/use_all_gpus", "replace", True)], "less"),
        ([("/cluster/fabric", "replace", "one")], None),
    ],
)
def test_only_more_of_what_never_hurts_counts_as_more(
    changes: list[tuple[str, str, Any]], expected: str | None
) -> None:
    made = _changed(*({"pointer": pointer, "op": op, "value": value} for pointer, op, value in changes))
    assert direction(build_request(), made) == expected


def test_every_field_that_has_a_direction_is_one_of_a_request() -> None:
    """A name that no request has would stand there for nothing."""
    names = {name for model in (Pool, GpuType, Link, Uplink, Constraints, Objective) for name in model.model_fields}
    assert sorted((HELPS | HURTS | NO_LIMIT | DEMANDS | PRICES) - names) == []
    assert sorted(HELPS & HURTS) == []


def test_more_gpus_are_no_more_where_all_have_to_be_used() -> None:
    """A link less is less whatever has to be used; a host less changes what that is."""
    base = build_request(constraints={"use_all_gpus": True})
    wave = {"pointer": "/cluster/links/0/num_failed_planes", "value": 1}
    broken = {"pointer": "/cluster/pools/0/num_unhealthy_gpus", "value": 8}
    found = [direction(base, changed(base, [Change.model_validate(one)])) for one in (wave, broken)]
    assert found == ["less", None]


def test_full_bisection_that_nobody_stated_is_not_more_than_a_stated_uplink() -> None:
    """As a default it joins no buildings, so the request that has nothing else is refused."""
    base = build_request(cluster=by_uplinks())
    free, full = (
        changed(base, [Change(pointer="/cluster/places/*/uplink/oversubscription", value=one)]) for one in (1.0, 1.5)
    )
    assert direction(base, full) == "more"
    assert direction(base, free) is None


@pytest.mark.parametrize("times", [2.0, 10.0])
def test_wider_uplinks_join_buildings_still(times: float) -> None:
    base = build_request(cluster=by_uplinks())
    all_uplinks = resources_of(base, ["links"])[0]
    assert all_uplinks.larger is not None
    for changes in (changes_over(base, "bandwidth", times), all_uplinks.larger(times - 1.0)):
        wider = changed(base, changes)
        assert not are_missing(wider)
        assert direction(base, wider) == "more"


def test_a_price_matters_where_cost_is_the_objective() -> None:
    dearer = {"pointer": "/cluster/pools/*/gpu/usd_per_gpu_hour", "op": "multiply", "value": 2.0}
    base = build_request(objective={"kind": "cost_per_token"})
    assert direction(base, changed(base, [Change.model_validate(dearer)])) == "less"
    assert StatedWorld(build_request()).is_equal_to(StatedWorld(_changed(dearer)))


@pytest.mark.parametrize("method", ["ecmp", "ecmp_qp_scaling", "dqplb", "spray"])
@pytest.mark.parametrize("num_connections", [1, 2, 7, 16, 100])
def test_a_plane_less_never_carries_more(method: LoadBalancing, num_connections: int) -> None:
    """Whatever collisions do to the planes that are left, with the number of queue pairs that suits them best."""
    carried = [
        max(planes * balanced_efficiency(method, num_connections=num_connections, queue_pairs=pairs, num_planes=planes)
            for pairs in QUEUE_PAIRS)
        for planes in (1, 2, 3, 4, 8, 15, 16, 75, 76)
    ]  # fmt: skip
    assert carried == sorted(carried)
