"""What published configurations say beside sizes, as Megatron's arguments, and by name where Megatron has none.

Sources of what is expected: the configurations of examples/post_training/modelopt/conf and examples/gptoss of
Megatron-LM core 0.20, and the bridges of the same families in Megatron-Bridge 0.7.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.exporters.megatron_losses import command_line_losses, model_losses
from app.exporters.megatron_model import model_arguments
from app.faults import Refused
from models.catalogue import named_entry
from models.definition import ModelDefinition
from models.workload import Architecture
from tests.unit.app.importers import test_huggingface as older
from tests.unit.app.importers import test_huggingface_newer as newer
from tests.unit.app.importers.huggingface_models import imported
from tests.unit.app.importers.samples import LLAMA_8B

YARN = {"type": "yarn", "beta_slow": 1, "original_max_position_embeddings": 4096}
DEEPSEEK_YARN = {**YARN, "factor": 40, "beta_fast": 32, "mscale": 1.0, "mscale_all_dim": 1.0}
KIMI_YARN = {**YARN, "factor": 32.0, "beta_fast": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
GPT_OSS_YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096}  # fmt: skip
LONG_ROPE = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
HALVES, GATED, PLAIN = "--rotary-percent 0.5", "--swiglu", "--disable-bias-linear"
SIGMOID = "--moe-router-score-function sigmoid --moe-router-load-balancing-type none --moe-router-enable-expert-bias"

# Configuration with what its release says beside sizes; arguments that are there; arguments that are not; what is told.
PUBLISHED: dict[str, tuple[dict[str, Any], str, str, tuple[str, ...]]] = {
    "Llama 3.1": (
        LLAMA_8B,
        f"--use-rope-scaling --rope-scaling-factor 8 --rotary-base 500000 --norm-epsilon 1e-05 {GATED} {PLAIN}",
        "--qk-layernorm --add-qkv-bias --rotary-interleaved --window-size",
        (),
    ),
    "Llama 4": (
        newer.MAVERICK | {"rope_theta": 500000.0, "use_qk_norm": True},
        "--rotary-interleaved --no-rope-freq ([0]*3+[1]*1)*12 --moe-router-score-function sigmoid "
        "--moe-apply-probs-on-input --qk-l2-norm --moe-layer-freq ([0]*1+[1]*1)*24",
        "--qk-layernorm --window-size",
        ("attention in chunks of 8192 tokens", "attn_temperature_tuning", "normalises them in every layer"),
    ),
    "Qwen 2.5": (older.PUBLISHED["Qwen2.5-7B"][0], f"--add-qkv-bias {PLAIN}", "--window-size --qk-layernorm", ()),
    "Qwen 3": (
        older.PUBLISHED["Qwen3-8B"][0] | {"rope_theta": 1000000},
        "--qk-layernorm --rotary-base 1000000",
        "--add-qkv-bias --window-size",
        (),
    ),
    "Qwen 3 MoE": (
        older.QWEN3_30B,
        "--qk-layernorm --moe-router-score-function softmax",
        "--moe-router-pre-softmax",
        (),
    ),
    "Qwen 1.5 MoE": (
        older.QWEN_MOE,
        "--moe-router-pre-softmax --moe-shared-expert-gate --add-qkv-bias",
        "--qk-layernorm",
        (),
    ),
    "Mixtral": (
        older.MIXTRAL | {"rope_theta": 1e6},
        f"--rotary-base 1000000 {GATED}",
        "--moe-router-pre-softmax --qk-layernorm",
        (),
    ),
    "DeepSeek-V2": (
        older.DEEPSEEK_V2
        | {"routed_scaling_factor": 16.0, "norm_topk_prob": False, "topk_method": "group_limited_greedy"},
        "--moe-router-pre-softmax --moe-router-num-groups 8 --moe-router-group-topk 3 --moe-router-topk-scaling-factor "
        "16",
        "--moe-router-enable-expert-bias",
        ("chosen by their best expert",),
    ),
    "DeepSeek-V3": (
        older.DEEPSEEK_V3 | {"rope_scaling": DEEPSEEK_YARN},
        f"--rope-type yarn --rotary-scaling-factor 40 --mscale-all-dim 1 {SIGMOID} "
        "--moe-router-topk-scaling-factor 2.5 "
        "--moe-router-num-groups 8 --moe-router-group-topk 4 --qk-layernorm --mtp-num-layers 1",
        "--mscale",
        (),
    ),
    "DeepSeek-V3.2": (
        newer.DEEPSEEK_V32 | {"rope_scaling": DEEPSEEK_YARN},
        f"--experimental-attention-variant dsa --dsa-indexer-topk 2048 --dsa-indexer-n-heads 64 "
        f"{SIGMOID} --no-rope-fusion",
        "--window-size",
        ("dsa_indexer_loss_coeff",),
    ),
    "Kimi K2": (
        newer.KIMI_K2 | {"rope_theta": 50000.0, "rope_scaling": KIMI_YARN},
        f"--rotary-base 50000 --rotary-scaling-factor 32 {SIGMOID} --moe-router-topk-scaling-factor 2.827",
        "--moe-router-num-groups --window-size",
        ("beta_fast 1 and beta_slow 1",),
    ),
    "GLM-4.5": (
        newer.PUBLISHED["GLM-4.5"][0] | {"rope_theta": 1000000, "routed_scaling_factor": 2.5},
        f"{HALVES} --qk-layernorm --add-qkv-bias {SIGMOID} --moe-router-topk-scaling-factor 2.5",
        "--rotary-interleaved",
        (),
    ),
    "gpt-oss": (
        newer.GPT_OSS | {"rope_theta": 150000, "rope_scaling": GPT_OSS_YARN},
        "--softmax-type learnable --window-size 127,0 --window-attn-skip-freq ([1]*1+[0]*1)*18 --quick-geglu "
        "--glu-linear-offset 1 --activation-func-clamp-value 7 --no-bias-dropout-fusion --position-embedding-type yarn "
        "--rotary-scaling-factor 32 --no-yarn-correction-range-round-to-int --rotary-base 150000",
        f"{PLAIN} {GATED} --moe-router-pre-softmax",
        (),
    ),
    "Gemma 2": (
        newer.GEMMA2,
        "--apply-layernorm-1p --window-size 4095,0 --window-attn-skip-freq ([1]*1+[0]*1)*21 --quick-geglu",
        "--qk-layernorm --untie-embeddings-and-output-weights",
        (
            "capped at 50",
            "capped at 30",
            "root of the width",
            "norm before and another one after",
            "quick form",
            "attention scores times 0.0625",
        ),
    ),
    "Gemma 3": (
        newer.GEMMA3 | {"rope_theta": 1000000, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "--qk-layernorm --apply-layernorm-1p --window-size 511,0 --rotary-seq-len-interpolation-factor 8",
        "--untie-embeddings-and-output-weights",
        ("have the base 10,000", "without a window only", "root of the width", "norm before and another one after"),
    ),
    "Phi-3": (
        newer.PHI4 | {"rope_scaling": LONG_ROPE, "partial_rotary_factor": 0.75},
        "--rotary-percent 0.75",
        "--window-size --use-rope-scaling",
        ("by the rule 'longrope'",),
    ),
    "OLMo 2": (
        newer.PUBLISHED["OLMo-2-7B"][0] | {"rope_theta": 500000},
        "--qk-layernorm --rotary-base 500000",
        "--window-size",
        ("norm after them only", "over all heads of a layer at once"),
    ),
    "OLMo 3": (
        newer.OLMO3,
        "--window-size 4095,0 --window-attn-skip-freq ([1]*3+[0]*1)*8 --position-embedding-type yarn",
        "--no-rope-freq",
        ("norm after them only", "without a window only"),
    ),
    "Granite 3": (
        newer.PUBLISHED["Granite-3.1-8B"][0],
        GATED,
        "--untie-embeddings-and-output-weights",
        ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention scores times 0.0078125"),
    ),
    "Command R": (
        newer.PUBLISHED["Command-R-v01"][0],
        "--normalization LayerNorm --rotary-interleaved",
        "--qk-layernorm",
        ("side by side", "norms add no bias", "logit_scale"),
    ),
    "Command R7B": (
        newer.COHERE2,
        "--window-attn-skip-freq ([1]*3+[0]*1)*8 --no-rope-freq ([0]*3+[1]*1)*8 --rotary-base 50000",
        "--untie-embeddings-and-output-weights",
        ("side by side", "multiplied by 0.25"),
    ),
    "Seed-OSS": (
        newer.PUBLISHED["Seed-OSS-36B"][0] | {"rope_theta": 1e7},
        f"--add-qkv-bias --rotary-base 10000000 {PLAIN}",
        "--qk-layernorm",
        (),
    ),
    "ERNIE 4.5": (
        newer.ERNIE,
        f"--rotary-interleaved --rotary-base 500000 --moe-router-score-function softmax {PLAIN}",
        "--moe-router-enable-expert-bias --untie-embeddings-and-output-weights",
        ("bias of experts on softmax scores",),
    ),
    "MiniMax-M2": (
        newer.MINIMAX | {"rope_theta": 5000000},
        f"{HALVES} --qk-layernorm {SIGMOID} --rotary-base 5000000",
        "--window-size",
        ("over all heads of a layer at once",),
    ),
    "Hunyuan": (
        newer.HUNYUAN_7B,
        "--qk-layernorm --rotary-base 11158840",
        "--use-rope-scaling",
        ("after they are rotated",),
    ),
    "GPT-NeoX": (older.GPT_NEOX, "--rotary-percent 0.25 --normalization LayerNorm", PLAIN, ("side by side",)),
    "GPT-2": (older.GPT2_XL, "--position-embedding-type learned_absolute", f"{PLAIN} --rotary-base", ()),
}


def _definition(config: dict[str, Any]) -> ModelDefinition:
    found = imported(config).architecture.definition
    assert found is not None
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_give_the_arguments_of_their_models(name: str) -> None:
    config, there, absent, told = PUBLISHED[name]
    architecture = imported(config).architecture
    text = " ".join(" ".join(one) for one in model_arguments(architecture)) + " "
    for argument in there.split(" --"):
        assert f"--{argument.removeprefix('--')} " in text
    for argument in absent.split():
        assert f"{argument} " not in text
    losses = [*model_losses(architecture), *command_line_losses(architecture)]
    for words in told:
        assert any(words in line for line in losses), words
    assert told or not losses, "nothing is told of a model that Megatron builds in full"


@pytest.mark.parametrize(
    ("config", "entry"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (older.MIXTRAL, "mixtral-8x7b"),
        (older.PUBLISHED["Qwen3-235B-A22B"][0] | {"rope_theta": 1000000}, "qwen3-235b-a22b"),
        (older.DEEPSEEK_V3 | {"rope_scaling": DEEPSEEK_YARN}, "deepseek-v3"),
        (newer.MAVERICK, "llama-4-maverick-like"),
    ],
)
def test_an_import_is_defined_as_the_catalogue_entry_is(config: dict[str, Any], entry: str) -> None:
    assert _definition(config) == Architecture.model_validate(named_entry("models", entry)).definition


def test_rotary_positions_of_transformers_5_are_those_of_transformers_4() -> None:
    newly = {name: value for name, value in newer.OLMO3.items() if name not in ("rope_theta", "rope_scaling")}
    newly["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000},
        "full_attention": {**newer.OLMO3["rope_scaling"], "rope_theta": 500000},
    }
    assert _definition(newly) == _definition(newer.OLMO3)
    flat = {name: value for name, value in LLAMA_8B.items() if name not in ("rope_theta", "rope_scaling")}
    flat["rope_parameters"] = {**LLAMA_8B["rope_scaling"], "rope_theta": 500000.0}  # type: ignore[dict-item]
    assert _definition(flat) == _definition(LLAMA_8B)
    local = newer.GEMMA3 | {"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"},
                                                "sliding_attention": {"rope_theta": 10000.0}}}  # fmt: skip
    assert "rotary positions of layers with a window have the base 10,000" in _definition(local).other_parts


def test_what_is_absent_is_taken_as_transformers_does_and_said() -> None:
    notes = imported(newer.GPT_OSS).notes
    (note,) = (one for one in notes if one.startswith("absent"))
    assert "rope_theta 150,000" in note
    assert "rope_scaling yarn 32" in note
    stated = {"rms_norm_eps": 1e-05, "rope_theta": 150000, "rope_scaling": GPT_OSS_YARN, "hidden_act": "silu"}
    assert not any(one.startswith("absent") for one in imported(newer.GPT_OSS | stated).notes)


def test_what_is_stated_in_words_is_a_note_of_the_import() -> None:
    notes = imported(newer.GEMMA2).notes
    assert "stated in words, for a trainer to be told: attention scores are capped at 50 by a tanh " \
           "(attn_logit_softcapping)" in notes  # fmt: skip
    uncapped = newer.GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    assert not any("capped" in one for one in imported(uncapped).notes)


@pytest.mark.parametrize(
    ("config", "biases", "words"),
    [
        (LLAMA_8B | {"attention_bias": True, "mlp_bias": True}, (True, True), ""),
        (LLAMA_8B | {"attention_bias": True}, (False, True), "the output projection of attention adds a bias"),
        (LLAMA_8B | {"mlp_bias": True}, (False, False), "the layers of the feed-forward block add a bias"),
        (newer.ERNIE | {"use_bias": True}, (True, True), ""),
        (older.DEEPSEEK_V3 | {"attention_bias": True}, (False, False), "projections to the latents of attention"),
    ],
)
def test_biases_are_those_of_the_layers_that_have_them(
    config: dict[str, Any], biases: tuple[bool, bool], words: str
) -> None:
    found = _definition(config)
    assert (found.linear_bias, found.qkv_bias) == biases
    assert any(words in part for part in found.other_parts) if words else not found.other_parts


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (newer.OLMO3 | {"rope_scaling": {**newer.OLMO3["rope_scaling"], "attention_factor": 1.5}}, "keys by 1.5"),
        (LLAMA_8B | {"rope_scaling": {**LLAMA_8B["rope_scaling"], "low_freq_factor": 2.0}}, "factors 2 and 4"),  # type: ignore[dict-item]
        (LLAMA_8B | {"rope_scaling": {**LLAMA_8B["rope_scaling"], "odd": 2.0}}, "rotary positions have odd"),  # type: ignore[dict-item]
        (newer.GPT_OSS | {"swiglu_alpha": 1.5}, "the gain 1.5"),
        (newer.PUBLISHED["Command-R-v01"][0] | {"use_qk_norm": True}, "weights of their own for every head"),
    ],
)
def test_what_differs_from_the_usual_is_told_in_words(config: dict[str, Any], part: str) -> None:
    assert any(part in one for one in _definition(config).other_parts)


def test_temperature_tuning_may_be_switched_off_either_way() -> None:
    for off in (False, 0):
        assert not _definition(newer.MAVERICK | {"attn_temperature_tuning": off}).other_parts


@pytest.mark.parametrize(
    ("change", "code", "what"),
    [
        ({"hidden_act": "mish"}, "out-of-range", "the activation 'mish' is not known"),
        ({"hidden_act": 3}, "out-of-range", "hidden_act is 3"),
        ({"rms_norm_eps": 0}, "out-of-range", "rms_norm_eps is 0"),
        ({"rms_norm_eps": "1e-5"}, "out-of-range", "'1e-5'"),
        ({"rope_theta": 10000.5}, "out-of-range", "10000.5"),
        ({"rope_scaling": "yarn"}, "out-of-range", "rope_scaling is 'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "missing-field", "original_max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "linear"}}, "missing-field", "factor"),
        ({"attention_bias": "no"}, "out-of-range", "attention_bias is 'no'"),
        ({"partial_rotary_factor": 1.5}, "out-of-range", "1.5"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(change: dict[str, Any], code: str, what: str) -> None:
    with pytest.raises(Refused) as caught:
        imported(LLAMA_8B | change)
    (fault,) = caught.value.faults
    assert (fault.code, what in fault.what) == (code, True), fault
    assert fault.where.startswith("config.json")
    assert fault.remedy
