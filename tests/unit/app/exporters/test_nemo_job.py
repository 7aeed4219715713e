"""The job of Megatron-Bridge states what its providers would leave off: sends and kernels as Megatron-LM has them."""

from __future__ import annotations

import pytest

from app.exporters.launch.nemo_job import model_fields, nemo_job
from tests.unit.app.exporters.test_bundle import job


@pytest.mark.parametrize(("vpp", "asynchronous"), [(1, False), (2, True)])
def test_nemo_sends_between_stages_as_planned(vpp: int, asynchronous: bool) -> None:
    """A provider's own default is batched sends that wait, and outputs that are kept after they were sent."""
    plan, request = job("deepseek-v3")
    degrees = plan.configuration.degrees.model_copy(update={"vpp": vpp})
    layers = (61 - 2 * vpp + 1, *[1] * (2 * vpp - 1))
    configuration = plan.configuration.model_copy(update={"degrees": degrees, "layers_per_stage": layers})
    fields = model_fields(plan.model_copy(update={"configuration": configuration}), request)
    assert (fields["overlap_p2p_comm"], fields["batch_p2p_comm"]) == (asynchronous, not asynchronous)
    assert fields["deallocate_pipeline_outputs"]


@pytest.mark.parametrize(
    ("name", "activation", "rotation"),
    [("llama-3.1-8b", True, True), ("deepseek-v3", True, False), ("gpt-3-175b", True, False),
     ("nemotron-4-340b", False, True)],
)  # fmt: skip
def test_nemo_has_the_fused_kernels_of_megatron(name: str, activation: bool, rotation: bool) -> None:
    """Megatron-Core has no kernel for squared ReLU, and rotates latent attention fused with YaRN alone."""
    fields = model_fields(*job(name))
    assert (fields["bias_activation_fusion"], fields["apply_rope_fusion"]) == (activation, rotation)
    assert fields["gradient_accumulation_fusion"]
    assert fields["persist_layer_norm"]
    assert fields["bias_dropout_fusion"]


def test_quick_gelu_is_the_function_that_megatron_has_a_kernel_for() -> None:
    """TransformerConfig compares functions, and megatron.core.activations has another of that name."""
    assert "from megatron.core.fusions.fused_bias_geglu import quick_gelu\n" in nemo_job(*job("llama-3.1-8b"))
