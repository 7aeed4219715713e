"""Why nothing fits: the numbers of the configuration that comes closest, and what would help.

Owns the explanation of an empty or too large space. Never searches.
"""

from __future__ import annotations

import numpy as np

from models.outcome import Reason
from solver.context import Context
from solver.cost.columns import FSDP, RECOMPUTE_CODES, SHARDING_CODES, IntArray
from solver.space.bounds import lower_bounds
from solver.space.enumerate import Space

GIB = 2.0**30
PORTION = 16_384  # rows that are bounded together


def space_reasons(context: Context) -> tuple[Reason, ...]:
    """The allowed values leave no configuration at all."""
    batch = context.request.workload.global_batch_sequences
    return (
        Reason(
            code="nothing-allowed",
            pointer="/constraints/allowed",
            detail=(
                f"no combination of the allowed degrees divides {context.job.num_layers} layers, "
                f"{context.job.num_heads} heads, {context.job.num_experts} experts and a batch of {batch} sequences on "
                f"{context.usable_gpus} GPUs"
            ),
            remedies=(
                "allow more values of tp, pp, dp or micro_batch_sequences",
                "set a value to null to leave it open",
            ),
        ),
    )


def memory_reasons(context: Context, space: Space) -> tuple[Reason, ...]:
    """Empty when some configuration may fit; otherwise the one that needs least, against the largest memory.

    Those that split the model most are looked at first, and all of them where none of these fits.
    """
    least_bytes, least_row = float("inf"), 0
    order = _thriftiest_first(space)
    for rows in np.array_split(order, -(-len(order) // PORTION)):
        bounds = lower_bounds(context, space.take(rows))
        if bool(bounds.fits.any()):
            return ()
        tightest = int(np.argmin(bounds.least_memory_bytes))
        if bounds.least_memory_bytes[tightest] < least_bytes:
            least_bytes, least_row = float(bounds.least_memory_bytes[tightest]), int(rows[tightest])
    return memory_too_small(context, space, least_row, least_bytes)


def memory_too_small(context: Context, space: Space, row: int, need_bytes: float) -> tuple[Reason, ...]:
    """No configuration fits; that of `row` comes closest, whose first and last rank need so much (bytes)."""
    gpu = max((machine.gpu for machine in context.machines.values()), key=lambda one: one.memory_bytes)
    limit_bytes, columns = context.memory_limit_bytes(gpu), space.take(np.array([row])).columns
    shape = f"tp {columns.tp[0]}, cp {columns.cp[0]}, ep {columns.ep[0]}, pp {columns.pp[0]}"
    where = "" if need_bytes > limit_bytes else " on the ends of the pipeline, and more between them"
    return (
        Reason(
            code="memory-too-small",
            pointer="/cluster/pools",
            detail=(
                f"the smallest state needs {need_bytes / GIB:.1f} GiB per GPU{where} ({shape}, "
                f"{SHARDING_CODES[columns.sharding[0]]}, recompute {RECOMPUTE_CODES[columns.recompute[0]]}), "
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, {limit_bytes / GIB:.1f} after headroom"
            ),
            remedies=_remedies(context),
        ),
    )


def target_reasons(context: Context, fastest_s: float) -> tuple[Reason, ...]:
    """No configuration can be as fast as the objective asks."""
    target_s = context.request.objective.target_iteration_s or 0.0
    return (
        Reason(
            code="target-out-of-reach",
            pointer="/objective/target_iteration_s",
            detail=f"the target is {target_s:.4g} s, no configuration of the {context.usable_gpus} GPUs takes less "
            f"than {fastest_s:.4g} s",
            remedies=(f"set target_iteration_s to {fastest_s * 1.1:.3g} or more", "add GPUs"),
        ),
    )


def _thriftiest_first(space: Space) -> IntArray:
    """Rows that split model and activations most first, then those with small micro-batches and recomputation."""
    columns = space.columns
    shards = np.where(columns.sharding >= FSDP, columns.dp, 1)
    split = columns.tp * columns.cp * columns.pp * columns.ep * shards
    return np.lexsort((-columns.recompute, columns.micro_batch, -split))


def _remedies(context: Context) -> tuple[str, ...]:
    allowed = context.request.constraints.allowed
    offers = [
        (allowed.recompute is not None and "full" not in allowed.recompute, "allow recompute full"),
        (allowed.sharding is not None and "fsdp" not in allowed.sharding, "allow sharding fsdp"),
        (allowed.tp is not None, "allow a larger tp"),
        (allowed.pp is not None, "allow a larger pp"),
        (allowed.micro_batch_sequences is not None, "allow micro_batch_sequences 1"),
        (context.request.constraints.memory_headroom_fraction > 0.02, "lower constraints.memory_headroom_fraction"),
        (context.request.constraints.max_gpus is not None, "raise constraints.max_gpus"),
    ]
    found = tuple(text for applies, text in offers if applies)
    return (*found, "add GPUs, or GPUs with more memory")
