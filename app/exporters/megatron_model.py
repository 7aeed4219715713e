"""The model as Megatron-LM's arguments: sizes, norm, positions, biases, vocabulary, experts.

Where the request does not define the model beside its sizes, RMSNorm, rotary positions and no biases are taken.
Source: megatron/training/arguments.py of Megatron-LM core 0.20, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from models.workload import Architecture, GroupedQueryAttention, ModelDefinition

Argument = tuple[str, ...]
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


def model_arguments(architecture: Architecture) -> Iterator[Argument]:
    """Every argument that the model needs, parallel degrees apart."""
    one = definition_of(architecture)
    yield "--num-layers", str(architecture.num_layers)
    yield "--hidden-size", str(architecture.hidden_size)
    if architecture.ffn_hidden_size:
        yield "--ffn-hidden-size", str(architecture.ffn_hidden_size)
    yield "--vocab-size", str(architecture.vocab_size)
    yield from _attention(architecture)
    yield from _norm(one)
    yield from _positions(architecture, one)
    yield from _feed_forward(architecture, one)
    yield from _biases(one)
    if not architecture.tied_embeddings:
        yield ("--untie-embeddings-and-output-weights",)
    yield "--attention-dropout", "0.0"
    yield "--hidden-dropout", "0.0"
    yield from _experts(architecture, one)
    if architecture.num_mtp_layers:
        yield "--mtp-num-layers", str(architecture.num_mtp_layers)


def _attention(architecture: Architecture) -> Iterator[Argument]:
    attention = architecture.attention
    yield "--num-attention-heads", str(attention.num_heads)
    if isinstance(attention, GroupedQueryAttention):
        yield "--kv-channels", str(attention.head_dim)
        if attention.num_kv_heads != attention.num_heads:
            yield ("--group-query-attention",)
            yield "--num-query-groups", str(attention.num_kv_heads)
        return
    yield ("--multi-latent-attention",)
    if attention.q_lora_rank:
        yield "--q-lora-rank", str(attention.q_lora_rank)
    yield "--kv-lora-rank", str(attention.kv_lora_rank)
    yield "--qk-head-dim", str(attention.qk_nope_head_dim)
    yield "--qk-pos-emb-head-dim", str(attention.qk_rope_head_dim)
    yield "--v-head-dim", str(attention.v_head_dim)


def _norm(one: ModelDefinition) -> Iterator[Argument]:
    yield "--normalization", "RMSNorm" if one.norm == "rmsnorm" else "LayerNorm"
    if one.norm == "layernorm1p":
        yield ("--apply-layernorm-1p",)
    yield "--norm-epsilon", f"{one.norm_epsilon:g}"
    if one.qk_norm:
        yield ("--qk-layernorm",)


def _positions(architecture: Architecture, one: ModelDefinition) -> Iterator[Argument]:
    if one.position_embedding != "rope":
        yield "--position-embedding-type", "learned_absolute" if one.position_embedding == "learned" else "none"
        return
    scaling = one.rope_scaling
    is_latent = architecture.attention.kind == "mla"
    is_yarn = scaling is not None and scaling.kind == "yarn"
    yield "--position-embedding-type", "yarn" if is_yarn and not is_latent else "rope"
    yield "--rotary-base", str(one.rope_base)
    if one.rope_fraction != 1:
        yield "--rotary-percent", f"{one.rope_fraction:g}"
    if is_latent:
        yield "--rope-type", "yarn" if is_yarn else "rope"
    if scaling is None:
        return
    if scaling.kind == "llama3":
        yield ("--use-rope-scaling",)
        yield "--rope-scaling-factor", f"{scaling.factor:g}"
    else:
        yield "--rotary-scaling-factor", f"{scaling.factor:g}"
        if not is_latent:
            yield "--yarn-original-max-position-embeddings", str(scaling.original_length)


def _feed_forward(architecture: Architecture, one: ModelDefinition) -> Iterator[Argument]:
    """SiLU exists with gates alone, squared ReLU without them alone; GELU with gates is Megatron's quick form."""
    if architecture.gated_mlp:
        yield ("--quick-geglu",) if one.activation == "gelu" else ("--swiglu",)
    elif one.activation == "squared_relu":
        yield ("--squared-relu",)


def _biases(one: ModelDefinition) -> Iterator[Argument]:
    if not one.linear_bias:
        yield ("--disable-bias-linear",)
        if one.qkv_bias:
            yield ("--add-qkv-bias",)


def _experts(architecture: Architecture, one: ModelDefinition) -> Iterator[Argument]:
    moe = architecture.moe
    if moe is None:
        return
    yield "--num-experts", str(moe.num_experts)
    yield "--moe-router-topk", str(moe.experts_per_token)
    yield "--moe-ffn-hidden-size", str(moe.expert_ffn_hidden_size)
    layers = [int(architecture.is_moe_layer(layer)) for layer in range(architecture.num_layers)]
    runs = [f"[{value}]*{len(list(members))}" for value, members in groupby(layers)]
    yield "--moe-layer-freq", "(" + "+".join(runs) + ")"
    if moe.num_shared_experts:
        width = moe.shared_expert_ffn_hidden_size or moe.expert_ffn_hidden_size
        yield "--moe-shared-expert-intermediate-size", str(moe.num_shared_experts * width)
    yield ("--moe-grouped-gemm",)
    yield "--moe-token-dispatcher-type", "alltoall"
    yield "--moe-router-score-function", one.router_score
    yield "--moe-router-load-balancing-type", "none" if one.router_bias else "aux_loss"
    if one.router_bias:
        yield ("--moe-router-enable-expert-bias",)
    if one.router_groups:
        yield "--moe-router-num-groups", str(one.router_groups)
        yield "--moe-router-group-topk", str(one.router_groups_per_token)
    if one.router_scale != 1:
        yield "--moe-router-topk-scaling-factor", f"{one.router_scale:g}"


def model_losses(architecture: Architecture) -> Iterator[str]:
    """What of the model these arguments cannot say, or had to assume."""
    one = definition_of(architecture)
    if architecture.definition is None:
        yield UNDEFINED
    if architecture.gated_mlp and one.activation == "squared_relu":
        yield "squared ReLU with gates: Megatron-LM has it without gates only, SiLU is set"
    if not architecture.gated_mlp and one.activation == "silu":
        yield "SiLU without gates: Megatron-LM has it with gates only, GELU is left"
    scaling = one.rope_scaling
    if scaling is not None:
        is_latent = architecture.attention.kind == "mla"
        fixed = LLAMA3_LENGTH if scaling.kind == "llama3" else YARN_LATENT_LENGTH if is_latent else None
        if fixed not in (None, scaling.original_length):
            yield f"rotary positions stretched from {scaling.original_length} tokens: Megatron-LM takes {fixed}"
