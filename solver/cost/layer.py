"""Time and bytes of one transformer layer, and of the ends of the model, per micro-batch and GPU.

The sum over matrices, attention, element-wise work and in-layer communication.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from models.cluster import GpuType
from models.stack import StackProfile
from solver.arrays import FloatArray
from solver.cost import flops
from solver.cost.collectives import all_reduce_s, all_to_all_s, exposed_s, gather_s, group_of, remote_copies_share
from solver.cost.columns import RECOMPUTE_FULL, RECOMPUTE_SELECTIVE, Columns
from solver.cost.compute import BYTES_16_BIT, GpuRates, Times, products_s, shape_slowdown, streaming_s
from solver.cost.fabric import Fabric
from solver.cost.job import Gemm, Job, LayerShape

FLASH_BACKWARD = 3.1  # five products against two (scores are recomputed), at 0.8 of the rate: 63 against 73 % of the
# peak on A100 (arXiv 2307.08691), 57 against 75 % on H100 (arXiv 2407.08608)
UNFUSED_BACKWARD = 2.0  # four products against two
# Bytes per score of an unfused core: in 16 bits, and in 32 bits, where no kernel fuses mask and softmax. The mask is
# then filled in place in a view, whose gradient PyTorch's autograd copies three times (CopySlices).
SCORE_BYTES_FORWARD = (7.0, 25.0)  # scores 2, triangular softmax 1 + 2, operand of the product 2; 4, mask 9, 8, 4
SCORE_BYTES_BACKWARD = (12.0, 61.0)  # operand 2, softmax 3 x 2, operands of two products 4; 4, 12, mask 9 + 24, 12
DROPPED_SCORE_BYTES = (5.0, 9.0)  # dropout reads and writes the scores and its mask of one byte, in both directions
BACKWARD_TRAFFIC = 1.5  # element-wise backward reads the stored input beside the gradient
REGATHER_OVERLAP = 0.5  # least share hidden: frameworks run this gather beside the backward's products; a guess
EXPERT_HALF_SIZE = 4.0  # of a grouped product over that of a dense one: few tiles per expert fill no pipeline; a guess
HOST_BACKWARD = 0.7  # host time of each half of the backward over the forward's


@dataclass(frozen=True)
class Setting:
    """What all layers of one job under one set of configurations share."""

    job: Job
    gpu: GpuType
    fabric: Fabric
    stack: StackProfile
    columns: Columns
    rates: GpuRates
    tokens: FloatArray
    tp: FloatArray
    norm_split: FloatArray

    @classmethod
    def of(cls, job: Job, gpu: GpuType, fabric: Fabric, stack: StackProfile, columns: Columns) -> Setting:
        """Tokens per stage-group member and the splits, as floats."""
        stack = stack.on(gpu.name)
        tp = columns.tp.astype(np.float64)
        tokens = columns.micro_batch.astype(np.float64) * job.sequence_length / columns.cp
        norm_split = tp if stack.sequence_parallel else np.ones_like(tp)
        rates = GpuRates.of(gpu, stack, job.precision)
        return cls(job, gpu, fabric, stack, columns, rates, tokens, tp, norm_split)

    @property
    def widening(self) -> float:
        """Bytes of a value over those of 16 bits, for traffic and memory that formulas count in 16 bits."""
        return self.job.value_bytes / BYTES_16_BIT


@dataclass(frozen=True)
class LayerCost:
    """One layer per micro-batch and GPU: work, and exposed communication by cause."""

    work: Times
    tensor_parallel: Times
    context_parallel: Times
    expert_parallel: Times

    @property
    def times(self) -> Times:
        """Everything together."""
        return self.work + self.tensor_parallel + self.context_parallel + self.expert_parallel


def _sizes(gemm: Gemm, tp: FloatArray) -> tuple[FloatArray, FloatArray]:
    inner = gemm.inner / tp if gemm.split == "inner" else np.full_like(tp, gemm.inner)
    outer = gemm.outer / tp if gemm.split == "outer" else np.full_like(tp, gemm.outer)
    return inner, outer


def _gemm_times(at: Setting, gemms: tuple[Gemm, ...]) -> Times:
    total = Times.zero(at.tp)
    for gemm in gemms:
        inner, outer = _sizes(gemm, at.tp)
        total = total + _products(at, at.tokens, inner, outer)
    return total


def _products(
    at: Setting, rows: FloatArray, inner: FloatArray, outer: FloatArray, count: FloatArray | float = 1.0
) -> Times:
    gradient_bytes = at.job.optimizer.gradient_bytes_per_parameter
    products = products_s(rows, inner, outer, at.rates, gradient_bytes=gradient_bytes, count=count)
    extra = accumulation_s(at, inner * outer * count)
    return replace(products, weight_grad_s=products.weight_grad_s + extra)


def accumulation_s(at: Setting, num_parameters: FloatArray) -> FloatArray:
    """Adding weight gradients to their accumulator in a kernel of its own: write and read 2 bytes, read and write g."""
    if at.stack.fused_gradient_accumulation:
        return np.zeros_like(num_parameters)
    per_parameter = 2.0 * at.job.value_bytes + 2.0 * at.job.optimizer.gradient_bytes_per_parameter
    return num_parameters * per_parameter / at.rates.memory_bytes_per_s


def _expert_times(at: Setting, shape: LayerShape) -> Times:
    """Grouped products of the local experts: the fewer tokens each gets, the worse their shape."""
    groups = at.columns.ep * at.tp
    local = np.maximum(at.job.num_experts / groups, 1.0)
    width_share = np.minimum(at.job.num_experts / groups, 1.0)
    rows = at.columns.ep * at.tokens * at.job.experts_per_token / at.job.num_experts
    rows = rows * at.stack.expert_imbalance.value
    first, second = shape.expert_gemms
    hidden = np.full_like(at.tp, first.inner)
    at = replace(at, rates=replace(at.rates, gemm_half_size=EXPERT_HALF_SIZE * at.rates.gemm_half_size))
    into = _products(at, rows, hidden, first.outer * width_share, local)
    products = into + _products(at, rows, second.inner * width_share, hidden, local)
    return products.scaled(1.0 / at.stack.expert_gemm_share.value)


def _core_s(at: Setting, shape: LayerShape) -> tuple[FloatArray, FloatArray]:
    """Forward and backward of the attention core; an unfused core also moves its scores through memory."""
    job = at.job
    causal = job.causal_attention and job.flash_attention
    per_token = flops.attention_core_flops(job.sequence_length, shape.attention_width, causal=causal)
    products = at.tokens * per_token / at.tp
    if job.flash_attention:
        forward = products / at.rates.attention_flops_per_s
        return forward, FLASH_BACKWARD * forward
    head = np.full_like(at.tp, shape.attention_width / 2.0 / job.num_heads)
    length = np.full_like(at.tp, job.sequence_length)
    forward = products / at.rates.wide_flops_per_s * shape_slowdown(length, head, length, at.rates.gemm_half_size)
    wide = int(job.precision == "fp32")
    scores = at.tokens * job.sequence_length * job.num_heads / at.tp / at.rates.memory_bytes_per_s
    dropped = DROPPED_SCORE_BYTES[wide] if at.stack.dropout else 0.0
    ahead, back = SCORE_BYTES_FORWARD[wide] + dropped, SCORE_BYTES_BACKWARD[wide] + dropped
    return forward + ahead * scores, UNFUSED_BACKWARD * forward + back * scores


def elementwise_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    """Least traffic of norms, residuals, dropout, rotary and activation of one layer, forward.

    Per token: two norms 8 h and two residual additions 14 h (with masks) or 12 h, split only by sequence parallelism;
    2 x 2 bytes of q, k and v, and 4 f (plain) or 6 f (gated) of the activation, split by tensor parallelism.
    """
    norm = (22.0 if at.stack.dropout else 20.0) * at.job.hidden_size / at.norm_split
    activation = 6.0 if at.job.gated_mlp else 4.0
    return at.tokens * at.widening * (norm + (4.0 * shape.qkv_width + activation * shape.mlp_inner) / at.tp)


def quantise_bytes(at: Setting, gemms: tuple[Gemm, ...]) -> FloatArray:
    """Traffic of casting the inputs of products to 8 or 4 bits and transposing them, forward."""
    if at.rates.element_bytes >= at.job.value_bytes:
        return np.zeros_like(at.tp)
    width = np.zeros_like(at.tp)
    for gemm in gemms:
        width = width + _sizes(gemm, at.tp)[0]
    return at.tokens * width * (at.job.value_bytes + 2.0 * at.rates.element_bytes)


def expert_bytes(at: Setting, shape: LayerShape) -> FloatArray:
    """Traffic around the routed experts, forward: permuting the copies in and out, activation, casts to 8 or 4 bits."""
    if not shape.expert_gemms:
        return np.zeros_like(at.tp)
    permute = at.job.hidden_size * at.job.value_bytes * 4.0
    activation = (6.0 if at.job.gated_mlp else 4.0) * shape.expert_inner * at.widening
    cast = 0.0
    if at.rates.element_bytes < at.job.value_bytes:
        cast = (at.job.hidden_size + shape.expert_inner) * (at.job.value_bytes + 2.0 * at.rates.element_bytes)
    copies = at.tokens / at.tp * at.job.experts_per_token
    return copies * (permute + activation + cast) * at.stack.expert_traffic.value


def _work(at: Setting, shape: LayerShape) -> Times:
    products = _gemm_times(at, shape.gemms)
    core_forward, core_backward = _core_s(at, shape)
    traffic = elementwise_bytes(at, shape) + quantise_bytes(at, shape.gemms) + expert_bytes(at, shape)
    light = streaming_s(traffic, at.rates)
    work = products + Times(core_forward + light, core_backward + BACKWARD_TRAFFIC * light, np.zeros_like(light))
    if shape.expert_gemms:
        work = work + _expert_times(at, shape)
    return work


def _recomputed(at: Setting, cost: LayerCost, core_forward: FloatArray) -> LayerCost:
    """Full recomputation repeats the whole forward inside the input gradient; selective repeats an unfused core."""
    full = at.columns.recompute == RECOMPUTE_FULL
    selective = (at.columns.recompute == RECOMPUTE_SELECTIVE) & (not at.job.flash_attention)

    def again(times: Times, core: FloatArray | float) -> Times:
        extra = np.where(full, times.forward_s, np.where(selective, core, 0.0))
        return Times(times.forward_s, times.input_grad_s + extra, times.weight_grad_s)

    return LayerCost(
        work=again(cost.work, core_forward),
        tensor_parallel=again(cost.tensor_parallel, 0.0),
        context_parallel=again(cost.context_parallel, 0.0),
        expert_parallel=again(cost.expert_parallel, 0.0),
    )


def _launched(cost: LayerCost, host_s: float) -> LayerCost:
    """The host must launch every kernel, communication included: each phase lasts at least its launch time."""
    busy = cost.times
    floor = (host_s, HOST_BACKWARD * host_s, HOST_BACKWARD * host_s)
    parts = (busy.forward_s, busy.input_grad_s, busy.weight_grad_s)
    slack = Times(*(np.maximum(least - part, 0.0) for least, part in zip(floor, parts, strict=True)))
    return replace(cost, work=cost.work + slack)


def _tensor_parallel(at: Setting, *, hides: Times) -> Times:
    """Two reductions of the hidden states forward and two backward; sequence parallelism splits each in two halves.

    Sequence parallelism gathers the inputs once more for the weight gradients (arXiv 2205.05198).
    """
    group = group_of(at.columns.tp, np.ones_like(at.columns.tp), at.fabric, at.stack)
    hidden = at.tokens * at.job.hidden_size * at.job.value_bytes
    forward = 2.0 * all_reduce_s(hidden, group)
    weight = np.zeros_like(forward)
    if at.stack.sequence_parallel:
        weight = 2.0 * gather_s(hidden, group)
    overlap = at.stack.tensor_parallel_overlap.value
    return Times(
        exposed_s(forward, hides.forward_s, overlap),
        exposed_s(forward, hides.input_grad_s, overlap),
        exposed_s(weight, hides.weight_grad_s, np.maximum(overlap, REGATHER_OVERLAP)),
    )


def _context_parallel(at: Setting, shape: LayerShape) -> Times:
    """Keys and values of the other ranks: in a ring beside the core, or gathered before it."""
    cp = at.columns.cp
    group = group_of(cp, at.columns.tp, at.fabric, at.stack)
    keys_values = at.tokens * cp * shape.kv_width / at.tp * at.job.value_bytes
    forward = gather_s(keys_values, group)
    core_forward, core_backward = _core_s(at, shape)
    overlap = 1.0 if at.stack.context_parallel_ring else 0.0
    backward = exposed_s(2.0 * forward, core_backward, overlap)
    ahead = exposed_s(forward, core_forward, overlap)
    return Times(ahead, backward, np.zeros_like(forward))


def _expert_parallel(at: Setting, shape: LayerShape, *, hides: Times) -> Times:
    """Dispatch and combine, forward and backward: each moves K copies of the rank's tokens."""
    zero = np.zeros_like(at.tp)
    if not shape.expert_gemms:
        return Times(zero, zero, zero)
    ranks = at.columns.ep * at.columns.tp
    group = group_of(ranks, np.ones_like(ranks), at.fabric, at.stack)
    copies = at.tokens / at.tp * at.job.experts_per_token * at.job.hidden_size * at.job.value_bytes
    across = remote_copies_share(group, at.job.experts_per_token, at.job.max_nodes_per_token)
    one_way = all_to_all_s(copies * at.stack.expert_imbalance.value, group, copies_across=across)
    both = 2.0 * one_way
    overlap = at.stack.expert_parallel_overlap.value
    ahead = exposed_s(both, hides.forward_s, overlap)
    return Times(ahead, exposed_s(both, hides.input_grad_s + hides.weight_grad_s, overlap), zero)


def layer_cost(at: Setting, shape: LayerShape) -> LayerCost:
    """One layer of one kind: its work, what it exposes of communication, and the wait for the host.

    No phase, communication included, is shorter than the host takes to launch its kernels: `host_layer_s` or
    `host_moe_layer_s` of the stack forward, 0.7 of that for each half of the backward. What that adds counts as work.
    """
    work = _work(at, shape)
    cost = LayerCost(
        work=work,
        tensor_parallel=_tensor_parallel(at, hides=work),
        context_parallel=_context_parallel(at, shape),
        expert_parallel=_expert_parallel(at, shape, hides=work),
    )
    host = at.stack.host_moe_layer_s if shape.expert_gemms else at.stack.host_layer_s
    return _recomputed(at, _launched(cost, host.value), _core_s(at, shape)[0])


def embedding_times(at: Setting) -> Times:
    """Look-up, its sum over the tensor-parallel group, and the scatter of its gradient."""
    hidden = at.tokens * at.job.hidden_size * at.job.value_bytes
    light = streaming_s(3.0 * hidden / at.norm_split, at.rates)
    group = group_of(at.columns.tp, np.ones_like(at.columns.tp), at.fabric, at.stack)
    reduction = all_reduce_s(hidden, group)
    return Times(light + reduction, np.zeros_like(light), 2.0 * light)


def logits_times(at: Setting) -> Times:
    """Output projection in 16 bits, or in 32 where all is, and the loss over a vocabulary split by tensor parallelism.

    The loss reads and writes 4-byte logits once forward, and once backward where they become their gradient.
    """
    outer = at.job.vocab_size / at.tp
    hidden = np.full_like(at.tp, at.job.hidden_size)
    plain = GpuRates.of(at.gpu, at.stack, "fp32" if at.job.precision == "fp32" else "bf16")
    gradient_bytes = at.job.optimizer.gradient_bytes_per_parameter
    products = products_s(at.tokens, hidden, outer, plain, gradient_bytes=gradient_bytes)
    light = streaming_s(at.tokens * outer * 4.0, plain)
    return Times(products.forward_s + 2.0 * light, products.input_grad_s + 2.0 * light, products.weight_grad_s)
