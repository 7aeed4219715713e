"""Pipeline schedules against bounds and peers, on the same cases in one run: quality, proofs and time.

`python -m benchmarks.schedules [--cases N] [--sizes 8x16,16x32] [--layout v] [--scale X]` prints one line per size and
one for the compiled kernels; with `--families jittered,loop` one per family of `pipeline_cases`, at 30 s. Gaps are to
the bound that our search proves; peers run at the same memory. `--scale` multiplies the time limits.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.compiled import compile_first
from benchmarks.first_schedules import quick_schedule
from benchmarks.pipeline_cases import FAMILIES, family_case, random_case, random_v_case
from models.schedule import PipelineProblem, PipelineSchedule
from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import Policy
from solver.pipeline.judge import check_schedule
from solver.pipeline.problem import shape_of
from solver.pipeline.simulate import replay_shape
from solver.pipeline.solve import solve_pipeline

PEERS = (
    "one_f_one_b",
    "eager_one_f_one_b",
    "zb_h1",
    "zb_auto",
    "cross_greedy_sub",
    "cross_pipe",
    "cross_pipe_interleaved",
)
FAMILY_CASES, FAMILY_LIMIT_S = 4, 30.0
SIZES = {
    (8, 16): (60, 5.0),
    (16, 32): (20, 30.0),
    (16, 64): (6, 60.0),
    (32, 64): (4, 60.0),
    (64, 256): (3, 60.0),
    (64, 512): (3, 0.0),
}


@dataclass(frozen=True)
class Line:
    """One case: our answer, the first answer, and the peers' values (NaN where a peer does not fit)."""

    schedule: PipelineSchedule
    quick: PipelineSchedule
    peers_s: tuple[float, ...]
    judged: bool


def run_case(problem: PipelineProblem, *, search: bool) -> Line:
    """Everybody on one case."""
    peers = tuple(_peer_s(problem, name) for name in PEERS)
    quick = quick_schedule(problem)
    schedule = solve_pipeline(problem) if search else quick
    return Line(schedule, quick, peers, not check_schedule(problem, schedule))


def _peer_s(problem: PipelineProblem, name: str) -> float:
    try:
        return quick_schedule(problem, (name,)).objective_value_s
    except ValueError:
        return float("nan")


def report(name: str, lines: list[Line], limit_s: float) -> str:
    """One table row: counts, gaps in percent, seconds."""
    bounds = np.array([line.schedule.lower_bound_s for line in lines])
    gaps = np.array([line.schedule.gap for line in lines]) * 100
    quick = np.array([line.quick.objective_value_s for line in lines])
    peers = np.array([line.peers_s for line in lines])
    means = np.nanmean((peers / bounds[:, None] - 1) * 100, axis=0)
    ours = np.array([line.schedule.objective_value_s for line in lines])
    worse = int(np.nansum((peers < ours[:, None] * (1 - 1e-9)).any(axis=1)))
    proven = sum(line.schedule.status == "optimal" for line in lines)
    seconds = [line.schedule.seconds for line in lines]
    peer_text = "  ".join(f"{name} {mean:.1f}" for name, mean in zip(PEERS, means, strict=True))
    return (
        f"{name} limit {limit_s:g} s: proven {proven}/{len(lines)}  gap mean {gaps.mean():.3f} % worst "
        f"{gaps.max():.3f} %  seconds mean {np.mean(seconds):.2f} worst {max(seconds):.2f}  first answer above bound "
        f"{((quick / bounds - 1) * 100).mean():.2f} % in {np.mean([line.quick.seconds for line in lines]):.2f} s\n"
        f"    peers above bound, %: {peer_text}  beaten by a peer {worse}  judged {sum(line.judged for line in lines)}"
    )


def kernels() -> str:
    """Replay and greedy on about 100,000 operations, after warm-up, best of three."""
    shape = shape_of(random_case(64, 520, 0, 1.0))
    order = greedy_order(shape, Policy())
    replay_shape(shape, order)
    replays, greedies = [], []
    for _ in range(3):
        begin = time.perf_counter()
        replay_shape(shape, order)
        middle = time.perf_counter()
        greedy_order(shape, Policy())
        replays.append(middle - begin)
        greedies.append(time.perf_counter() - middle)
    return f"{shape.num_operations} operations: replay {min(replays) * 1e3:.0f} ms, greedy {min(greedies) * 1e3:.0f} ms"


def main() -> int:
    """Print the tables; 1 when a schedule is convicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=None, help="cases per size (default: by size)")
    parser.add_argument("--sizes", default=",".join(f"{p}x{m}" for p, m in SIZES), help="ranks x micro-batches")
    parser.add_argument("--families", default="", help=f"instead of sizes: {', '.join(FAMILIES)}")
    parser.add_argument("--layout", choices=("one_way", "v"), default="one_way", help="layout of the cases")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the time limits")
    arguments = parser.parse_args()
    compile_first()
    for number in (0, 5, 13):  # compiled code is loaded before anything is timed
        solve_pipeline(random_case(8, 16, number, 2.0))
    convicted = 0
    for name in filter(None, arguments.families.split(",")):
        limit_s = FAMILY_LIMIT_S * arguments.scale
        numbers = range(arguments.cases or FAMILY_CASES)
        lines = [run_case(family_case(name, number, limit_s), search=True) for number in numbers]
        convicted += sum(not line.judged for line in lines)
        sys.stdout.write(report(name, lines, limit_s) + "\n")
        sys.stdout.flush()
    for text in arguments.sizes.split(",") if not arguments.families else ():
        ranks, microbatches = (int(part) for part in text.split("x"))
        usual, limit_s = SIZES.get((ranks, microbatches), (5, 60.0))
        limit_s *= arguments.scale
        lines = []
        for number in range(arguments.cases or usual):
            make = random_v_case if arguments.layout == "v" else random_case
            problem = make(ranks, microbatches, number, max(limit_s, 1e-3))
            lines.append(run_case(problem, search=limit_s > 0))
        convicted += sum(not line.judged for line in lines)
        sys.stdout.write(report(f"({ranks}, {microbatches})", lines, limit_s) + "\n")
        sys.stdout.flush()
    sys.stdout.write(kernels() + "\n")
    return 1 if convicted else 0


if __name__ == "__main__":
    raise SystemExit(main())
