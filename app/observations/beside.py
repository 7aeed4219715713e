"""Lays what was measured beside what was planned, cause by cause, and says which assumption is off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from app.observations.measured import Causes, Measured, spread, typical
from models.figures import CAUSES_OF_TIME
from models.plan import Plan

TOLERANCE = 0.10  # of the iteration: within it a run is called as planned, as `isthmus replay` has it
CAUSE_TOLERANCE = 0.03  # of the iteration: a cause that is off by less is not worth a second look
NOISES = 2.0  # deviations of the steps that a difference has to exceed, or it may be chance
# What a cause rests on: in words, and the constants of the stack profile that the plan states among its assumptions.
_RESTS_ON: dict[str, tuple[str, tuple[str, ...]]] = {
    "compute_s": ("how fast the GPUs compute", ("gemm_efficiency", "attention_efficiency", "memory_efficiency",
                                                "elementwise_traffic", "host_layer_s")),
    "tensor_parallel_s": ("communication inside a host or rack", ("scale_up_efficiency", "tensor_parallel_overlap")),
    "context_parallel_s": ("the exchange of keys and values", ("scale_up_efficiency", "scale_out_efficiency")),
    "expert_parallel_s": ("the way of tokens to their experts, and their balance",
                          ("expert_parallel_overlap", "expert_imbalance", "scale_out_efficiency")),
    "bubble_s": ("the order of the pipeline, and equal speed of its ranks", ()),
    "pipeline_s": ("rate and delay between stages", ("point_to_point_efficiency", "pipeline_overlap")),
    "data_parallel_s": ("rate and delay of the links that gradients cross",
                        ("scale_out_efficiency", "data_parallel_overlap", "collective_latency_s")),
    "optimizer_s": ("the optimizer", ("optimizer_traffic",)),
    "overhead_s": ("what a step does once, and its slowest rank", ("step_host_s", "step_sync_s")),
}  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """Planned and measured seconds of what a source tells apart, whether they differ, and what that would question."""

    causes: Causes
    planned_s: float
    measured_s: float
    difference_s: float
    is_off: bool
    rests_on: str
    assumptions: tuple[str, ...]

    @property
    def name(self) -> str:
        """The causes in words."""
        return " + ".join(CAUSES_OF_TIME[one] for one in self.causes)


@dataclass(frozen=True)
class Observation:
    """A run beside its plan. `ratio` is measured over planned."""

    planned_s: float
    measured_s: float
    spread_s: float
    num_steps: int
    ratio: float
    as_planned: bool
    causes: tuple[Cause, ...]
    planned_peak_memory_bytes: float | None
    measured_peak_memory_bytes: float | None
    sources: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def observation(plan: Plan, runs: Sequence[Measured], *, tolerance: float = TOLERANCE) -> Observation:
    """The files of one run beside its plan; at least one has steps. Files of several ranks count by their median."""
    timed = [one for one in runs if one.step_s]
    measured_s = median(typical(one.step_s) for one in timed)
    spread_s = median(spread(one.step_s) for one in timed)
    planned_s = plan.metrics.iteration_s
    ratio = measured_s / planned_s
    peaks = [one.peak_memory_bytes for one in runs if one.peak_memory_bytes is not None]
    return Observation(
        planned_s=planned_s,
        measured_s=measured_s,
        spread_s=spread_s,
        num_steps=sum(len(one.step_s) for one in timed),
        ratio=ratio,
        as_planned=abs(ratio - 1) <= tolerance,
        causes=_causes(plan, runs, spread_s),
        planned_peak_memory_bytes=max((use.total_bytes for use in plan.memory), default=None),
        measured_peak_memory_bytes=max(peaks, default=None),
        sources=tuple(f"{one.name}: {one.tool}, {len(one.step_s)} steps" for one in runs),
        notes=tuple(f"{one.name}: {note}" for one in runs for note in one.notes),
    )


def _causes(plan: Plan, runs: Sequence[Measured], spread_s: float) -> tuple[Cause, ...]:
    """Largest difference first. Of sources that tell causes apart differently, the finest is taken."""
    finest = max(runs, key=lambda one: len(one.parts))
    alike = [one.parts for one in runs if one.tool == finest.tool and one.parts]
    groups = dict.fromkeys(group for parts in alike for group in parts)
    enough_s = max(CAUSE_TOLERANCE * plan.metrics.iteration_s, NOISES * spread_s)
    found = []
    for group in groups:
        planned_s = sum(float(getattr(plan.time, field)) for field in group)
        measured_s = median(parts.get(group, 0.0) for parts in alike)
        off_s = measured_s - planned_s
        words = "; ".join(dict.fromkeys(_RESTS_ON[field][0] for field in group if _counts(plan, field)))
        told = _assumptions(plan, [name for field in group for name in _RESTS_ON[field][1] if _counts(plan, field)])
        found.append(Cause(group, planned_s, measured_s, off_s, abs(off_s) > enough_s, words, told))
    return tuple(sorted(found, key=lambda one: -abs(one.difference_s)))


def _counts(plan: Plan, field: str) -> bool:
    """Whether the job has such a cause at all: a plan without tensor parallelism does not rest on its overlap."""
    degrees = plan.configuration.degrees
    ways = {"tensor_parallel_s": degrees.tp, "context_parallel_s": degrees.cp, "expert_parallel_s": degrees.ep,
            "bubble_s": degrees.pp, "pipeline_s": degrees.pp, "data_parallel_s": degrees.dp}  # fmt: skip
    return ways.get(field, 2) > 1


def _assumptions(plan: Plan, constants: Sequence[str]) -> tuple[str, ...]:
    """What the plan says of these constants, guesses first: they are the first to be doubted."""
    stated = [one for name in dict.fromkeys(constants) for one in plan.assumptions if one.what.startswith(f"{name} =")]
    return tuple(f"{one.what} ({one.origin})" for one in sorted(stated, key=lambda one: one.origin != "guessed"))
