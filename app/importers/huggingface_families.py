"""The families of Hugging Face models: what their code does that no configuration says, and what absent fields mean.

Source: the configuration and modelling files of each family in the transformers library, read for defaults, biases,
norms and routers; where two releases differ the newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import sqrt

from app.importers import huggingface_sizes as sizes
from app.importers.huggingface_config import Config, Values
from app.importers.huggingface_windows import Windows, rotary_layers, windows_note

_More = Callable[[Config, Values], Values]
_BOTH_SIDES = "attention and feed-forward block have a norm before and another one after them"
_AFTER = "attention and feed-forward block have a norm after them only"
_PARALLEL = "attention and feed-forward block of a layer read the same norm side by side"
_WHOLE_QK_NORM = "queries and keys are normalised over all heads of a layer at once, not head by head"


@dataclass(frozen=True)
class Family:
    """One family. `architecture` reads its sizes. `bias_fields` are query, key and value projections, the output
    projection and the feed-forward block: whether each adds a bias, or the field that says so.
    """

    architecture: Callable[[Config], Values] = sizes.dense
    norm: str = "rmsnorm"
    epsilon: float = 1e-6
    epsilon_field: str = "rms_norm_eps"
    position_embedding: str = "rope"
    rope_base: float = 10_000.0
    rope_base_field: str = "rope_theta"
    rope_fraction: float = 1.0
    rope_fraction_field: str = "partial_rotary_factor"
    rope_scaling: Values | None = None
    is_interleaved: bool = False
    rotates_windows_only: bool = False
    stretches_whole_only: bool = False
    activation: str = "silu"
    activation_field: str = "hidden_act"
    bias_fields: tuple[str | bool, str | bool, str | bool] = (False, False, False)
    bias_default: bool = False
    more: _More | None = None
    parts: tuple[str, ...] = ()


def _attention_bias(mlp: str | bool = False) -> tuple[str | bool, str | bool, str | bool]:
    """All projections of attention under one field, as in Llama."""
    return ("attention_bias", "attention_bias", mlp)


def _qk_norm(_config: Config, _values: Values) -> Values:
    """Head by head, in Qwen3."""
    return {"qk_norm": True}


def _qwen2_moe(config: Config, _values: Values) -> Values:
    return {"router_normalised": config.flag("norm_topk_prob", False), "shared_expert_gate": True}


def _qwen3_moe(config: Config, _values: Values) -> Values:
    return {"qk_norm": True, "router_normalised": config.flag("norm_topk_prob", False)}


def _deepseek_v2(config: Config, values: Values) -> Values:
    grouped = values["moe"]["max_nodes_per_token"] is not None
    parts = ("groups of experts are chosen by their best expert, not by their best few",) if grouped else ()
    return {**_deepseek(config, "softmax", "greedy", 1.0, is_normalised=False), "other_parts": parts}


def _deepseek_v3(config: Config, _values: Values) -> Values:
    return _deepseek(config, "sigmoid", "noaux_tc", 2.5, is_normalised=True)


def _deepseek_v32(config: Config, values: Values) -> Values:
    """Its sparse attention is counted as attention to all tokens, without the scorer."""
    tokens, heads, width = (config.count(name) for name in ("index_topk", "index_n_heads", "index_head_dim"))
    rank = values["attention"]["q_lora_rank"] or values["hidden_size"]
    scorer = values["num_layers"] * (rank * heads * width + values["hidden_size"] * (width + heads))
    config.notes.append(windows_note(Windows(tokens, False, tuple(range(values["num_layers"]))), values["num_layers"]))
    config.notes.append(f"the scorer that chooses these tokens is not counted: {scorer:,} parameters")
    sparse = {"tokens": tokens, "num_heads": heads, "head_dim": width}
    return {**_deepseek_v3(config, values), "sparse_attention": sparse}


def _deepseek(config: Config, score: str, method: str, scale: float, *, is_normalised: bool) -> Values:
    found = {
        "qk_norm": True,
        "router_score": _score(config, "scoring_func", score),
        "router_bias": config.word("topk_method", method) == "noaux_tc",
        "router_normalised": config.flag("norm_topk_prob", is_normalised),
        **_groups(config),
    }
    if config.flag("attention_bias", False):
        found["other_parts"] = ("projections to the latents of attention and out of it add a bias",)
    return {**found, "router_scale": config.number("routed_scaling_factor", scale)}


def _groups(config: Config) -> Values:
    groups, reached = config.count("n_group", 1), config.count("topk_group", 1)
    return {"router_groups": groups, "router_groups_per_token": reached} if reached < groups else {}


def _score(config: Config, field: str, default: str) -> str:
    score = config.word(field, default)
    if score not in ("softmax", "sigmoid"):
        raise config.refused(field, f"the score of experts is {score[:40]!r}", "softmax, sigmoid")
    return score


def _glm4_moe(config: Config, _values: Values) -> Values:
    return {
        "qk_norm": config.flag("use_qk_norm", False),
        "router_score": "sigmoid",
        "router_bias": True,
        "router_normalised": config.flag("norm_topk_prob", True),
        "router_scale": config.number("routed_scaling_factor", 1.0),
        **_groups(config),
    }


def _gpt_oss(config: Config, _values: Values) -> Values:
    """Experts with a clipped GELU of its quick form, whatever hidden_act says, and a sink per head."""
    alpha = config.number("swiglu_alpha") if config.has("swiglu_alpha") else 1.702
    found = {
        "attention_sinks": True,
        "activation": "quick_gelu",
        "activation_limit": config.number("swiglu_limit", 7.0),
        "gate_offset": 1.0,
    }
    return found if alpha == 1.702 else {**found, "other_parts": (f"the activation's sigmoid has the gain {alpha:g}",)}


def _gemma(config: Config, values: Values) -> Values:
    """Gemma 2 caps scores and logits, Gemma 3 only where its configuration says so."""
    is_second = config.model_type == "gemma2"
    caps = (("attention scores", "attn_logit_softcapping", 50.0), ("logits", "final_logit_softcapping", 30.0))
    parts = [f"embeddings are multiplied by the root of the width, {sqrt(values['hidden_size']):g}"]
    for what, field, default in caps:
        cap = config.number(field, default, null=0.0) if is_second or config.has(field) else 0.0
        parts += [f"{what} are capped at {cap:g} by a tanh ({field})"] if cap else []
    scalar = config.number("query_pre_attn_scalar", 256.0)
    return {"qk_norm": not is_second, "attention_scale": 1.0 / sqrt(scalar), "other_parts": parts}


def _llama4(config: Config, values: Values) -> Values:
    num_layers = values["num_layers"]
    rotary = rotary_layers(config, num_layers)
    name = "attn_temperature_tuning"  # true, false, or how often it is done at inference
    is_flag = isinstance(config.unread().get(name, True), bool)
    is_tuned = config.flag(name, True) if is_flag else config.count(name, least=0) > 0
    parts = ("queries of layers without rotary positions are scaled by their position (attn_temperature_tuning)",)
    return {
        "qk_l2_norm": config.flag("use_qk_norm", True),
        "unrotated_layers": sorted(set(range(num_layers)) - set(rotary)),
        "router_score": "sigmoid",
        "router_scales_input": True,
        "other_parts": parts if is_tuned and len(rotary) < num_layers else (),
    }


def _granite(config: Config, _values: Values) -> Values:
    factors = (
        ("embeddings are multiplied by", "embedding_multiplier"),
        ("what a block adds to the residual stream is multiplied by", "residual_multiplier"),
        ("logits are divided by", "logits_scaling"),
    )
    stated = [(what, config.number(name, 1.0), name) for what, name in factors]
    parts = [f"{what} {factor:g} ({name})" for what, factor, name in stated if factor != 1]
    return {"attention_scale": config.number("attention_multiplier", 1.0), "other_parts": parts}


def _cohere(config: Config, _values: Values) -> Values:
    scale = config.number("logit_scale", 0.0625)
    parts = [f"logits are multiplied by {scale:g} (logit_scale)"] if scale != 1 else []
    has_norm = config.model_type == "cohere" and config.flag("use_qk_norm", False)
    parts += ["norms of queries and keys have weights of their own for every head"] if has_norm else []
    return {"qk_norm": has_norm, "other_parts": parts}


def _gpt_neox(config: Config, _values: Values) -> Values:
    return {"other_parts": (_PARALLEL,) if config.flag("use_parallel_residual", True) else ()}


def _ernie(config: Config, _values: Values) -> Values:
    score = _score(config, "moe_gate_act", "softmax")
    return {"router_score": score, "router_bias": config.flag("moe_use_aux_free", True)}


def _minimax(config: Config, values: Values) -> Values:
    width, rotated = values["attention"]["head_dim"], config.count("rotary_dim", values["attention"]["head_dim"])
    has_norm = config.flag("use_qk_norm", True)
    is_whole = has_norm and config.word("qk_norm_type", "per_layer") == "per_layer"
    return {
        "rope_fraction": rotated / width,
        "qk_norm": has_norm,
        "router_score": _score(config, "scoring_func", "sigmoid"),
        "router_bias": config.flag("use_routing_bias", True),
        "other_parts": (_WHOLE_QK_NORM,) if is_whole else (),
    }


_HUNYUAN = Family(
    sizes.hunyuan, epsilon=1e-5, bias_fields=_attention_bias(), more=_qk_norm,
    parts=("queries and keys are normalised after they are rotated",),
)  # fmt: skip
_OLMO = Family(epsilon=1e-5, bias_fields=_attention_bias(), more=_qk_norm, parts=(_AFTER, _WHOLE_QK_NORM))
_GPT2 = Family(
    sizes.gpt2, norm="layernorm", epsilon=1e-5, epsilon_field="layer_norm_epsilon", position_embedding="learned",
    activation="gelu_new", activation_field="activation_function", bias_fields=(True, True, True),
)  # fmt: skip
_GEMMA = Family(
    norm="rmsnorm1p", activation="gelu_pytorch_tanh", activation_field="hidden_activation",
    bias_fields=_attention_bias(), more=_gemma, parts=(_BOTH_SIDES,),
)  # fmt: skip
_COHERE = Family(
    norm="layernorm", epsilon=1e-5, epsilon_field="layer_norm_eps", is_interleaved=True,
    bias_fields=_attention_bias(), more=_cohere, parts=(_PARALLEL, "norms add no bias"),
)  # fmt: skip
_GPT_OSS_SCALING = {"kind": "yarn", "factor": 32.0, "original_length": 4096, "whole_dimensions": False}

# By the model_type of the configuration; a new family is a line here.
FAMILIES: Mapping[str, Family] = {
    "llama": Family(bias_fields=_attention_bias("mlp_bias")),
    "mistral": Family(),
    "mixtral": Family(sizes.mixtral, epsilon=1e-5, rope_base=1e6),
    "qwen2": Family(bias_fields=(True, False, False)),
    "qwen3": Family(bias_fields=_attention_bias(), more=_qk_norm),
    "qwen2_moe": Family(sizes.qwen_moe, bias_fields=("qkv_bias", False, False), bias_default=True, more=_qwen2_moe),
    "qwen3_moe": Family(sizes.qwen_moe, bias_fields=_attention_bias(), more=_qwen3_moe),
    "deepseek_v2": Family(sizes.deepseek, more=_deepseek_v2),
    "deepseek_v3": Family(sizes.deepseek, more=_deepseek_v3),
    "deepseek_v32": Family(sizes.deepseek, more=_deepseek_v32),
    "kimi_k2": Family(sizes.deepseek, more=_deepseek_v3),
    "gpt_neox": Family(
        sizes.gpt_neox, norm="layernorm", epsilon=1e-5, epsilon_field="layer_norm_eps", activation="gelu",
        rope_base_field="rotary_emb_base", rope_fraction=0.25, rope_fraction_field="rotary_pct",
        bias_fields=("attention_bias", "attention_bias", True), bias_default=True, more=_gpt_neox,
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, activation="gelu_pytorch_tanh"),
    "glm4": Family(
        epsilon=1.5625e-7, rope_fraction=0.5, is_interleaved=True, bias_fields=("attention_bias", False, False),
        parts=(_BOTH_SIDES,),
    ),
    "glm4_moe": Family(
        sizes.glm_moe, epsilon=1e-5, rope_fraction=0.5, bias_fields=("attention_bias", False, False), more=_glm4_moe
    ),
    "gpt_oss": Family(
        sizes.gpt_oss, epsilon=1e-5, rope_base=150_000.0, rope_scaling=_GPT_OSS_SCALING,
        bias_fields=_attention_bias(mlp=True), bias_default=True, more=_gpt_oss,
    ),
    "gemma2": _GEMMA,
    "gemma3_text": replace(_GEMMA, rope_base=1e6, stretches_whole_only=True),
    "llama4_text": Family(
        sizes.llama4, epsilon=1e-5, rope_base=500_000.0, is_interleaved=True, bias_fields=_attention_bias(),
        more=_llama4,
    ),
    "phi3": Family(epsilon=1e-5),
    "granite": Family(bias_fields=_attention_bias("mlp_bias"), more=_granite),
    "olmo2": _OLMO,
    "olmo3": replace(_OLMO, rope_base=500_000.0, stretches_whole_only=True),
    "cohere": replace(_COHERE, rope_base=500_000.0),
    "cohere2": replace(_COHERE, rotates_windows_only=True),
    "seed_oss": Family(bias_fields=("attention_bias", "attention_out_bias", "mlp_bias")),
    "ernie4_5_moe": Family(
        sizes.ernie, epsilon=1e-5, rope_base=500_000.0, is_interleaved=True,
        bias_fields=("use_bias", "use_bias", "use_bias"), more=_ernie,
    ),
    "minimax_m2": Family(sizes.minimax, rope_base=5e6, more=_minimax),
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": replace(_HUNYUAN, architecture=sizes.hunyuan_moe),
}  # fmt: skip
