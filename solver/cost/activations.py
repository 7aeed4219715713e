"""Bytes of activations that one layer keeps for its backward, per micro-batch and GPU.

Closed forms of arXiv 2205.05198, extended to gated, grouped-query, latent and expert layers. How many micro-batches are
in flight is in `memory`.
"""

import numpy as np

from solver.arrays import FloatArray
from solver.cost.columns import RECOMPUTE_FULL, RECOMPUTE_NONE
from solver.cost.job import LayerShape
from solver.cost.layer import Setting

MASK_BYTES = 1.0  # of a dropout


def layer_bytes(at: Setting, shape: LayerShape) -> tuple[FloatArray, FloatArray]:
    """Held from forward to input gradient, and from there to the weight gradient.

    With full recomputation only the 2 b s h input of the layer is kept until its backward starts.
    """
    mode = at.columns.recompute
    retained = _retained_bytes(at, shape)
    scores = np.where(mode == RECOMPUTE_NONE, _score_bytes(at), 0.0)
    inputs = at.tokens * at.job.value_bytes * at.job.hidden_size / at.norm_split
    context = np.minimum(_context_bytes(at, shape), retained)
    full = mode == RECOMPUTE_FULL
    overhead = at.stack.activation_overhead.value
    held = np.where(full, inputs, retained + scores) * overhead
    return held, np.where(full, 0.0, context) * overhead


def working_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    """Activations that exist once, beside those in flight: of the layer whose forward is being repeated."""
    whole = (_retained_bytes(at, shape) + _score_bytes(at)) * at.stack.activation_overhead.value
    return np.where(at.columns.recompute == RECOMPUTE_FULL, whole, 0.0)


def _retained_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    return at.tokens * (_replicated_bytes(at) + _split_bytes(at, shape)) + _expert_bytes(at, shape)


def _replicated_bytes(at: Setting) -> FloatArray:
    """Per token: inputs of two norms and of two products 8 h, two dropout masks 2 h; split by sequence parallelism.

    Without sequence parallelism these are Korthikanti's 10 s b h.
    """
    masks = 2.0 * MASK_BYTES if at.stack.dropout else 0.0
    return (8.0 * at.widening + masks) * at.job.hidden_size / at.norm_split


def _split_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    """Per token: q, k, v 2 (a + 2k) d, core output 2 a d, first product 2 f or 4 f, activation 2 f, over tp."""
    inner = (6.0 if at.job.gated_mlp else 4.0) * shape.mlp_inner
    return at.widening * (2.0 * shape.qkv_width + 2.0 * shape.value_width + inner) / at.tp


def _score_bytes(at: Setting) -> FloatArray:
    """An unfused core keeps the output of the softmax, and that of a dropout with its mask: 5 a s per token."""
    if at.job.flash_attention:
        return np.zeros_like(at.tp)
    retained = at.job.value_bytes + (at.job.value_bytes + MASK_BYTES if at.stack.dropout else 0.0)
    return at.tokens * at.job.sequence_length * at.job.num_heads * retained / at.tp


def _expert_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    """Copies of the routed tokens: input and output 4 h and the inner 6 f (4 f plain), for K copies, over tp."""
    if not shape.expert_gemms:
        return np.zeros_like(at.tp)
    inner = (6.0 if at.job.gated_mlp else 4.0) * shape.expert_inner
    per_copy = at.widening * (4.0 * at.job.hidden_size + inner)
    return at.tokens / at.tp * at.job.experts_per_token * per_copy * at.stack.expert_imbalance.value


def _context_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    """What weight gradients need: the input and the output gradient of every product, one value each."""
    width = np.zeros_like(at.tp)
    for gemm in shape.gemms:
        inner = gemm.inner / (at.tp if gemm.split == "inner" else at.norm_split)
        outer = gemm.outer / (at.tp if gemm.split == "outer" else at.norm_split)
        width = width + 2.0 * (inner + outer)
    expert = sum(2.0 * (gemm.inner + gemm.outer) for gemm in shape.expert_gemms)
    return at.tokens * at.widening * (width + at.job.experts_per_token * expert / at.tp)


def embedding_bytes(at: Setting) -> FloatArray:
    """Token ids and the dropout mask of the embedding output."""
    mask = at.job.hidden_size / at.norm_split if at.stack.dropout else 0.0
    return at.tokens * (8.0 + mask)


def logits_bytes(at: Setting) -> FloatArray:
    """Logits as values, in 4-byte floats for the loss, and their gradient: while the last stage holds them."""
    return at.tokens * at.job.vocab_size / at.tp * (at.job.value_bytes + 4.0)
