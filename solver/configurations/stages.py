"""What every stage of a configuration costs on every pool, and what its rank keeps in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.cluster import Pool
from models.plan import Configuration
from solver.arrays import FloatArray
from solver.configurations.pricing import StageCosts, kinds
from solver.context import Context, GpuClass
from solver.cost.columns import columns_of
from solver.cost.fabric import fabric_of
from solver.cost.layer import Setting
from solver.cost.memory import StaticMemory, static_memory
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost


@dataclass(frozen=True, eq=False)
class PoolStages:
    """Stages of a configuration on the GPUs of one pool: costs by stage, static memory and optimizer by rank.

    Equal is what is the same: pools of one kind share their stages.
    """

    cost: StageCost
    static: StaticMemory
    optimizer_s: FloatArray


def pool_stages(context: Context, pool: Pool, configuration: Configuration) -> PoolStages:
    """Costs of all stages as if each ran in `pool`; arrays of length stages (cost) and ranks (memory, optimizer).

    Pools of one GPU type and fabric share them, and so do the placements of a configuration.
    """
    key = (configuration, pool.gpu.name, fabric_of(pool))
    return context.known.stages.once(key, lambda: _pool_stages(context, pool, configuration))


def _pool_stages(context: Context, pool: Pool, configuration: Configuration) -> PoolStages:
    gpu_class = GpuClass(gpu=pool.gpu, fabric=fabric_of(pool), num_gpus=pool.num_free_gpus)
    num_stages, num_ranks = configuration.degrees.num_stages, configuration.degrees.pp
    ends = np.cumsum([0, *configuration.layers_per_stage])
    dense, moe = kinds(context, ends[:-1], ends[1:])
    first = np.zeros(num_stages)
    last = np.zeros(num_stages)
    first[0], last[-1] = 1.0, 1.0
    cost = StageCosts(context, gpu_class, columns_of(configuration)).of(dense, moe, embedding=first, logits=last)
    rank_of = np.array(configuration.rank_of_stages)
    columns = columns_of(configuration).take(np.zeros(num_ranks, dtype=np.int64))
    parameters, experts = (
        np.bincount(rank_of, weights=values, minlength=num_ranks).astype(np.float64)
        for values in (cost.parameters, cost.expert_parameters)
    )
    setting = Setting.of(context.job, gpu_class.gpu, gpu_class.fabric, context.stack, columns)
    has_logits = (np.arange(num_ranks) == rank_of[-1]).astype(np.float64)
    static = static_memory(setting, parameters, experts, has_logits=has_logits)
    update = optimizer_s(parameters, experts, columns, gpu=gpu_class.gpu, stack=context.stack, job=context.job)
    return PoolStages(cost=cost, static=static, optimizer_s=update)
