"""Published ways of planning, as restrictions of the search: configurations, placement and pipeline schedules of each.

Of the five only Sailor plans for GPUs of different types: it names the type of each stage, and a dynamic programme
shares out the layers over them. The others split layers evenly. A new baseline is one entry in `POLICIES`; `run.py`
times them, with the same evaluation as our plans.
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

ONE_WAY, V = 0, 2


@dataclass(frozen=True)
class Policy:
    """One way of planning: which configurations it considers, where it places them, how it schedules and balances."""

    name: str
    assumptions: str
    considers: Callable[[Space], BoolArray]
    pattern: Pattern
    generators: tuple[str, ...]
    plain_ecmp: bool = False
    fused_backward: bool = False

    def __reduce__(self) -> tuple[Callable[[str], Policy], tuple[str]]:
        return policy_called, (self.name,)  # its filter is a function without a name, which no other process could find

    @property
    def keeps_replicas_together(self) -> bool:
        """The replicas of a rank share a building. Sailor's share a region, which the pattern sees to."""
        return self.pattern == "ranks_whole"

    @property
    def exchanges(self) -> bool:
        """Gradients cross buildings, whatever else might be cheaper."""
        return self.pattern == "replicas_whole"

    def scheduler(self, context: Context, stopped: Callable[[], bool]) -> Scheduler:
        """The policy's own schedules, of these what the framework of the request has, or else all that it has."""
        framework = context.request.constraints.framework
        names, able = self.generators, None if framework is None else framework.schedules
        if able is not None:
            names = tuple(name for name in names if name in able) or able
        return lambda problem: portfolio_timing(problem, names, stopped=stopped)


def _sharded(space: Space, *codes: int) -> BoolArray:
    """Whole buildings apart: these shardings, one-way or interleaved, layers split evenly."""
    kept: BoolArray = np.isin(space.columns.sharding, codes) & (space.family != V) & (space.layer_split == EVEN)
    return kept


def _zero1(space: Space, *families: int) -> BoolArray:
    kept: BoolArray = (space.columns.sharding == ZERO1) & np.isin(space.family, families)
    return kept


def _zero1_evenly(space: Space, *families: int) -> BoolArray:
    """Layers split evenly, as where all GPUs are taken to be alike."""
    kept: BoolArray = _zero1(space, *families) & (space.layer_split == EVEN)
    return kept


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="production-like",
        assumptions="Replicas stay in one building and gradients cross (DP-out); FSDP, HSDP, or FSDP that keeps its "
        "gathered weights (zero1 here, as Llama 3 did); plain or interleaved 1F1B with a fused backward; ECMP without "
        "queue-pair scaling or spraying. Stands for a hand-made production configuration (arXiv 2407.21783).",
        considers=lambda space: _sharded(space, FSDP, HSDP, ZERO1),
        pattern="replicas_whole",
        generators=("one_f_one_b", "interleaved"),
        plain_ecmp=True,
        fused_backward=True,
    ),
    Policy(
        name="crosspipe-like",
        assumptions="The pipeline crosses buildings (PP-out), data parallelism never does; ZeRO-1; its delay-aware "
        "greedy in both settings, one-way or V (arXiv 2507.00217). Its solver-made orders are not tried.",
        considers=lambda space: _zero1_evenly(space, ONE_WAY, V),
        pattern="ranks_whole",
        generators=("cross_pipe", "cross_pipe_interleaved"),
    ),
    Policy(
        name="atlas-like",
        assumptions="The pipeline crosses buildings, replicas of a rank share one; 1F1B with GPipe as fallback, fused "
        "backward. Transfers of its pipelines share a link evenly: taking it in turns ends the last one no earlier "
        "(arXiv 2411.14458).",
        considers=lambda space: _zero1_evenly(space, ONE_WAY),
        pattern="ranks_whole",
        generators=("one_f_one_b", "gpipe"),
        fused_backward=True,
    ),
    Policy(
        name="sailor-like",
        assumptions="The pipeline crosses regions, data parallelism stays inside one (inside one building where there "
        "is one region only); 1F1B with a fused backward; no recomputation. Stages may be on different GPU types, with "
        "layers shared out accordingly. Degrees as our space has them, not per stage (arXiv 2504.17096).",
        considers=lambda space: _zero1(space, ONE_WAY) & (space.columns.recompute != RECOMPUTE_FULL),
        pattern="ranks_in_regions",
        generators=("one_f_one_b",),
        fused_backward=True,
    ),
    Policy(
        name="nemo-like",
        assumptions="Replicas stay in one building, a hierarchical all-reduce in chunks crosses (DP-out); ZeRO-1 or "
        "HSDP; plain or interleaved 1F1B with a fused backward (NeMo 25.02, two sites).",
        considers=lambda space: _sharded(space, HSDP, ZERO1),
        pattern="replicas_whole",
        generators=("one_f_one_b", "interleaved"),
        fused_backward=True,
    ),
)


def policy_called(name: str) -> Policy:
    """The policy of this name.

    >>> policy_called("atlas-like").generators
    ('one_f_one_b', 'gpipe')
    """
    return next(one for one in POLICIES if one.name == name)
