"""The model in Megatron's words: fields of its configuration, for Megatron-Bridge, and arguments, for Megatron-LM.

Where the request does not define the model beside its sizes, RMSNorm, rotary positions and no biases are taken.
Source: transformer_config.py and megatron/training/arguments.py of Megatron-LM core 0.20, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from models.workload import Architecture, GroupedQueryAttention, ModelDefinition, RotaryScaling

Argument = tuple[str, ...]
Fields = dict[str, Any]
# Fields whose argument has another name.
NAMES = {
    "layernorm_zero_centered_gamma": "apply_layernorm_1p",
    "layernorm_epsilon": "norm_epsilon",
    "rope_scaling": "use_rope_scaling",
    "yarn_rotary_scaling_factor": "rotary_scaling_factor",
    "num_moe_experts": "num_experts",
}
# Fields whose argument says the opposite.
OPPOSITES = {
    "add_bias_linear": "disable_bias_linear",
    "apply_rope_fusion": "no_rope_fusion",
    "bias_dropout_fusion": "no_bias_dropout_fusion",
    "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
}
# How positions are told, in the words of position_embedding_type.
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
UNDEFINED = (
    "the model's definition beside its sizes is not in the request: RMSNorm, rotary positions, no biases are taken"
)
YARN_LATENT_LENGTH = 4096  # Megatron's default for latent attention, which its command line cannot change
LLAMA3_LENGTH = 8192  # the length that --use-rope-scaling stretches from; its command line cannot change it


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
        "normalization": "RMSNorm" if one.norm == "rmsnorm" else "LayerNorm",
        "layernorm_zero_centered_gamma": one.norm == "layernorm1p",
        "layernorm_epsilon": one.norm_epsilon,
        "qk_layernorm": one.qk_norm,
        **_positions(architecture, one),
        "gated_linear_unit": architecture.gated_mlp,
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


def _positions(architecture: Architecture, one: ModelDefinition) -> Fields:
    """Latent attention stretches rotary positions under other names, and rotates in one kernel only if it stretches."""
    scaling, is_latent = one.rope_scaling, architecture.attention.kind == "mla"
    is_yarn = scaling is not None and scaling.kind == "yarn"
    kind = "yarn" if is_yarn and not is_latent else POSITIONS[one.position_embedding]
    found = {"position_embedding_type": kind, "rotary_base": one.rope_base, "rotary_percent": one.rope_fraction}
    if is_latent:
        found |= {"rope_type": "yarn" if is_yarn else "rope"} | ({} if is_yarn else {"apply_rope_fusion": False})
    if scaling is None:
        return found
    if scaling.kind == "llama3":
        return {**found, "rope_scaling": True, "rope_scaling_factor": scaling.factor}
    prefix = "" if is_latent else "yarn_"
    found[f"{prefix}rotary_scaling_factor"] = scaling.factor
    return {**found, f"{prefix}original_max_position_embeddings": scaling.original_length}


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
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_score_function": one.router_score,
        "moe_router_pre_softmax": moe.experts_per_token == 1 and one.router_score == "softmax",
        "moe_router_load_balancing_type": "none" if has_bias else "aux_loss",
        "moe_router_enable_expert_bias": has_bias,
        "moe_router_num_groups": one.router_groups or None,
        "moe_router_group_topk": one.router_groups_per_token or None,
        "moe_router_topk_scaling_factor": one.router_scale if one.router_scale != 1 else None,
        **({"bias_dropout_fusion": False} if one.linear_bias else {}),
    }


def model_arguments(architecture: Architecture) -> Iterator[Argument]:
    """The same as arguments of Megatron-LM's command line."""
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
    """
    for name, value in fields.items():
        argument = f"--{name.replace('_', '-')}"
        if value is True:
            yield (argument,)
        elif isinstance(value, list):
            runs = [f"[{kind}]*{len(list(members))}" for kind, members in groupby(value)]
            yield argument, f"({'+'.join(runs)})"
        elif isinstance(value, float) and value:
            yield argument, f"{value:g}"
        elif value is not None and value is not False:
            yield argument, str(value)


def _goes_without_saying(name: str, fields: Fields) -> bool:
    """What the command line refuses or cannot say beside the rest: rotary sizes without rotary positions, say."""
    if name in ("rotary_base", "rope_type"):
        return fields["position_embedding_type"] not in ("rope", "yarn")
    if name == "rotary_percent":
        return fields["position_embedding_type"] not in ("rope", "yarn") or fields[name] == 1
    if name == "add_qkv_bias":
        return bool(fields["add_bias_linear"])
    return name == "original_max_position_embeddings"


def _feed_forward(architecture: Architecture) -> Iterator[Argument]:
    """SiLU exists with gates alone, squared ReLU without them alone; GELU with gates is Megatron's quick form.

    A bias is added in GELU's kernel by default, which Megatron refuses for another activation.
    """
    one = definition_of(architecture)
    activation = one.activation
    if architecture.gated_mlp:
        yield ("--quick-geglu",) if activation == "gelu" else ("--swiglu",)
    elif activation == "squared_relu":
        yield ("--squared-relu",)
        yield from arguments({"no_bias_gelu_fusion": one.linear_bias})


def model_losses(architecture: Architecture) -> Iterator[str]:
    """What of the model no field of Megatron-Core says, or what had to be assumed."""
    one = definition_of(architecture)
    if architecture.definition is None:
        yield UNDEFINED
    if architecture.moe is not None and one.router_bias and one.router_score == "softmax":
        yield "a bias of experts on softmax scores: Megatron has it on sigmoid scores only, an auxiliary loss is set"
    if one.rope_scaling is not None and one.rope_scaling.kind == "llama3":
        if architecture.attention.kind == "mla":
            yield "Llama 3's stretching of rotary positions: Megatron has YaRN alone in latent attention"
        else:
            yield from _other_length(one.rope_scaling, LLAMA3_LENGTH)


def command_line_losses(architecture: Architecture) -> Iterator[str]:
    """What of the model the command line cannot say, beside that."""
    one = definition_of(architecture)
    if architecture.gated_mlp and one.activation == "squared_relu":
        yield "squared ReLU with gates: Megatron-LM has it without gates only, SiLU is set"
    if architecture.gated_mlp and one.activation == "gelu":
        yield "GELU with gates: Megatron-LM takes its quick form"
    if not architecture.gated_mlp and one.activation == "silu":
        yield "SiLU without gates: Megatron-LM has it with gates only, GELU is left"
    if one.rope_scaling is not None and one.rope_scaling.kind == "yarn" and architecture.attention.kind == "mla":
        yield from _other_length(one.rope_scaling, YARN_LATENT_LENGTH)


def _other_length(scaling: RotaryScaling, fixed: int) -> Iterator[str]:
    if scaling.original_length != fixed:
        yield f"rotary positions stretched from {scaling.original_length} tokens: Megatron-LM takes {fixed}"
