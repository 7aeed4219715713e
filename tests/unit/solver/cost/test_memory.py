"""Memory follows the published closed forms."""

import numpy as np
import pytest

from solver.cost.estimate import rank_layers
from solver.cost.job import job_of
from solver.cost.layer import Setting
from solver.cost.memory import peak_activations, static_memory
from solver.cost.stage import stage_cost
from tests.unit.solver.cost.samples import A100, STACK, columns, configuration, fabric, gpt, mixture, workload

OLD = STACK.model_copy(update={"dropout": True, "sequence_parallel": False})


def held(stack, flash, **changes):
    job = job_of(workload(gpt(), flash_attention=flash))
    at = Setting.of(job, A100, fabric(), stack, columns(configuration(**changes)))
    stage = stage_cost(at, {"dense": 1, "moe": 0, "embedding": 0, "logits": 0})
    return float(stage.activation_bytes[0])


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_activations_of_a_layer_are_korthikantis_formula(tp):
    s, b, h, a = 2048, 2, 4096, 32
    unsplit = s * b * h * (10 + 24 / tp + 5 * a * s / (h * tp))
    assert held(OLD, False, tp=tp, micro_batch=b) == pytest.approx(unsplit, rel=1e-12)


def test_sequence_parallelism_splits_everything():
    with_it = OLD.model_copy(update={"sequence_parallel": True})
    assert held(with_it, True, tp=8) == pytest.approx(held(with_it, True, tp=1) / 8)


def test_selective_recomputation_drops_the_scores_and_full_keeps_the_input():
    s, h = 2048, 4096
    assert held(OLD, False, recompute=1) == pytest.approx(s * h * 34)
    assert held(OLD, False, recompute=2) == pytest.approx(2 * s * h)


def test_fused_attention_keeps_no_scores():
    assert held(OLD, True) == pytest.approx(held(OLD, False, recompute=1))


@pytest.mark.parametrize(
    ("sharding", "bytes_per_parameter"),
    [(0, 18.0), (1, 6 + 12 / 2), (2, 18 / 8), (3, 18 / 2)],
    ids=["ddp", "zero1", "fsdp", "hsdp"],
)
def test_model_state_by_sharding(sharding, bytes_per_parameter):
    job = job_of(workload())
    row = columns(configuration(dp=8, sharding=sharding, shard_group=2))
    million = np.array([1e6])
    memory = static_memory(Setting.of(job, A100, fabric(), STACK, row), million, np.zeros(1))
    state = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
    assert state[0] == pytest.approx(bytes_per_parameter * 1e6)


def test_experts_shard_over_their_own_group():
    job = job_of(workload(mixture()))
    row = columns(configuration(dp=8, ep=4, sharding=1, shard_group=8))
    memory = static_memory(Setting.of(job, A100, fabric(), STACK, row), np.zeros(1), np.array([1e6]))
    assert memory.optimizer_bytes[0] == pytest.approx(12e6 / 2)


def test_micro_batches_in_flight():
    row = columns(configuration(pp=8, num_microbatches=64), configuration(pp=8, num_microbatches=3))
    assert peak_activations(row, 0).tolist() == [8, 3]
    assert peak_activations(row, 7).tolist() == [1, 1]
    interleaved = columns(configuration(pp=8, vpp=4, num_microbatches=64))
    assert peak_activations(interleaved, 0)[0] == pytest.approx(8 * (1 + 7 / 32))
    assert peak_activations(row, 0, schedule="zb_h2").tolist() == [15, 3]


def test_spare_layers_are_taken_from_the_ends():
    layers = rank_layers(22, columns(configuration(pp=8)))
    assert (layers.first[0], layers.inner[0], layers.last[0]) == (2, 3, 2)
    alone = rank_layers(22, columns(configuration(pp=1)))
    assert alone.last[0] == 22
