"""What each published way of planning fixes in advance, as a filter on the space and a choice of schedules.

Owns the documented assumptions. A new baseline is one entry in `POLICIES`. Never times anything: that is `run.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.cost.columns import FSDP, HSDP, RECOMPUTE_FULL, ZERO1
from solver.evaluation.places import Pattern
from solver.evaluation.scheduling import Scheduler, portfolio_timing
from solver.space.enumerate import Space

Mask = npt.NDArray[np.bool_]
ONE_WAY, LOOP, V = range(3)


@dataclass(frozen=True)
class Policy:
    """One way of planning: which configurations it considers, where it places them, how it schedules and balances."""

    name: str
    assumptions: str
    considers: Callable[[Space], Mask]
    patterns: tuple[Pattern, ...]
    generators: tuple[str, ...]
    plain_ecmp: bool = False
    fused_backward: bool = False

    def scheduler(self, stopped: Callable[[], bool]) -> Scheduler:
        """The policy's own schedules."""
        return lambda problem: portfolio_timing(problem, self.generators, stopped=stopped)


def _sharded(space: Space) -> Mask:
    sharded = (space.columns.sharding == FSDP) | (space.columns.sharding == HSDP)
    kept: Mask = sharded & (space.family != V)
    return kept


def _zero1(space: Space, *families: int) -> Mask:
    kept: Mask = (space.columns.sharding == ZERO1) & np.isin(space.family, families)
    return kept


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="production-like",
        assumptions="Replicas stay in one building and gradients cross (DP-out); FSDP or HSDP; interleaved or plain "
        "1F1B; ECMP without queue-pair scaling or spraying. Stands for a hand-made production configuration.",
        considers=_sharded,
        patterns=("replicas_whole",),
        generators=("one_f_one_b", "interleaved"),
        plain_ecmp=True,
    ),
    Policy(
        name="crosspipe-like",
        assumptions="The pipeline crosses buildings (PP-out), data parallelism never does; ZeRO-1; its delay-aware "
        "greedy, whole blocks and sub-blocks, one-way or V (arXiv 2507.00217).",
        considers=lambda space: _zero1(space, ONE_WAY, V),
        patterns=("ranks_whole",),
        generators=("cross_greedy", "cross_greedy_sub"),
    ),
    Policy(
        name="atlas-like",
        assumptions="The pipeline crosses buildings, replicas of a rank share one; 1F1B with GPipe as fallback; full "
        "bandwidth for one transfer at a time (arXiv 2411.14458).",
        considers=lambda space: _zero1(space, ONE_WAY),
        patterns=("ranks_whole",),
        generators=("one_f_one_b", "gpipe"),
    ),
    Policy(
        name="sailor-like",
        assumptions="The pipeline crosses regions, data parallelism stays inside; 1F1B; no recomputation "
        "(arXiv 2504.17096).",
        considers=lambda space: _zero1(space, ONE_WAY) & (space.columns.recompute != RECOMPUTE_FULL),
        patterns=("ranks_whole",),
        generators=("one_f_one_b",),
    ),
    Policy(
        name="nemo-like",
        assumptions="Replicas stay in one building, a hierarchical all-reduce crosses (DP-out); ZeRO-1 or HSDP; "
        "interleaved 1F1B (NeMo 25.02, two sites).",
        considers=lambda space: _zero1(space, ONE_WAY, LOOP) | (_sharded(space) & (space.columns.sharding == HSDP)),
        patterns=("replicas_whole",),
        generators=("one_f_one_b", "interleaved"),
    ),
)
