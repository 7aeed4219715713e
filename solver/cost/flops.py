"""Floating-point operations of a training step, by the conventions in use.

A multiply-add counts as 2 operations.
"""

from collections import Counter
from typing import Literal

from models.workload import Architecture, GroupedQueryAttention, LatentAttention, Workload

FlopConvention = Literal["causal", "full"]
BACKWARD_OVER_FORWARD = 2.0  # two products (input and weight gradient) for each product of the forward


def attention_projection_flops(hidden_size: int, attention: GroupedQueryAttention | LatentAttention) -> float:
    """FLOPs per token and layer of the projections around the attention core, forward.

    4 h a d + 4 h k d for grouped queries (arXiv 2205.05198); for MLA the low-rank factors (arXiv 2412.19437, 2.1.1).

    >>> attention_projection_flops(8, GroupedQueryAttention(num_heads=2, num_kv_heads=1, head_dim=4))
    384.0
    """
    return 2.0 * sum(inner * outer for inner, outer in attention_matrices(hidden_size, attention))


def attention_matrices(hidden_size: int, attention: GroupedQueryAttention | LatentAttention) -> list[tuple[int, int]]:
    """Inner and outer size of each projection of one attention block.

    >>> attention_matrices(8, GroupedQueryAttention(num_heads=2, num_kv_heads=1, head_dim=4))
    [(8, 16), (8, 8)]
    """
    if isinstance(attention, GroupedQueryAttention):
        width = attention.num_heads * attention.head_dim
        return [(hidden_size, width + 2 * attention.num_kv_heads * attention.head_dim), (width, hidden_size)]
    queries = attention.num_heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    keys_values = attention.num_heads * (attention.qk_nope_head_dim + attention.v_head_dim)
    rank = attention.q_lora_rank
    query_matrices = [(hidden_size, rank), (rank, queries)] if rank else [(hidden_size, queries)]
    return [
        *query_matrices,
        (hidden_size, attention.kv_lora_rank + attention.qk_rope_head_dim),
        (attention.kv_lora_rank, keys_values),
        (attention.num_heads * attention.v_head_dim, hidden_size),
    ]


def attention_width(attention: GroupedQueryAttention | LatentAttention) -> int:
    """Summed width of queries/keys and values over all heads: the core does 2 s times this per token.

    >>> attention_width(GroupedQueryAttention(num_heads=2, num_kv_heads=1, head_dim=4))
    16
    """
    if isinstance(attention, GroupedQueryAttention):
        return 2 * attention.num_heads * attention.head_dim
    return attention.num_heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)


def attention_core_flops(sequence_length: int, width: int, *, causal: bool) -> float:
    """FLOPs per token and layer of scores and their product with the values, forward.

    2 s (a d_qk + a d_v), halved where the upper triangle is skipped or not counted.

    >>> attention_core_flops(100, 16, causal=False), attention_core_flops(100, 16, causal=True)
    (3200.0, 1600.0)
    """
    return 2.0 * sequence_length * width * (0.5 if causal else 1.0)


def mlp_flops(hidden_size: int, inner_size: float, *, gated: bool) -> float:
    """FLOPs per token of a feed-forward block, forward: 6 h f gated, 4 h f plain.

    >>> mlp_flops(4, 16, gated=True), mlp_flops(4, 16, gated=False)
    (384.0, 256.0)
    """
    return (6.0 if gated else 4.0) * hidden_size * inner_size


def layer_forward_flops(architecture: Architecture, *, sequence_length: int, moe: bool, causal: bool) -> float:
    """FLOPs per token of one transformer layer, forward: projections, core, feed-forward or router and experts.

    >>> heads = GroupedQueryAttention(num_heads=2, num_kv_heads=1, head_dim=4)
    >>> tiny = Architecture(
    ...     name="tiny", num_layers=1, hidden_size=8, ffn_hidden_size=16, attention=heads, vocab_size=9)
    >>> layer_forward_flops(tiny, sequence_length=100, moe=False, causal=False)  # 384 + 3,200 + 6 * 8 * 16
    4352.0
    """
    hidden = architecture.hidden_size
    total = attention_projection_flops(hidden, architecture.attention)
    total += attention_core_flops(sequence_length, attention_width(architecture.attention), causal=causal)
    if not moe or architecture.moe is None:
        return total + mlp_flops(hidden, architecture.ffn_hidden_size, gated=architecture.gated_mlp)
    experts = architecture.moe
    shared = experts.shared_expert_ffn_hidden_size or experts.expert_ffn_hidden_size
    inner = experts.experts_per_token * experts.expert_ffn_hidden_size + experts.num_shared_experts * shared
    return total + 2.0 * hidden * experts.num_experts + mlp_flops(hidden, inner, gated=architecture.gated_mlp)


def logits_flops(architecture: Architecture) -> float:
    """FLOPs per token of the output projection, forward: 2 h V.

    >>> heads = GroupedQueryAttention(num_heads=2, num_kv_heads=1, head_dim=4)
    >>> tiny = Architecture(
    ...     name="tiny", num_layers=1, hidden_size=8, ffn_hidden_size=16, attention=heads, vocab_size=9)
    >>> logits_flops(tiny)
    144.0
    """
    return 2.0 * architecture.hidden_size * architecture.vocab_size


def model_flops_per_token(
    architecture: Architecture, sequence_length: int, *, convention: FlopConvention = "causal", with_mtp: bool = True
) -> float:
    """Training FLOPs per token without recomputation: three times the forward.

    >>> from models.workload import GroupedQueryAttention
    >>> llama = Architecture(name="llama-3-405b", num_layers=126, hidden_size=16384, ffn_hidden_size=53248,
    ...     attention=GroupedQueryAttention(num_heads=128, num_kv_heads=8, head_dim=128), vocab_size=128256)
    >>> f"{model_flops_per_token(llama, 8192):.4e}", f"{model_flops_per_token(llama, 8192, convention='full'):.4e}"
    ('2.5240e+12', '2.6254e+12')
    """
    causal = convention == "causal"
    num_of_kind = Counter(architecture.is_moe_layer(index) for index in range(architecture.num_layers))
    num_mtp = architecture.num_mtp_layers if with_mtp else 0
    num_of_kind[architecture.is_moe_layer(architecture.num_layers - 1)] += num_mtp
    forward = (1 + num_mtp) * logits_flops(architecture)
    for moe, number in num_of_kind.items():
        forward += number * layer_forward_flops(architecture, sequence_length=sequence_length, moe=moe, causal=causal)
    return (1.0 + BACKWARD_OVER_FORWARD) * forward


def model_flops_per_iteration(workload: Workload) -> float:
    """Training FLOPs of one optimizer step, recomputation not counted."""
    per_token = model_flops_per_token(workload.architecture, workload.sequence_length)
    return per_token * workload.tokens_per_iteration


def hardware_flops_sc21(
    *, batch: int, sequence: int, num_layers: int, hidden: int, vocab: int, recompute: bool = True
) -> float:
    """FLOPs of a GPT step as the Megatron papers count them (full attention, plain MLP of 4 h).

    96 B s L h^2 (1 + s/6h + V/(16 L h)) with full recomputation (arXiv 2104.04473, equation 3), and
    72 B s L h^2 (1 + s/6h + V/(12 L h)) without (arXiv 2205.05198).

    >>> f"{hardware_flops_sc21(batch=1536, sequence=2048, num_layers=96, hidden=12288, vocab=51200):.3e}"
    '4.511e+18'
    """
    factor, vocabulary = (96.0, 16.0) if recompute else (72.0, 12.0)
    share = 1.0 + sequence / (6.0 * hidden) + vocab / (vocabulary * num_layers * hidden)
    return factor * batch * sequence * num_layers * hidden**2 * share
