"""Configurations of published models give the published number of parameters; what is not known is refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.faults import Refused
from models.catalogue import named_entry
from models.workload import Architecture, GroupedQueryAttention, LatentAttention
from tests.unit.app.importers.huggingface_models import body_of, imported
from tests.unit.app.importers.samples import LLAMA_8B


def _llama(layers: int, hidden: int, ffn: int, heads: int, kv: int, *, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": ffn,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


def _qwen(
    layers: int, hidden: int, ffn: int, heads: int, kv: int, *, tied: bool = False, **more: Any
) -> dict[str, Any]:
    more = {"vocab_size": 151936, "use_sliding_window": False, "max_window_layers": layers, **more}
    return _llama(layers, hidden, ffn, heads, kv, vocab=more.pop("vocab_size"), **more) | {"tie_word_embeddings": tied}


QWEN3_30B = _qwen(
    48, 2048, 6144, 32, 4, model_type="qwen3_moe", head_dim=128, num_experts=128, num_experts_per_tok=8,
    moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
)  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "intermediate_size": 18432,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "tie_word_embeddings": False, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048, "n_group": 8, "topk_group": 4,
    "num_nextn_predict_layers": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 2.5,
    "quantization_config": {"quant_method": "fp8"}, "ep_size": 1, "rope_theta": 10000,
}  # fmt: skip
DEEPSEEK_V2 = {
    "model_type": "deepseek_v2", "num_hidden_layers": 60, "hidden_size": 5120, "intermediate_size": 12288,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
    "tie_word_embeddings": False, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 160,
    "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1536, "n_group": 8, "topk_group": 3,
}  # fmt: skip
DEEPSEEK_V2_LITE = DEEPSEEK_V2 | {
    "num_hidden_layers": 27, "hidden_size": 2048, "intermediate_size": 10944, "num_attention_heads": 16,
    "num_key_value_heads": 16, "q_lora_rank": None, "n_routed_experts": 64, "moe_intermediate_size": 1408,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip
MIXTRAL = _llama(
    32, 4096, 14336, 32, 8, vocab=32000, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2,
    sliding_window=None, router_aux_loss_coef=0.02, output_router_logits=False,
)  # fmt: skip
GPT_NEOX = {
    "model_type": "gpt_neox", "num_hidden_layers": 44, "hidden_size": 6144, "intermediate_size": 24576,
    "num_attention_heads": 64, "vocab_size": 50432, "tie_word_embeddings": False, "rotary_pct": 0.25,
    "use_parallel_residual": True, "hidden_act": "gelu_fast",
}  # fmt: skip
PYTHIA = GPT_NEOX | {
    "num_hidden_layers": 36, "hidden_size": 5120, "intermediate_size": 20480, "num_attention_heads": 40,
    "vocab_size": 50688,
}  # fmt: skip
GPT2_XL = {
    "model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_ctx": 1024, "n_positions": 1024,
    "n_inner": None, "vocab_size": 50257, "activation_function": "gelu_new", "task_specific_params": {},
}  # fmt: skip
STARCODER = {
    "model_type": "gpt_bigcode", "n_layer": 40, "n_embd": 6144, "n_head": 48, "n_inner": 24576, "n_positions": 8192,
    "vocab_size": 49152, "multi_query": True,
}  # fmt: skip
QWEN_MOE = _qwen(
    24, 2048, 5632, 16, 16, model_type="qwen2_moe", num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
    shared_expert_intermediate_size=5632, decoder_sparse_step=1,
)  # fmt: skip

# Configuration, and the number of parameters on the model's card (of its weights), extra prediction layers left out.
PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    "Llama-3.1-8B": (LLAMA_8B, 8_030_261_248),
    "Llama-3.1-70B": (_llama(80, 8192, 28672, 64, 8, vocab=128256), 70_553_706_496),
    "Llama-3.1-405B": (_llama(126, 16384, 53248, 128, 8, vocab=128256), 405_853_388_800),
    "Llama-3.2-1B": (
        _llama(16, 2048, 8192, 32, 8, vocab=128256, head_dim=64) | {"tie_word_embeddings": True}, 1_235_814_400),
    "Mistral-7B-v0.1": (
        _llama(32, 4096, 14336, 32, 8, vocab=32000, model_type="mistral", sliding_window=4096), 7_241_732_096),
    "Mixtral-8x7B-v0.1": (MIXTRAL, 46_702_792_704),
    "Mixtral-8x22B-v0.1": (
        MIXTRAL | {"num_hidden_layers": 56, "hidden_size": 6144, "intermediate_size": 16384, "num_attention_heads": 48},
        140_620_634_112),
    "Qwen2.5-0.5B": (_qwen(24, 896, 4864, 14, 2, tied=True, model_type="qwen2"), 494_032_768),
    "Qwen2.5-7B": (_qwen(28, 3584, 18944, 28, 4, model_type="qwen2", vocab_size=152064), 7_615_616_512),
    "Qwen2.5-72B": (_qwen(80, 8192, 29568, 64, 8, model_type="qwen2", vocab_size=152064), 72_706_203_648),
    "Qwen3-8B": (_qwen(36, 4096, 12288, 32, 8, model_type="qwen3", head_dim=128), 8_190_735_360),
    "Qwen3-30B-A3B": (QWEN3_30B, 30_532_122_624),
    "Qwen3-235B-A22B": (
        QWEN3_30B | {"num_hidden_layers": 94, "hidden_size": 4096, "intermediate_size": 12288,
                     "num_attention_heads": 64, "moe_intermediate_size": 1536}, 235_093_634_560),
    "Qwen1.5-MoE-A2.7B": (QWEN_MOE, 14_315_784_192),
    "DeepSeek-V2": (DEEPSEEK_V2, 235_741_434_880),
    "DeepSeek-V2-Lite": (DEEPSEEK_V2_LITE, 15_706_484_224),
    "DeepSeek-V3": (DEEPSEEK_V3, 671_026_419_200),
    "GPT-NeoX-20B": (GPT_NEOX, 20_554_567_680),
    "Pythia-12B": (PYTHIA, 11_846_072_320),
    "GPT-2 XL": (GPT2_XL, 1_557_611_200),
    "StarCoderBase": (STARCODER, 15_517_456_384),
}  # fmt: skip
ACTIVE = {"Mixtral-8x7B-v0.1": 12.9e9, "Qwen3-30B-A3B": 3.3e9, "DeepSeek-V2": 21e9, "DeepSeek-V3": 37e9}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_agree_with_the_model_card(name: str) -> None:
    config, published = PUBLISHED[name]
    assert body_of(imported(config).architecture).total_parameters == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(("name", "published"), ACTIVE.items())
def test_active_parameters_agree_with_what_was_published(name: str, published: float) -> None:
    active = body_of(imported(PUBLISHED[name][0]).architecture).active_parameters
    assert active == pytest.approx(published, rel=0.03)  # published in two digits


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b"), ("Llama-3.1-70B", "llama-3.1-70b"), ("Llama-3.1-405B", "llama-3.1-405b"),
        ("Mixtral-8x7B-v0.1", "mixtral-8x7b"), ("Qwen3-235B-A22B", "qwen3-235b-a22b"), ("DeepSeek-V3", "deepseek-v3"),
    ],
)  # fmt: skip
def test_an_import_costs_what_the_catalogue_entry_costs(name: str, entry: str) -> None:
    known = Architecture.model_validate(named_entry("models", entry))
    ours = imported(PUBLISHED[name][0]).architecture
    assert body_of(ours).total_parameters == body_of(known).total_parameters
    assert (ours.attention, ours.num_mtp_layers, ours.tied_embeddings) == (
        known.attention, known.num_mtp_layers, known.tied_embeddings)  # fmt: skip


def test_what_was_used_and_what_was_not_is_said() -> None:
    made = imported(DEEPSEEK_V3, model_name="v3")
    assert made.architecture.name == "v3"
    assert isinstance(made.architecture.attention, LatentAttention)
    assert set(made.used) | set(made.ignored) == set(DEEPSEEK_V3)
    assert not set(made.used) & set(made.ignored)
    assert any("max_nodes_per_token 4" in note for note in made.notes)
    assert any(note.startswith("quantization_config") for note in made.notes)


def test_dense_layers_between_are_understood_where_they_can_be() -> None:
    every_other = imported(QWEN3_30B | {"decoder_sparse_step": 2}).architecture
    assert [every_other.is_moe_layer(layer) for layer in range(4)] == [False, True, False, True]
    first_dense = imported(QWEN3_30B | {"mlp_only_layers": [0, 1]}).architecture
    assert [first_dense.is_moe_layer(layer) for layer in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("change", "code", "what"),
    [
        ({"model_type": "mamba"}, "not-an-option", "mamba"),
        ({"model_type": 7}, "not-an-option", "not known"),
        ({"num_experts_total": 8}, "unknown-field", "num_experts_total"),
        ({"hidden_size": None}, "missing-field", "hidden_size"),
        ({"hidden_size": "4096"}, "out-of-range", "'4096'"),
        ({"hidden_size": 4096.0}, "out-of-range", "4096.0"),
        ({"num_hidden_layers": 0}, "out-of-range", "num_hidden_layers is 0"),
        ({"num_hidden_layers": True}, "out-of-range", "True"),
        ({"num_attention_heads": 33}, "out-of-range", "do not divide"),
        ({"num_key_value_heads": 5}, "contradiction", "does not divide"),
        ({"tie_word_embeddings": "yes"}, "out-of-range", "'yes'"),
    ],
)
def test_what_is_not_known_is_refused(change: dict[str, Any], code: str, what: str) -> None:
    with pytest.raises(Refused) as caught:
        imported(LLAMA_8B | change)
    (fault,) = caught.value.faults
    assert fault.code == code
    assert what in fault.what
    assert fault.where.startswith("config.json")
    assert fault.remedy


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (PUBLISHED["Mistral-7B-v0.1"][0], "num_key_value_heads"),  # 8 in transformers, whatever the heads are
        (MIXTRAL, "num_key_value_heads"),
        (PUBLISHED["Qwen2.5-7B"][0], "num_key_value_heads"),
        (PUBLISHED["Qwen3-8B"][0], "head_dim"),  # 128 in transformers, whatever the width is
        (DEEPSEEK_V3, "q_lora_rank"),  # 1536
        (DEEPSEEK_V3, "n_shared_experts"),  # 1
        (DEEPSEEK_V3, "n_group"),  # 8
        (DEEPSEEK_V2, "n_shared_experts"),  # 2
    ],
)
def test_a_size_that_a_family_has_a_default_for_is_not_assumed(config: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        imported({name: value for name, value in config.items() if name != field})
    (fault,) = caught.value.faults
    assert (fault.code, field in fault.what) == ("missing-field", True)


def test_a_null_of_key_heads_is_one_per_query_head() -> None:
    attention = imported(MIXTRAL | {"num_key_value_heads": None}).architecture.attention
    assert isinstance(attention, GroupedQueryAttention)
    assert attention.num_kv_heads == attention.num_heads == 32


def test_configurations_that_transformers_has_saved_again_are_the_same_models() -> None:
    renamed = {("num_local_experts" if name == "num_experts" else name): value for name, value in QWEN3_30B.items()}
    assert imported(renamed).architecture == imported(QWEN3_30B).architecture
    derived = {"head_dim": 64, "qk_head_dim": 192}
    assert imported(DEEPSEEK_V3 | derived).architecture == imported(DEEPSEEK_V3).architecture
    with pytest.raises(Refused, match="qk_head_dim does not follow"):
        imported(DEEPSEEK_V3 | derived | {"qk_head_dim": 128})


def test_a_fault_names_the_line_and_a_field_may_be_let_pass() -> None:
    config = {"model_type": "llama", "odd_one": 1, **LLAMA_8B}
    with pytest.raises(Refused) as caught:
        imported(config)
    assert caught.value.faults[0].where == "config.json:3:2"
    assert imported(config, ignore=("odd_one",)).architecture.hidden_size == 4096


def test_dense_layers_in_the_middle_are_refused() -> None:
    with pytest.raises(Refused, match="not the first ones"):
        imported(QWEN3_30B | {"mlp_only_layers": [5]})


def test_a_model_with_several_parts_is_told_what_to_do() -> None:
    with pytest.raises(Refused) as caught:
        imported({"model_type": "llama4", "text_config": {}})
    assert "text_config" in caught.value.faults[0].remedy
