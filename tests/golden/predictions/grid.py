"""The frozen grid of predictions: packaged profiles times a few jobs and configurations.

`python -m tests.golden.predictions.grid --write` rewrites it. A change that moves these numbers says so in the
CHANGELOG under Results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from models.catalogue import named_entry
from models.cluster import GpuType
from models.workload import Architecture, Workload
from solver.calibration.training import packaged_stacks
from solver.cost.columns import columns_from
from solver.cost.estimate import iteration_estimate
from solver.cost.fabric import fabric_from
from solver.cost.job import job_of
from solver.cost.layer import Setting

FROZEN = Path(__file__).parent / "frozen.json"
GPUS = ("A100-SXM-80G", "B200-SXM")
JOBS = (("llama-3.1-8b", 4096, 256), ("llama-3.1-405b", 8192, 512), ("deepseek-v3", 4096, 1024))
NAMES = ("tp", "cp", "ep", "pp", "dp", "vpp", "micro_batch", "num_microbatches", "sharding", "shard_group", "recompute")
CONFIGURATIONS = (
    (1, 1, 1, 1, 64, 1, 1, 4, 2, 64, 2),
    (8, 1, 1, 1, 8, 1, 2, 16, 1, 8, 0),
    (4, 2, 1, 8, 4, 2, 1, 32, 1, 4, 1),
    (1, 1, 8, 4, 16, 1, 1, 16, 1, 16, 2),
    (2, 1, 4, 8, 32, 4, 1, 32, 3, 8, 0),
)


def predictions() -> dict[str, list[list[float]]]:
    """Iteration seconds and peak bytes, to nine digits, by profile and job."""
    found = {}
    for stack in packaged_stacks():
        for name in GPUS:
            gpu = GpuType.model_validate(named_entry("gpus", name))
            fabric = fabric_from(gpu, nic_bytes_per_s=5e10, gpus_per_host=8)
            columns = columns_from([dict(zip(NAMES, row, strict=True)) for row in CONFIGURATIONS])
            for model, sequence, batch in JOBS:
                architecture = Architecture.model_validate(named_entry("models", model))
                workload = Workload(
                    architecture=architecture, sequence_length=sequence, global_batch_sequences=batch, precision="fp8"
                )
                estimate = iteration_estimate(Setting.of(job_of(workload), gpu, fabric, stack, columns))
                found[f"{stack.name} {name} {model}"] = [
                    [float(f"{seconds:.9g}"), float(f"{peak:.9g}")]
                    for seconds, peak in zip(estimate.iteration_s, estimate.peak_bytes, strict=True)
                ]
    return found


def main(arguments: Sequence[str]) -> int:
    """Rewrite the frozen file on request."""
    if "--write" in arguments:
        FROZEN.write_text(json.dumps(predictions(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
