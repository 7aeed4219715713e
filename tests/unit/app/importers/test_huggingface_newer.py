"""Configurations of the families that are trained now: published parameters, windows told, the rest refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.faults import Refused
from app.importers.huggingface_windows import overestimate
from models.catalogue import named_entry
from models.workload import Architecture
from tests.unit.app.importers.huggingface_models import body_of, imported


def _sizes(model_type: str, sizes: tuple[int, int, int], heads: tuple[int, int], **more: Any) -> dict[str, Any]:
    """Layers, width and feed-forward width; query and key heads."""
    return {
        "model_type": model_type, "num_hidden_layers": sizes[0], "hidden_size": sizes[1], "intermediate_size": sizes[2],
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


KIMI_K2 = _sizes(
    "kimi_k2", (61, 7168, 18432), (64, 64), q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, vocab_size=163840, tie_word_embeddings=False, first_k_dense_replace=1,
    moe_layer_freq=1, n_routed_experts=384, num_experts_per_tok=8, n_shared_experts=1, moe_intermediate_size=2048,
    n_group=1, topk_group=1, num_nextn_predict_layers=0, scoring_func="sigmoid", topk_method="noaux_tc",
    routed_scaling_factor=2.827, norm_topk_prob=True, aux_loss_alpha=0.001, seq_aux=True, ep_size=1,
)  # fmt: skip
GLM_AIR = _sizes(
    "glm4_moe", (46, 4096, 10944), (96, 8), head_dim=128, vocab_size=151552, tie_word_embeddings=False,
    first_k_dense_replace=1, n_routed_experts=128, num_experts_per_tok=8, n_shared_experts=1,
    moe_intermediate_size=1408, n_group=1, topk_group=1, num_nextn_predict_layers=1, attention_bias=True,
    partial_rotary_factor=0.5, use_qk_norm=False, routed_scaling_factor=1.0,
)  # fmt: skip
GPT_OSS = _sizes(
    "gpt_oss", (36, 2880, 2880), (64, 8), head_dim=64, vocab_size=201088, tie_word_embeddings=False,
    num_local_experts=128, num_experts_per_tok=4, experts_per_token=4, sliding_window=128, swiglu_limit=7.0,
    attention_bias=True, initial_context_length=4096, layer_types=["sliding_attention", "full_attention"] * 18,
)  # fmt: skip
GEMMA2 = _sizes(
    "gemma2", (42, 3584, 14336), (16, 8), head_dim=256, vocab_size=256000, sliding_window=4096,
    attn_logit_softcapping=50.0, final_logit_softcapping=30.0, query_pre_attn_scalar=256, cache_implementation="hybrid",
    hidden_activation="gelu_pytorch_tanh",
)  # fmt: skip
GEMMA3 = _sizes(
    "gemma3_text", (26, 1152, 6912), (4, 1), head_dim=256, vocab_size=262144, sliding_window=512,
    sliding_window_pattern=6, rope_local_base_freq=10000,
)  # fmt: skip
MAVERICK = _sizes(
    "llama4_text", (48, 5120, 8192), (40, 8), head_dim=128, vocab_size=202048, tie_word_embeddings=False,
    intermediate_size_mlp=16384, interleave_moe_layer_step=2, moe_layers=list(range(1, 48, 2)), num_local_experts=128,
    num_experts_per_tok=1, attention_chunk_size=8192, no_rope_layers=[1, 1, 1, 0] * 12, use_qk_norm=False,
    for_llm_compressor=False, attn_scale=0.1, attn_temperature_tuning=4, floor_scale=8192,
)  # fmt: skip
PHI4 = _sizes("phi3", (40, 5120, 17920), (40, 10), vocab_size=100352, tie_word_embeddings=False, sliding_window=None)
ERNIE = _sizes(
    "ernie4_5_moe", (28, 2560, 12288), (20, 4), head_dim=128, vocab_size=103424, moe_num_experts=64, moe_k=6,
    moe_num_shared_experts=2, moe_intermediate_size=1536, moe_layer_start_index=1, moe_layer_end_index=27,
    moe_layer_interval=1, use_bias=False,
)  # fmt: skip
MINIMAX = _sizes(
    "minimax_m2", (62, 3072, 1536), (48, 8), head_dim=128, vocab_size=200064, tie_word_embeddings=False,
    num_local_experts=256, num_experts_per_tok=8, shared_intermediate_size=0, attn_type_list=[1] * 62,
    scoring_func="sigmoid", use_routing_bias=True, use_mtp=True, num_mtp_modules=3, mtp_transformer_layers=1,
    use_qk_norm=True, qk_norm_type="per_layer", rotary_dim=64,
)  # fmt: skip

COHERE2 = _sizes(
    "cohere2", (32, 4096, 14336), (32, 8), head_dim=128, vocab_size=256000, sliding_window=4096,
    sliding_window_pattern=4, layer_switch=4, order_of_interleaved_layers="local_attn_first", rotary_pct=1.0,
    position_embedding_type="rope_gptj", use_embedding_sharing=True, use_gated_activation=True,
    use_parallel_block=True, use_parallel_embedding=False, logit_scale=0.25, rope_theta=50000, layer_norm_eps=1e-05,
)  # fmt: skip
OLMO3 = _sizes(
    "olmo3", (32, 4096, 11008), (32, 32), vocab_size=100278, tie_word_embeddings=False, sliding_window=4096,
    layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 8,
    rope_theta=500000, rms_norm_eps=1e-06, rope_scaling={
        "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
        "original_max_position_embeddings": 8192, "rope_type": "yarn"},
)  # fmt: skip
DEEPSEEK_V32 = {
    **KIMI_K2, "model_type": "deepseek_v32", "num_attention_heads": 128, "num_key_value_heads": 128,
    "vocab_size": 129280, "first_k_dense_replace": 3, "n_routed_experts": 256, "n_group": 8, "topk_group": 4,
    "num_nextn_predict_layers": 1, "routed_scaling_factor": 2.5, "index_head_dim": 128, "index_n_heads": 64,
    "index_topk": 2048,
}  # fmt: skip
HUNYUAN_A13B = _sizes(
    "hunyuan_v1_moe", (32, 4096, 3072), (32, 8), head_dim=128, vocab_size=128167, tie_word_embeddings=True,
    num_experts=64, moe_topk=[8] * 32, num_shared_expert=[1] * 32, moe_intermediate_size=[3072] * 32, use_cla=False,
    moe_layer_num_skipped=0, rope_theta=10000.0, rms_norm_eps=1e-05,
    rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                  "mscale_all_dim": 1.0, "type": "dynamic"},
)  # fmt: skip
HUNYUAN_7B = _sizes(
    "hunyuan_v1_dense", (32, 4096, 14336), (32, 8), head_dim=128, vocab_size=128167, tie_word_embeddings=True,
    rope_theta=10000.0, rope_scaling={"alpha": 1000.0, "type": "dynamic"}, rms_norm_eps=1e-05,
)  # fmt: skip

# Configuration, and the number of parameters on the model's card or of its weights, extra prediction layers left out.
PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    "Kimi-K2": (KIMI_K2, 1_026_408_232_448),
    "GLM-4-9B-0414": (
        _sizes("glm4", (40, 4096, 13696), (32, 2), head_dim=128, vocab_size=151552, attention_bias=True),
        9_400_279_040),
    "GLM-4.5": (
        GLM_AIR | {"num_hidden_layers": 92, "hidden_size": 5120, "intermediate_size": 12288, "n_routed_experts": 160,
                   "moe_intermediate_size": 1536, "first_k_dense_replace": 3, "use_qk_norm": True}, 355e9),
    "GLM-4.5-Air": (GLM_AIR, 106e9),
    "gpt-oss-120b": (GPT_OSS, 116.83e9),
    "gpt-oss-20b": (
        GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32,
                   "layer_types": ["sliding_attention", "full_attention"] * 12}, 20.91e9),
    "Gemma-2-9B": (GEMMA2, 9_241_705_984),
    "Gemma-3-1B": (GEMMA3, 999_885_952),
    "Llama-4-Maverick": (MAVERICK, 400e9),
    "Phi-4": (PHI4, 14_659_507_200),
    "Granite-3.1-8B": (
        _sizes("granite", (40, 4096, 12800), (32, 8), vocab_size=49155, tie_word_embeddings=True,
               embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.0078125,
               logits_scaling=16.0), 8.17e9),
    "OLMo-2-7B": (_sizes("olmo2", (32, 4096, 11008), (32, 32), vocab_size=100352), 7_298_617_344),
    "Command-R-v01": (
        _sizes("cohere", (40, 8192, 22528), (64, 64), vocab_size=256000, logit_scale=0.0625, use_qk_norm=False),
        34_980_831_232),
    "ERNIE-4.5-21B-A3B": (ERNIE, 21.8e9),
    "MiniMax-M2": (MINIMAX, 230e9),
    "Command-R7B": (COHERE2, 8_028_033_024),
    "Olmo-3-7B": (OLMO3, 7_298_011_136),
    "Olmo-3-32B": (
        OLMO3 | {"num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 27648, "num_attention_heads": 40,
                 "num_key_value_heads": 8, "layer_types": OLMO3["layer_types"] * 2}, 32.2e9),
    "DeepSeek-V3.2": (DEEPSEEK_V32, 671e9),
    "Hunyuan-A13B": (HUNYUAN_A13B, 80.4e9),
    "Hunyuan-7B": (HUNYUAN_7B, 7.5e9),
    "Seed-OSS-36B": (
        _sizes("seed_oss", (64, 5120, 27648), (80, 8), head_dim=128, vocab_size=155136, tie_word_embeddings=False,
               attention_bias=True, attention_out_bias=False, residual_dropout=0.1), 36_151_104_512),
}  # fmt: skip
# Parameters of which each token reads a part, and how many tables of the vocabulary the card leaves out of them.
ACTIVE = {
    "Kimi-K2": (32.6e9, 0), "GLM-4.5": (32e9, 2), "GLM-4.5-Air": (12e9, 2), "gpt-oss-120b": (5.13e9, 1),
    "gpt-oss-20b": (3.61e9, 1), "Llama-4-Maverick": (17e9, 0), "MiniMax-M2": (10e9, 2),
    "DeepSeek-V3.2": (37e9, 0), "Hunyuan-A13B": (13e9, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_agree_with_the_model_card(name: str) -> None:
    config, published = PUBLISHED[name]
    assert body_of(imported(config).architecture).total_parameters == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_agree_with_what_was_published(name: str) -> None:
    (published, tables), architecture = ACTIVE[name], imported(PUBLISHED[name][0]).architecture
    table = architecture.vocab_size * architecture.hidden_size
    assert body_of(architecture).active_parameters - tables * table == pytest.approx(published, rel=0.03)


def test_maverick_is_the_model_of_the_catalogue() -> None:
    known = Architecture.model_validate(named_entry("models", "llama-4-maverick-like"))
    ours = imported(MAVERICK).architecture
    assert (ours.attention, body_of(ours).total_parameters) == (known.attention, body_of(known).total_parameters)
    assert [ours.is_moe_layer(layer) for layer in range(4)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (GPT_OSS, "18 of 36 layers attend to 128 tokens"),
        ({name: value for name, value in GPT_OSS.items() if name != "layer_types"}, "18 of 36 layers"),
        (GEMMA2, "21 of 42 layers attend to 4,096 tokens"),
        (GEMMA3, "22 of 26 layers attend to 512 tokens"),
        (MAVERICK, "36 of 48 layers attend to 8,192 tokens"),
        (COHERE2, "24 of 32 layers attend to 4,096 tokens"),
        ({name: value for name, value in OLMO3.items() if name != "layer_types"}, "24 of 32 layers"),
        (DEEPSEEK_V32, "61 of 61 layers attend to 2,048 tokens"),
        (PHI4 | {"sliding_window": 2047}, "40 of 40 layers attend to 2,047 tokens"),
    ],
)
def test_windows_of_attention_are_told_with_the_factor(config: dict[str, Any], layers: str) -> None:
    (note,) = (one for one in imported(config).notes if "whole sequence" in one)
    assert note.startswith(layers)
    assert "overestimated by a factor of" in note
    assert "at 131,072 tokens" in note


@pytest.mark.parametrize("config", [PHI4, PHI4 | {"sliding_window": 4096, "use_sliding_window": False}])
def test_a_model_without_windows_has_no_note_of_them(config: dict[str, Any]) -> None:
    assert not any("whole sequence" in one for one in imported(config).notes)


@pytest.mark.parametrize(("length", "window", "share"), [(64, 16, 1.0), (64, 16, 0.5), (64, 128, 0.5)])
def test_the_factor_is_the_ratio_of_the_scores_counted_one_by_one(length: int, window: int, share: float) -> None:
    whole = sum(one + 1 for one in range(length))
    part = sum(min(one + 1, window) for one in range(length))
    expected = whole / ((1 - share) * whole + share * part)
    assert overestimate(length, window, share) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"model_type": "qwen3_next"}, "linear attention"),
        ({"model_type": "nemotron_h"}, "state-space layers"),
        (PHI4 | {"layer_types": ["linear_attention"] * 40}, "linear_attention"),
        (PHI4 | {"layer_types": "full"}, "layer_types is 'full'"),
        (PHI4 | {"layer_types": ["full_attention"] * 39}, "39 kinds of 40 layers"),
        (MAVERICK | {"no_rope_layers": [1, 0]}, "2 marks of 48 layers"),
        (HUNYUAN_A13B | {"moe_topk": [8] * 31 + [4]}, "moe_topk differs between layers"),
        (HUNYUAN_A13B | {"moe_topk": []}, "moe_topk is []"),
        (HUNYUAN_A13B | {"moe_layer_num_skipped": 1}, "dense layers"),
        (HUNYUAN_7B | {"use_cla": True}, "shared by layers"),
        (GPT_OSS | {"experts_per_token": 8}, "num_experts_per_tok"),
        (ERNIE | {"moe_layer_interval": 2}, "not the last ones"),
        (ERNIE | {"moe_layer_end_index": 20}, "not the last ones"),
        (MINIMAX | {"attn_type_list": [0, 1] * 31}, "linear attention"),
        (MINIMAX | {"shared_intermediate_size": 8}, "shared experts"),
        (MAVERICK | {"moe_layers": [0]}, "not in one layer of 2"),
        ({name: value for name, value in GEMMA2.items() if name != "head_dim"}, "head_dim"),
    ],
)
def test_what_cannot_be_described_is_refused_by_name(config: dict[str, Any], what: str) -> None:
    with pytest.raises(Refused) as caught:
        imported(config)
    (fault,) = caught.value.faults
    assert what in fault.what
    assert fault.remedy
