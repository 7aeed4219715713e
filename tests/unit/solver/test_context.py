"""What a request means once it is read: GPU classes."""

from __future__ import annotations

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
