"""The arithmetic of a workload that no configuration changes, computed once.

Matrix shapes, parameters and widths per layer kind.
"""

from dataclasses import dataclass
from typing import Literal

from models.workload import (
    Architecture,
    GroupedQueryAttention,
    LatentAttention,
    MixtureOfExperts,
    Optimizer,
    Precision,
    Workload,
)
from solver.cost import flops

Split = Literal["outer", "inner", "none"]


@dataclass(frozen=True)
class Gemm:
    """One weight matrix: tokens x inner times inner x outer; `split` says which side tensor parallelism divides."""

    inner: int
    outer: int
    split: Split

    @property
    def parameters(self) -> int:
        """Weights of the matrix."""
        return self.inner * self.outer


@dataclass(frozen=True)
class LayerShape:
    """One kind of transformer layer. Widths are per token, before any split."""

    gemms: tuple[Gemm, ...]
    expert_gemms: tuple[Gemm, ...]
    attention_width: int
    qkv_width: int
    kv_width: int
    value_width: int
    mlp_inner: float
    expert_inner: float
    num_norm_parameters: int

    @property
    def dense_parameters(self) -> float:
        """Parameters outside the experts."""
        return sum((gemm.parameters for gemm in self.gemms), 0.0) + self.num_norm_parameters

    @property
    def split_parameters(self) -> float:
        """Parameters outside the experts that tensor parallelism divides."""
        return sum((gemm.parameters for gemm in self.gemms if gemm.split != "none"), 0.0)

    @property
    def expert_parameters(self) -> float:
        """Parameters of one routed expert."""
        return sum((gemm.parameters for gemm in self.expert_gemms), 0.0)


@dataclass(frozen=True)
class Job:
    """Per-layer arithmetic of one workload."""

    architecture: Architecture
    optimizer: Optimizer
    precision: Precision
    value_bytes: float
    sequence_length: int
    global_batch_sequences: int
    hidden_size: int
    vocab_size: int
    gated_mlp: bool
    flash_attention: bool
    causal_attention: bool
    num_heads: int
    num_experts: int
    experts_per_token: int
    max_nodes_per_token: int
    num_dense_layers: int
    num_moe_layers: int
    num_mtp_layers: int
    dense: LayerShape
    moe: LayerShape
    embedding_parameters: float
    logits_parameters: float
    total_parameters: float
    active_parameters: float
    model_flops: float

    @property
    def tokens_per_iteration(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch_sequences * self.sequence_length

    @property
    def num_layers(self) -> int:
        """Transformer layers, dense and MoE."""
        return self.num_dense_layers + self.num_moe_layers


def job_of(workload: Workload) -> Job:
    """Everything the formulas need of `workload`."""
    architecture = workload.architecture
    kinds = [architecture.is_moe_layer(index) for index in range(architecture.num_layers)]
    dense, moe = _dense_shape(architecture), _moe_shape(architecture)
    experts = architecture.moe
    table = float(architecture.hidden_size * architecture.vocab_size)
    num_mtp = architecture.num_mtp_layers
    top_k = experts.experts_per_token if experts else 0
    num_experts = experts.num_experts if experts else 1
    num_moe = sum(kinds)
    num_dense = len(kinds) - num_moe
    mtp_is_moe = kinds[-1]
    per_moe = moe.dense_parameters + num_experts * moe.expert_parameters
    active_moe = moe.dense_parameters + top_k * moe.expert_parameters
    head = 0.0 if architecture.tied_embeddings else table
    total = num_dense * dense.dense_parameters + num_moe * per_moe + table + head
    total += num_mtp * (per_moe if mtp_is_moe else dense.dense_parameters)
    return Job(
        architecture=architecture,
        optimizer=workload.optimizer,
        precision=workload.precision,
        value_bytes=workload.value_bytes,
        sequence_length=workload.sequence_length,
        global_batch_sequences=workload.global_batch_sequences,
        hidden_size=architecture.hidden_size,
        vocab_size=architecture.vocab_size,
        gated_mlp=architecture.gated_mlp,
        flash_attention=workload.flash_attention,
        causal_attention=workload.causal_attention,
        num_heads=architecture.attention.num_heads,
        num_experts=num_experts,
        experts_per_token=top_k,
        max_nodes_per_token=(experts.max_nodes_per_token or 0) if experts else 0,
        num_dense_layers=num_dense,
        num_moe_layers=num_moe,
        num_mtp_layers=num_mtp,
        dense=dense,
        moe=moe,
        embedding_parameters=table,
        logits_parameters=head,
        total_parameters=total,
        active_parameters=num_dense * dense.dense_parameters + num_moe * active_moe + table + head,
        model_flops=flops.model_flops_per_iteration(workload),
    )


def _attention_gemms(architecture: Architecture) -> list[Gemm]:
    attention = architecture.attention
    matrices = flops.attention_matrices(architecture.hidden_size, attention)
    if isinstance(attention, GroupedQueryAttention):
        return [Gemm(*matrices[0], "outer"), Gemm(*matrices[1], "inner")]
    gemms = [Gemm(inner, outer, "none" if inner == architecture.hidden_size else "outer") for inner, outer in matrices]
    if not attention.q_lora_rank:
        gemms[0] = Gemm(*matrices[0], "outer")
    gemms[-1] = Gemm(*matrices[-1], "inner")
    return gemms


def _mlp_gemms(hidden: int, inner: int, *, gated: bool) -> list[Gemm]:
    return [Gemm(hidden, inner * (2 if gated else 1), "outer"), Gemm(inner, hidden, "inner")]


def _widths(attention: GroupedQueryAttention | LatentAttention) -> tuple[int, int, int]:
    """Widths of q, k and v together, of what context parallelism moves, and of the values."""
    if isinstance(attention, GroupedQueryAttention):
        keys_values = 2 * attention.num_kv_heads * attention.head_dim
        queries = attention.num_heads * attention.head_dim
        return queries + keys_values, keys_values, queries
    score = attention.num_heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    values = attention.num_heads * attention.v_head_dim
    return 2 * score + values, score + values, values


def _shape(
    architecture: Architecture,
    gemms: list[Gemm],
    *,
    mlp_inner: int = 0,
    expert_inner: int = 0,
    expert_gemms: tuple[Gemm, ...] = (),
) -> LayerShape:
    qkv, keys_values, values = _widths(architecture.attention)
    return LayerShape(
        gemms=tuple(gemms),
        expert_gemms=expert_gemms,
        attention_width=flops.attention_width(architecture.attention),
        qkv_width=qkv,
        kv_width=keys_values,
        value_width=values,
        mlp_inner=float(mlp_inner),
        expert_inner=float(expert_inner),
        num_norm_parameters=4 * architecture.hidden_size,
    )


def _dense_shape(architecture: Architecture) -> LayerShape:
    inner = architecture.ffn_hidden_size
    mlp = _mlp_gemms(architecture.hidden_size, inner, gated=architecture.gated_mlp) if inner else []
    return _shape(architecture, [*_attention_gemms(architecture), *mlp], mlp_inner=inner)


def _moe_shape(architecture: Architecture) -> LayerShape:
    experts: MixtureOfExperts | None = architecture.moe
    gemms = _attention_gemms(architecture)
    if experts is None:
        return _shape(architecture, gemms)
    hidden = architecture.hidden_size
    gemms.append(Gemm(hidden, experts.num_experts, "none"))
    shared = (experts.shared_expert_ffn_hidden_size or experts.expert_ffn_hidden_size) * experts.num_shared_experts
    if shared:
        gemms += _mlp_gemms(hidden, shared, gated=architecture.gated_mlp)
    return _shape(
        architecture,
        gemms,
        mlp_inner=shared,
        expert_inner=experts.expert_ffn_hidden_size,
        expert_gemms=tuple(_mlp_gemms(hidden, experts.expert_ffn_hidden_size, gated=architecture.gated_mlp)),
    )
