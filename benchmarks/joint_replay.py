"""Time of the joint replay over sizes, as a ratio to the replays of the same pipelines one by one, in one run.

`python -m benchmarks.joint_replay [--repeat N]` plans every size once, quickly, then times on processor time: every
route's pipeline alone with the links as reserved shares, the event loop with all of them on links that they share, and
the whole replay with the reading of the plan. Every row checks that the joint replay ends no later than the plan says;
a row that fails ends the run with status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape, shape_of
from solver.pipeline.simulate import replay_shape
from solver.planner import plan
from solver.verify.case import Case
from solver.verify.joint_replay import joint_replay, replay_case

SLACK = 1e-6


@dataclass(frozen=True)
class Size:
    """Buildings in a line, pipeline stages over them, replicas, and micro-batches of each.

    With several pools in a building the replicas take several routes, which share the links.
    """

    num_buildings: int
    num_stages: int
    num_replicas: int
    num_microbatches: int
    num_pools: int = 1


SIZES = (
    Size(2, 4, 4, 16),
    Size(2, 8, 16, 32),
    Size(4, 8, 16, 64),
    Size(4, 16, 32, 64),
    Size(8, 16, 32, 128),
    Size(8, 32, 64, 256),
    Size(4, 8, 16, 64, num_pools=2),
    Size(8, 16, 32, 128, num_pools=4),
)


def request_of(size: Size) -> PlanRequest:
    """Pipelines through all buildings of a line whose links are narrow enough to be shared."""
    names = [f"b{index}" for index in range(size.num_buildings)]
    hosts = 2 * size.num_stages * size.num_replicas // 8 // size.num_buildings // size.num_pools
    pools = [
        {"id": f"{name}-{number}", "place": name, "gpu": "H100-SXM-80G", "num_hosts": hosts, "nic_bytes_per_s": 5e10}
        for name in names
        for number in range(size.num_pools)
    ]
    links = [
        {"id": f"{one}-{other}", "from_place": one, "to_place": other, "capacity_bytes_per_s": 1e11 * size.num_replicas}
        | {"latency_s": 1e-3}
        for one, other in pairwise(names)
    ]
    architecture = {
        "name": "dense",
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14336,
        "attention": {"kind": "gqa", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
        "vocab_size": 32000,
    }
    allowed = {"tp": [2], "cp": [1], "pp": [size.num_stages], "vpp": [1], "dp": [size.num_replicas]}
    return PlanRequest.model_validate(
        {
            "workload": {
                "architecture": architecture,
                "sequence_length": 4096,
                "global_batch_sequences": size.num_replicas * size.num_microbatches,
            },
            "cluster": {
                "name": "line",
                "places": [{"id": name, "level": "building"} for name in names],
                "pools": pools,
                "links": links,
            },
            "constraints": {
                "allowed": allowed | {"micro_batch_sequences": [1], "recompute": ["none"]},
                "data_parallel_may_cross_buildings": False,
                "use_all_gpus": True,
            },
            "options": {"time_limit_s": 5.0, "relative_gap": 0.5, "workers": 1},
        }
    )


def pipelines_alone(found: Plan) -> Callable[[], None]:
    """The replay of every route's own order, with the delays that the plan states."""
    work = []
    for one in found.timelines:
        lines = {
            (line.link, line.direction): tuple(text for text in line.transfers if not text.endswith("SYNC"))
            for line in one.schedule.transfers
            if line.end_s != line.start_s
        }
        silent = tuple(
            stage.model_copy(update={"gradient_sync_s": 0.0, "gradient_sync_link": None})
            for stage in one.problem.stages
        )
        shape = shape_of(one.problem.model_copy(update={"stages": silent}))
        channels = [lines.get((name, way), ()) for name in shape.link_names for way in ("up", "down")]
        ranks = [rank.operations for rank in one.schedule.ranks]
        work.append((shape, PipelineOrder(*(_ids(shape, some) for some in (ranks, channels)))))

    def run() -> None:
        for shape, order in work:
            replay_shape(shape, order)

    return run


def _ids(shape: PipelineShape, lists: Iterable[Iterable[str]]) -> tuple[Ints, ...]:
    """Ids of operations, and of the messages of these operations, from their texts."""
    numbers = shape.numbers()
    return tuple(np.array([numbers[text] for text in one], dtype=np.int64) for one in lists)


def least_s(task: Callable[[], object], repeat: int) -> float:
    """Least processor time of several runs, after one that compiles."""
    task()
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        task()
        times.append(time.process_time() - begin)
    return min(times)


def row(size: Size, repeat: int) -> bool:
    """Print one size; whether its replay confirms the plan."""
    request = request_of(size)
    outcome = plan(request)
    if not isinstance(outcome, Planned):
        sys.stdout.write(f"{size}: no plan: {outcome}\n")
        return False
    found = outcome.plan
    case = Case(request, found)
    alone_s = least_s(pipelines_alone(found), repeat)
    loop_s = least_s(lambda: replay_case(case), repeat)
    whole_s = least_s(lambda: joint_replay(request, found), repeat)
    again = replay_case(case)
    operations = sum(one.problem.num_operations for one in found.timelines)
    confirmed = again.iteration_s <= found.metrics.iteration_s * (1 + SLACK)
    sys.stdout.write(
        f"{size.num_buildings:9d} {size.num_stages:6d} {len(found.timelines):6d} {size.num_replicas:8d} "
        f"{operations:10d} {alone_s * 1e3:9.2f} {loop_s * 1e3:9.2f} {whole_s * 1e3:9.2f} {loop_s / alone_s:6.1f} "
        f"{whole_s / alone_s:6.1f}  {again.iteration_s / found.metrics.iteration_s:.4f}"
        f"{'' if confirmed else '  FAILED'}\n"
    )
    return confirmed


def main() -> int:
    """All sizes; the status is 1 if a replay ends later than its plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the fastest counts (default 5)")
    repeat = parser.parse_args().repeat
    sys.stdout.write(
        f"{'buildings':>9s} {'stages':>6s} {'routes':>6s} {'replicas':>8s} {'operations':>10s} {'alone ms':>9s} "
        f"{'joint ms':>9s} {'whole ms':>9s} {'joint/':>6s} {'whole/':>6s}  joint end/plan's\n"
    )
    confirmed = [row(size, repeat) for size in SIZES]
    return 0 if all(confirmed) else 1


if __name__ == "__main__":
    sys.exit(main())
