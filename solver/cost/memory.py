"""Memory of one GPU of a stage: model state, buffers, and activations in flight.

The split of weights, gradients and optimizer state by sharding, and how many micro-batches a rank holds.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.cost.activations import logits_bytes, working_bytes
from solver.cost.columns import FSDP, Columns
from solver.cost.data_parallel import state_shards
from solver.cost.layer import Setting
from solver.cost.stage import Counts

Schedule = Literal["1f1b", "zb_h1", "zb_h2", "dualpipe"]
PREFETCHED_BLOCKS = 2.0  # the block in use and the one being gathered


@dataclass(frozen=True)
class StaticMemory:
    """Bytes per GPU that do not depend on the schedule."""

    weights_bytes: FloatArray
    gradients_bytes: FloatArray
    optimizer_bytes: FloatArray
    buffers_bytes: FloatArray
    framework_bytes: FloatArray

    @property
    def total_bytes(self) -> FloatArray:
        """All causes."""
        state = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        return state + self.buffers_bytes + self.framework_bytes


def static_memory(
    at: Setting, parameters: FloatArray, expert_parameters: FloatArray, *, has_logits: Counts = 0
) -> StaticMemory:
    """Model state of a stage's parameters on one GPU, dense ones and of experts, by sharding; buffers and framework.

    Mixed-precision Adam: 2 weight + 4 gradient + 12 state per parameter; ZeRO-1 splits the 12, FSDP all of it
    (arXiv 1910.02054). FSDP also holds gathered blocks.
    """
    job = at.job
    dense_shards, expert_shards = state_shards(at.columns)
    sharded = at.columns.sharding >= FSDP
    own = parameters + expert_parameters
    split = parameters / dense_shards + expert_parameters / expert_shards
    resident = np.where(sharded, split, own)
    return StaticMemory(
        weights_bytes=job.value_bytes * resident,
        gradients_bytes=job.optimizer.gradient_bytes_per_parameter * resident,
        optimizer_bytes=job.optimizer.state_bytes_per_parameter * split,
        buffers_bytes=_buffers_bytes(at, sharded, np.asarray(has_logits, dtype=np.float64)),
        framework_bytes=np.full(at.columns.tp.shape, at.stack.framework_bytes.value),
    )


def _buffers_bytes(at: Setting, sharded: BoolArray, has_logits: FloatArray) -> FloatArray:
    """Gathered blocks, stage messages, logits of one micro-batch, and one layer's working set under recomputation."""
    shape = at.job.moe if np.any(at.job.num_moe_layers) else at.job.dense
    block = shape.dense_parameters + at.job.num_experts * shape.expert_parameters / at.columns.ep
    gathered = np.where(sharded, PREFETCHED_BLOCKS * at.job.value_bytes * block / at.tp, 0.0)
    message = at.tokens * at.job.value_bytes * at.job.hidden_size / at.norm_split
    messages = np.where(at.columns.pp > 1, 2.0 * message * at.columns.vpp, 0.0)
    return gathered + messages + has_logits * logits_bytes(at) + working_set_bytes(at) + working_bytes(at, shape)


def working_set_bytes(at: Setting) -> FloatArray:
    """Scratch of the layer being computed: the widest inner activation and its gradient, and a weight gradient."""
    shape = at.job.dense if np.any(at.job.num_dense_layers) else at.job.moe
    inner = np.maximum(shape.mlp_inner * (2.0 if at.job.gated_mlp else 1.0), shape.qkv_width)
    gradient_bytes = at.job.optimizer.gradient_bytes_per_parameter
    weight = gradient_bytes * at.job.hidden_size * np.maximum(shape.mlp_inner, shape.expert_inner) / at.tp
    scratch: FloatArray = at.tokens * at.job.value_bytes * inner / at.tp + weight
    return scratch


def peak_activations(columns: Columns, pipeline_rank: IntArray | int, *, schedule: Schedule = "1f1b") -> FloatArray:
    """Micro-batches that a rank holds at its peak, in units of all its chunks.

    1F1B: min(p - i, m) (arXiv 2104.04473). Interleaved: warm-up 2 (p - i - 1) + (v - 1) p plus the one in work, each
    1/v of a rank's layers. Zero-bubble H1 and H2 keep every rank at p and 2p - 1 (arXiv 2401.10241, table 2), DualPipe
    at p + 1 (arXiv 2412.19437, table 2).
    """
    held: FloatArray
    if schedule != "1f1b":
        limit = {"zb_h1": columns.pp, "zb_h2": 2 * columns.pp - 1, "dualpipe": columns.pp + 1}[schedule]
        held = np.minimum(limit, columns.num_microbatches).astype(np.float64)
        return held
    last = columns.pp - 1 - np.asarray(pipeline_rank)
    plain = np.minimum(last + 1, columns.num_microbatches)
    chunks = np.minimum(2 * last + (columns.vpp - 1) * columns.pp + 1, columns.num_microbatches * columns.vpp)
    held = np.where(columns.vpp > 1, chunks / columns.vpp, plain).astype(np.float64)
    return held
