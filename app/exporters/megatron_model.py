"""The model in Megatron's words: fields of its configuration, for Megatron-Bridge, and arguments, for Megatron-LM.

Where the request does not define the model beside its sizes, RMSNorm, rotary positions and no biases are taken.
Source: transformer_config.py, training/arguments.py, training/argument_utils.py of Megatron-LM core 0.20, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from models.definition import ModelDefinition, RotaryScaling
from models.workload import Architecture, GroupedQueryAttention

Argument = tuple[str, ...]
Fields = dict[str, Any]
# Fields whose argument has another name.
NAMES = {
    "layernorm_zero_centered_gamma": "apply_layernorm_1p",
    "layernorm_epsilon": "norm_epsilon",
    "rope_scaling": "use_rope_scaling",
    "seq_len_interpolation_factor": "rotary_seq_len_interpolation_factor",
    "yarn_rotary_scaling_factor": "rotary_scaling_factor",
    "yarn_mscale": "mscale",
    "yarn_mscale_all_dim": "mscale_all_dim",
    "num_moe_experts": "num_experts",
}
# Fields whose argument says the opposite.
OPPOSITES = {
    "add_bias_linear": "disable_bias_linear",
    "apply_rope_fusion": "no_rope_fusion",
    "bias_dropout_fusion": "no_bias_dropout_fusion",
    "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
    "yarn_correction_range_round_to_int": "no_yarn_correction_range_round_to_int",
}
# Fields without an argument: the list of what no argument exists for in arguments.py, and of MLATransformerConfig.
NO_ARGUMENT = frozenset({"original_max_position_embeddings", "beta_fast", "beta_slow", "softmax_scale"})
# Fields of YaRN that go without saying at these values: the defaults of arguments.py and argument_utils.py.
YARN_DEFAULTS = {"mscale": 1.0, "mscale_all_dim": 0.0, "beta_fast": 32.0, "beta_slow": 1.0}
# How positions are told, in the words of position_embedding_type.
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}


def definition_of(architecture: Architecture) -> ModelDefinition:
    """What the request says of the model beside its sizes; where it says nothing, what most models share.

    Without a definition a feed-forward block that is not gated has GELU: SiLU comes with gates only.
    """
    if architecture.definition is not None:
        return architecture.definition
    return ModelDefinition(activation="silu" if architecture.gated_mlp else "gelu")


def model_fields(architecture: Architecture) -> Fields:
    """Sizes, norm, positions, biases and experts as fields of Megatron-Core's configuration, in its words."""
    one = definition_of(architecture)
    return {
        "num_layers": architecture.num_layers,
        "hidden_size": architecture.hidden_size,
        **({"ffn_hidden_size": architecture.ffn_hidden_size} if architecture.ffn_hidden_size else {}),
        "vocab_size": architecture.vocab_size,
        **_attention(architecture),
        "normalization": "RMSNorm" if one.norm.startswith("rmsnorm") else "LayerNorm",
        "layernorm_zero_centered_gamma": one.norm.endswith("1p"),
        "layernorm_epsilon": one.norm_epsilon,
        "qk_layernorm": one.qk_norm,
        **_attention_variant(architecture, one),
        **_positions(architecture, one),
        "gated_linear_unit": architecture.gated_mlp,
        **({"glu_linear_offset": one.gate_offset} if one.gate_offset else {}),
        **({"activation_func_clamp_value": one.activation_limit} if one.activation_limit else {}),
        "add_bias_linear": one.linear_bias,
        "add_qkv_bias": one.qkv_bias,
        "share_embeddings_and_output_weights": architecture.tied_embeddings,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        **_experts(architecture, one),
        **({"mtp_num_layers": architecture.num_mtp_layers} if architecture.num_mtp_layers else {}),
    }


def _attention(architecture: Architecture) -> Fields:
    one = architecture.attention
    if isinstance(one, GroupedQueryAttention):
        return {"num_attention_heads": one.num_heads, "kv_channels": one.head_dim, "num_query_groups": one.num_kv_heads}
    return {
        "num_attention_heads": one.num_heads,
        "kv_channels": one.v_head_dim,
        "multi_latent_attention": True,
        "q_lora_rank": one.q_lora_rank or None,
        "kv_lora_rank": one.kv_lora_rank,
        "qk_head_dim": one.qk_nope_head_dim,
        "qk_pos_emb_head_dim": one.qk_rope_head_dim,
        "v_head_dim": one.v_head_dim,
    }


def _attention_variant(architecture: Architecture, one: ModelDefinition) -> Fields:
    """What differs from softmax attention to all earlier tokens; a window of Megatron leaves a token itself out."""
    window, sparse = one.attention_window, one.sparse_attention
    found: Fields = {"qk_l2_norm": True} if one.qk_l2_norm else {}
    if one.attention_scale is not None:
        found["softmax_scale"] = one.attention_scale
    if one.attention_sinks:
        found["softmax_type"] = "learnable"
    if window is not None and window.kind == "sliding":
        found["window_size"] = (window.tokens - 1, 0)
        if window.whole_layers:
            layers = range(architecture.num_layers)
            found["window_attn_skip_freq"] = [int(layer not in window.whole_layers) for layer in layers]
    if sparse is not None:
        found |= {"experimental_attention_variant": "dsa", "dsa_indexer_n_heads": sparse.num_heads,
                  "dsa_indexer_head_dim": sparse.head_dim, "dsa_indexer_topk": sparse.tokens,
                  "apply_rope_fusion": False}  # fmt: skip
    return found


def context_exchange(architecture: Architecture, cp: int) -> str | None:
    """How context-parallel ranks exchange keys and values; None where Megatron's default, a ring, is right.

    Source: attn_forward_func_with_cp in context_parallel.py of Transformer Engine, which takes learned sinks with a2a
    alone and windows with a2a or all_gather, of which the second splits no heads; sparse attention: TransformerConfig.
    """
    one = definition_of(architecture)
    if cp == 1:
        return None
    if one.sparse_attention is not None:
        return "allgather"
    if one.attention_sinks:
        return "a2a"
    return "all_gather" if one.attention_window is not None and one.attention_window.kind == "sliding" else None


def _positions(architecture: Architecture, one: ModelDefinition) -> Fields:
    """Latent attention stretches rotary positions under other names, and rotates in one kernel only if it stretches."""
    scaling, is_latent = one.rope_scaling, architecture.attention.kind == "mla"
    is_yarn = scaling is not None and scaling.kind == "yarn"
    kind = "yarn" if is_yarn and not is_latent else POSITIONS[one.position_embedding]
    found = {"position_embedding_type": kind, "rotary_base": one.rope_base, "rotary_percent": one.rope_fraction}
    if one.rope_interleaved:
        found["rotary_interleaved"] = True
    if one.unrotated_layers:
        found["no_rope_freq"] = [int(layer in one.unrotated_layers) for layer in range(architecture.num_layers)]
    if is_latent:
        found |= {"rope_type": "yarn" if is_yarn else "rope"} | ({} if is_yarn else {"apply_rope_fusion": False})
    return found if scaling is None else found | _stretching(scaling, is_latent=is_latent)


def _stretching(scaling: RotaryScaling, *, is_latent: bool) -> Fields:
    if scaling.kind == "llama3":
        return {"rope_scaling": True, "rope_scaling_factor": scaling.factor}
    if scaling.kind == "linear":
        return {"seq_len_interpolation_factor": scaling.factor}
    prefix = "" if is_latent else "yarn_"
    return {
        f"{prefix}rotary_scaling_factor": scaling.factor,
        f"{prefix}original_max_position_embeddings": scaling.original_length,
        **{f"{prefix}{name}": getattr(scaling, name) for name in YARN_DEFAULTS},
        **({} if is_latent else {"yarn_correction_range_round_to_int": scaling.whole_dimensions}),
    }


def _experts(architecture: Architecture, one: ModelDefinition) -> Fields:
    moe = architecture.moe
    if moe is None:
        return {}
    width = moe.shared_expert_ffn_hidden_size or moe.expert_ffn_hidden_size
    has_bias = one.router_bias and one.router_score == "sigmoid"
    return {
        "num_moe_experts": moe.num_experts,
        "moe_router_topk": moe.experts_per_token,
        "moe_ffn_hidden_size": moe.expert_ffn_hidden_size,
        "moe_layer_freq": [int(architecture.is_moe_layer(layer)) for layer in range(architecture.num_layers)],
        "moe_shared_expert_intermediate_size": moe.num_shared_experts * width or None,
        **({"moe_shared_expert_gate": True} if one.shared_expert_gate else {}),
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_score_function": one.router_score,
        "moe_router_pre_softmax": one.router_score == "softmax"
        and (moe.experts_per_token == 1 or not one.router_normalised),
        "moe_router_load_balancing_type": "none" if has_bias else "aux_loss",
        "moe_router_enable_expert_bias": has_bias,
        "moe_router_num_groups": one.router_groups or None,
        "moe_router_group_topk": one.router_groups_per_token or None,
        "moe_router_topk_scaling_factor": one.router_scale if one.router_scale != 1 else None,
        **({"moe_apply_probs_on_input": True} if one.router_scales_input else {}),
        **({"bias_dropout_fusion": False} if one.linear_bias else {}),
    }


def model_arguments(architecture: Architecture) -> Iterator[Argument]:
    """The fields of `model_fields` as arguments of Megatron-LM's command line."""
    fields = model_fields(architecture)
    for name, value in fields.items():
        if name in OPPOSITES:
            yield from arguments({OPPOSITES[name]: not value})
        elif name == "gated_linear_unit":
            yield from _feed_forward(architecture)
        elif name == "num_query_groups":
            is_grouped = value != fields["num_attention_heads"]
            yield from arguments({"group_query_attention": True, name: value} if is_grouped else {})
        elif not _goes_without_saying(name, fields):
            yield from arguments({NAMES.get(name, name): value})


def arguments(fields: Fields) -> Iterator[Argument]:
    """Fields as arguments of the same names; a flag for True, nothing for False and None.

    >>> list(arguments({"swiglu": True, "q_lora_rank": None, "moe_layer_freq": [0, 1, 1], "rotary_percent": 0.5}))
    [('--swiglu',), ('--moe-layer-freq', '([0]*1+[1]*2)'), ('--rotary-percent', '0.5')]
    >>> list(arguments({"window_size": (127, 0), "no_rope_freq": [0, 0, 1, 0, 0, 1]}))
    [('--window-size', '127,0'), ('--no-rope-freq', '([0]*2+[1]*1)*2')]
    """
    for name, value in fields.items():
        argument = f"--{name.replace('_', '-')}"
        if value is True:
            yield (argument,)
        elif isinstance(value, list):
            yield argument, _pattern(value)
        elif isinstance(value, tuple):
            yield argument, ",".join(map(str, value))
        elif isinstance(value, float) and value:
            yield argument, f"{value:g}"
        elif value is not None and value is not False:
            yield argument, str(value)


def _pattern(kinds: list[int]) -> str:
    """A list as Megatron's patterns of layers write it: runs, and how often they come again."""
    size = next(size for size in range(1, len(kinds) + 1) if kinds == kinds[:size] * (len(kinds) // size))
    size = len(kinds) if size == 1 else size  # one run says it
    runs = "+".join(f"[{kind}]*{len(list(members))}" for kind, members in groupby(kinds[:size]))
    return f"({runs})" if size == len(kinds) else f"({runs})*{len(kinds) // size}"


def _goes_without_saying(name: str, fields: Fields) -> bool:
    """What the command line refuses or cannot say beside the rest: rotary sizes without rotary positions, say."""
    if name in ("rotary_base", "rope_type"):
        return fields["position_embedding_type"] not in ("rope", "yarn")
    if name == "rotary_percent":
        return fields["position_embedding_type"] not in ("rope", "yarn") or fields[name] == 1
    if name == "add_qkv_bias":
        return bool(fields["add_bias_linear"])
    plain = name.removeprefix("yarn_")
    return name in NO_ARGUMENT or (plain in YARN_DEFAULTS and fields[name] == YARN_DEFAULTS[plain])


def _feed_forward(architecture: Architecture) -> Iterator[Argument]:
    """SiLU exists with gates alone, squared ReLU without them alone; with gates GELU is always the quick form.

    A bias is added in GELU's kernel by default, which Megatron refuses for another activation.
    """
    one = definition_of(architecture)
    activation = one.activation
    if architecture.gated_mlp:
        yield ("--quick-geglu",) if activation in ("gelu", "quick_gelu") else ("--swiglu",)
    elif activation == "squared_relu":
        yield ("--squared-relu",)
        yield from arguments({"no_bias_gelu_fusion": one.linear_bias})
