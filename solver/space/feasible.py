"""Why nothing fits: the numbers of the configuration that comes closest, and what would help.

Owns the explanation of an empty or too large space. Never searches.
"""

from __future__ import annotations

import numpy as np

from models.outcome import Reason
from solver.context import Context
from solver.cost.columns import RECOMPUTE_CODES, SHARDING_CODES
from solver.space.bounds import lower_bounds
from solver.space.enumerate import Space

GIB = 2.0**30
MAX_ROWS = 200_000


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
    """Empty when some configuration fits; otherwise the one that needs least, against the largest memory."""
    rows = np.arange(len(space)) if len(space) <= MAX_ROWS else _thrifty_rows(space)
    some = space.take(rows)
    bounds = lower_bounds(context, some)
    if bool(bounds.fits.any()):
        return ()
    least = int(np.argmin(bounds.least_memory_bytes))
    need = float(bounds.least_memory_bytes[least])
    gpu = max((machine.gpu for machine in context.machines.values()), key=lambda one: one.memory_bytes)
    columns = some.columns
    shape = f"tp {columns.tp[least]}, cp {columns.cp[least]}, ep {columns.ep[least]}, pp {columns.pp[least]}"
    return (
        Reason(
            code="memory-too-small",
            pointer="/cluster/pools",
            detail=(
                f"the smallest state needs {need / GIB:.1f} GiB per GPU ({shape}, "
                f"{SHARDING_CODES[columns.sharding[least]]}, recompute {RECOMPUTE_CODES[columns.recompute[least]]}), "
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, "
                f"{context.memory_limit_bytes(gpu) / GIB:.1f} after headroom"
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


def _thrifty_rows(space: Space) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows that split the model most, which is where the least memory is."""
    columns = space.columns
    split = columns.tp * columns.pp * np.maximum(columns.ep, 1) * np.where(columns.sharding >= 2, columns.dp, 1)
    return np.argsort(-split, kind="stable")[:MAX_ROWS]


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
