"""What the fields of a Hugging Face configuration mean, family by family; one function and one line for a new family.

Source: the configuration and modelling files of each family in the transformers library, read for names, defaults and
which layers have experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.faults import Refused
from app.importers.source import Document

_Values = dict[str, Any]
MAX_COUNT = 10_000_000


@dataclass(frozen=True)
class Family:
    """A model_type, and how its configuration becomes the fields of an architecture."""

    model_type: str
    architecture: Callable[[Config], _Values]


class Config:
    """The fields of a configuration, with a record of which were read; `null` is the same as absent."""

    def __init__(self, document: Document, family: Family, fields: Mapping[str, Any]) -> None:
        self._document = document
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._nulls = {name for name, value in fields.items() if value is None}
        self.family = family
        self.used: list[str] = []
        self.notes: list[str] = []

    def has(self, name: str) -> bool:
        """Whether a field says something."""
        return name in self._fields

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number; refused where it is absent and has no default."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
            raise self.refused(name, f"{name} is {shown(value)}", f"a whole number from {least} to {MAX_COUNT:,}")
        return value

    def count_or_null(self, name: str, null: int, *, least: int = 1) -> int:
        """A whole number that the file has to state, because its family has a default of its own; `null` is `null`."""
        if name in self._nulls:
            self.used += [name] if name not in self.used else []
            return null
        return self.count(name, least=least)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, f"{name} is {shown(value)}", "true or false")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, empty where it is absent."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            raise self.refused(name, f"{name} is {shown(value)}", "a list of whole numbers")
        return tuple(value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, empty where it is absent."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.refused(name, f"{name} is {shown(value)}", "a list of words")
        return tuple(value)

    def refused(self, name: str, what: str, allowed: str) -> Refused:
        """The fault of one field."""
        return self._document.refused(f"/{name}", what, code="out-of-range", allowed=allowed,
                                      remedy="Correct the field.")  # fmt: skip

    def _value(self, name: str, default: Any) -> Any:
        if name in self._fields:
            self.used += [name] if name not in self.used else []
            return self._fields[name]
        if default is None:
            raise self._document.refused("",
                                         f"the field {name!r} of a {self.family.model_type} configuration is missing",
                                         code="missing-field", allowed="a value",
                                         remedy="Add the field: sizes are not guessed.")  # fmt: skip
        return default


def shown(value: Any) -> str:
    """A value as a message tells it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _dense(config: Config) -> _Values:
    """Llama and its relatives: gated feed-forward, grouped queries, untied unless said."""
    return _usual(config, _grouped, gated_mlp=True)


def _usual(config: Config, attention: Callable[[Config], _Values], *, gated_mlp: bool) -> _Values:
    """Sizes under the names that most families use."""
    return {
        "num_layers": config.count("num_hidden_layers"),
        "hidden_size": config.count("hidden_size"),
        "ffn_hidden_size": config.count("intermediate_size"),
        "gated_mlp": gated_mlp,
        "attention": attention(config),
        "vocab_size": config.count("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", config.family.model_type in _TIED),
    }


def _grouped(config: Config) -> _Values:
    """Llama has a key head per query head unless said, others a fixed number; heads of some are of a fixed width."""
    heads = config.count("num_attention_heads")
    key_heads = config.count if config.family.model_type == "llama" else config.count_or_null
    return {
        "kind": "gqa",
        "num_heads": heads,
        "num_kv_heads": key_heads("num_key_value_heads", heads),
        "head_dim": _head_dim(config, "hidden_size", heads),
    }


def _head_dim(config: Config, width: str, heads: int) -> int:
    if config.has("head_dim") or config.family.model_type in _OWN_WIDTHS.split():
        return config.count("head_dim")
    hidden = config.count(width)
    if hidden % heads:
        raise config.refused(width, f"{heads} heads do not divide the width {hidden}", "a multiple of the heads")
    return hidden // heads


_TIED = frozenset({"cohere", "ernie4_5_moe", "gemma2", "gemma3_text"})
"""Families with one table for input and output unless said; source: their configuration classes in transformers."""
_OWN_WIDTHS = "gemma2 gemma3_text glm4 glm4_moe gpt_oss llama4_text minimax_m2 qwen3 seed_oss"
"""Families whose heads have a width that does not follow from the model's; source: as above."""


def _mixtral(config: Config) -> _Values:
    """Every layer has experts, of the width that the configuration calls intermediate_size."""
    values = _dense(config)
    experts = {
        "num_experts": config.count("num_local_experts"),
        "experts_per_token": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": values["ffn_hidden_size"],
    }
    return {**values, "ffn_hidden_size": 0, "moe": experts}


def _qwen_moe(config: Config) -> _Values:
    """Layer i has experts where i + 1 is a multiple of decoder_sparse_step and i is not in mlp_only_layers."""
    values = _dense(config)
    step = config.count("decoder_sparse_step", 1)
    dense = config.counts("mlp_only_layers")
    if dense and (step != 1 or sorted(dense) != list(range(len(dense)))):
        raise config.refused("mlp_only_layers", "the dense layers are not the first ones", "none, or the first layers")
    shared = config.count("shared_expert_intermediate_size") if config.family.model_type == "qwen2_moe" else 0
    experts = {
        "num_experts": config.count(_experts_field(config)),
        "experts_per_token": config.count("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.count("moe_intermediate_size"),
        "num_shared_experts": int(shared > 0),
        "shared_expert_ffn_hidden_size": shared,
        "first_moe_layer": len(dense) or step - 1,
        "moe_layer_stride": step,
    }
    return {**values, "moe": experts}


def _experts_field(config: Config) -> str:
    """Qwen3-MoE as transformers 5 saves it has the name that its attribute_map gives."""
    is_renamed = config.family.model_type == "qwen3_moe" and not config.has("num_experts")
    return "num_local_experts" if is_renamed and config.has("num_local_experts") else "num_experts"


def _deepseek(config: Config) -> _Values:
    """Latent attention; layer i has experts from first_k_dense_replace on, where moe_layer_freq divides it."""
    heads, values = config.count("num_attention_heads"), _usual(config, _latent, gated_mlp=True)
    predicted = config.count("num_nextn_predict_layers", 0, least=0)
    if config.count("num_key_value_heads", heads) != heads:
        raise config.refused("num_key_value_heads", "latent attention has one key per query head", str(heads))
    return {**values, "num_mtp_layers": predicted, "moe": _deepseek_experts(config)}


def _glm_moe(config: Config) -> _Values:
    """The experts of DeepSeek-V3 behind grouped queries."""
    predicted = config.count("num_nextn_predict_layers", 0, least=0)
    return {**_dense(config), "num_mtp_layers": predicted, "moe": _deepseek_experts(config)}


def _gpt_oss(config: Config) -> _Values:
    """Mixtral's names; the number of experts per token is there a second time."""
    values, chosen = _mixtral(config), config.count("num_experts_per_tok")
    if config.count("experts_per_token", chosen) != chosen:
        raise config.refused("experts_per_token", "it is not num_experts_per_tok", str(chosen))
    return values


def _ernie(config: Config) -> _Values:
    """Layers from moe_layer_start_index to the last have experts; the shared ones are as wide as the routed."""
    values, last = _dense(config), config.count("num_hidden_layers") - 1
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


def _minimax(config: Config) -> _Values:
    """Mixtral's names; a layer whose entry in attn_type_list is not 1 has linear attention."""
    if set(config.counts("attn_type_list")) - {1}:
        raise config.refused("attn_type_list", "layers with linear attention cannot be described", "1 for every layer")
    if config.count("shared_intermediate_size", 0, least=0):
        raise config.refused("shared_intermediate_size", "no released model has shared experts", "0")
    return _mixtral(config)


def _llama4(config: Config) -> _Values:
    """Every interleave_moe_layer_step-th layer has experts, of width intermediate_size, and one that all visit."""
    step, values = config.count("interleave_moe_layer_step"), _dense(config)
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


def _latent(config: Config) -> _Values:
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


def _deepseek_experts(config: Config) -> _Values:
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
    return config.count(name, 1) if config.family.model_type == "deepseek_v2" else config.count_or_null(name, 1)


def _gpt_neox(config: Config) -> _Values:
    """Two feed-forward matrices and one key per query head."""
    heads = config.count("num_attention_heads")
    return _usual(config, lambda one: _equal_heads(heads, heads, _head_dim(one, "hidden_size", heads)), gated_mlp=False)


def _gpt2(config: Config) -> _Values:
    """The names of GPT-2, whose learned positions are not counted; GPT-BigCode has them with one key head."""
    hidden, heads = config.count("n_embd"), config.count("n_head")
    is_multi_query = config.family.model_type == "gpt_bigcode" and config.flag("multi_query", True)
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


def _equal_heads(heads: int, kv_heads: int, head_dim: int) -> _Values:
    return {"kind": "gqa", "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}


FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", _dense),
        Family("mistral", _dense),
        Family("qwen2", _dense),
        Family("qwen3", _dense),
        Family("mixtral", _mixtral),
        Family("qwen2_moe", _qwen_moe),
        Family("qwen3_moe", _qwen_moe),
        Family("deepseek_v2", _deepseek),
        Family("deepseek_v3", _deepseek),
        Family("gpt_neox", _gpt_neox),
        Family("gpt2", _gpt2),
        Family("gpt_bigcode", _gpt2),
        Family("kimi_k2", _deepseek),
        Family("glm4", _dense),
        Family("glm4_moe", _glm_moe),
        Family("gpt_oss", _gpt_oss),
        Family("gemma2", _dense),
        Family("gemma3_text", _dense),
        Family("llama4_text", _llama4),
        Family("phi3", _dense),
        Family("granite", _dense),
        Family("olmo2", _dense),
        Family("cohere", _dense),
        Family("seed_oss", _dense),
        Family("ernie4_5_moe", _ernie),
        Family("minimax_m2", _minimax),
    )
}

_LINEAR, _STATE_SPACE = "linear attention", "state-space layers"
"""Layers without scores between all tokens; the cost formulas have neither their sizes nor their work."""
NOT_DESCRIBED: Mapping[str, str] = {
    "qwen3_next": _LINEAR,
    "kimi_linear": _LINEAR,
    "minimax": _LINEAR,
    "mamba": _STATE_SPACE,
    "mamba2": _STATE_SPACE,
    "jamba": _STATE_SPACE,
    "bamba": _STATE_SPACE,
    "falcon_h1": _STATE_SPACE,
    "nemotron_h": _STATE_SPACE,
    "granitemoehybrid": _STATE_SPACE,
}
"""Families with layers that no architecture document describes; source: their modelling files in transformers."""

NOTED: Mapping[str, str] = {
    "quantization_config": "the precision of training is stated in the workload, not here",
    "attention_bias": "biases are not counted",
    "attention_out_bias": "biases are not counted",
    "use_bias": "biases are not counted",
    "num_mtp_modules": "extra prediction layers are left out, as in the released weights",
    "mlp_bias": "biases are not counted",
    "use_qkv_bias": "biases are not counted",
    "qkv_bias": "biases are not counted",
}
"""Config that a person may want to know of, and why they are left out."""

_WITHOUT_EFFECT = """
    _name_or_path architectures auto_map model_type torch_dtype dtype transformers_version use_cache
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id
    hidden_act activation_function initializer_range rms_norm_eps layer_norm_eps layer_norm_epsilon layer_norm_type
    rope_theta rope_scaling rope_parameters rope_interleave rotary_pct rotary_emb_base partial_rotary_factor
    max_position_embeddings n_ctx original_max_position_embeddings seq_length
    attention_dropout attn_dropout hidden_dropout embd_pdrop attn_pdrop resid_pdrop resid_dropout classifier_dropout
    pretraining_tp tensor_parallel use_parallel_residual gradient_checkpointing
    max_window_layers cache_implementation initial_context_length rope_local_base_freq
    hidden_activation attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar swiglu_limit swiglu_alpha
    attention_multiplier embedding_multiplier residual_multiplier logits_scaling logit_scale use_qk_norm
    residual_dropout attn_scale attn_temperature_tuning floor_scale for_llm_compressor _attn_implementation_autoset
    no_rope_layers no_rope_layer_interval moe_capacity moe_gate moe_gate_act moe_norm_min moe_use_aux_free
    use_mtp mtp_transformer_layers qk_norm_type rotary_dim use_routing_bias
    aux_loss_alpha router_aux_loss_coef router_jitter_noise output_router_logits seq_aux norm_topk_prob
    scoring_func topk_method routed_scaling_factor router_z_loss_coef ep_size
    output_attentions output_hidden_states return_dict is_decoder is_encoder_decoder chunk_size_feed_forward
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params
    scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn attention_softmax_in_fp32
    scale_attention_softmax_in_fp32 inference_runner pre_allocate_kv_cache validate_runner_input max_batch_size
    max_sequence_length _attn_implementation attn_implementation
    id2label label2id num_labels problem_type finetuning_task
"""
IGNORED = frozenset(_WITHOUT_EFFECT.split())
"""Config that change neither the size of a matrix nor the work of a step."""
