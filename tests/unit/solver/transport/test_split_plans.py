"""Plans on meshes: the exchange splits where that is faster, links show it, the judge agrees; prices and warnings."""

from __future__ import annotations

from functools import cache

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.evaluation import evaluate
from solver.planner import plan
from solver.transport import exchange
from solver.verify.joint_replay import joint_replay
from solver.verify.judge import judge
from tests.build_job import FIXED, job
from tests.sensitivity.forge import puts
from tests.unit.solver.transport.meshes import PARALLEL, THIN_TRIANGLE, MeshLink, meshed

LITTLE = {"time_limit_s": 4.0, "reproducible": True}  # no gap here closes, and what is compared is found early
REPLICAS_ONLY = {"pipeline_may_cross_buildings": False, "use_all_gpus": True}


@cache
def known(text: str) -> Plan:
    return planned(PlanRequest.model_validate_json(text))


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    verdict = judge(request, outcome.plan)
    assert verdict.accepted, verdict.violations
    return outcome.plan


def bytes_by_link(found: Plan) -> dict[str, float]:
    return {
        one.link: sum(flow.bytes_per_iteration for flow in one.flows) for one in found.link_loads if not one.reverse
    }


MESHES = {
    "two parallel links": (2, PARALLEL, 8),
    "triangle with a thin side": (3, THIN_TRIANGLE, 12),
}


@pytest.mark.parametrize("name", MESHES)
def test_a_split_exchange_beats_least_latency_paths(name, monkeypatch):
    num_buildings, links, num_replicas = MESHES[name]
    request = meshed(
        num_buildings,
        links,
        batch=96,
        allowed={**FIXED, "dp": [num_replicas]},
        constraints=REPLICAS_ONLY,
        options=LITTLE,
    )
    split = planned(request)
    monkeypatch.setattr(exchange, "LEAST_GAIN", 1.0)  # no split can save everything
    plain = planned(request)
    assert split.placement.crossing == plain.placement.crossing == "dp_out"
    assert max(one.shared_s for one in split.exchanges) < 0.6 * max(one.shared_s for one in plain.exchanges)
    assert split.metrics.iteration_s < 0.99 * plain.metrics.iteration_s


@pytest.mark.parametrize("constraints", [REPLICAS_ONLY, {"data_parallel_may_cross_buildings": False}])
@pytest.mark.parametrize("kind", [{"technology": "tcp"}, {"load_balancing": ["ecmp"]}], ids=str)
def test_a_narrow_link_of_another_kind_beside_a_wide_one_costs_nothing(kind, constraints):
    """Also where it is the one of least latency, which everything would take by default."""
    wide: MeshLink = ("wide", "b0", "b1", 1.6e12, 1e-3)
    narrow: MeshLink = ("far", "b0", "b1", 1.25e9, 5e-4)
    how = {"allowed": {**FIXED, "dp": [8]}, "constraints": {**constraints, "use_all_gpus": True}, "options": LITTLE}
    alone, beside = planned(meshed(2, (wide,), **how)), planned(meshed(2, (wide, narrow), far=kind, **how))
    assert beside.metrics.iteration_s <= alone.metrics.iteration_s * (1 + 1e-9)
    assert set(bytes_by_link(beside)) == {"wide"}


def test_parallel_links_carry_their_shares_and_have_a_price():
    request = meshed(2, PARALLEL, options=LITTLE, allowed={**FIXED, "dp": [8]}, constraints=REPLICAS_ONLY)
    found = planned(request)
    carried = bytes_by_link(found)
    assert carried["far"] == pytest.approx(3 * carried["near"])
    assert all(one.bottleneck == ("dp",) for one in found.link_loads)
    for reverse in (False, True):
        prices = {one.link: one.price_s_per_gb for one in found.link_loads if one.reverse == reverse}
        assert all(price >= 0 for price in prices.values())
    worth = sum(one.price_s_per_gb * one.usable_bytes_per_s / 1e9 for one in found.link_loads)
    assert 1.0 <= worth < 1.5  # by duality one second per second of wire, over the part of it that transport reaches


def test_the_price_is_what_another_byte_costs():
    """One link in each direction: prices times bytes are the time on the wire, all of it exposed."""
    request = job(
        options=LITTLE, allowed={**FIXED, "dp": [8]}, link={"capacity_bytes_per_s": 1e11}, constraints=REPLICAS_ONLY
    )
    found = planned(request)
    paid = sum(one.price_s_per_gb * one.flows[0].bytes_per_iteration / 1e9 for one in found.link_loads)
    latency_s = 4 * 2 * (1e-4 + 1e-4)
    assert paid == pytest.approx(sum(one.shared_s for one in found.exchanges), abs=latency_s)


def test_a_hidden_exchange_is_free():
    found = planned(
        job(
            options=LITTLE, allowed={**FIXED, "dp": [8]}, link={"capacity_bytes_per_s": 1e14}, constraints=REPLICAS_ONLY
        )
    )
    assert found.link_loads
    assert all(one.price_s_per_gb == 0 and one.bottleneck == () for one in found.link_loads)


def test_headroom_is_what_the_peak_leaves():
    found = planned(job(options=LITTLE, allowed={**FIXED, "dp": [8]}))
    for one in found.link_loads:
        left = one.usable_bytes_per_s * (1 - one.peak_utilisation)
        assert one.headroom_bytes_per_s == pytest.approx(left, abs=1e-6 * one.usable_bytes_per_s)


def test_limited_bytes_between_buildings_allow_no_detour():
    """The detour by way of the third building would carry some bytes twice."""
    how = {"batch": 96, "allowed": {**FIXED, "dp": [12]}, "options": LITTLE}
    free = planned(meshed(3, THIN_TRIANGLE, constraints=REPLICAS_ONLY, **how))
    limit = {"max_cross_building_bytes_per_iteration": 1e15}
    held = planned(meshed(3, THIN_TRIANGLE, constraints=REPLICAS_ONLY | limit, **how))
    assert held.metrics.cross_building_bytes < free.metrics.cross_building_bytes
    assert held.metrics.iteration_s > free.metrics.iteration_s


@pytest.mark.parametrize(("buffer_bytes", "num_warnings"), [(1e6, 2), (1e11, 0)])
def test_short_buffers_on_links_in_use_are_warned_of(buffer_bytes, num_warnings):
    found = planned(job(options=LITTLE, allowed={**FIXED, "dp": [8]}, link={"switch_buffer_bytes": buffer_bytes}))
    short = [one for one in found.warnings if one.rule == "switch-buffer"]
    assert len(short) == num_warnings
    assert all((one.severity, one.pointer) == ("warning", "/cluster/links/0/switch_buffer_bytes") for one in short)


PIPELINES_ONLY = {"data_parallel_may_cross_buildings": False, "use_all_gpus": True}


def pipelines(num_buildings: int, links: tuple[MeshLink, ...]) -> PlanRequest:
    """Eight pipelines, two ranks of each in every building."""
    allowed = {**FIXED, "pp": [2 * num_buildings], "dp": [8]}
    return meshed(num_buildings, links, batch=96, allowed=allowed, constraints=PIPELINES_ONLY, options=LITTLE)


def test_split_messages_beat_least_latency_paths(monkeypatch):
    request = pipelines(2, PARALLEL)
    split = planned(request)
    for others in ("split_paths", "widest_paths"):
        monkeypatch.setattr(evaluate, others, lambda *_: None)
    plain = planned(request)
    assert split.placement.crossing == plain.placement.crossing == "pp_out"
    assert split.metrics.iteration_s < 0.99 * plain.metrics.iteration_s
    assert not plain.message_splits
    reasons = [one.reason for one in split.transport if (one.dimension, one.tier) == ("pp", "cross_building")]
    assert ["no link carries more than 75 % of a message" in one for one in reasons] == [True]
    assert {(one.from_place, one.to_place) for one in split.message_splits} == {("b0", "b1"), ("b1", "b0")}
    for one in split.message_splits:
        assert {path.steps[0].link: path.part for path in one.paths} == pytest.approx({"near": 0.25, "far": 0.75})
    carried = bytes_by_link(split)
    assert carried["far"] == pytest.approx(3 * carried["near"])
    assert sum(carried.values()) == pytest.approx(bytes_by_link(plain)["near"])


def test_the_joint_replay_sends_the_parts_of_a_split():
    request = pipelines(2, PARALLEL)
    found = planned(request)
    again = joint_replay(request, found)
    sent = {(one.link, one.reverse): one.message_bytes for one in again.edges if one.message_bytes}
    stated = {(one.link, one.reverse): one.flows[0].bytes_per_iteration for one in found.link_loads}
    assert sent == pytest.approx(stated)
    assert all(one.peak_utilisation <= 1 + 1e-9 for one in again.edges)
    assert again.iteration_s <= found.metrics.iteration_s * (1 + 1e-9)


FORGED_SPLITS = {
    "parts that lose bytes": ("message-paths", {"message_splits__0__paths__0__part": 0.2}),
    "a path that ends elsewhere": ("message-paths", {"message_splits__0__paths__0__steps__0__reverse": True}),
    "a split that loads deny": ("pipeline-bytes", {"message_splits": ()}),
    "a split stated twice": ("message-paths", {"message_splits": lambda old: (*old, old[0])}),
    "a message that leaves out the longer path": (
        "hop-times",
        {"timelines__0__problem__hops__1__latency_s": lambda old: old - 1.1e-4},
    ),
}


@pytest.mark.parametrize("name", FORGED_SPLITS)
def test_the_judge_convicts_forged_splits(name):
    request = pipelines(2, PARALLEL)
    rule, changes = FORGED_SPLITS[name]
    forged = puts(known(request.model_dump_json()), **changes)
    assert rule in {one.rule for one in judge(request, forged).violations}


@pytest.mark.parametrize("make", [pipelines, lambda *mesh: meshed(*mesh, constraints=REPLICAS_ONLY, options=LITTLE)])
def test_limited_bytes_between_buildings_may_take_parallel_links(make):
    """Split over them no byte leaves a building twice."""
    request = make(2, PARALLEL)
    free = planned(request)
    limit = {"max_cross_building_bytes_per_iteration": free.metrics.cross_building_bytes}
    held = planned(request.with_constraints(**limit))
    assert held.metrics.iteration_s == pytest.approx(free.metrics.iteration_s)
    assert len(bytes_by_link(held)) == 2
