"""The worlds of a question about robustness, as requests: scenarios, corners of ranges, and pools that straggle."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.cluster import GpuType
from models.errors import InvalidRequest
from models.pointers import escaped
from models.question_parts import Change
from models.request import PlanRequest
from models.robust import Robust, SlowPool
from solver.questions.searches import changed

AS_REQUESTED = "as requested"
RATES = ("bf16_flops_per_s", "fp32_flops_per_s", "fp8_flops_per_s", "fp4_flops_per_s", "memory_bytes_per_s")
TIMES = ("forward_s", "input_grad_s", "weight_grad_s")


@dataclass(frozen=True)
class World:
    """A request that may be the real one; `weight` is its part of what is expected."""

    name: str
    weight: float
    request: PlanRequest


def worlds_of(question: Robust, base: PlanRequest) -> tuple[World, ...]:
    """The request as it is, whether it counts or not, then all others; weights add up to 1. Raises InvalidRequest."""
    _check_names(question)
    named = [(AS_REQUESTED, 1.0 if question.with_request else 0.0, base)]
    for number, one in enumerate(question.scenarios):
        request = changed(base, one.changes, f"/scenarios/{number}/changes")
        request = slowed(request, one.slow_pools, f"/scenarios/{number}/slow_pools")
        named.append((one.name, one.weight, request))
    named += [(name, 1.0, changed(base, changes, "/ranges")) for name, changes in corners(question)]
    total = sum(weight for _, weight, _ in named)
    return tuple(World(name, weight / total, request) for name, weight, request in named)


def _check_names(question: Robust) -> None:
    """Refuse a world that is called as another: an answer tells its figures apart by name."""
    taken = {AS_REQUESTED: "the request as it is"}
    stated = [(f"/scenarios/{number}/name", one.name) for number, one in enumerate(question.scenarios)]
    for where, name in [*stated, *(("/ranges", name) for name, _ in corners(question))]:
        if name in taken:
            raise InvalidRequest(
                f"{name!r} is the name of {taken[name]}, too",
                pointer=where,
                remedy="give each scenario and range a name of its own, and ranges short ones: corners take up to 200 "
                f"characters of them; {AS_REQUESTED!r} is taken",
            )
        taken[name] = "a corner of the ranges" if where == "/ranges" else "another scenario"


def corners(question: Robust) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """Every combination of limits."""
    limits = [[(one, value) for value in one.values] for one in question.ranges]
    for corner in itertools.product(*limits) if limits else ():
        name = ", ".join(f"{one.name} {value}" for one, value in corner)[:200]
        yield name, tuple(Change(pointer=one.pointer, value=value) for one, value in corner)


def slowed(request: PlanRequest, slow_pools: Sequence[SlowPool], where: str = "/slow_pools") -> PlanRequest:
    """The request with pools of GPUs that take longer: a type of their own, with its rates and measured times."""
    for number, slow in enumerate(slow_pools):
        gpu = next((pool.gpu for pool in request.cluster.pools if pool.id == slow.pool), None)
        if gpu is None:
            raise InvalidRequest(
                f"there is no pool {slow.pool!r} in cluster {request.cluster.name!r}",
                pointer=f"{where}/{number}/pool",
                remedy="use one of " + ", ".join(pool.id for pool in request.cluster.pools[:12]),
            )
        request = changed(request, _slower(request, gpu, slow), f"{where}/{number}")
    return request


def _slower(request: PlanRequest, gpu: GpuType, slow: SlowPool) -> list[Change]:
    name = f"{gpu.name}, {slow.times:g} times as long in {slow.pool}"[:200]
    rates = {rate: getattr(gpu, rate) / slow.times for rate in RATES if getattr(gpu, rate) is not None}
    changes = [Change(pointer=f"/cluster/pools/{escaped(slow.pool)}/gpu", value=gpu.model_copy(
        update={"name": name, **rates}).model_dump(mode="json"))]  # fmt: skip
    for profile in request.workload.layer_profiles:
        if profile.gpu == gpu.name:
            longer = {time: getattr(profile, time) * slow.times for time in TIMES if getattr(profile, time) is not None}
            own = profile.model_copy(update={"gpu": name, **longer})
            changes.append(Change(pointer="/workload/layer_profiles", op="add", value=own.model_dump(mode="json")))
    return changes
