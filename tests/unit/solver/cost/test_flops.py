"""FLOP counts agree with the published gold values to 1e-4."""

import pytest

from models.workload import Architecture, GroupedQueryAttention
from solver.cost import flops
from solver.cost.job import job_of
from tests.unit.solver.cost.samples import gpt, mixture, workload


def llama(num_layers: int, hidden: int, ffn: int, heads: int) -> Architecture:
    return Architecture(
        name="llama",
        num_layers=num_layers,
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        attention=GroupedQueryAttention(num_heads=heads, num_kv_heads=8, head_dim=128),
        vocab_size=128256,
    )


@pytest.mark.parametrize(
    ("architecture", "convention", "published"),
    [
        (llama(126, 16384, 53248, 128), "causal", 2.5240e12),
        (llama(126, 16384, 53248, 128), "full", 2.6254e12),
        (llama(80, 8192, 28672, 64), "causal", 4.4922e11),
        (llama(80, 8192, 28672, 64), "full", 4.8143e11),
    ],
)
def test_llama_flops_per_token_are_the_published_ones(architecture, convention, published):
    counted = flops.model_flops_per_token(architecture, 8192, convention=convention)
    assert counted == pytest.approx(published, rel=1e-4)


def test_equation_three_of_the_megatron_paper():
    counted = flops.hardware_flops_sc21(batch=1536, sequence=2048, num_layers=96, hidden=12288, vocab=51200)
    assert counted == pytest.approx(4.511e18, rel=1e-4)


def test_the_closed_form_without_recomputation_equals_the_sum_over_matrices():
    architecture = gpt(num_layers=96, hidden=12288, heads=96)
    closed = flops.hardware_flops_sc21(
        batch=1, sequence=2048, num_layers=96, hidden=12288, vocab=51200, recompute=False
    )
    counted = flops.model_flops_per_token(architecture, 2048, convention="full") * 2048
    assert counted == pytest.approx(closed, rel=1e-12)


def test_an_extra_prediction_layer_counts_as_the_last_layer_and_an_output_projection():
    plain = mixture()
    extra = plain.model_copy(update={"num_mtp_layers": 2})
    last = flops.layer_forward_flops(plain, sequence_length=2048, moe=True, causal=True)
    more = 3.0 * 2.0 * (last + flops.logits_flops(plain))
    counted = flops.model_flops_per_token(plain, 2048)
    assert flops.model_flops_per_token(extra, 2048) == pytest.approx(counted + more, rel=1e-12)
    assert flops.model_flops_per_token(extra, 2048, with_mtp=False) == counted


def test_recomputation_adds_a_third_of_the_layers():
    arguments = {"batch": 1, "sequence": 2048, "num_layers": 24, "hidden": 4096, "vocab": 0}
    with_it = flops.hardware_flops_sc21(**arguments)
    assert with_it == pytest.approx(flops.hardware_flops_sc21(**arguments, recompute=False) * 4 / 3)


def test_parameters_of_llama_405b():
    job = job_of(workload(llama(126, 16384, 53248, 128)))
    assert job.total_parameters == pytest.approx(405.85e9, rel=1e-3)
    assert job.active_parameters == job.total_parameters


def test_only_top_k_experts_are_active():
    job = job_of(workload(mixture()))
    idle = 16 * (32 - 4) * 3 * 2048 * 1024
    assert job.total_parameters - job.active_parameters == idle
