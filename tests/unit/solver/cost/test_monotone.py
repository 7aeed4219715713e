"""Better hardware never slows a job down, and more work never speeds it up."""

import numpy as np
import pytest

from models.stack import Constant
from solver.cost.collectives import exposed_s
from solver.cost.estimate import iteration_estimate
from solver.cost.job import job_of
from solver.cost.layer import Setting
from tests.unit.solver.cost.samples import A100, STACK, fabric, gpt, mixture, random_columns, workload

COLUMNS = random_columns(150, seed=11)
TOLERANCE = 1 + 1e-12


def times(gpu=A100, network=None, stack=STACK, job=None):
    at = Setting.of(job or job_of(workload(mixture())), gpu, network or fabric(), stack, COLUMNS)
    return iteration_estimate(at).iteration_s


@pytest.mark.parametrize("field", ["bf16_flops_per_s", "memory_bytes_per_s", "scale_up_bytes_per_s"])
def test_a_faster_gpu_is_never_slower(field):
    faster = A100.model_copy(update={field: 2 * getattr(A100, field)})
    if field == "bf16_flops_per_s":
        stack = STACK.model_copy(update={"gemm_half_size": Constant(value=50.0, origin="guessed")})
        assert (times(faster, stack=stack) <= times(stack=stack) * TOLERANCE).all()
    else:
        assert (times(faster) <= times() * TOLERANCE).all()


def test_a_faster_network_is_never_slower():
    assert (times(network=fabric(50e9)) <= times(network=fabric(25e9)) * TOLERANCE).all()


@pytest.mark.parametrize(
    ("constant", "better"),
    [
        ("gemm_efficiency", 0.9),
        ("attention_efficiency", 0.9),
        ("memory_efficiency", 0.95),
        ("scale_up_efficiency", 0.95),
        ("scale_out_efficiency", 0.95),
        ("data_parallel_overlap", 0.99),
        ("tensor_parallel_overlap", 0.9),
        ("expert_parallel_overlap", 0.9),
        ("pipeline_overlap", 0.9),
        ("host_layer_s", 0.0),
        ("expert_traffic", 0.5),
    ],
)
def test_a_better_stack_is_never_slower(constant, better):
    stack = STACK.model_copy(update={constant: Constant(value=better, origin="guessed")})
    assert (times(stack=stack) <= times() * TOLERANCE).all()


def test_more_layers_take_longer():
    deep, shallow = (job_of(workload(gpt(num_layers=count))) for count in (48, 24))
    assert (times(job=deep) > times(job=shallow)).all()


def test_exposure_lies_between_nothing_and_everything():
    rng = np.random.default_rng(0)
    communication, work, overlap = rng.uniform(0, 9, 500), rng.uniform(0, 9, 500), 0.6
    exposed = exposed_s(communication, work, overlap)
    assert (exposed <= communication * TOLERANCE).all()
    assert (exposed >= np.maximum(communication - work, 0) / TOLERANCE).all()
