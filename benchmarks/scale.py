"""Planning at scale: first judged plan, gap and memory, by GPUs and by buildings.

`python -m benchmarks.scale [--case NAME]...` prints one row per case and exits with 1 when one misses its target. Every
case runs in a process of its own. Times depend on the machine: the targets are those of two cores of its own.
`--growth FILE` instead plans ever more GPUs and ever more buildings, up to the first judged plan, prints CPU seconds,
which other programs on the machine hardly change, and draws them into FILE as SVG.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from app.jobs.processes import end, start
from app.jobs.worker_pool import GIB, num_cores, worker_pool
from benchmarks.compiled import compile_first
from models.catalogue import named_entry
from models.outcome import Planned
from models.request import PlanRequest
from solver.compiled import load_compiler
from solver.planner import plan

GIB_IN_KIB = 2**20
PATIENCE_S = 60.0
GROWTH = (
    *(("GPUs", num_gpus, 8) for num_gpus in (8_192, 32_768, 131_072)),
    *(("buildings", 32_768, num_buildings) for num_buildings in (4, 8, 16, 32)),
)
TYPES = ("H100-SXM-80G", "H200-SXM-141G", "B200-SXM")


@dataclass(frozen=True)
class Case:
    """A request and what it has to reach: first judged plan, and a gap within a time."""

    name: str
    document: dict[str, Any]
    time_limit_s: float
    first_s: float
    gap: float | None = None
    gap_s: float | None = None


@dataclass
class Row:
    """What a case took."""

    case: Case
    num_gpus: int
    num_buildings: int
    first_s: float | None = None
    iteration_s: float = float("nan")
    gap: float = float("nan")
    gap_reached_s: float | None = None
    elapsed_s: float = 0.0
    peak_gib: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)

    @property
    def missed(self) -> bool:
        """Some target of the case."""
        late = self.first_s is None or self.first_s > self.case.first_s
        return late or (self.case.gap is not None and self.gap_reached_s is None) or self.peak_gib > 4.0

    def __str__(self) -> str:
        first = "none" if self.first_s is None else f"{self.first_s:.1f} s"
        reached = "" if self.gap_reached_s is None else f" (target after {self.gap_reached_s:.1f} s)"
        return (
            f"{self.case.name:28s} {self.num_gpus:9,d} GPUs {self.num_buildings:3d} buildings  first {first:>7s}  "
            f"{self.iteration_s:8.3f} s  gap {100 * self.gap:5.1f} % after {self.elapsed_s:5.1f} s{reached}  "
            f"{self.peak_gib:.2f} GiB{'  MISSED' if self.missed else ''}"
        )


def fleet(num_gpus: int, num_buildings: int, types: tuple[str, ...] = TYPES) -> dict[str, Any]:
    """Buildings of unequal size in one metropolitan region, GPU types in turn; each 2 zones, uplinks 1:2.8 and 1:4.

    Sizes run from two thirds to four thirds of the mean, in whole hosts of 8 per zone.
    """
    hosts = num_gpus // 8
    last = max(num_buildings - 1, 1)
    weight = [(1 + ((7 * index) % num_buildings) / last) * 2 / 3 for index in range(num_buildings)]
    share = [int(hosts * one / sum(weight)) // 2 * 2 for one in weight]
    share[0] += hosts - sum(share)
    fabric = {"planes": 76, "load_balancing": ["ecmp", "ecmp_qp_scaling", "dqplb"]}
    places: list[dict[str, Any]] = [{"id": "metro", "level": "region"}]
    pools = []
    for index, own in enumerate(share):
        building = f"b{index:02d}"
        uplink = {"oversubscription": 4.0, "latency_s": 1e-4 + 1e-5 * (index % 10), **fabric}
        places.append({"id": building, "level": "building", "parent": "metro", "uplink": uplink})
        for number, zone_hosts in enumerate((own - own // 2, own // 2)):
            zone = f"{building}-z{number}"
            places.append(
                {"id": zone, "level": "zone", "parent": building, "uplink": {"oversubscription": 2.8, **fabric}}
            )
            gpu = types[index % len(types)]
            pools.append(
                {"id": f"{zone}-gpus", "place": zone, "gpu": gpu, "num_hosts": zone_hosts, "nic_bytes_per_s": 5e10}
            )
    return {"name": f"fleet-{num_gpus}-{num_buildings}", "places": places, "pools": pools}


def job(
    cluster: dict[str, Any] | str, batch: int, architecture: str = "llama-3.1-405b", sequence_length: int = 8192
) -> dict[str, Any]:
    """A request of the scale cases."""
    workload = {
        "architecture": architecture,
        "sequence_length": sequence_length,
        "global_batch_sequences": batch,
    }
    return {"workload": workload, "cluster": cluster}


def cases() -> tuple[Case, ...]:
    """The cases with targets."""
    return (
        Case("two-buildings-16384", job("two-buildings", 2048), 30.0, first_s=3.0, gap=0.03, gap_s=30.0),
        Case("five-cloud-zones", named_entry("examples", "mixtral-five-zones"), 10.0, first_s=1.5),
        Case("experts-16384", job("two-buildings", 16_384, "deepseek-v3", 4096), 8.0, first_s=8.0),
        Case("24-buildings-131072", job(fleet(131_072, 24), 16_384), 120.0, first_s=10.0, gap=0.05, gap_s=120.0),
        Case("64-buildings-1048576", job(fleet(1_048_576, 64), 65_536), 300.0, first_s=300.0),
    )


def own_memory_of_children_bytes() -> int:
    """Memory that the child processes share with nobody; one may end while it is asked."""
    total_bytes = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total_bytes += child.memory_full_info().uss
    return total_bytes


def run(case: Case) -> Row:
    """Plan the case in this process, with as many others as the request has workers."""
    end(start(time.sleep, (0.0,)), PATIENCE_S)  # the fork server is up, and the compiler loaded, as in the service
    load_compiler()
    document = {**case.document, "options": {"time_limit_s": case.time_limit_s, "relative_gap": case.gap or 0.01}}
    started = time.monotonic()
    request = PlanRequest.model_validate(document)
    buildings = sum(place.level == "building" for place in request.cluster.places)
    row = Row(case, request.cluster.num_free_gpus, buildings)

    def keep(found: Planned) -> None:
        row.gaps.append((time.monotonic() - started, found.plan.proof.relative_gap))
        row.peak_gib = max(row.peak_gib, own_memory_of_children_bytes() / GIB)

    with worker_pool(min(request.options.workers, num_cores()) - 1) as pool:
        outcome = plan(request, incumbent=keep, worker_pool=pool)
    row.elapsed_s = time.monotonic() - started
    row.peak_gib += resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB_IN_KIB
    if isinstance(outcome, Planned):
        row.first_s = row.gaps[0][0]
        row.iteration_s, row.gap = outcome.plan.metrics.iteration_s, outcome.plan.proof.relative_gap
        if case.gap is not None and row.gap <= case.gap:
            row.gap_reached_s = next((at for at, gap in row.gaps if gap <= case.gap), row.elapsed_s)
    return row


def run_alone(case: Case) -> Row:
    """Plan the case in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:  # a Pool's may have no children
        return pool.submit(run, case).result()


def first_plan_cpu_s(num_gpus: int, num_buildings: int) -> float:
    """CPU seconds from the request to the first judged plan."""
    document = {**job(fleet(num_gpus, num_buildings), num_gpus // 8), "options": {"time_limit_s": 600.0, "workers": 1}}
    request, found = PlanRequest.model_validate(document), list[float]()
    started = time.process_time()

    def keep(_: Planned) -> None:
        found.append(time.process_time() - started)

    plan(request, incumbent=keep, cancelled=lambda: bool(found), clock=time.process_time)
    return found[0] if found else float("nan")


def grow(path: Path) -> None:
    """Print both series and draw them."""
    series: dict[str, list[tuple[int, float]]] = {"GPUs": [], "buildings": []}
    for name, num_gpus, num_buildings in GROWTH:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            taken_s = pool.apply(first_plan_cpu_s, (num_gpus, num_buildings))
        series[name].append((num_gpus if name == "GPUs" else num_buildings, taken_s))
        sys.stdout.write(f"{num_gpus:9,d} GPUs {num_buildings:3d} buildings  first judged plan {taken_s:6.1f} CPU s\n")
        sys.stdout.flush()
    path.write_text(svg_of(series), encoding="utf-8")


def svg_of(series: dict[str, list[tuple[int, float]]]) -> str:
    """One panel per series, both axes logarithmic; the dashed line grows like the first point squared."""
    panels = [panel(name, points, 20 + 330 * number) for number, (name, points) in enumerate(series.items())]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 300" font-family="sans-serif" font-size="11">\n'
        '<rect width="680" height="300" fill="white"/>\n' + "\n".join(panels) + "\n</svg>\n"
    )


def panel(name: str, points: list[tuple[int, float]], left: int) -> str:
    """CPU seconds over one size, from 1 to 1,000 s and over two decades of the size."""
    first = points[0][0]

    def at(size: float, seconds: float) -> str:
        x = left + 30 + 260 * math.log(size / first) / math.log(100)
        return f"{x:.1f},{250 - 200 * math.log10(max(seconds, 1.0)) / 3:.1f}"

    marks = [f'<circle cx="{x}" cy="{y}" r="3"/>' for x, y in (at(*point).split(",") for point in points)]
    labels = [
        f'<text x="{x}" y="268" text-anchor="middle">{size:,}</text>'
        for size, (x, _) in ((size, at(size, 1.0).split(",")) for size, _ in points)
    ]
    ticks = [
        f'<text x="{left + 24}" y="{254 - 200 * power / 3:.1f}" text-anchor="end">{10**power}</text>'
        for power in range(4)
    ]
    squared = " ".join(at(size, points[0][1] * (size / first) ** 2) for size, _ in points)
    return "\n".join(
        [
            f'<polyline points="{left + 30},50 {left + 30},250 {left + 290},250" fill="none" stroke="black"/>',
            f'<polyline points="{squared}" fill="none" stroke="grey" stroke-dasharray="4 3"/>',
            f'<polyline points="{" ".join(at(*point) for point in points)}" fill="none" stroke="#0b62a8"/>',
            *marks,
            *labels,
            *ticks,
            f'<text x="{left + 160}" y="288" text-anchor="middle">{name}</text>',
            f'<text x="{left + 30}" y="36">CPU seconds to the first judged plan</text>',
        ]
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="only these cases")
    parser.add_argument("--growth", type=Path, metavar="FILE", help="the growth series instead of the cases")
    arguments = parser.parse_args()
    compile_first()
    if arguments.growth is not None:
        grow(arguments.growth)
        return 0
    missed = 0
    for case in cases():
        if not arguments.case or case.name in arguments.case:
            row = run_alone(case)
            missed += row.missed
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
