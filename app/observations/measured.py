"""What was measured of a run: the times of its steps, and where one step's time went, as far as the source tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

# Fields of TimeBreakdown that a source cannot tell apart stand together.
Causes = tuple[str, ...]
COMPUTE: Causes = ("compute_s",)
TENSOR: Causes = ("tensor_parallel_s",)
CONTEXT: Causes = ("context_parallel_s",)
EXPERT: Causes = ("expert_parallel_s",)
DATA: Causes = ("data_parallel_s",)
OPTIMIZER: Causes = ("optimizer_s", "overhead_s")
IDLE: Causes = ("bubble_s", "pipeline_s")
WORK: Causes = (*COMPUTE, *TENSOR, *CONTEXT, *EXPERT)  # what a timer around forward and backward holds

TRACE = "trace"  # the tool of what a trace tells: it names no framework
WARM_UP_SHARE = 0.1  # of the steps, the first ones: compilation, caches, autotuning
MIN_STEADY = 3  # fewer steps than this are all taken: there is nothing to choose from


@dataclass(frozen=True)
class Measured:
    """One file of a run. `step_s` are `usable`; `parts` are seconds of a step by cause, empty where none is told."""

    name: str
    tool: str
    step_s: tuple[float, ...]
    parts: Mapping[Causes, float] = field(default_factory=dict)
    peak_memory_bytes: float | None = None
    notes: tuple[str, ...] = ()


def usable(values: Iterable[float]) -> list[float]:
    """The step times that a step can have taken: finite and more than nothing.

    >>> usable([0.0, 2.0, float("inf")])
    [2.0]
    """
    return [one for one in values if isfinite(one) and one > 0]


def steady(values: Sequence[float]) -> list[float]:
    """The values without those of the warm-up; at least one value.

    >>> steady([9.0, 1.0, 1.0, 1.0]), steady([9.0, 1.0])
    ([1.0, 1.0, 1.0], [9.0, 1.0])
    """
    num_first = max(1, round(WARM_UP_SHARE * len(values)))
    return list(values[num_first:] if len(values) > MIN_STEADY else values)


def typical(values: Sequence[float]) -> float:
    """The median of the steady values; steps that wrote a checkpoint do not move it.

    >>> typical([30.0, 2.0, 2.0, 2.0, 9.0])
    2.0
    """
    return median(steady(values))


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a normal distribution with the same median deviation: 1.4826 MAD; 0 for a single value.

    >>> round(spread([1.0, 1.0, 1.1, 0.9, 1.0, 7.0]), 3)
    0.148
    """
    kept = steady(values)
    middle = median(kept)
    return 1.4826 * median(abs(one - middle) for one in kept)
