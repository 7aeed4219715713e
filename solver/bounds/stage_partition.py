"""A bound of one configuration over every GPU type and every whole number of layers of each of its ranks.

A time T (seconds) is possible only if some partition into ranks, a GPU type and layers for each, leaves every rank time
for its own work and for what it waits for, and memory for the activations that it holds. The largest T for which no
partition does is the bound. What a rank takes alone is in `rank_costs.py`, the search over partitions in
`stage_partition_kernel.py`.

Proof, an inequality per row of `NEEDS`: docs/bounds.md, "Partition of layers over GPU types".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from models.plan import Configuration
from solver.bounds.bounded import ROUNDING
from solver.bounds.kind_costs import AlikeCosts, Kind
from solver.bounds.least_hops import MessageDelays
from solver.bounds.rank_costs import RankCosts
from solver.bounds.stage_partition_kernel import (
    BEFORE_LAST,
    BOTH,
    NEEDS,
    NUM_SUMS,
    OTHERS,
    PartitionProblem,
    PartitionStates,
    least_sums,
)
from solver.configurations.enumerate import ranks_by_type
from solver.context import Context
from solver.cost.columns import Columns, columns_of

MOST_CELLS = 1_500_000  # of the tables of the search; beyond it types that are much alike count as one
RESOLUTION = 0.002  # of the time asked for: how near the bound comes to what the partitions give
NUM_PASSES = 3  # over the sums of other ranks, each knowing those before it; set by hand
HALF_A_LAYER = 0.5  # numbers of layers are whole: what sums of them are off is less
SAFETY = 1 - ROUNDING  # float sums may not lift a bound


def stage_partition_bound_s(
    context: Context, configurations: Sequence[Configuration], low_s: float, high_s: float
) -> float:
    """The largest time up to `high_s` that is impossible for all of these, alike but for experts and sharding.

    `low_s` where none is. Every price is the least of these configurations.
    """
    gpus = _kinds(context, [columns_of(one) for one in configurations])
    problem = _problem(configurations[0], gpus, MessageDelays.of(context, configurations))
    return least_time_s(problem, low_s, high_s)


def least_time_s(problem: PartitionProblem, low_s: float, high_s: float) -> float:
    """Halve the interval between a time that is impossible and one that may not be."""
    states = _partition_states(problem)
    if not _keeps(problem, states, high_s):
        return high_s
    tolerance_s = RESOLUTION * high_s
    while high_s - low_s > tolerance_s:
        middle = (low_s + high_s) / 2.0
        if _keeps(problem, states, middle):
            high_s = middle
        else:
            low_s = middle
    return low_s


def _keeps(problem: PartitionProblem, states: PartitionStates, limit_s: float) -> bool:
    """Whether some partition may keep within the limit: sums known of all that do rule out more of them."""
    known = np.zeros(NUM_SUMS)
    for _ in range(NUM_PASSES):
        found = least_sums(problem, states, known, limit_s / SAFETY)
        there_and_back_s = found[BOTH] + problem.others_both_s + 2.0 * problem.turnaround_delay_s
        if there_and_back_s + problem.update_s > limit_s / SAFETY:
            return False
        if problem.num_others + found[OTHERS] > HALF_A_LAYER:
            return False
        found[OTHERS] = 0.0
        found[BEFORE_LAST] = max(found[BEFORE_LAST] - problem.slack_s, 0.0)
        if (found <= known).all():
            return True
        known = found
    return True


def _partition_states(problem: PartitionProblem) -> PartitionStates:
    """How many ranks of each type the first ranks may use, fewest first; no more than there are ranks."""
    sizes, num_ranks = problem.held_c + 1, len(problem.kind_r)
    used = np.stack([axis.ravel() for axis in np.indices(tuple(sizes.tolist()))], axis=1)
    used = used[used.sum(axis=1) <= num_ranks]
    used = np.ascontiguousarray(used[np.argsort(used.sum(axis=1), kind="stable")])
    strides = np.append(np.cumprod(sizes[::-1])[::-1][1:], 1)
    return PartitionStates(used, used @ strides, strides)


def _kinds(context: Context, alike: Sequence[Columns]) -> list[Kind]:
    """GPU types, quickest first; those next to each other that differ least are one where there are too many ranks."""
    columns = alike[0]
    held = ranks_by_type(context.pools, columns.tp, columns.cp, columns.dp)
    found = []
    for name, count in held.items():
        classes = [one for one in context.gpu_classes.values() if one.gpu.name == name]
        costs = tuple(AlikeCosts.of(context, gpu_class, alike) for gpu_class in classes)
        found.append(Kind(costs, min(int(count[0]), int(columns.pp[0]))))
    found = sorted((one for one in found if one.held), key=lambda one: one.layer_both_s)
    while len(found) > 1 and np.prod([one.held + 1.0 for one in found]) * context.job.num_layers > MOST_CELLS:
        ratios = [slow.layer_both_s / fast.layer_both_s for fast, slow in itertools.pairwise(found)]
        place = int(np.argmin(ratios))
        both = found[place : place + 2]
        merged = Kind(both[0].costs + both[1].costs, min(both[0].held + both[1].held, int(columns.pp[0])))
        found = [*found[:place], merged, *found[place + 2 :]]
    return found


def _problem(configuration: Configuration, gpus: Sequence[Kind], delays: MessageDelays) -> PartitionProblem:
    """What every kind of rank takes on every type: the ends and those between."""
    context = gpus[0].context
    pp, vpp, folded = configuration.degrees.pp, configuration.degrees.vpp, configuration.family == "v"
    ends = [(True, folded), (False, False), (False, not folded)]
    num_usual = context.job.num_moe_layers or context.job.num_dense_layers
    others = context.job.num_layers - num_usual
    few, other = others <= pp, [gpu.other for gpu in gpus]
    other_s = (
        min(float(one.forward_s[0]) for one in other),
        min(float(one.forward_s[0] + one.input_grad_s[0]) for one in other),
    )
    shape = configuration.num_microbatches, vpp
    ranks = [[RankCosts(gpu, one, *shape, few_others=few, other_s=other_s) for gpu in gpus] for one in ends]
    needs = [[one.needs() for one in row] for row in ranks]
    problem = PartitionProblem(
        kind_r=np.array([0] + [1] * (pp - 2) + [2]),
        held_c=np.array([gpu.held for gpu in gpus]),
        num_layers=num_usual,
        least_n=0 if others else vpp,
        num_chunks=vpp,
        looped=configuration.family == "loop",
        back=min(gpu.back for gpu in gpus),
        embedding_s=max(float(gpu.least.parts[2].forward_s[0]) for gpu in gpus),
        slack_s=others * max(float(gpu.layer.forward_s[0]) for gpu in gpus) if vpp > 1 and few else 0.0,
        update_s=float(min(one.update_s[-(-num_usual // pp)] for one in ranks[1])),
        others_forward_s=others * other_s[0],
        others_both_s=others * other_s[1],
        num_others=others,
        other_work_c=configuration.num_microbatches * np.array([float(one.total_s[0]) for one in other]),
        layer_both_c=np.array([gpu.layer_both_s for gpu in gpus]),
        after_r=np.zeros(pp),
        after_last_r=np.zeros(pp),
        needs=np.array([[[one[name] for one in row] for row in needs] for name in NEEDS]),
    )
    return with_delays(problem, delays)


def with_delays(problem: PartitionProblem, delays: MessageDelays) -> PartitionProblem:
    """The same with these messages."""
    return problem._replace(
        hop_s=delays.hop_s,
        ahead_delay_s=delays.ahead_s,
        turnaround_delay_s=delays.turnaround_s,
        held_delay_s=delays.held_s,
    )
