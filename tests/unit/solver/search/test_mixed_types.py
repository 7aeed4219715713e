"""GPUs of several types in one job: layers by type, where that pays, and plans that the judge takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.planner import plan, validate
from solver.verify.judge import judge
from tests.build_job import job

ALLOWED: dict[str, Any] = {"tp": [4], "cp": [1], "micro_batch_sequences": [1], "recompute": ["none"]}


def mixed(*gpus: str, hosts: tuple[int, ...] = (2, 2), **changes: Any) -> PlanRequest:
    """A building per GPU type, with counted work so that nothing depends on the machine."""
    options = {"reproducible": True, "time_limit_s": 12.0, "relative_gap": 0.005}
    document = job(hosts=hosts, batch=32, allowed=ALLOWED, options=options, **changes).model_dump(mode="json")
    for pool, gpu in zip(document["cluster"]["pools"], gpus, strict=True):
        pool["gpu"] = gpu
    return PlanRequest.model_validate(document)


def allowing(request: PlanRequest, *splits: str) -> PlanRequest:
    document = request.model_dump(mode="json")
    document["constraints"]["allowed"]["layer_split"] = splits
    return PlanRequest.model_validate(document)


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request, clock=lambda: 0.0)
    assert isinstance(outcome, Planned), outcome
    assert outcome.plan.verdict.accepted
    return outcome.plan


def layers_on(request: PlanRequest, found: Plan) -> dict[str, set[int]]:
    """Layers of the ranks on every GPU type."""
    gpu = {pool.id: pool.gpu.name for pool in request.cluster.pools}
    ranks = np.zeros(found.configuration.degrees.pp, dtype=int)
    for stage, count in enumerate(found.configuration.layers_per_stage):
        ranks[found.configuration.rank_of_stage(stage)] += count
    layers: dict[str, set[int]] = {}
    for route in found.placement.routes:
        for rank, pool in enumerate(route.pools):
            layers.setdefault(gpu[pool], set()).add(int(ranks[rank]))
    return layers


@pytest.fixture(scope="module")
def request_() -> PlanRequest:
    return mixed("H100-SXM-80G", "B200-SXM")


@pytest.fixture(scope="module")
def best(request_: PlanRequest) -> Plan:
    return planned(request_)


def test_layers_by_type_beat_the_even_split(request_: PlanRequest, best: Plan) -> None:
    even = planned(allowing(request_, "even"))
    assert best.configuration.layer_split == "by_gpu_type"
    assert even.configuration.layer_split == "even"
    assert best.metrics.iteration_s < even.proof.lower_bound_s
    layers = layers_on(request_, best)
    assert min(layers["B200-SXM"]) > max(layers["H100-SXM-80G"])


def test_the_plan_says_how_layers_are_shared_out(best: Plan) -> None:
    assert any("shared out" in one.what for one in best.assumptions)
    assert any(one.layer_split == "even" for one in best.alternatives)


def test_the_judge_looks_at_the_layers_not_at_the_label() -> None:
    request = allowing(mixed("A100-SXM-80G", "H100-SXM-80G", hosts=(3, 2)), "by_gpu_type")
    found = planned(request)
    relabelled = found.configuration.model_copy(update={"layer_split": "even"})
    open_request = mixed("A100-SXM-80G", "H100-SXM-80G", hosts=(3, 2))
    verdict = judge(open_request, found.model_copy(update={"configuration": relabelled}))
    assert {one.rule for one in verdict.violations} == {"layer-split", "assumptions-stated"}


def test_a_framework_that_splits_evenly_gets_no_other_split(request_: PlanRequest) -> None:
    document = request_.model_dump(mode="json")
    document["constraints"]["framework"] = "deepspeed"
    assert planned(PlanRequest.model_validate(document)).configuration.layer_split == "even"
    document["constraints"]["allowed"]["layer_split"] = ["by_gpu_type"]
    reasons = validate(PlanRequest.model_validate(document))
    assert [one.pointer for one in reasons] == ["/constraints/allowed/layer_split"]


def test_one_type_of_gpu_has_one_way_to_share_out_layers() -> None:
    assert not np.any(enumerate_space(job(allowed={})).layer_split == BY_GPU_TYPE)
    alike = mixed("H100-SXM-80G", "H100-SXM-80G")
    (reason,) = validate(allowing(alike, "by_gpu_type"))
    assert (reason.code, reason.pointer) == ("nothing-allowed", "/constraints/allowed/layer_split")
    assert "GPU types that differ" in reason.detail
    assert reason.remedies[0] == "set constraints.allowed.layer_split to null"


def test_types_in_buildings_that_no_replica_may_leave_do_not_mix() -> None:
    apart = mixed("H100-SXM-80G", "B200-SXM", constraints={"pipeline_may_cross_buildings": False})
    assert not np.any(enumerate_space(apart).layer_split == BY_GPU_TYPE)


def test_a_pin_is_kept_with_layers_by_type() -> None:
    pin = {"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "b0", "num_replicas": 1}
    request = mixed("H100-SXM-80G", "B200-SXM", constraints={"pins": [pin]})
    found = planned(allowing(request, "by_gpu_type"))
    assert found.placement.routes[0].places[0] == "b0"
