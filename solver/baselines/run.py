"""Times the baselines: the configurations of each policy with the least guessed times, placed and scheduled its way.

The evaluations are those of ordinary candidates, so a search may take them as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from models.framework import FrameworkProfile
from models.plan import Baseline, Configuration
from solver.arrays import FloatArray, IntArray
from solver.baselines.policies import BaselinePolicy
from solver.clock import WORK_PER_EVALUATION_S, WORK_PER_OPERATION_S, Clock, charge
from solver.configurations.enumerate import Space
from solver.context import Context
from solver.cost.data_parallel import crossing_bytes
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.places import Pattern, placements
from solver.evaluation.where import placement_of

NUM_TRIED, NUM_SHAPES, MOST_ROWS = 24, 200, 20_000  # evaluations, pipelines and rows of a policy at most; set by hand
PATIENCE = 15  # candidates without an evaluation after which a policy whose deadline has passed gives up
FUSED = FrameworkProfile(name="fused", fused_backward=True)


@dataclass(frozen=True)
class BaselineResult:
    """A policy's best evaluation, or why it has none. `as_it_is`: nothing that we may use was left out."""

    policy: BaselinePolicy
    best: Evaluation | None
    reason: str
    as_it_is: bool = False


@dataclass(frozen=True)
class Effort:
    """How long to try a policy, in seconds on `clock`: until `deadline` once it has an evaluation, `ends_s` at most."""

    clock: Clock
    cancelled: Callable[[], bool]
    deadline: float
    ends_s: float

    def over(self, step_s: float = 0.0) -> bool:
        """Whether there is no time for a step of `step_s` seconds."""
        return self.clock() + step_s >= self.ends_s or self.cancelled()


def promising(context: Context, policy: BaselinePolicy, space: Space, guess: FloatArray) -> Space:
    """The configurations that a policy tries, those of least guessed time first.

    `space` has n configurations that fit into memory, `guess` their n guessed iteration times (s).
    """
    return space.take(np.array(_distinct(restricted(context, policy), policy, space, guess), dtype=np.int64))


def restricted(context: Context, policy: BaselinePolicy) -> Context:
    """The request under the policy: what may cross buildings, load balancing and backward."""
    rules: dict[str, object] = {}
    if policy.keeps_replicas_in_buildings:
        rules["pipeline_may_cross_buildings"] = False
    if policy.keeps_ranks_in_buildings:
        rules["data_parallel_may_cross_buildings"] = False
    if policy.fused_backward and context.request.constraints.framework is None:
        rules["framework"] = FUSED
    return Context(context.request.with_constraints(**rules), context.stack, policy.plain_ecmp)


def try_policy(context: Context, policy: BaselinePolicy, space: Space, effort: Effort) -> BaselineResult:
    """The policy on one configuration of the space after the other, until it has its share or enough of them."""
    own = restricted(context, policy)
    evaluations: list[Evaluation] = []
    num_candidates, longest_s = 0, 0.0
    scheduler = policy.scheduler(context, effort.over)
    for configuration in (configuration_of(own, space, row) for row in range(len(space))):
        for candidate in _placed(own, configuration, policy.pattern):
            began_s = effort.clock()
            if effort.over(longest_s):
                break
            operations = 3 * configuration.degrees.num_stages * configuration.num_microbatches
            charge(effort.clock, WORK_PER_EVALUATION_S + len(policy.generators) * operations * WORK_PER_OPERATION_S)
            num_candidates += 1
            found = evaluate(own, candidate, scheduler)
            longest_s = max(longest_s, effort.clock() - began_s)
            if found is not None:
                evaluations.append(found)
        enough = evaluations or num_candidates >= PATIENCE
        if len(evaluations) >= NUM_TRIED or effort.over(longest_s) or (enough and effort.clock() >= effort.deadline):
            break
    if not evaluations:
        return BaselineResult(policy, None, "its placement or its schedules fit none of the configurations tried")
    as_it_is = not policy.plain_ecmp and not policy.fused_backward
    return BaselineResult(policy, min(evaluations, key=lambda one: one.iteration_s), "", as_it_is)


def _placed(context: Context, configuration: Configuration, pattern: Pattern) -> Iterator[Candidate]:
    """Candidates of the policy's pattern; layers shared out by GPU type go region by region, or by building."""
    if configuration.layer_split == "by_gpu_type":
        return typed_placements(context, configuration, ("types_in_regions", "ranks_whole"))
    return placements(context, configuration, (pattern,), pure=True)


def _distinct(context: Context, policy: BaselinePolicy, space: Space, guess: FloatArray) -> list[int]:
    """Rows of the space by guessed time (s), the best of those alike in tp, pp, micro-batches, recomputation, sharding
    and layer split.
    """
    rows = np.flatnonzero(policy.allowed(space))
    least = guess[rows] + (_exchange_s(context, space, rows) if policy.keeps_replicas_in_buildings else 0.0)
    columns = space.columns
    chosen: dict[tuple[int, ...], int] = {}
    for row in rows[np.argsort(least, kind="stable")][:MOST_ROWS]:
        shape = tuple(int(getattr(columns, name)[row]) for name in ("tp", "pp", "num_microbatches", "recompute"))
        chosen.setdefault((*shape, int(columns.sharding[row]), int(space.layer_split[row])), int(row))
        if len(chosen) >= NUM_SHAPES:
            break
    return list(chosen.values())


def _exchange_s(context: Context, space: Space, rows: IntArray) -> FloatArray:
    """Seconds that gradients (and, for FSDP, gathered weights) of these rows take over the worst cut."""
    job = context.job
    size = crossing_bytes(np.full(len(rows), float(job.total_parameters)), space.columns.take(rows), 2, job)
    return size / context.geography.worst_cut_bytes_per_s


def baseline_of(context: Context, tried: BaselineResult, iteration_s: float) -> Baseline:
    """The row of the plan's comparison table."""
    time_s = None if tried.best is None else tried.best.iteration_s
    return Baseline(
        name=tried.policy.name,
        assumptions=tried.policy.assumptions,
        iteration_s=time_s,
        speed_up=None if time_s is None else time_s / iteration_s,
        reason=tried.reason,
        configuration=None if tried.best is None else tried.best.candidate.configuration,
        routes=() if tried.best is None else placement_of(context, tried.best.candidate).routes,
    )
