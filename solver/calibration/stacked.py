"""Many jobs of one structure as a single job whose sizes are arrays, one entry per row.

So a file of runs is evaluated in a few calls: every formula is plain arithmetic on a job's sizes and broadcasts over
them as it does over configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from solver.cost.job import Gemm, Job, LayerShape

_JOB_SIZES = (
    "sequence_length", "global_batch_sequences", "hidden_size", "vocab_size", "num_heads", "num_experts",
    "experts_per_token", "num_dense_layers", "num_moe_layers", "embedding_parameters", "logits_parameters",
    "total_parameters", "active_parameters", "model_flops",
)  # fmt: skip
_SHAPE_SIZES = (
    "attention_width", "qkv_width", "kv_width", "value_width", "mlp_inner", "expert_inner", "num_norm_parameters",
)  # fmt: skip


def structure(job: Job) -> tuple[object, ...]:
    """What jobs must share to be stacked: everything that a formula branches on."""
    return (
        job.optimizer,
        job.precision,
        job.gated_mlp,
        job.flash_attention,
        job.causal_attention,
        job.max_nodes_per_token,
        job.num_mtp_layers,
        job.num_dense_layers > 0,
        job.num_moe_layers > 0,
        job.logits_parameters > 0,
        *(tuple(gemm.split for gemm in shape.gemms) for shape in (job.dense, job.moe)),
        len(job.moe.expert_gemms),
    )


def stacked(jobs: Sequence[Job]) -> Job:
    """One job with array sizes; `jobs` share their `structure`."""
    sizes: dict[str, Any] = {name: _column(jobs, name) for name in _JOB_SIZES}
    return replace(jobs[0], dense=_shapes([job.dense for job in jobs]), moe=_shapes([job.moe for job in jobs]), **sizes)


def _column(things: Sequence[object], name: str) -> Any:
    return np.array([getattr(thing, name) for thing in things], dtype=np.float64)


def _shapes(shapes: Sequence[LayerShape]) -> LayerShape:
    sizes: dict[str, Any] = {name: _column(shapes, name) for name in _SHAPE_SIZES}
    return replace(
        shapes[0],
        gemms=_gemms([shape.gemms for shape in shapes]),
        expert_gemms=_gemms([shape.expert_gemms for shape in shapes]),
        **sizes,
    )


def _gemms(rows: Sequence[tuple[Gemm, ...]]) -> tuple[Gemm, ...]:
    return tuple(
        Gemm(_column(column, "inner"), _column(column, "outer"), column[0].split) for column in zip(*rows, strict=True)
    )
