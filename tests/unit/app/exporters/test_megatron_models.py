"""Every catalogue model is complete in Megatron's words, with the types and choices that its parser has."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from app.exporters.megatron_args import losses, megatron_args
from app.exporters.megatron_losses import command_line_losses, model_losses
from app.exporters.megatron_model import model_fields
from models.catalogue import entry_names, named_entry
from models.workload import Architecture
from tests.build_exports import whole_host_plan, whole_host_request
from tests.unit.app.exporters.test_megatron import parsed

# norm, positions, base, biases, vocabulary: released configurations (see the catalogue's sources)
PUBLISHED = {
    "llama-3.1-405b": ("RMSNorm", "rope", 500_000, False, 128_256),
    "gpt-3-175b": ("LayerNorm", "learned_absolute", None, True, 50_257),
    "nemotron-4-340b": ("LayerNorm", "rope", 10_000, False, 256_000),
    "mixtral-8x7b": ("RMSNorm", "rope", 1_000_000, False, 32_000),
    "deepseek-v3": ("RMSNorm", "rope", 10_000, False, 129_280),
    "qwen3-235b-a22b": ("RMSNorm", "rope", 1_000_000, False, 151_936),
}


def _arguments(architecture: Architecture) -> argparse.Namespace:
    workload = whole_host_request().workload.model_copy(update={"architecture": architecture})
    plan = whole_host_plan("pp_out", layers_per_stage=(architecture.num_layers, 0))
    return parsed(plan, whole_host_request().model_copy(update={"workload": workload}))


def _model(name: str) -> Architecture:
    return Architecture.model_validate(named_entry("models", name))


def _changed(name: str, **definition: Any) -> Architecture:
    """A model of the catalogue with another definition beside its sizes."""
    entry = _model(name).model_dump()
    return Architecture.model_validate({**entry, "definition": {**entry["definition"], **definition}})


@pytest.mark.parametrize("name", entry_names("models"))
def test_every_model_of_the_catalogue_is_defined_beside_its_sizes(name: str) -> None:
    assert _model(name).definition is not None
    assert _arguments(_model(name)).num_layers == _model(name).num_layers


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_arguments_build_the_published_model(name: str) -> None:
    norm, positions, base, has_bias, vocabulary = PUBLISHED[name]
    given = _arguments(_model(name))
    assert (given.normalization, given.position_embedding_type, given.rotary_base) == (norm, positions, base)
    assert given.disable_bias_linear is not has_bias
    assert given.vocab_size == vocabulary
    assert (given.attention_dropout, given.hidden_dropout) == (0.0, 0.0)


def test_experts_are_routed_as_published() -> None:
    given = _arguments(_model("deepseek-v3"))
    assert (given.moe_router_score_function, given.moe_router_enable_expert_bias) == ("sigmoid", True)
    assert (given.moe_router_num_groups, given.moe_router_group_topk) == (8, 4)
    assert given.moe_router_topk_scaling_factor == 2.5
    assert given.moe_router_load_balancing_type == ["none"]
    assert (given.rope_type, given.rotary_scaling_factor, given.qk_layernorm) == ("yarn", 40.0, True)
    assert given.mtp_num_layers == 1
    assert given.pipeline_model_parallel_layout == "Et*61|mL"


@pytest.mark.parametrize(("scaling", "without"), [(None, True), ({"kind": "yarn", "factor": 40, "original_length": 4096}, False)])  # fmt: skip  # noqa: E501
def test_latent_attention_rotates_in_one_kernel_where_megatron_has_it(scaling: Any, without: bool) -> None:
    """MLATransformerConfig: "apply_rope_fusion for MLA only works with YARN RoPE"."""
    given = _arguments(_changed("deepseek-v3", rope_scaling=scaling))
    assert given.no_rope_fusion is without
    assert not _arguments(_model("llama-3.1-405b")).no_rope_fusion


def test_one_expert_per_token_is_chosen_after_the_softmax() -> None:
    """TransformerConfig: "Please use --moe-router-pre-softmax when topk is 1", as softmax over one has no gradient."""
    moe = _model("mixtral-8x7b").moe
    assert moe is not None
    for number, score, before in ((1, "softmax", True), (1, "sigmoid", False), (2, "softmax", False)):
        architecture = _changed("mixtral-8x7b", router_score=score)
        fewer = moe.model_copy(update={"experts_per_token": number})
        assert _arguments(architecture.model_copy(update={"moe": fewer})).moe_router_pre_softmax is before


def test_experts_have_a_bias_on_sigmoid_scores_only() -> None:
    """TransformerConfig: "Expert bias for aux-loss-free routing only supports 'sigmoid'"."""
    given = _arguments(_changed("deepseek-v3", router_score="softmax"))
    assert (given.moe_router_enable_expert_bias, given.moe_router_load_balancing_type) == (False, ["aux_loss"])
    told = list(model_losses(_changed("deepseek-v3", router_score="softmax")))
    assert any("on sigmoid scores only" in line for line in told)
    assert not any("on sigmoid scores only" in line for line in model_losses(_model("deepseek-v3")))


def test_squared_relu_and_partial_rotation_are_said() -> None:
    given = _arguments(_model("nemotron-4-340b"))
    assert (given.squared_relu, given.swiglu, given.apply_layernorm_1p, given.rotary_percent) == (
        True,
        False,
        True,
        0.5,
    )


def test_squared_relu_adds_a_bias_by_itself() -> None:
    """TransformerConfig: "When bias_activation_fusion is True, activation function should be either gelu, swiglu"."""
    assert _arguments(_changed("nemotron-4-340b", linear_bias=True)).no_bias_gelu_fusion
    assert not _arguments(_changed("gpt-3-175b", linear_bias=True)).no_bias_gelu_fusion


@pytest.mark.parametrize(
    ("gated", "activation", "told"),
    [(True, "silu", None), (True, "gelu", "its quick form"), (True, "squared_relu", "SiLU is set"),
     (False, "silu", "GELU is left"), (False, "gelu", None), (False, "squared_relu", None)],
)  # fmt: skip
def test_what_the_command_line_lacks_is_no_loss_of_nemo(gated: bool, activation: str, told: str | None) -> None:
    """Megatron-Bridge takes any activation, with gates or without."""
    model = _changed("llama-3.1-8b", activation=activation).model_copy(update={"gated_mlp": gated})
    assert [str(told) in line for line in command_line_losses(model)] == ([True] if told else [])
    assert list(model_losses(model)) == []
    fields = model_fields(model)
    assert fields["gated_linear_unit"] is gated


def test_stretching_that_latent_attention_lacks_is_told() -> None:
    scaling = {"kind": "llama3", "factor": 8.0, "original_length": 8192}
    assert any("YaRN alone" in line for line in model_losses(_changed("deepseek-v3", rope_scaling=scaling)))
    longer = {"kind": "yarn", "factor": 40, "original_length": 8192}
    assert any("takes 4096" in line for line in command_line_losses(_changed("deepseek-v3", rope_scaling=longer)))


@pytest.mark.parametrize(
    ("name", "words"),
    [("deepseek-v3", ["--rope-type to cores before 0.14"]), ("llama-3.1-405b", [])],
)
def test_arguments_that_older_cores_lack_are_told(name: str, words: list[str]) -> None:
    workload = whole_host_request().workload.model_copy(update={"architecture": _model(name)})
    request = whole_host_request().model_copy(update={"workload": workload})
    told = [line for line in losses(whole_host_plan("pp_out"), request) if "to cores before" in line]
    assert [line.partition(",")[0] for line in told] == words


def test_a_model_without_a_definition_is_called_so() -> None:
    told = list(losses(whole_host_plan("pp_out"), whole_host_request()))
    assert any("definition beside its sizes is not in the request" in line for line in told)
    assert "not in the request: RMSNorm" in megatron_args(whole_host_plan("pp_out"), whole_host_request())
