"""The software that profiles are made for, and profiles written from a fit of all of it.

Facts of each framework (flags, habits, memory), and the form in which a fit is packaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.fit.hierarchy import Cell, Fit, Hierarchy
from models.stack import Constant, GenerationConstant, StackProfile, Uncertainty, generation_of
from solver.arrays import FloatArray
from solver.calibration.fit_rows import evidence_from
from solver.calibration.priors import PRIORS, TINY
from solver.calibration.rows import Run

KEPT_VARIANCE = 0.92  # of the variance of usual times, by the factors that are packaged
DIGITS = 3
LEAST_EFFECT = 0.002  # of ln(time): factors of constants below are left out
_OLD: dict[str, Any] = {"sequence_parallel": False, "dropout": True}
_UNFUSED = {"flash_attention": False, "sharding": "ddp", "gradient_bytes_per_parameter": 2.0}
_FUSED = {"flash_attention": True, "sharding": "zero1", "interleaved": True}
_SHARDED = {"sharding": "fsdp", "gradient_bytes_per_parameter": 2.0}


def _software(
    name: str,
    released: int,
    frameworks: tuple[str, ...],
    description: str,
    *,
    habits: Mapping[str, Any],
    flags: Mapping[str, Any] | None = None,
    memory: Mapping[str, float] | None = None,
) -> StackProfile:
    """A profile with facts only: its constants are still guesses."""
    bytes_of = {
        key: Constant(value=value, origin="measured", source="peak memory of runs of this software")
        for key, value in (memory or {}).items()
    }
    return StackProfile.model_validate(
        {
            "name": name,
            "released": released,
            "frameworks": frameworks,
            "description": description,
            "habits": habits,
            **(flags or {}),
            **bytes_of,
        }
    )


_MEGATRON = ("Megatron-LM", "Megatron-Core", "Megatron", "NeMo")

SOFTWARE: tuple[StackProfile, ...] = (
    _software(
        "megatron-2021", 2019, ("Megatron-LM",), "Megatron-LM, unfused attention, no overlap",
        habits=_UNFUSED, flags=_OLD,
    ),
    _software(
        "megatron-2022", 2022, ("Megatron-LM",), "Megatron-LM with sequence parallelism, selective recomputation",
        habits=_UNFUSED, flags=_OLD,
    ),
    _software(
        "megatron-2023", 2023, ("Megatron-LM", "Megatron-Core"), "Megatron-LM, fused attention, distributed optimizer",
        habits=_FUSED, flags={"dropout": True},
    ),
    _software(
        "megascale-2024", 2024, ("MegaScale",), "MegaScale: Megatron-LM with overlapped communication",
        habits=_FUSED, flags={"dropout": True},
    ),
    _software(
        "megatron-deepspeed-2023", 2023, ("Megatron-DeepSpeed",), "Megatron-DeepSpeed as run by vTrain",
        habits=_UNFUSED, flags=_OLD,
    ),
    _software(
        "zero-bubble-2024", 2024, ("Megatron-LM (sail-sg fork)", "zero-bubble"), "Megatron-LM fork of zero-bubble",
        habits=_UNFUSED, flags=_OLD, memory={"framework_bytes": 3e8},
    ),
    _software(
        "deepspeed-zero3-2021", 2021, ("DeepSpeed ZeRO-3", "ZeRO-3 in Megatron"),
        "DeepSpeed ZeRO-3 inside Megatron: parameters gathered tensor by tensor",
        habits={**_UNFUSED, "sharding": "fsdp"}, flags=_OLD,
    ),
    _software("fsdp-2023", 2023, ("FSDP", "llm-foundry"), "PyTorch FSDP, first fused attention", habits=_SHARDED),
    _software("torchtitan-2024", 2024, ("torchtitan",), "torchtitan: FSDP2, compiled blocks", habits=_SHARDED),
    _software(
        "sailor-2025", 2025, ("Sailor (Megatron-DeepSpeed)", "Sailor"),
        "Megatron-DeepSpeed as run by Sailor, in 32 bits",
        habits={**_UNFUSED, "gradient_bytes_per_parameter": 4.0, "precision": "fp32"},
        flags={"sequence_parallel": False}, memory={"framework_bytes": 5.06e9},
    ),
    _software(
        "megatron-2024", 2024, _MEGATRON, "Megatron-LM and NeMo of 2024: overlapped communication, FP8",
        habits={"interleaved": False}, memory={"framework_bytes": 1e9},
    ),
    _software(
        "llama3-2024", 2024, ("Meta",), "Meta's training stack of Llama 3",
        habits=_FUSED, memory={"framework_bytes": 1e9},
    ),
    _software(
        "hai-llm-2024", 2024, ("HAI-LLM",), "DeepSeek's HAI-LLM: expert traffic hidden by DualPipe",
        habits={"interleaved": False}, memory={"framework_bytes": 1e9},
    ),
    _software(
        "megatron-2025", 2025, (*_MEGATRON, "SimuMax", "Megatron-Bridge 25"), "NeMo and Megatron-Bridge of 2025",
        habits=_FUSED, memory={"framework_bytes": 1e9},
    ),
    _software(
        "megatron-2026-02", 2026, ("Megatron-Bridge 26.02", "Megatron-Bridge 26.04"), "Megatron-Bridge 26.02 to 26.04",
        habits=_FUSED, memory={"framework_bytes": 1e9},
    ),
    _software(
        "megatron-2026-06", 2026, (*_MEGATRON, "Megatron-Bridge 26", "Megatron-Bridge"), "Megatron-Bridge since 26.06",
        habits=_FUSED, memory={"framework_bytes": 1e9},
    ),
)  # fmt: skip
GENERATIONS_TO_PLAN = ("ampere", "hopper", "blackwell", "blackwell-ultra", "cdna3")


def cells_to_package() -> list[Cell]:
    """Every software on every generation that a plan may ask for."""
    return [(one.name, generation) for one in SOFTWARE for generation in GENERATIONS_TO_PLAN]


def packaged(plan: Hierarchy, fit: Fit, runs: Sequence[Run], spread: Mapping[str, float]) -> list[StackProfile]:
    """One profile per software: its values without a generation, those of each generation, evidence and covariance.

    `spread` holds the spreads of `Uncertainty`.
    """
    values, slopes = plan.of_cells(fit.deviations)
    return [_profile(one, plan, fit, values=values, slopes=slopes, runs=runs, spread=spread) for one in SOFTWARE]


def _profile(
    software: StackProfile,
    plan: Hierarchy,
    fit: Fit,
    *,
    values: FloatArray,
    slopes: FloatArray,
    runs: Sequence[Run],
    spread: Mapping[str, float],
) -> StackProfile:
    cells = {cell[1]: index for index, cell in enumerate(plan.cells) if cell[0] == software.name}
    own = [run for run in runs if run.stack.name == software.name]
    usual = Counter(generation_of(run.gpu.name) for run in own).most_common(1)
    base = values[cells[usual[0][0] if usual else "hopper"]]
    families = ", ".join(f"{name} ({count})" for name, count in sorted(Counter(run.family for run in own).items()))
    told = f"hierarchical fit; own runs: {families or 'none, shared value'}"[:300]
    changed = [
        GenerationConstant(generation=generation, name=name, value=_rounded(values[index][column]))
        for generation, index in sorted(cells.items())
        for column, name in enumerate(plan.names)
        if abs(values[index][column] / base[column] - 1.0) > 1e-3 and PRIORS[name].generation > TINY
    ]
    constants = {
        name: Constant(value=_rounded(base[column]), origin="fitted", source=told)
        for column, name in enumerate(plan.names)
    }
    names, factors = _factors(plan, fit, cells, slopes)
    update = {
        **constants,
        "generations": tuple(changed),
        "evidence": evidence_from(runs, software.name),
        "is_fitted": bool(own),
        "uncertainty": Uncertainty(names=names, factors=factors, **spread),
    }
    return StackProfile.model_validate(software.model_copy(update=update).model_dump())


def _factors(
    plan: Hierarchy, fit: Fit, cells: Mapping[str, int], slopes: FloatArray
) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Leading factors of the covariance of ln(constants) on all generations together.

    Those that carry most of the variance of times lead: constants are weighted with the slopes that runs usually have.
    """
    names = tuple(f"{name}@{generation}" for generation in cells for name in plan.names)
    weight = np.tile(plan.usual_slopes(fit), len(cells))
    rows = np.concatenate([slopes[index][:, None] * plan.membership(index) for index in cells.values()])
    rows = weight[:, None] * rows
    covariance = rows @ fit.covariance @ rows.T
    sizes, vectors = np.linalg.eigh(covariance)
    order = np.argsort(sizes)[::-1]
    share = np.cumsum(sizes[order]) / max(float(sizes.sum()), 1e-30)
    kept = order[: int(np.searchsorted(share, KEPT_VARIANCE)) + 1]
    factors = vectors[:, kept] * np.sqrt(np.maximum(sizes[kept], 0.0)) / weight[:, None]
    used = np.flatnonzero((np.abs(factors) * weight[:, None]).max(axis=1) > LEAST_EFFECT)
    return tuple(names[i] for i in used), tuple(tuple(round(float(v), DIGITS) for v in factors[i]) for i in used)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
