"""Our plan against every baseline on a broad grid of jobs and clusters, all under the same evaluator.

`python -m benchmarks.headline [--points N] [--first K] [--time-limit S] [--seed S] [--wall] [--write F] [--json F]`
draws N points from the grid (models x GPU types x GPUs x buildings in regions x distance x oversubscription x loss x
batch), plans them, or the first K, with counted work, so that neither the machine nor its load changes a figure, and
prints the distribution of speed-ups and gaps. With `--wall` each point has so many seconds by the clock and all cores
that a request asks for, as in the service, one point at a time: for a machine that does nothing else. Everything is
predicted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from app.jobs.processes import end, start
from app.jobs.worker_pool import num_cores, worker_pool
from benchmarks.compiled import compile_first
from models.outcome import Outcome, Planned
from models.request import PlanRequest
from solver.planner import plan

MODELS = {
    "llama-3.1-70b": 512,
    "llama-3.1-405b": 2048,
    "mixtral-8x7b": 512,
    "qwen3-235b-a22b": 1024,
    "llama-4-maverick-like": 1024,
    "deepseek-v3": 2048,
}  # GPUs in all
SCALES = (1, 2, 4, 8)  # times that many GPUs: the same batch leaves fewer micro-batches to fill a pipeline
SHAPES = (
    ((1, 1),),
    ((5, 3),),
    ((4, 3),),
    ((2, 1),),
    ((2, 1, 1),),
    ((1, 1, 1, 1),),
    ((1,), (1,)),
    ((1, 1), (1, 1)),
    ((3, 2), (2, 1)),
    ((1, 1, 1, 1), (1, 1, 1, 1)),
)  # shares of the GPUs: buildings in regions
NEAR_KM, NEAR_OVERSUBSCRIPTION = 10.0, 2.8  # inside a region, where there are several
DISTANCES_KM = (2.0, 40.0, 300.0, 1000.0)
OVERSUBSCRIPTIONS = (1.0, 2.8, 7.0, 28.0, 112.0)  # NIC rate of the smaller building over the link, when all send
LOSSES = (0.0, 1e-6, 1e-5, 1e-4)
BATCHES = (512, 1024, 2048)
FLEETS = (
    ("H100-SXM-80G",),
    ("A100-SXM-80G", "H100-SXM-80G"),
    ("H100-SXM-80G", "B200-SXM"),
    ("H100-SXM-80G", "H200-SXM-141G"),
)  # GPU types: buildings have them in turn, as a fleet has that is bought over the years
NIC_BYTES_PER_S = {"A100-SXM-80G": 2.5e10}  # 200 Gb/s per GPU in that generation
USUAL_NIC_BYTES_PER_S, HOST_GPUS, SEQUENCE_LENGTH, PLANES = 5e10, 8, 8192, 16
SINGLE_AXIS = ("crosspipe-like", "atlas-like", "sailor-like", "nemo-like")
SAME = 1.0 + 1e-6
PATIENCE_S = 60.0  # for a process that ends
NUM_LARGEST = 5


@dataclass(frozen=True)
class Point:
    """One design point."""

    model: str
    fleet: tuple[str, ...]
    scale: int
    regions: tuple[tuple[int, ...], ...]
    distance_km: float
    oversubscription: float
    loss: float
    batch: int

    @property
    def num_gpus(self) -> int:
        """GPUs asked for; buildings hold whole hosts of them."""
        return MODELS[self.model] * self.scale

    def __str__(self) -> str:
        shares = " | ".join(":".join(map(str, region)) for region in self.regions)
        return (
            f"{self.model}, {self.num_gpus} {'+'.join(gpu.split('-')[0] for gpu in self.fleet)} as {shares}, "
            f"{self.distance_km:g} km, "
            f"1:{self.oversubscription:g}, loss {self.loss:g}, batch {self.batch}"
        )


@dataclass(frozen=True)
class Row:
    """A point with our time, its gap, what crosses, how layers are shared out, and the time of every baseline."""

    point: Point
    ours_s: float
    lower_bound_s: float
    gap: float
    crossing: str
    layer_split: str
    baselines_s: dict[str, float]

    def speed_up(self, name: str) -> float | None:
        """Over one baseline."""
        return self.baselines_s[name] / self.ours_s if name in self.baselines_s else None

    def as_json(self) -> dict[str, Any]:
        """One object, as `--json` writes it."""
        return {
            "point": str(self.point),
            "iteration_s": self.ours_s,
            "lower_bound_s": self.lower_bound_s,
            "gap": self.gap,
            "crossing": self.crossing,
            "layer_split": self.layer_split,
            "baselines": self.baselines_s,
        }

    @property
    def over_single_axis(self) -> float | None:
        """Over the best of those that fix what crosses buildings."""
        times = [self.baselines_s[name] for name in SINGLE_AXIS if name in self.baselines_s]
        return min(times) / self.ours_s if times else None


def points(number: int, seed: int) -> list[Point]:
    """Points drawn evenly: every value of an axis comes equally often, as far as the number allows."""
    random = np.random.default_rng(seed)
    axes: list[Sequence[Any]] = [
        tuple(MODELS),
        FLEETS,
        SCALES,
        SHAPES,
        DISTANCES_KM,
        OVERSUBSCRIPTIONS,
        LOSSES,
        BATCHES,
    ]
    drawn = [[axis[k % len(axis)] for k in random.permutation(number)] for axis in axes]
    return [Point(*values) for values in zip(*drawn, strict=True)]


@dataclass(frozen=True)
class Building:
    """A building with its hosts, all of one GPU type."""

    name: str
    region: str
    num_hosts: int
    gpu: str

    @property
    def nic_bytes_per_s(self) -> float:
        """Of one GPU."""
        return NIC_BYTES_PER_S.get(self.gpu, USUAL_NIC_BYTES_PER_S)

    @property
    def leaving_bytes_per_s(self) -> float:
        """All GPUs at once."""
        return self.num_hosts * HOST_GPUS * self.nic_bytes_per_s


def buildings_of(point: Point) -> list[Building]:
    """Every building of a point."""
    whole = sum(map(sum, point.regions))
    shares = [(region, number, share) for region, own in enumerate(point.regions) for number, share in enumerate(own)]
    return [
        Building(
            f"r{region}b{number}",
            f"r{region}",
            point.num_gpus * share // whole // HOST_GPUS,
            point.fleet[index % len(point.fleet)],
        )
        for index, (region, number, share) in enumerate(shares)
    ]


def request_of(point: Point, time_limit_s: float) -> PlanRequest:
    """The job on buildings in a full mesh of links; each building has a scale-out network without blocking."""
    buildings = buildings_of(point)
    regions = [{"id": name, "level": "region"} for name in dict.fromkeys(one.region for one in buildings)]
    places = [{"id": one.name, "level": "building", "parent": one.region} for one in buildings]
    pools = [
        {
            "id": f"{one.name}-gpus",
            "place": one.name,
            "gpu": one.gpu,
            "num_hosts": one.num_hosts,
            "nic_bytes_per_s": one.nic_bytes_per_s,
        }
        for one in buildings
    ]
    links = [_link(point, one, other) for one, other in itertools.combinations(buildings, 2)]
    return PlanRequest.model_validate(
        {
            "workload": {
                "architecture": point.model,
                "sequence_length": SEQUENCE_LENGTH,
                "global_batch_sequences": point.batch,
            },
            "cluster": {
                "name": "headline",
                "places": regions + places,
                "pools": pools,
                "links": links,
            },
            "options": {"time_limit_s": time_limit_s, "reproducible": True, "relative_gap": 0.005},
        }
    )


def _link(point: Point, one: Building, other: Building) -> dict[str, Any]:
    """Every building sends to each other one an equal part of what the weakest can send."""
    buildings = buildings_of(point)
    near = one.region == other.region and len(point.regions) > 1
    return {
        "id": f"{one.name}-{other.name}",
        "from_place": one.name,
        "to_place": other.name,
        "capacity_bytes_per_s": min(own.leaving_bytes_per_s for own in buildings) / (len(buildings) - 1),
        "oversubscription": min(NEAR_OVERSUBSCRIPTION, point.oversubscription) if near else point.oversubscription,
        "distance_km": NEAR_KM if near else point.distance_km,
        "loss_probability": 0.0 if near else point.loss,
        "planes": PLANES,
        "load_balancing": ["ecmp", "ecmp_qp_scaling", "dqplb"],
    }


def row_of(point: Point, time_limit_s: float) -> Row | None:
    """Plan a point; the wall clock stands still, so that only counted work ends the search."""
    return _row(point, plan(request_of(point, time_limit_s), clock=lambda: 0.0))


def row_by_the_clock(point: Point, time_limit_s: float) -> Row | None:
    """Plan a point in so many seconds, with other processes as the service has them."""
    request = request_of(point, time_limit_s)
    options = request.options.model_copy(update={"reproducible": False})
    end(start(time.sleep, (0.0,)), PATIENCE_S)  # the fork server is up, as in the service
    with worker_pool(min(options.workers, num_cores()) - 1) as pool:
        return _row(point, plan(request.model_copy(update={"options": options}), worker_pool=pool))


def _row(point: Point, outcome: Outcome) -> Row | None:
    if not isinstance(outcome, Planned) or not outcome.plan.verdict.accepted:
        return None
    found = outcome.plan
    return Row(
        point,
        found.metrics.iteration_s,
        found.proof.lower_bound_s,
        found.proof.relative_gap,
        found.placement.crossing,
        found.configuration.layer_split,
        {one.name: one.iteration_s for one in found.baselines if one.iteration_s is not None},
    )


def distribution(speed_ups: list[float]) -> str:
    """Least, quartiles, most, and how often a baseline was as good as our plan."""
    low, first, median, third, most = np.percentile(speed_ups, [0, 25, 50, 75, 100])
    equal = sum(one <= SAME for one in speed_ups) / len(speed_ups)
    return f"{low:.3f} | {first:.3f} | {median:.3f} | {third:.3f} | {most:.3f} | {100 * equal:.0f} % | {len(speed_ups)}"


def report(rows: list[Row], num_missing: int) -> Iterator[str]:
    """The table, the largest speed-ups with their points, and what crosses."""
    names = sorted({name for row in rows for name in row.baselines_s})
    columns = {name: [(value, row) for row in rows if (value := row.speed_up(name)) is not None] for name in names}
    best = [(value, row) for row in rows if (value := row.over_single_axis) is not None]
    if best:
        columns["best of the single-axis ones"] = best
    yield "| over | least | 1st quartile | median | 3rd quartile | most | as good as ours | points |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, pairs in columns.items():
        yield f"| {name} | {distribution([value for value, _ in pairs])} |"
    for name in ("production-like", "best of the single-axis ones"):
        yield f"\nLargest over {name}:\n"
        for value, row in sorted(columns.get(name, []), key=lambda pair: -pair[0])[:NUM_LARGEST]:
            yield f"- {value:.2f}x at {row.point} ({row.ours_s:.3f} s, {row.crossing}, gap {100 * row.gap:.1f} %)"
    crossings = {kind: sum(row.crossing == kind for row in rows) for kind in ("none", "dp_out", "pp_out", "mixed")}
    least = min((value for pairs in columns.values() for value, _ in pairs), default=float("nan"))
    by_type = sum(row.layer_split == "by_gpu_type" for row in rows)
    counted = ", ".join(f"{count} {kind}" for kind, count in crossings.items())
    gaps = np.percentile([100 * row.gap for row in rows], [50, 90, 100])
    yield f"\nGaps: median {gaps[0]:.1f} %, nine of ten {gaps[1]:.1f} %, largest {gaps[2]:.1f} %."
    yield f"\nOur plans: {counted}; {by_type} share out layers by GPU type."
    yield f"Least speed-up of all: {least:.6f}; points without a plan: {num_missing}."


def main() -> int:
    """Print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--first", type=int, help="plan only so many of the points drawn, the first ones")
    parser.add_argument("--time-limit", type=float, default=12.0, help="seconds of counted work per point")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--wall", action="store_true", help="seconds by the clock, one point at a time on all cores")
    parser.add_argument("--write", type=Path, help="Markdown file to append the table to")
    parser.add_argument("--json", type=Path, help="JSON file to write one object per point to")
    arguments = parser.parse_args()
    compile_first()
    chosen = points(arguments.points, arguments.seed)[: arguments.first]
    rows: list[Row] = []
    workers, planned = (1, row_by_the_clock) if arguments.wall else (arguments.workers, row_of)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn" if arguments.wall else "forkserver")) as pool:
        running = [pool.submit(planned, point, arguments.time_limit) for point in chosen]
        for done in as_completed(running):
            row = done.result()
            if row is not None:
                rows.append(row)
                times = ", ".join(f"{name} {value / row.ours_s:.2f}" for name, value in row.baselines_s.items())
                sys.stderr.write(f"{row.point}: {row.ours_s:.3f} s {row.crossing} {row.layer_split}: {times}\n")
    rows.sort(key=lambda row: chosen.index(row.point))
    if not rows:
        sys.stdout.write("no point has a plan\n")
        return 1
    lines = list(report(rows, len(chosen) - len(rows)))
    sys.stdout.write("\n".join(lines) + "\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    if arguments.write is not None:
        arguments.write.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
