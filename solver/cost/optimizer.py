"""Time of the optimizer step: its memory traffic and host work, without communication."""

import numpy as np

from models.cluster import GpuType
from models.stack import StackProfile
from models.workload import Optimizer
from solver.arrays import FloatArray
from solver.cost.columns import Columns
from solver.cost.compute import BYTES_16_BIT, GpuRates
from solver.cost.data_parallel import state_shards
from solver.cost.job import Job


def update_bytes_per_parameter(optimizer: Optimizer, weight_bytes: float = BYTES_16_BIT) -> float:
    """Least traffic of one update: read the gradient, read and write the state, write the weight.

    >>> update_bytes_per_parameter(Optimizer())
    30.0
    """
    return optimizer.gradient_bytes_per_parameter + 2.0 * optimizer.state_bytes_per_parameter + weight_bytes


def optimizer_s(
    dense_parameters: FloatArray,
    expert_parameters: FloatArray,
    columns: Columns,
    *,
    gpu: GpuType,
    stack: StackProfile,
    job: Job,
) -> FloatArray:
    """End of a step: streaming the local share of the state once, and the overhead beside."""
    dense_shards, expert_shards = state_shards(columns)
    local = dense_parameters / dense_shards + expert_parameters / expert_shards
    traffic = update_bytes_per_parameter(job.optimizer, job.value_bytes) * stack.optimizer_traffic.value
    return local * traffic / GpuRates.of(gpu, stack, "bf16").memory_bytes_per_s + step_overhead_s(columns, stack)


def step_overhead_s(columns: Columns, stack: StackProfile) -> FloatArray:
    """Host work of one step, and the wait for the slowest of n ranks: h + s log2(n).

    The expected maximum of n waits with exponential tails grows as ln n (order statistics).
    """
    return stack.step_host_s.value + stack.step_sync_s.value * np.log2(columns.num_gpus)
