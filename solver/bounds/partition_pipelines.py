"""A bound of configurations with layers by GPU type: the pipelines of all partitions that the partition bound leaves.

A partition gives every pipeline rank a GPU type and a number of layers; of the layers of a rank the rule for its chunks
makes stages, so its pipeline is known but for where it is placed. With every cost at its least over that, the bound of
one pipeline holds for it. The least over all partitions bounds the configuration. Proof: docs/bounds.md, "Pipelines of
partitions".
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from models.plan import Configuration
from solver.arrays import IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.every_partition_kernel import Partitions
from solver.bounds.rank_need_kernel import PartitionProblem
from solver.bounds.stage_partition import kinds_of, least_time_s, partition_problem, partition_states, partitions_up_to
from solver.bounds.typed_pipelines import Partition, PartitionPipelines
from solver.clock import Clock, charge_pipeline_bounds
from solver.context import Context
from solver.cost.columns import columns_of

STEP = 0.01  # of the time that matters: how far the next partitions may be beyond what is proven so far
LEAST_STEP = 0.002  # where there are too many partitions for more
BEYOND = 0.05  # of a time: how far beyond it a pipeline is bounded at once
FEWEST_TOGETHER = 4  # partitions on the same GPU types, from which on they are bounded together first
MOST_PARTITIONS = 16_384  # within a time
MOST_PIPELINES = 1_024  # of one configuration: a pipeline takes a twentieth to a fifth of a millisecond
MOST_OF_SEVERAL = 128  # of configurations that are alike: most of those whose bound remains low have their own later
MOST_TOGETHER = 32  # partitions bounded at once: those behind the first that keeps within the time may be too many
MOST_BEST = 2  # partitions of a configuration that are worth placing
TypedLayers = tuple[tuple[str, ...], tuple[int, ...]]  # GPU type of every rank and layers of every stage


def partition_pipelines_bound_s(
    context: Context, configurations: Sequence[Configuration], high_s: float, clock: Clock, *, effort: int = 1
) -> float:
    """The largest time up to `high_s` (seconds) that is impossible for all of these, alike but for sharding.

    Not below what the partition bound finds. Every price is the least of these configurations. Of a configuration alone
    the partitions with the least bounds are remembered for `best_partitions`. `effort`: how many times as many
    partitions and pipelines as usual are looked at.
    """
    bound_s, best = _searched(context, configurations, high_s, clock, effort)
    if best and len(configurations) == 1:
        context.known.partitions.once(configurations[0], lambda: best)
    return bound_s


def best_partitions(
    context: Context, configuration: Configuration, high_s: float, clock: Clock
) -> Sequence[TypedLayers]:
    """The partitions with the least bounds that are known of a configuration, or else of those below `high_s`."""
    return context.known.partitions.once(configuration, lambda: _searched(context, [configuration], high_s, clock)[1])


def _searched(
    context: Context, configurations: Sequence[Configuration], high_s: float, clock: Clock, effort: int = 1
) -> tuple[float, Sequence[TypedLayers]]:
    """The bound, and what `best_partitions` says."""
    gpus = kinds_of(context, [columns_of(one) for one in configurations])
    pipelines = PartitionPipelines.of(context, configurations, gpus)
    problem = partition_problem(configurations, gpus, pipelines.hops)
    limit_s = least_time_s(problem, high_s)
    if limit_s >= high_s:
        return high_s, ()
    most = MOST_PIPELINES if len(configurations) == 1 else MOST_OF_SEVERAL
    bounds = _PipelineBounds(pipelines, high_s, clock, effort * most, effort * MOST_PARTITIONS)
    bound_s = _least_of_all(problem, bounds, limit_s)
    return bound_s, bounds.best()


@dataclass
class _PipelineBounds:
    """Bounds of the pipelines of partitions (seconds), each worked out as far as it was asked for.

    No more than `num_left` pipelines, and of no more than `most_partitions` at a time.
    """

    pipelines: PartitionPipelines
    high_s: float
    clock: Clock
    num_left: int
    most_partitions: int
    known: dict[Partition, tuple[float, float]] = field(default_factory=dict)  # the bound, and what was enough

    def of(self, partitions: Sequence[Partition], enough_s: float) -> list[float]:
        """Their bounds, or as much of each as is enough; fewer of them where no more may be worked out."""
        asked, limits_s, some = list[Partition](), list[float](), partitions
        for place, one in enumerate(partitions):
            bound_s, so_far_s = self.known.get(one, (0.0, 0.0))
            if bound_s >= enough_s or bound_s < so_far_s:
                continue
            if len(asked) >= self.num_left:
                some = partitions[:place]
                break
            asked.append(one)
            limits_s.append(self.high_s if so_far_s else min(enough_s * (1.0 + BEYOND), self.high_s))
        if asked:
            self._count(len(asked))
            bounds_s = self.pipelines.bounds_s(asked, np.array(limits_s), self._count).tolist()
            self.known.update(zip(asked, zip(bounds_s, limits_s, strict=True), strict=True))
        return [self.known[one][0] for one in some]

    def _count(self, number: int) -> None:
        """So many pipelines are bounded."""
        self.num_left -= number
        charge_pipeline_bounds(self.clock, self.pipelines.num_operations, number)

    def best(self) -> Sequence[TypedLayers]:
        """The partitions with the least bounds, of those that have every rank on one type."""
        pipelines, found = self.pipelines, list[TypedLayers]()
        whole = [one for one in self.known if sum(one[1]) == pipelines.context.job.num_layers]
        for partition in sorted(whole, key=lambda one: self.known[one][0])[:MOST_BEST]:
            names = [pipelines.gpus[gpu].names for gpu in partition[0]]
            if all(len(one) == 1 for one in names):
                types = tuple(name for one in names for name in one)
                found.append((types, next(pipelines.stages(*partition))))
        return tuple(found)


def _least_of_all(problem: PartitionProblem, bounds: _PipelineBounds, limit_s: float) -> float:
    """Raise a limit that is impossible until a pipeline keeps within it, or as many were bounded as may be."""
    states, step = partition_states(problem), STEP
    while limit_s < bounds.high_s and step >= LEAST_STEP:
        next_s = min(limit_s + step * bounds.high_s, bounds.high_s)
        found = partitions_up_to(problem, states, next_s, bounds.most_partitions)
        if found is None:
            step /= 2.0
            continue
        limit_s = max(limit_s, _least_of(_without_late_types(found, bounds, next_s), bounds, next_s))
        if limit_s < next_s:
            break
    return limit_s


def _without_late_types(found: Partitions, bounds: _PipelineBounds, limit_s: float) -> Partitions:
    """Less those whose GPU types are too late even where every rank has the fewest layers of all of them."""
    types, type_of, counts = np.unique(found.gpu, axis=0, return_inverse=True, return_counts=True)
    fewest = np.full_like(types, bounds.pipelines.context.job.num_layers)
    np.minimum.at(fewest, type_of.ravel(), found.layers)
    several = np.flatnonzero(counts >= FEWEST_TOGETHER)
    bounds_s = bounds.of(_partitions(types[several], fewest[several]), limit_s)
    is_late = np.zeros(len(types), dtype=np.bool_)
    is_late[several[: len(bounds_s)]] = np.array(bounds_s) >= limit_s
    return found.at(np.flatnonzero(~is_late[type_of.ravel()]))


def _least_of(found: Partitions, bounds: _PipelineBounds, limit_s: float) -> float:
    """The least bound of the pipelines of these, or `limit_s`: what is known where no more may be worked out."""
    least_s, first, needs_s = limit_s, 0, found.need_s * (1.0 - ROUNDING)
    for number in itertools.count(1):
        last = min(first + min(number, MOST_TOGETHER), int(np.searchsorted(needs_s, least_s)))
        if first >= last:
            break
        bounds_s = bounds.of(_partitions(found.gpu[first:last], found.layers[first:last]), least_s)
        for bound_s, need_s in zip(bounds_s, needs_s[first:].tolist(), strict=False):
            least_s = min(least_s, max(bound_s, need_s))
        first += len(bounds_s)
        if first < last:
            return min(least_s, float(needs_s[first]))
    return least_s


def _partitions(gpu: IntArray, layers: IntArray) -> list[Partition]:
    return list(zip(map(tuple, gpu.tolist()), map(tuple, layers.tolist()), strict=True))
