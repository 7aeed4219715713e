"""Time to evaluate 100,000 configurations of one request on one core.

python -m benchmarks.cost [ROWS]
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence

import numpy as np

from models.catalogue import named_entry
from models.cluster import GpuType
from models.stack import StackProfile
from models.workload import Architecture, Workload
from solver.cost.columns import Columns, columns_from
from solver.cost.estimate import iteration_estimate
from solver.cost.fabric import fabric_from
from solver.cost.job import job_of
from solver.cost.layer import Setting

LIMIT_S = 1.0


def grid(num_rows: int) -> Columns:
    """Configurations that differ in every dimension, repeated to the number asked for."""
    dimensions = itertools.product((1, 2, 4, 8), (1, 2), (1, 8), (1, 4, 16), (8, 64), (1, 2), (1, 2, 4), (0, 1, 2))
    rows = [
        {
            "tp": tp, "cp": cp, "ep": ep, "pp": pp, "dp": dp, "vpp": vpp, "micro_batch": size, "num_microbatches": 16,
            "sharding": sharding, "shard_group": dp, "recompute": sharding,
        }
        for tp, cp, ep, pp, dp, vpp, size, sharding in dimensions
    ]  # fmt: skip
    columns = columns_from(rows)
    return columns.take(np.arange(num_rows) % len(rows))


def seconds_for(model: str, num_rows: int) -> float:
    """Best of three evaluations."""
    architecture = Architecture.model_validate(named_entry("models", model))
    workload = Workload(architecture=architecture, sequence_length=4096, global_batch_sequences=1024)
    gpu = GpuType.model_validate(named_entry("gpus", "H100-SXM-80G"))
    stack = StackProfile.model_validate(named_entry("stacks", "megatron-2024"))
    fabric = fabric_from(gpu, nic_bytes_per_s=5e10, gpus_per_host=8)
    columns, job = grid(num_rows), job_of(workload)
    times = []
    for _ in range(3):
        start = time.process_time()
        iteration_estimate(Setting.of(job, gpu, fabric, stack, columns))
        times.append(time.process_time() - start)
    return min(times)


def main(arguments: Sequence[str]) -> int:
    """Prints one line per model; fails above the limit."""
    num_rows = int(arguments[0]) if arguments else 100_000
    worst = 0.0
    for model in ("llama-3.1-405b", "deepseek-v3"):
        seconds = seconds_for(model, num_rows)
        worst = max(worst, seconds)
        sys.stdout.write(f"{model}: {num_rows} configurations in {seconds:.3f} s of one core\n")
    return 0 if worst < LIMIT_S * num_rows / 100_000 else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
