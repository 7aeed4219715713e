"""What models do beside softmax attention to all tokens, in Megatron's words, or told where it has none.

Sources of what is expected: examples/gptoss/02_train.sh and the Llama 4 configuration of examples/post_training of
Megatron-LM core 0.20; gpt_oss_bridge.py, mistral_bridge.py and glm5_bridge.py of Megatron-Bridge 0.7.
"""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from pydantic import ValidationError

from app.exporters.launch.nemo_job import model_fields, nemo_job
from app.exporters.megatron_args import losses, megatron_args
from app.exporters.megatron_losses import command_line_losses, model_losses
from app.exporters.megatron_model import arguments
from app.exporters.torchtitan_args import losses as torchtitan_losses
from app.faults import Refused
from models.catalogue import named_entry
from models.plan import Degrees, Plan
from models.request import PlanRequest
from models.workload import Architecture
from tests.build_exports import whole_host_plan, whole_host_request
from tests.unit.app.exporters.test_bundle import FIELDS, fits
from tests.unit.app.exporters.test_megatron import parsed

SLIDING = {"tokens": 128, "whole_layers": list(range(1, 32, 2))}
SPARSE = {"tokens": 2048, "num_heads": 64, "head_dim": 128}


def _model(name: str, **definition: Any) -> Architecture:
    entry: dict[str, Any] = named_entry("models", name)
    return Architecture.model_validate({**entry, "definition": {**entry["definition"], **definition}})


def _request(architecture: Architecture) -> PlanRequest:
    request = whole_host_request()
    return request.model_copy(update={"workload": request.workload.model_copy(update={"architecture": architecture})})


def _plan(architecture: Architecture, **degrees: int) -> Plan:
    layers = (architecture.num_layers, 0)
    return whole_host_plan("dp_out", degrees=Degrees(**{"tp": 8, "pp": 2, "dp": 2, **degrees}), layers_per_stage=layers)


def _given(architecture: Architecture, **degrees: int) -> argparse.Namespace:
    return parsed(_plan(architecture, **degrees), _request(architecture))


def test_windows_leave_the_token_itself_out_and_name_the_layers_that_have_one() -> None:
    given = _given(_model("mixtral-8x7b", attention_window=SLIDING, attention_sinks=True))
    assert (given.window_size, given.window_attn_skip_freq) == ("127,0", "([1]*1+[0]*1)*16")
    assert given.softmax_type == "learnable"
    everywhere = _given(_model("llama-3.1-8b", attention_window={"tokens": 4096}))
    assert (everywhere.window_size, everywhere.window_attn_skip_freq) == ("4095,0", None)
    plain = _given(_model("llama-3.1-8b"))
    assert (plain.window_size, plain.softmax_type, plain.cp_comm_type) == (None, None, None)


def test_the_clipped_activation_of_gpt_oss_is_three_arguments() -> None:
    given = _given(_model("mixtral-8x7b", activation="quick_gelu", activation_limit=7.0, gate_offset=1.0))
    assert (given.quick_geglu, given.swiglu) == (True, False)
    assert (given.activation_func_clamp_value, given.glu_linear_offset) == (7.0, 1.0)


def test_llama_4_is_built_as_megatron_builds_it() -> None:
    architecture = _model("llama-4-maverick-like", qk_l2_norm=True)
    given = _given(architecture)
    assert (given.rotary_interleaved, given.no_rope_freq) == (True, "([0]*3+[1]*1)*12")
    assert (given.moe_router_score_function, given.moe_apply_probs_on_input) == ("sigmoid", True)
    assert (given.moe_layer_freq, given.qk_l2_norm) == ("([0]*1+[1]*1)*24", True)
    told = "\n".join(model_losses(architecture))
    assert "attention in chunks of 8192 tokens" in told
    assert "Megatron normalises them in every layer" in told
    assert "attn_temperature_tuning" in told


@pytest.mark.parametrize(("normalised", "before"), [(True, False), (False, True)])
def test_weights_that_do_not_add_up_to_one_are_taken_before_experts_are_chosen(normalised: bool, before: bool) -> None:
    """qwen3_moe_bridge.py: moe_router_pre_softmax = not norm_topk_prob."""
    assert _given(_model("mixtral-8x7b", router_normalised=normalised)).moe_router_pre_softmax is before
    sigmoid = _model("deepseek-v3", router_normalised=normalised)
    assert any("do not add up to one" in line for line in model_losses(sigmoid)) is before


def test_a_gate_of_shared_experts_is_told_with_the_core_that_has_it() -> None:
    entry = named_entry("models", "mixtral-8x7b")
    shared = {**entry, "moe": {**entry["moe"], "num_shared_experts": 1}}
    shared["definition"] = {**entry["definition"], "shared_expert_gate": True}
    architecture = Architecture.model_validate(shared)
    assert _given(architecture).moe_shared_expert_gate
    told = list(losses(_plan(architecture), _request(architecture)))
    assert "--moe-shared-expert-gate to cores before 0.16, which do not have it" in told


def test_stretching_is_complete_in_latent_attention() -> None:
    """DeepSeek-V3's mscale_all_dim scales all scores; Megatron's default of 0 would not."""
    given = _given(_model("deepseek-v3"))
    assert (given.rotary_scaling_factor, given.mscale, given.mscale_all_dim) == (40.0, None, 1.0)
    other = {"kind": "yarn", "factor": 32, "original_length": 4096, "beta_fast": 1.0, "mscale_all_dim": 1.0}
    kimi = _model("deepseek-v3", rope_scaling=other)
    assert any("beta_fast 1 and beta_slow 1" in line for line in command_line_losses(kimi))
    fields = model_fields(_plan(kimi, tp=8, dp=1), _request(kimi))
    assert (fields["beta_fast"], fields["mscale_all_dim"]) == (1.0, 1.0)


def test_stretching_is_complete_in_grouped_queries() -> None:
    scaling = {"kind": "yarn", "factor": 32, "original_length": 4096, "whole_dimensions": False, "beta_fast": 16}
    given = _given(_model("llama-3.1-8b", rope_scaling=scaling))
    assert (given.position_embedding_type, given.rotary_scaling_factor) == ("yarn", 32.0)
    assert (given.yarn_original_max_position_embeddings, given.yarn_beta_fast) == (4096, 16.0)
    assert given.no_yarn_correction_range_round_to_int
    linear = _given(_model("llama-3.1-8b", rope_scaling={"kind": "linear", "factor": 8}))
    assert linear.rotary_seq_len_interpolation_factor == 8
    half = _model("llama-3.1-8b", rope_scaling={"kind": "linear", "factor": 2.5})
    assert any("stretched 2.5 times" in line for line in command_line_losses(half))


def test_sparse_attention_is_built_and_its_loss_left_to_you() -> None:
    architecture = _model("deepseek-v3", sparse_attention=SPARSE)
    given = _given(architecture)
    assert given.experimental_attention_variant == "dsa"
    assert (given.dsa_indexer_topk, given.dsa_indexer_n_heads, given.dsa_indexer_head_dim) == (2048, 64, 128)
    assert given.no_rope_fusion
    assert any("dsa_indexer_loss_coeff" in line for line in model_losses(architecture))
    assert _given(architecture, tp=1, cp=2).cp_comm_type == ["allgather"]


@pytest.mark.parametrize("export", [megatron_args, nemo_job])
def test_sinks_over_context_parallel_ranks_share_out_the_heads(export: Any) -> None:
    """attn_forward_func_with_cp: "Context parallelism only supports softmax_type with cp_comm_type = 'a2a'"."""
    architecture = _model("llama-3.1-8b", attention_window={"tokens": 4096}, attention_sinks=True)  # 8 key/value heads
    assert "a2a" in export(_plan(architecture, tp=4, cp=2), _request(architecture))
    assert "takes a2a here" in "\n".join(losses(_plan(architecture, tp=4, cp=2), _request(architecture)))
    with pytest.raises(Refused, match="heads of attention with sinks, 8 over tp 8 and cp 2") as caught:
        export(_plan(architecture, tp=8, cp=2, dp=1), _request(architecture))
    assert caught.value.faults[0].pointer == "/plan/configuration/degrees"


@pytest.mark.parametrize("export", [megatron_args, nemo_job])
def test_windows_over_context_parallel_ranks_gather_keys_and_values(export: Any) -> None:
    """attn_forward_func_with_cp: a2a or all_gather; rings are left to attention to all tokens."""
    architecture, whole = _model("llama-3.1-8b", attention_window={"tokens": 4096}), _model("llama-3.1-8b")
    assert "all_gather" in export(_plan(architecture, tp=8, cp=2, dp=1), _request(architecture))
    for text in (
        export(_plan(whole, tp=4, cp=2), _request(whole)),
        export(_plan(architecture), _request(architecture)),
    ):
        assert "cp_comm_type" not in text
        assert "--cp-comm-type" not in text


def test_what_no_field_states_is_told_word_for_word() -> None:
    architecture = _model("llama-3.1-8b", other_parts=["attention scores are capped at 50"], attention_scale=0.0625)
    text = megatron_args(_plan(architecture), _request(architecture))
    assert "# not expressed: attention scores are capped at 50: Megatron-Core lacks it, write a layer spec" in text
    assert "# not expressed: attention scores times 0.0625: Megatron-LM has no argument for softmax_scale" in text
    assert model_fields(_plan(architecture), _request(architecture))["softmax_scale"] == 0.0625
    told = list(torchtitan_losses(_plan(architecture), _request(architecture)))
    assert "attention scores are capped at 50: see that the model of the config function has it" in told


@pytest.mark.parametrize(
    ("name", "definition", "why"),
    [
        ("llama-3.1-8b", {"gate_offset": 1.0}, "adds an offset to gates of quick_gelu, not of silu"),
        ("llama-3.1-8b", {"activation_limit": 7.0}, "cuts off what goes into SiLU in experts only"),
        ("deepseek-v3", {"qk_l2_norm": True}, "no such norm in latent attention"),
        ("mixtral-8x7b", {"router_scales_input": True}, "weighs what goes into experts where a token has one, not 2"),
    ],
)
def test_what_megatron_refuses_together_is_refused(name: str, definition: dict[str, Any], why: str) -> None:
    architecture = _model(name, **definition)
    with pytest.raises(Refused, match=why) as caught:
        megatron_args(_plan(architecture), _request(architecture))
    assert caught.value.faults[0].pointer.startswith("/request/workload/architecture/definition/")


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("mixtral-8x7b", {"attention_window": SLIDING, "attention_sinks": True, "gate_offset": 1.0,
                          "activation": "quick_gelu", "activation_limit": 7.0, "attention_scale": 0.1}),
        ("deepseek-v3", {"sparse_attention": SPARSE}),
        ("llama-4-maverick-like", {"qk_l2_norm": True}),
        ("llama-3.1-8b", {"rope_scaling": {"kind": "linear", "factor": 2.5}, "norm": "rmsnorm1p"}),
        ("llama-3.1-8b", {"rope_scaling": {"kind": "yarn", "factor": 32, "original_length": 4096}}),
    ],
)  # fmt: skip
def test_every_field_exists_in_megatron_bridge(name: str, definition: dict[str, Any]) -> None:
    architecture = _model(name, **definition)
    known = FIELDS["model"] | (FIELDS["latent"] if architecture.attention.kind == "mla" else {})
    for field, value in model_fields(_plan(architecture, tp=4, cp=2), _request(architecture)).items():
        assert field in known, field
        assert fits(value, known[field]), (field, value, known[field])


@pytest.mark.parametrize(
    ("name", "definition", "layers"),
    [
        ("llama-3.1-8b", {}, ""),
        ("deepseek-v3", {}, "partial(get_gpt_decoder_block_spec, use_transformer_engine=True)"),
        ("llama-4-maverick-like", {"qk_l2_norm": True},
         "partial(get_gpt_decoder_block_spec, use_transformer_engine=True, qk_l2_norm=True)"),
        ("deepseek-v3", {"sparse_attention": SPARSE}, "get_transformer_block_with_experimental_attention_variant_spec"),
    ],
)  # fmt: skip
def test_nemo_builds_the_layers_that_the_model_has(name: str, definition: dict[str, Any], layers: str) -> None:
    """default_layer_spec of gpt_provider.py gives all layers experts, and passes on neither norm nor variant."""
    architecture = _model(name, **definition)
    text = nemo_job(_plan(architecture), _request(architecture))
    compile(text, "isthmus_job.py", "exec")
    found = [line for line in text.splitlines() if '"transformer_layer_spec"' in line]
    assert found == ([f'    "transformer_layer_spec": {layers},'] if layers else [])
    for used in (
        "partial",
        "get_gpt_decoder_block_spec",
        "get_transformer_block_with_experimental_attention_variant_spec",
    ):
        assert (f"import {used}" in text) is (used in layers)


def test_layers_are_named_only_where_the_model_has_them() -> None:
    with pytest.raises(ValidationError, match="definition names layer 40, num_layers is 32"):
        _model("llama-3.1-8b", unrotated_layers=[3, 40])


def test_patterns_of_layers_are_as_short_as_they_can_be() -> None:
    kinds = {"whole": [1, 1, 1, 1], "again": [1, 0, 1, 0], "runs": [1, 1, 0, 1]}
    assert [one for _, one in arguments(kinds)] == ["([1]*4)", "([1]*1+[0]*1)*2", "([1]*2+[0]*1+[1]*1)"]
    for value, (_, text) in zip(kinds.values(), arguments(kinds), strict=True):
        assert eval(text) == value  # as _eval_pattern of Megatron-LM does
