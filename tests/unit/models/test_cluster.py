"""What the numbers of a pool and a link add up to."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.cluster import LEVELS, Link, Place, Pool
from models.request import PlanRequest
from tests.unit.models.bad_requests import good_request


def link(**changes: object) -> Link:
    base = {"id": "l", "from_place": "a", "to_place": "b", "capacity_bytes_per_s": 1e12}
    return Link.model_validate(base | changes)


def pool(**changes: object) -> Pool:
    base = {"id": "p", "place": "a", "gpu": "H100-SXM-80G", "num_hosts": 4, "nic_bytes_per_s": 5e10}
    return Pool.model_validate(base | changes)


def test_free_gpus_leave_out_reserved_and_unhealthy_ones() -> None:
    assert pool(num_reserved_gpus=5, num_unhealthy_gpus=3).num_free_gpus == 4 * 8 - 8


def test_two_gpus_may_share_a_network_card() -> None:
    assert pool(nics_per_gpu=0.5).nic_bytes_per_s_per_gpu == 2.5e10


def test_a_catalogue_name_stands_for_the_gpu_type() -> None:
    assert pool().gpu.scale_up_domain_gpus == 8


def test_usable_capacity_is_what_failures_oversubscription_and_others_leave() -> None:
    one = link(planes=4, num_failed_planes=1, oversubscription=2.5, background_bytes_per_s=1e11)
    assert one.usable_bytes_per_s(reverse=False) == pytest.approx(1e12 * 3 / 4 / 2.5 - 1e11)


def test_the_reverse_direction_takes_the_same_numbers_unless_given() -> None:
    assert link().usable_bytes_per_s(reverse=True) == link().usable_bytes_per_s(reverse=False) == 1e12
    one = link(reverse_capacity_bytes_per_s=5e11, background_bytes_per_s=1e11, reverse_background_bytes_per_s=2e11)
    assert one.usable_bytes_per_s(reverse=False) == pytest.approx(9e11)
    assert one.usable_bytes_per_s(reverse=True) == pytest.approx(3e11)


@pytest.mark.parametrize(("num_failed", "accepted"), [(3, True), (4, False)])
def test_one_plane_must_live(num_failed: int, accepted: bool) -> None:
    if accepted:
        assert link(planes=4, num_failed_planes=num_failed)
        return
    with pytest.raises(ValidationError, match="remove the link"):
        link(planes=4, num_failed_planes=num_failed)


@pytest.mark.parametrize("above", LEVELS)
@pytest.mark.parametrize("below", LEVELS)
def test_a_parent_lies_on_a_higher_level(above: str, below: str) -> None:
    document = good_request()
    document["cluster"]["places"] += [{"id": "up", "level": above}, {"id": "down", "level": below, "parent": "up"}]
    if LEVELS.index(above) < LEVELS.index(below):  # type: ignore[arg-type]
        assert PlanRequest.model_validate(document)
        return
    with pytest.raises(ValidationError, match="a parent lies on a higher level"):
        PlanRequest.model_validate(document)


def test_values_are_frozen_and_survive_a_round_trip() -> None:
    request = PlanRequest.model_validate(good_request())
    assert PlanRequest.model_validate_json(request.model_dump_json()) == request
    with pytest.raises(ValidationError, match="frozen"):
        Place(id="a", level="zone").id = "b"  # type: ignore[misc]
