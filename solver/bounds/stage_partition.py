"""A bound of one configuration over every GPU type and every whole number of layers of each of its ranks.

A time T (seconds) is possible only if some partition into ranks, a GPU type and layers for each, leaves every rank time
for its own work and for what it waits for, and memory for the activations that it holds. The largest T for which no
partition does is the bound. What a rank takes alone is in `rank_needs.py`, what with others in `rank_need_kernel.py`,
the search over partitions in `stage_partition_kernel.py`.

Proof, an inequality per row of `NEEDS`: docs/bounds.md, "Partition of layers over GPU types".
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from models.plan import Configuration
from solver.bounds.bounded import ROUNDING
from solver.bounds.every_partition_kernel import Partitions, joined, partitions_within
from solver.bounds.kind_costs import AlikeCosts, Kind, usual_excess_s
from solver.bounds.layer_windows import EVERY_END, rank_kinds
from solver.bounds.least_hops import MessageDelays, TypeHops
from solver.bounds.rank_costs import RankCosts, ends_worth
from solver.bounds.rank_need_kernel import BOTH, EVEN_BOTH, NEEDS, NUM_SUMS, PartitionProblem, all_ways_s
from solver.bounds.rank_needs import rank_needs
from solver.bounds.stage_partition_kernel import PartitionStates, least_sums, sums_behind
from solver.configurations.by_type import type_costs
from solver.configurations.nearness import ranks_by_type
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, columns_of

MOST_CELLS = 1_500_000  # of the tables of the search; beyond it types that are much alike count as one
RESOLUTION = 0.0005  # of the time asked for: how near the bound comes to what the partitions give
FIRST_STEP = 0.05  # of the time asked for: how far below it the search begins; bounds that matter are near it
NUM_PASSES = 3  # over the sums of other ranks, each knowing those before it; set by hand
SAFETY = 1 - ROUNDING  # float sums may not lift a bound
TOGETHER = np.zeros((1, 1))  # messages take the same between all types


def stage_partition_bound_s(context: Context, configurations: Sequence[Configuration], high_s: float) -> float:
    """The largest time up to `high_s` that is impossible for all of these, alike but for experts and sharding.

    0 where none is. Every price is the least of these configurations.
    """
    gpus = kinds_of(context, [columns_of(one) for one in configurations])
    problem = partition_problem(configurations, gpus, TypeHops.of(context, configurations))
    return least_time_s(problem, high_s)


def least_time_s(problem: PartitionProblem, high_s: float) -> float:
    """Halve the interval between a time that is impossible and one that may not be, from the upper end on."""
    states = partition_states(problem)
    if not _keeps(problem, states, high_s):
        return high_s
    low_s, tolerance_s, step_s = 0.0, RESOLUTION * high_s, FIRST_STEP * high_s
    while high_s - low_s > tolerance_s:
        middle = max((low_s + high_s) / 2.0, high_s - step_s)
        if _keeps(problem, states, middle):
            high_s, step_s = middle, 2.0 * step_s
        else:
            low_s = middle
    return low_s


def _keeps(problem: PartitionProblem, states: PartitionStates, limit_s: float) -> bool:
    """Whether some partition may keep within the limit."""
    return any(_sums_within(one, states, limit_s) is not None for one in _by_last_type(problem))


def _by_last_type(problem: PartitionProblem) -> Sequence[PartitionProblem]:
    """The same for each type of the last rank, where its messages to the first rank depend on it."""
    if not problem.looped or len(problem.apart_cc) == 1:
        return (problem,)
    return [problem._replace(last_type=gpu) for gpu in range(len(problem.held_c))]


def _sums_within(
    problem: PartitionProblem, states: PartitionStates, limit_s: float
) -> tuple[FloatArray, FloatArray] | None:
    """Least sums of all ranks, and of those behind each, of partitions that may keep within the limit; None for none.

    Sums known of all that do rule out more of them.
    """
    known, limit_s = np.zeros(NUM_SUMS), limit_s / SAFETY
    behind = sums_behind(problem, states, limit_s, known, np.zeros((0, 1, 1, NUM_SUMS)))
    for _ in range(NUM_PASSES):
        found, before = least_sums(problem, states, known, behind, limit_s)
        there_s = problem.delays.turnaround_s + all_ways_s(problem, found)
        there_and_back_s = max(found[BOTH], found[EVEN_BOTH]) + 2.0 * there_s
        if there_and_back_s + problem.update_s > limit_s:
            return None
        if (found <= known).all():
            break
        known = found
        behind = sums_behind(problem, states, limit_s, known, before)
    return known, behind


def partitions_up_to(
    problem: PartitionProblem, states: PartitionStates, limit_s: float, most: int
) -> Partitions | None:
    """All partitions that may keep within the limit, those with the least bound first; None for `most` or more."""
    parts = list[Partitions]()
    for one in _by_last_type(problem):
        sums = _sums_within(one, states, limit_s)
        if sums is None:
            continue
        found = partitions_within(one, states, sums, limit_s / SAFETY, most)
        if found is None:
            return None
        parts.append(found)
        most -= len(found.need_s)
    none = np.zeros((0, len(problem.kind_r)), dtype=np.int64)
    whole = joined(parts) if parts else Partitions(none, none, np.zeros(0))
    return whole.at(np.argsort(whole.need_s, kind="stable"))


def partition_states(problem: PartitionProblem) -> PartitionStates:
    """How many ranks of each type the first ranks may use, fewest first; no more than there are ranks."""
    sizes, num_ranks = problem.held_c + 1, len(problem.kind_r)
    used = np.stack([axis.ravel() for axis in np.indices(tuple(sizes.tolist()))], axis=1)
    used = used[used.sum(axis=1) <= num_ranks]
    used = np.ascontiguousarray(used[np.argsort(used.sum(axis=1), kind="stable")])
    strides = np.append(np.cumprod(sizes[::-1])[::-1][1:], 1)
    return PartitionStates(used, used @ strides, strides)


def kinds_of(context: Context, alike: Sequence[Columns]) -> list[Kind]:
    """GPU types, quickest first; those next to each other that differ least are one where there are too many ranks."""
    columns = alike[0]
    held = ranks_by_type(context.pools, columns.tp, columns.cp, columns.dp)
    found = []
    for name, count in held.items():
        classes = [one for one in context.gpu_classes.values() if one.gpu.name == name]
        costs = tuple(AlikeCosts.of(context, gpu_class, alike) for gpu_class in classes)
        found.append(Kind(costs, min(int(count[0]), int(columns.pp[0]))))
    found = sorted((one for one in found if one.held), key=lambda one: one.layer_both_s)
    while len(found) > 1 and _num_cells(found) > MOST_CELLS:
        ratios = [slow.layer_both_s / fast.layer_both_s for fast, slow in itertools.pairwise(found)]
        place = int(np.argmin(ratios))
        both = found[place : place + 2]
        merged = Kind(both[0].costs + both[1].costs, min(both[0].held + both[1].held, int(columns.pp[0])))
        found = [*found[:place], merged, *found[place + 2 :]]
    return found


def _num_cells(gpus: Sequence[Kind]) -> float:
    """Of the tables of the search."""
    return float(np.prod([one.held + 1.0 for one in gpus])) * gpus[0].context.job.num_layers


def partition_problem(
    configurations: Sequence[Configuration], gpus: Sequence[Kind], hops: TypeHops
) -> PartitionProblem:
    """What every kind of rank takes on every type, at its least over configurations that have the same pipeline.

    Kinds differ in ends and in layers that their stages may have.
    """
    configuration, context = configurations[0], gpus[0].context
    family, apart_cc = configuration.family, _apart(gpus, hops)
    pp, vpp, folded = configuration.degrees.pp, configuration.degrees.vpp, family == "v"
    worths = tuple(max(ends_worth(gpu, at) for gpu in gpus) for at in EVERY_END)
    kinds = rank_kinds(context.job.architecture, configuration.rank_of_stages, worths)
    shape = configuration.num_microbatches, vpp, family == "loop", usual_excess_s(gpus)
    shared_by = [type_costs(context, one) for one in configurations] if vpp > 1 else []
    ranks = [RankCosts(gpu, kinds, *shape, [by[name] for by in shared_by for name in gpu.names]) for gpu in gpus]
    needs = np.stack([needs_of(rank_needs(one), folded=folded) for one in ranks], axis=1)
    needs = needs.reshape(len(NEEDS), len(gpus), len(kinds.ends), -1)
    average = -(-context.job.num_layers // pp)
    if apart_cc.any():
        delays = MessageDelays.along(configuration, hops.hop_s, hops.hop_s)
    else:
        delays = MessageDelays.of(context, configurations)
    return PartitionProblem(
        kind_r=kinds.kind_r,
        held_c=np.array([gpu.held for gpu in gpus]),
        least_r=np.full(pp, vpp),
        num_layers=context.job.num_layers,
        num_chunks=vpp,
        looped=family == "loop",
        update_s=min(float(one.update_s[kinds.layers >= average].min()) for one in ranks),
        needs=np.ascontiguousarray(needs.transpose(0, 2, 1, 3)),
        apart_cc=apart_cc,
        delays=delays,
        num_microbatches=configuration.num_microbatches,
    )


def _apart(gpus: Sequence[Kind], hops: TypeHops) -> FloatArray:
    """How much longer than others a message between two types takes at least; one 0 where that is not to be known."""
    if any(len(one.names) > 1 for one in gpus) or len(gpus) * _num_cells(gpus) > MOST_CELLS:
        return TOGETHER
    found = np.array([[hops.between(one.names, other.names).least_s for other in gpus] for one in gpus])
    found = np.where(np.eye(len(gpus), dtype=np.bool_), 0.0, np.minimum(found, found.T) - hops.hop_s)
    return found if found.any() else TOGETHER


def needs_of(one: Mapping[str, FloatArray] | Mapping[str, float], *, folded: bool) -> FloatArray:
    """The rows of `NEEDS` of some ranks on some type, with what precedes a rank's first gradient; 0 what is not stated.

    Before it lie the forwards of all ranks, and the last chunks' input gradients of the ranks behind it, or of those
    before it where the pipeline is folded.
    """
    turned, other = ("gradient_before", "gradient_behind") if folded else ("gradient_behind", "gradient_before")
    rows = {**one, turned: one["forward"] + one["last_gradient"], other: one["forward"]}
    assert rows.keys() <= set(NEEDS), "every need has a row"
    nothing = np.zeros(np.shape(one["work"]))
    return np.array([rows.get(name, nothing) for name in NEEDS])
