"""A request narrowed to what its framework can run.

Schedules are the scheduler's to choose, a fused backward the evaluation's.
"""

from __future__ import annotations

from models.framework import FrameworkProfile
from models.outcome import Reason
from models.request import AllowedDegrees, PlanRequest
from models.schedule import Backward
from solver.configurations.enumerate import FAMILY_CODES, LAYER_SPLIT_CODES, MOST_TENSOR_PARALLEL, USUAL_SHARDING


def within_framework(request: PlanRequest) -> PlanRequest:
    """The request with only those allowed values that its framework runs; itself where it names none.

    Where it runs none of the values of a name, these remain: such a request has no plan, `framework_reasons` says so.
    """
    if request.constraints.framework is None:
        return request
    runs = {name: values for name, values in _values(request).items() if values}
    narrowed = AllowedDegrees.model_validate({**dict(request.constraints.allowed), **runs})
    return request.with_constraints(allowed=narrowed)


def framework_reasons(request: PlanRequest) -> tuple[Reason, ...]:
    """Why nothing that the request allows runs on its framework."""
    profile = request.constraints.framework
    if profile is None:
        return ()
    another = "set constraints.framework to null or to another profile"
    unknown = tuple(
        Reason(code="nothing-allowed", pointer=pointer, detail=detail, remedies=(another,))
        for pointer, detail in profile.job_limits(request.workload)
    )
    return unknown or tuple(
        Reason(
            code="nothing-allowed",
            pointer=f"/constraints/allowed/{name}",
            detail=f"allowed.{name} names nothing that {profile.name} runs{_why(request, profile, name)}",
            remedies=(f"leave allowed.{name} out", another),
        )
        for name, values in _values(request).items()
        if not values
    )


def _why(request: PlanRequest, profile: FrameworkProfile, name: str) -> str:
    """Which limit is in the way, where it follows from the job."""
    workload = request.workload
    if name == "sharding" and not profile.shards(workload.optimizer.name):
        return f", which does not shard the state of {workload.optimizer.name}"
    if name == "pp":
        return ", which ties embeddings on one rank"
    if name == "tp":
        limits = profile.tensor_limits(workload.architecture, (request.constraints.allowed.tp or (1,))[0])
        return f": {next(limits, '')}"
    return ""


def backward_of(request: PlanRequest) -> Backward:
    """Whether the framework runs a backward in one piece."""
    framework = request.constraints.framework
    return "fused" if framework is not None and framework.fused_backward else "split_allowed"


def _values(request: PlanRequest) -> dict[str, tuple[object, ...]]:
    """What both the request and the profile allow, by the names of `AllowedDegrees`."""
    profile, allowed = request.constraints.framework, request.constraints.allowed
    assert profile is not None
    splits = tuple(one for one in profile.sharding if one == "ddp" or profile.shards(request.workload.optimizer.name))
    usual = tuple(one for one in USUAL_SHARDING if one in splits) or splits
    found: dict[str, tuple[object, ...]] = {
        "sharding": tuple(one for one in allowed.sharding or usual if one in splits),
        "family": tuple(one for one in allowed.family or FAMILY_CODES if one in profile.families),
    }
    if not profile.context_parallel:
        found["cp"] = tuple(one for one in allowed.cp or (1,) if one == 1)
    if not profile.has_pipelines(request.workload.architecture):
        found["pp"] = tuple(one for one in allowed.pp or (1,) if one == 1)
    architecture = request.workload.architecture
    heads = architecture.attention.num_kv_heads
    usual_tp = () if profile.repeated_kv_heads else tuple(range(1, min(heads, MOST_TENSOR_PARALLEL) + 1))
    if wanted := allowed.tp or usual_tp:
        found["tp"] = tuple(one for one in wanted if not any(profile.tensor_limits(architecture, one)))
    if not profile.unequal_layers:
        found["layer_split"] = tuple(one for one in allowed.layer_split or LAYER_SPLIT_CODES if one == "even")
    return found
