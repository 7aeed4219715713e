"""Baselines: published ways of planning, each as a restriction of our search space.

A policy says which configurations it allows, the pattern of its placements, and the generators of its schedules.
`run.py` times it with the same evaluation as our own plans. Only Sailor plans for GPUs of different types: it names the
type of each stage and shares out the layers over them; the others split layers evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.arrays import BoolArray
from solver.configurations.enumerate import EVEN, Space
from solver.context import Context
from solver.cost.columns import FSDP, HSDP, RECOMPUTE_FULL, ZERO1
from solver.evaluation.places import Pattern
from solver.evaluation.scheduling import Scheduler, portfolio_timing

ONE_WAY, V = 0, 2  # codes of families, as in `Space`


@dataclass(frozen=True)
class BaselinePolicy:
    """One way of planning.

    `allowed` gives, for a space of n configurations, an array of n booleans: those that the policy may choose from.
    `pattern` is how replicas and ranks lie over buildings, `generators` are names of the schedules that it tries.
    `plain_ecmp`: load balancing is ECMP by flow, wherever links offer it. `fused_backward`: B and W run as one.
    """

    name: str
    assumptions: str
    allowed: Callable[[Space], BoolArray]
    pattern: Pattern
    generators: tuple[str, ...]
    plain_ecmp: bool = False
    fused_backward: bool = False

    def __reduce__(self) -> tuple[Callable[[str], BaselinePolicy], tuple[str]]:
        return policy_named, (self.name,)  # a lambda cannot be pickled

    @property
    def keeps_ranks_in_buildings(self) -> bool:
        """All replicas of a pipeline rank are in one building. (Sailor: in one region; its pattern sees to that.)"""
        return self.pattern == "ranks_whole"

    @property
    def keeps_replicas_in_buildings(self) -> bool:
        """All ranks of a replica are in one building, so that gradients cross buildings and messages do not."""
        return self.pattern == "replicas_whole"

    def scheduler(self, context: Context, stopped: Callable[[], bool]) -> Scheduler:
        """Schedules by the policy's generators that the framework of the request has, or else by all that it has."""
        framework = context.request.constraints.framework
        names, able = self.generators, None if framework is None else framework.schedules
        if able is not None:
            names = tuple(name for name in names if name in able) or able
        return lambda problem: portfolio_timing(problem, names, stopped=stopped)


def _even_not_folded(space: Space, *codes: int) -> BoolArray:
    """Rows with one of these shardings, one-way or interleaved, layers split evenly; codes as in `Columns`."""
    retained: BoolArray = np.isin(space.columns.sharding, codes) & (space.family != V) & (space.layer_split == EVEN)
    return retained


def _zero1(space: Space, *families: int) -> BoolArray:
    """Rows with ZeRO-1 in one of these families; codes as in `Space`."""
    retained: BoolArray = (space.columns.sharding == ZERO1) & np.isin(space.family, families)
    return retained


def _zero1_evenly(space: Space, *families: int) -> BoolArray:
    """The same with layers split evenly, for planners that take all GPUs to be alike."""
    retained: BoolArray = _zero1(space, *families) & (space.layer_split == EVEN)
    return retained


POLICIES: tuple[BaselinePolicy, ...] = (
    BaselinePolicy(
        name="production-like",
        assumptions="Replicas stay in one building and gradients cross (DP-out); FSDP, HSDP, or FSDP that keeps its "
        "gathered weights (zero1 here, as Llama 3 did); plain or interleaved 1F1B with a fused backward; ECMP without "
        "queue-pair scaling or spraying. Stands for a hand-made production configuration (arXiv 2407.21783).",
        allowed=lambda space: _even_not_folded(space, FSDP, HSDP, ZERO1),
        pattern="replicas_whole",
        generators=("one_f_one_b", "interleaved"),
        plain_ecmp=True,
        fused_backward=True,
    ),
    BaselinePolicy(
        name="crosspipe-like",
        assumptions="The pipeline crosses buildings (PP-out), data parallelism never does; ZeRO-1; its delay-aware "
        "greedy in both settings, one-way or V (arXiv 2507.00217). Its solver-made orders are not tried.",
        allowed=lambda space: _zero1_evenly(space, ONE_WAY, V),
        pattern="ranks_whole",
        generators=("cross_pipe", "cross_pipe_interleaved"),
    ),
    BaselinePolicy(
        name="atlas-like",
        assumptions="The pipeline crosses buildings, replicas of a rank share one; 1F1B with GPipe as fallback, fused "
        "backward. Transfers of its pipelines share a link evenly: taking it one after another ends the last one no "
        "earlier (arXiv 2411.14458).",
        allowed=lambda space: _zero1_evenly(space, ONE_WAY),
        pattern="ranks_whole",
        generators=("one_f_one_b", "gpipe"),
        fused_backward=True,
    ),
    BaselinePolicy(
        name="sailor-like",
        assumptions="The pipeline crosses regions, data parallelism is inside one (inside one building where there "
        "is one region only); 1F1B with a fused backward; no recomputation. Stages may be on different GPU types, with "
        "layers shared out accordingly. Degrees as our space has them, not per stage (arXiv 2504.17096).",
        allowed=lambda space: _zero1(space, ONE_WAY) & (space.columns.recompute != RECOMPUTE_FULL),
        pattern="ranks_in_regions",
        generators=("one_f_one_b",),
        fused_backward=True,
    ),
    BaselinePolicy(
        name="nemo-like",
        assumptions="Replicas stay in one building, a hierarchical all-reduce in chunks crosses (DP-out); ZeRO-1 or "
        "HSDP; plain or interleaved 1F1B with a fused backward (NeMo 25.02, two sites).",
        allowed=lambda space: _even_not_folded(space, HSDP, ZERO1),
        pattern="replicas_whole",
        generators=("one_f_one_b", "interleaved"),
        fused_backward=True,
    ),
)


def policy_named(name: str) -> BaselinePolicy:
    """The policy of this name.

    >>> policy_named("atlas-like").generators
    ('one_f_one_b', 'gpipe')
    """
    return next(one for one in POLICIES if one.name == name)
