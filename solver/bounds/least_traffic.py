"""The fewest bytes that any plan of a configuration sends between buildings."""

import numpy as np

from solver.configurations.enumerate import BY_GPU_TYPE, Space
from solver.configurations.pricing import Shares, StageCosts, kinds, rank_cost
from solver.context import Context
from solver.cost.columns import FloatArray
from solver.cost.data_parallel import crossing_bytes, group_parameters
from solver.cost.stage import StageCost

BLOCK = 1 << 15  # rows that are priced together


def least_crossing_bytes(context: Context, space: Space) -> FloatArray:
    """Bytes that every plan of a configuration sends between buildings at least; none where one building holds it.

    Beyond the largest building there are three cases. No replica spans buildings: every stage's gradients cross, from
    one building at least to another and back. The replicas of every rank share a building: every replica's activations
    cross some boundary once per micro-batch, and their gradients come back. Else one replica's do, and some rank's
    gradients. More buildings and longer paths only add to it.
    """
    least = np.zeros(len(space))
    crossing = np.flatnonzero(space.columns.num_gpus > context.geography.largest_building_gpus)
    for rows in np.array_split(crossing, -(-len(crossing) // BLOCK)) if len(crossing) else ():
        least[rows] = _crossing_bytes(context, space.take(rows))
    return least


def _crossing_bytes(context: Context, space: Space) -> FloatArray:
    columns = space.columns
    price = StageCosts(context, next(iter(context.gpu_classes.values())), columns)
    whole = price.of(*kinds(context, 0, context.job.num_layers), embedding=1.0, logits=1.0)
    ways = _ways_counted(context)
    there_and_back = ways * columns.num_microbatches * whole.boundary_bytes
    all_exchange, one_exchange = (
        ways * crossing_bytes(size, columns, 2, context.job)
        for size in (_of_group(whole, price), _lightest_rank_parameters(price, space))
    )
    split = np.where(columns.pp > 1, columns.dp * there_and_back, np.inf)
    together = np.where(columns.dp > 1, all_exchange, np.inf)
    mixed = np.where((columns.pp > 1) & (columns.dp > 1), there_and_back + one_exchange, np.inf)
    least: FloatArray = np.minimum.reduce([split, together, mixed])
    return np.where(np.isfinite(least), least, 0.0)


def _ways_counted(context: Context) -> float:
    """Of a way there and one back, those that count as traffic between buildings.

    What comes down an uplink was counted where it left another building; GPUs right above a building leave none.
    """
    buildings = {group.building for group in context.capacity_groups}
    return 1.0 if any(buildings & set(context.topology.ancestors(one)[1:]) for one in buildings) else 2.0


def _of_group(cost: StageCost, price: StageCosts) -> FloatArray:
    """Parameters on all GPUs of a stage group, from those on one."""
    return group_parameters(cost.parameters, cost.expert_parameters, price.columns)


def _lightest_rank_parameters(price: StageCosts, space: Space) -> FloatArray:
    """Parameters of the pipeline rank that has fewest; by GPU type every stage has a layer, and maybe no more."""
    columns = price.columns
    layer = np.minimum.reduce([_of_group(one, price) for one in price.layer_of_each_kind()])
    shares = Shares.of(price, space.family)
    ends = [_of_group(rank_cost(price, shares, rank), price) for rank in (np.zeros_like(columns.pp), columns.pp - 1)]
    inner = np.where(columns.pp > 2, shares.inner_ranks()[0] * layer, np.inf)
    even: FloatArray = np.minimum.reduce([inner, *ends])
    return np.where(space.layer_split == BY_GPU_TYPE, columns.vpp * layer, even)
