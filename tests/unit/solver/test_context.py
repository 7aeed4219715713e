"""What a request means once it is read: GPU classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.request import PlanRequest
from solver.bounds.work import lower_bounds
from solver.configurations.enumerate import enumerate_space
from tests.build_job import FIXED, context_of, job


def with_slow_cards(nic_bytes_per_s: float) -> PlanRequest:
    """The second of two buildings of one GPU type has other cards."""
    document = job(allowed={**FIXED, "dp": [8]}).model_dump(mode="json")
    document["cluster"]["pools"][0]["nic_bytes_per_s"] = nic_bytes_per_s
    return PlanRequest.model_validate(document)


def test_one_gpu_type_behind_two_fabrics_is_two_gpu_classes() -> None:
    context = context_of(with_slow_cards(1e9))
    rates = {gpu_class.fabric.nic_bytes_per_s: gpu_class.num_gpus for gpu_class in context.gpu_classes.values()}
    assert len(rates) == 2
    assert set(rates.values()) == {32}
    assert len(context_of(job()).gpu_classes) == 1


def test_the_bound_does_not_depend_on_which_pool_comes_first() -> None:
    """With slow cards first the whole cluster used to be priced as slow."""
    request = with_slow_cards(1e9)
    turned = request.model_copy(
        update={"cluster": request.cluster.model_copy(update={"pools": request.cluster.pools[::-1]})}
    )
    bounds = [lower_bounds(context_of(one), enumerate_space(one)).iteration_s.min() for one in (request, turned)]
    assert bounds[0] == bounds[1]
    classes = [list(context_of(one).gpu_classes.values()) for one in (request, turned)]
    assert classes[0] == classes[1]
    assert classes[0][0].fabric.nic_bytes_per_s > classes[0][1].fabric.nic_bytes_per_s


GPU: dict[str, Any] = {
    "bf16_flops_per_s": 1e15,
    "memory_bytes": 8e10,
    "memory_bytes_per_s": 3e12,
    "scale_up_bytes_per_s": 4e11,
    "scale_up_domain_gpus": 8,
}
MEASURED: dict[str, Any] = {
    "layer_kind": "dense",
    "micro_batch_sequences": 1,
    "tp": 2,
    "forward_s": 1e-3,
    "input_grad_s": 1e-3,
    "weight_grad_s": 1e-3,
    "activation_bytes": 1e8,
}


@pytest.mark.parametrize(
    ("workload", "strong", "weak"),
    [
        ({"precision": "fp8"}, {"fp8_flops_per_s": 2e15}, {"fp8_flops_per_s": 1e15}),
        ({"precision": "fp32"}, {"fp32_flops_per_s": 5e14}, {"fp32_flops_per_s": 1e14}),
        ({}, {"num_multiprocessors": 132}, {"num_multiprocessors": 17}),
        ({}, {"scale_up_full_mesh": False}, {"scale_up_full_mesh": True}),
        ({"layer_profiles": [MEASURED]}, {}, {}),
    ],
)
def test_what_types_are_called_does_not_matter(
    workload: dict[str, Any], strong: dict[str, Any], weak: dict[str, Any]
) -> None:
    """Of types alike in all but one figure the first by its name shared out the layers."""
    seen = []
    for first, second in (("x", "y"), ("y", "x")):
        profiles = [{**one, "gpu": first} for one in workload.get("layer_profiles", ())]
        request = job(workload={**workload, "layer_profiles": profiles})
        document = request.model_dump(mode="json", exclude_none=True)
        types = ({**GPU, **strong, "name": first}, {**GPU, **weak, "name": second})
        for pool, gpu in zip(document["cluster"]["pools"], types, strict=True):
            pool |= {"gpu": gpu, "place": "b0"}
        request = PlanRequest.model_validate(document)
        context = context_of(request)
        bounds = lower_bounds(context, enumerate_space(request)).iteration_s
        seen.append(([pool.id for pool in context.pools], [gpu for gpu, _ in context.gpu_classes], bounds))
    assert seen[0][0] == seen[1][0] == ["p0", "p1"]
    assert seen[0][1] == seen[1][1][::-1] == ["x", "y"]
    assert np.array_equal(seen[0][2], seen[1][2])
