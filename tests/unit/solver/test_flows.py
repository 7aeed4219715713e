"""What one flow gets on a card and on a link: in the time of messages and exchanges, and in the judge's own eyes."""

from __future__ import annotations

from typing import Any

import pytest

from models.cluster import Pool
from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.network.connection import Option, Wire, connection_rate_bytes_per_s, step_s
from solver.network.topology import build_topology
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, job

PIPELINE = {"data_parallel_may_cross_buildings": False, "use_all_gpus": True}
REPLICAS = {"pipeline_may_cross_buildings": False, "use_all_gpus": True}
TCP = {"technology": "tcp", "load_balancing": ["ecmp"], "capacity_bytes_per_s": 1e12, "planes": 1}


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    assert judge(request, outcome.plan).violations == ()
    return outcome.plan


def pool(**changes: Any) -> Pool:
    fields = {"id": "p", "place": "b", "gpu": "A100-SXM-40G", "num_hosts": 1, "gpus_per_host": 4}
    return Pool.model_validate(fields | {"nics_per_gpu": 0.25, "nic_bytes_per_s": 6e9} | changes)


def test_one_gpu_gets_its_flow_and_four_share_the_card() -> None:
    """2.4-2.6 GB/s and 6.0 GB/s: what a cloud card measures."""
    alone = pool(gpus_per_host=1, nics_per_gpu=1.0, flow_bytes_per_s=2.5e9)
    assert alone.nic_bytes_per_s_per_gpu == 2.5e9
    together = pool(flow_bytes_per_s=2.5e9)
    assert 4 * together.nic_bytes_per_s_per_gpu == 6e9
    assert pool().nic_bytes_per_s_per_gpu == together.nic_bytes_per_s_per_gpu


def test_the_limit_of_a_flow_takes_nothing_from_the_network_above_the_cards() -> None:
    def capacity(**changes: Any) -> list[float]:
        request = job(hosts=(4, 4), pool=changes).model_dump(mode="json")
        request["cluster"]["places"] += [
            {"id": f"z{index}", "level": "zone", "parent": f"b{index}"} for index in range(2)
        ]
        for index, one in enumerate(request["cluster"]["pools"]):
            one["place"] = f"z{index}"
        return build_topology(PlanRequest.model_validate(request).cluster).capacity_bytes_per_s.tolist()

    assert capacity(flow_bytes_per_s=1e9) == capacity()


def test_more_queue_pairs_are_more_flows() -> None:
    path = build_topology(job(link={"flow_bytes_per_s": 1e9}).cluster).path_facts("b0", "b1")
    wire = Wire(path, 5e10, 1, path.capacity_bytes_per_s)

    def rate(pairs: int) -> float:
        return connection_rate_bytes_per_s(Option("ecmp", "go_back_n", pairs, 2**24, 64), wire)

    assert rate(1) <= 1e9
    assert rate(4) == pytest.approx(4 * rate(1))


def test_a_chunk_of_less_than_a_byte_has_no_time() -> None:
    path = build_topology(job().cluster).path_facts("b0", "b1")
    wire = Wire(path, 5e10, 1, path.capacity_bytes_per_s)
    with pytest.raises(ValueError, match="less than a byte"):
        step_s(Option("ecmp", "go_back_n", 4, 0, 64), wire, 1e6)


@pytest.mark.parametrize("constraints", [PIPELINE, REPLICAS], ids=["messages", "exchanges"])
@pytest.mark.parametrize("where", ["link", "pool"])
def test_a_plan_is_slower_under_a_limit_and_no_flow_of_it_is_faster(where: str, constraints: dict[str, Any]) -> None:
    allowed = {**FIXED, "dp": [8]}
    limit = {"link": {**TCP, "flow_bytes_per_s": 2e6}, "pool": {"flow_bytes_per_s": 2e8}}[where]
    plain = {"link": TCP, "pool": {}}[where]
    free = planned(job(allowed=allowed, constraints=constraints, **{where: plain}))
    held = planned(job(allowed=allowed, constraints=constraints, **{where: limit}))
    assert held.metrics.iteration_s > 1.02 * free.metrics.iteration_s
    assert held.proof.lower_bound_s <= held.metrics.iteration_s
    across = [one for one in held.transport if one.tier in ("cross_building", "cross_region")]
    assert across
    for one in across:
        flows = one.num_queue_pairs if where == "link" else 1
        assert one.effective_bytes_per_s <= flows * limit["flow_bytes_per_s"] * (1 + 1e-9)


def test_the_judge_rejects_messages_that_outrun_their_flows() -> None:
    allowed = {**FIXED, "dp": [8]}
    free = job(allowed=allowed, constraints=PIPELINE, link=TCP)
    found = planned(free)
    held = job(allowed=allowed, constraints=PIPELINE, link={**TCP, "flow_bytes_per_s": 1e6})
    assert "hop-rate" in {one.rule for one in judge(held, found).violations}
