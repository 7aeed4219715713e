"""A stage adds its layers, and measured profiles replace formulas where they match."""

import numpy as np
import pytest

from models.workload import LayerProfile
from solver.cost.job import job_of
from solver.cost.layer import Setting
from solver.cost.stage import stage_cost
from tests.unit.solver.cost.samples import A100, STACK, columns, configuration, fabric, gpt, mixture, workload

PROFILE = LayerProfile(
    layer_kind="dense",
    gpu=A100.name,
    micro_batch_sequences=2,
    tp=4,
    forward_s=0.001,
    input_grad_s=0.0012,
    weight_grad_s=0.0009,
    activation_bytes=1e8,
    weight_grad_context_bytes=4e7,
)


def stage(rows, *, layers=1, moe=0, profiles=(), architecture=None, embedding=0, logits=0):
    at = Setting.of(job_of(workload(architecture)), A100, fabric(), STACK, rows)
    return stage_cost(at, {"dense": layers, "moe": moe, "embedding": embedding, "logits": logits}, profiles)


def test_layer_counts_broadcast_over_rows():
    rows = columns(configuration(tp=2), configuration(tp=2))
    cost = stage(rows, layers=np.array([1, 3]))
    assert cost.forward_s[1] == pytest.approx(3 * cost.forward_s[0])
    assert cost.boundary_bytes.tolist() == [2 * 2048 * 4096] * 2


def test_a_measured_profile_replaces_only_the_rows_it_matches():
    rows = columns(configuration(tp=4, micro_batch=2), configuration(tp=8, micro_batch=2))
    plain, measured = stage(rows, layers=5), stage(rows, layers=5, profiles=(PROFILE,))
    assert measured.forward_s[0] == pytest.approx(0.005)
    assert measured.input_grad_s[0] == pytest.approx(0.006)
    assert measured.activation_bytes[0] == pytest.approx(5e8)
    assert measured.tensor_parallel_s[0] == 0
    assert measured.forward_s[1] == plain.forward_s[1]
    assert measured.parameters[0] == plain.parameters[0]


def test_another_gpu_does_not_match():
    rows = columns(configuration(tp=4, micro_batch=2))
    other = PROFILE.model_copy(update={"gpu": "H100-SXM-80G"})
    assert stage(rows, profiles=(other,)).forward_s[0] == stage(rows).forward_s[0]


def test_parameters_of_a_layer_are_split_by_tensor_parallelism():
    one, eight = (stage(columns(configuration(tp=tp))).parameters[0] for tp in (1, 8))
    norms = 4 * 4096
    assert one == 12 * 4096**2 + norms
    assert eight == 12 * 4096**2 / 8 + norms


def test_experts_are_split_by_expert_and_tensor_parallelism():
    rows = columns(configuration(tp=2, ep=4, dp=4))
    cost = stage(rows, layers=0, moe=1, architecture=mixture())
    assert cost.expert_parameters[0] == 32 * 3 * 2048 * 1024 / 8


def test_full_recomputation_repeats_the_forward():
    plain, again = (stage(columns(configuration(recompute=mode))) for mode in (0, 2))
    assert again.input_grad_s[0] == pytest.approx(plain.input_grad_s[0] + plain.forward_s[0])
    assert again.weight_grad_s[0] == plain.weight_grad_s[0]


def test_fsdp_gathers_inside_the_stage_and_zero1_does_not():
    fsdp, zero1 = (stage(columns(configuration(dp=64, sharding=code))) for code in (2, 1))
    assert fsdp.data_parallel_s[0] > 0
    assert zero1.data_parallel_s[0] == 0


def test_a_tied_table_is_copied_to_the_last_stage():
    tied = gpt().model_copy(update={"tied_embeddings": True})
    rows = columns(configuration(pp=1), configuration(pp=2))
    cost = stage(rows, layers=0, architecture=tied, logits=1)
    assert cost.parameters.tolist() == [0, 51200 * 4096]
