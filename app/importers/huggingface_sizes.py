"""The sizes of a model from its Hugging Face configuration: one function for each way in which families state them.

Source: the configuration and modelling files of each family in the transformers library, read for names, defaults and
which layers have experts.
"""

from __future__ import annotations

from collections.abc import Callable

from app.importers.huggingface_config import Config, Values


def dense(config: Config) -> Values:
    """Llama and its relatives: gated feed-forward, grouped queries, untied unless said."""
    return _usual(config, _grouped, gated_mlp=True)


def _usual(config: Config, attention: Callable[[Config], Values], *, gated_mlp: bool) -> Values:
    """Sizes under the names that most families use."""
    return {
        "num_layers": config.count("num_hidden_layers"),
        "hidden_size": config.count("hidden_size"),
        "ffn_hidden_size": config.count("intermediate_size"),
        "gated_mlp": gated_mlp,
        "attention": attention(config),
        "vocab_size": config.count("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", config.model_type in _TIED),
    }


def _grouped(config: Config) -> Values:
    """Llama has a key head per query head unless said, others a fixed number; heads of some are of a fixed width."""
    heads = config.count("num_attention_heads")
    key_heads = config.count if config.model_type == "llama" else config.count_or_null
    return _equal_heads(heads, key_heads("num_key_value_heads", heads), _head_dim(config, "hidden_size", heads))


def _head_dim(config: Config, width: str, heads: int) -> int:
    if config.has("head_dim") or config.model_type in _OWN_WIDTHS.split():
        return config.count("head_dim")
    hidden = config.count(width)
    if hidden % heads:
        raise config.refused(width, f"{heads} heads do not divide the width {hidden}", "a multiple of the heads")
    return hidden // heads


_TIED = frozenset({"cohere", "cohere2", "ernie4_5_moe", "gemma2", "gemma3_text"})
"""Families with one table for input and output unless said; source: their configuration classes in transformers."""
_OWN_WIDTHS = "gemma2 gemma3_text glm4 glm4_moe gpt_oss llama4_text minimax_m2 qwen3 seed_oss"
"""Families whose heads have a width that does not follow from the model's; source: as above."""


def mixtral(config: Config) -> Values:
    """Every layer has experts, of the width that the configuration calls intermediate_size."""
    values = dense(config)
    experts = {
        "num_experts": config.count("num_local_experts"),
        "experts_per_token": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": values["ffn_hidden_size"],
    }
    return {**values, "ffn_hidden_size": 0, "moe": experts}


def qwen_moe(config: Config) -> Values:
    """Layer i has experts where i + 1 is a multiple of decoder_sparse_step and i is not in mlp_only_layers."""
    values = dense(config)
    step = config.count("decoder_sparse_step", 1)
    first = config.counts("mlp_only_layers")
    if first and (step != 1 or sorted(first) != list(range(len(first)))):
        raise config.refused("mlp_only_layers", "the dense layers are not the first ones", "none, or the first layers")
    shared = config.count("shared_expert_intermediate_size") if config.model_type == "qwen2_moe" else 0
    experts = {
        "num_experts": config.count(_experts_field(config)),
        "experts_per_token": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.count("moe_intermediate_size"),
        "num_shared_experts": int(shared > 0),
        "shared_expert_ffn_hidden_size": shared,
        "first_moe_layer": len(first) or step - 1,
        "moe_layer_stride": step,
    }
    return {**values, "moe": experts}


def _experts_field(config: Config) -> str:
    """Qwen3-MoE as transformers 5 saves it has the name that its attribute_map gives."""
    is_renamed = config.model_type == "qwen3_moe" and not config.has("num_experts")
    return "num_local_experts" if is_renamed and config.has("num_local_experts") else "num_experts"


def deepseek(config: Config) -> Values:
    """Latent attention; layer i has experts from first_k_dense_replace on, where moe_layer_freq divides it."""
    heads, values = config.count("num_attention_heads"), _usual(config, _latent, gated_mlp=True)
    predicted = config.count("num_nextn_predict_layers", 0, least=0)
    if config.count("num_key_value_heads", heads) != heads:
        raise config.refused("num_key_value_heads", "latent attention has one key per query head", str(heads))
    return {**values, "num_mtp_layers": predicted, "moe": _deepseek_experts(config)}


def glm_moe(config: Config) -> Values:
    """The experts of DeepSeek-V3 behind grouped queries."""
    predicted = config.count("num_nextn_predict_layers", 0, least=0)
    return {**dense(config), "num_mtp_layers": predicted, "moe": _deepseek_experts(config)}


def gpt_oss(config: Config) -> Values:
    """Mixtral's names; the number of experts per token is there a second time."""
    values, chosen = mixtral(config), config.count("num_experts_per_tok")
    if config.count("experts_per_token", chosen) != chosen:
        raise config.refused("experts_per_token", "it is not num_experts_per_tok", str(chosen))
    return values


def ernie(config: Config) -> Values:
    """Layers from moe_layer_start_index to the last have experts; the shared ones are as wide as the routed."""
    values, last = dense(config), config.count("num_hidden_layers") - 1
    for name, expected in (("moe_layer_interval", 1), ("moe_layer_end_index", last)):
        if config.count(name, expected, least=-1) not in (expected, -1):
            raise config.refused(name, "the layers with experts are not the last ones, all of them", str(expected))
    experts = {
        "num_experts": config.count("moe_num_experts"),
        "experts_per_token": config.count("moe_k"),
        "expert_ffn_hidden_size": config.count("moe_intermediate_size"),
        "num_shared_experts": config.count("moe_num_shared_experts", least=0),
        "first_moe_layer": config.count("moe_layer_start_index", least=0),
    }
    return {**values, "num_mtp_layers": config.count("num_nextn_predict_layers", 0, least=0), "moe": experts}


def minimax(config: Config) -> Values:
    """Mixtral's names; a layer whose entry in attn_type_list is not 1 has linear attention."""
    if set(config.counts("attn_type_list")) - {1}:
        raise config.refused("attn_type_list", "layers with linear attention cannot be described", "1 for every layer")
    if config.count("shared_intermediate_size", 0, least=0):
        raise config.refused("shared_intermediate_size", "no released model has shared experts", "0")
    return mixtral(config)


def llama4(config: Config) -> Values:
    """Every interleave_moe_layer_step-th layer has experts, of width intermediate_size, and one that all visit."""
    step, values = config.count("interleave_moe_layer_step"), dense(config)
    expected = list(range(step - 1, values["num_layers"], step))
    if config.counts("moe_layers") not in ((), tuple(expected)):
        raise config.refused("moe_layers", f"experts are not in one layer of {step}", str(expected))
    experts = {
        "num_experts": config.count("num_local_experts"),
        "experts_per_token": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": values["ffn_hidden_size"],
        "num_shared_experts": 1,
        "first_moe_layer": step - 1,
        "moe_layer_stride": step,
    }
    return {**values, "ffn_hidden_size": config.count("intermediate_size_mlp"), "moe": experts}


def hunyuan(config: Config) -> Values:
    """Llama's sizes; released configurations say that no two layers share keys and values."""
    for name in ("use_cla", "use_mla"):
        if config.flag(name, False):
            raise config.refused(name, "keys and values shared by layers, or latent, cannot be described", "false")
    return dense(config)


def hunyuan_moe(config: Config) -> Values:
    """Every layer has experts and a shared one of the same width; sizes may stand once per layer."""
    values = hunyuan(config)
    width = config.same_count("moe_intermediate_size") if config.has("moe_intermediate_size") else None
    if config.count("moe_layer_num_skipped", 0, least=0):
        raise config.refused("moe_layer_num_skipped", "no released model has dense layers", "0")
    experts = {
        "num_experts": config.same_count("num_experts"),
        "experts_per_token": config.same_count("moe_topk"),
        "expert_ffn_hidden_size": width or values["ffn_hidden_size"],
        "num_shared_experts": config.same_count("num_shared_expert") if config.has("num_shared_expert") else 1,
    }
    return {**values, "ffn_hidden_size": 0, "moe": experts}


def _latent(config: Config) -> Values:
    """What transformers works out and saves with a configuration, `head_dim` and `qk_head_dim`, has to agree."""
    plain, rotary = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
    for name, expected in (("head_dim", rotary), ("qk_head_dim", plain + rotary)):
        if config.count(name, expected) != expected:
            raise config.refused(name, f"{name} does not follow from the other sizes of a head", str(expected))
    return {
        "kind": "mla",
        "num_heads": config.count("num_attention_heads"),
        "q_lora_rank": config.count_or_null("q_lora_rank", 0, least=0),
        "kv_lora_rank": config.count("kv_lora_rank"),
        "qk_nope_head_dim": plain,
        "qk_rope_head_dim": rotary,
        "v_head_dim": config.count("v_head_dim"),
    }


def _deepseek_experts(config: Config) -> Values:
    first, stride = config.count("first_k_dense_replace", least=0), config.count("moe_layer_freq", 1)
    groups, reached = (_groups(config, name) for name in ("n_group", "topk_group"))
    limit = reached if reached < groups else None
    if limit:
        config.notes.append(
            f"max_nodes_per_token {limit}: a token's experts lie in {limit} of {groups} groups, each taken for one host"
        )
    return {
        "num_experts": config.count("n_routed_experts"),
        "experts_per_token": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.count("moe_intermediate_size"),
        "num_shared_experts": config.count_or_null("n_shared_experts", 0, least=0),
        "first_moe_layer": -(-first // stride) * stride,
        "moe_layer_stride": stride,
        "max_nodes_per_token": limit,
    }


def _groups(config: Config, name: str) -> int:
    """Groups of experts: one where DeepSeek-V2 does not say, while DeepSeek-V3 has eight unless it says."""
    return config.count(name, 1) if config.model_type == "deepseek_v2" else config.count_or_null(name, 1)


def gpt_neox(config: Config) -> Values:
    """Two feed-forward matrices and one key per query head."""
    heads = config.count("num_attention_heads")
    return _usual(config, lambda one: _equal_heads(heads, heads, _head_dim(one, "hidden_size", heads)), gated_mlp=False)


def gpt2(config: Config) -> Values:
    """The names of GPT-2, whose learned positions are not counted; GPT-BigCode has them with one key head."""
    hidden, heads = config.count("n_embd"), config.count("n_head")
    is_multi_query = config.model_type == "gpt_bigcode" and config.flag("multi_query", True)
    positions = config.count("n_positions")
    config.notes.append(f"learned positions are left out of the count: {positions * hidden:,} parameters")
    return {
        "num_layers": config.count("n_layer"),
        "hidden_size": hidden,
        "ffn_hidden_size": config.count("n_inner", 4 * hidden),
        "gated_mlp": False,
        "attention": _equal_heads(heads, 1 if is_multi_query else heads, _head_dim(config, "n_embd", heads)),
        "vocab_size": config.count("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def _equal_heads(heads: int, kv_heads: int, head_dim: int) -> Values:
    return {"kind": "gqa", "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}
