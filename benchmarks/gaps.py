"""Which side of a gap is bad, the plan or the bound, and what the bound lacks: on points of the headline grid.

`python -m benchmarks.gaps [--points N] [--first K] [--seed S] [--seconds S] [--long S] [--json F]` searches each point
for so many seconds of CPU, and again for long ones. The best plan of both stands for the optimum: what the first plan
is above it is the plan's part of the gap, the rest is the bound's. Of the configuration that holds the bound, it says
how far its pipeline's bound on its best placement is above it (what placements cost that the bound does not know), and
its best schedule above that.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.compiled import compile_first
from benchmarks.headline import Point, points, request_of
from models.plan import Plan
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.evaluate import evaluate
from solver.pipeline.bounds import lower_bound
from solver.search.branch_and_bound import Search
from solver.search.hooks import Hooks
from solver.search.tasks import placed
from solver.search.worker_pool import NoWorkerPool


@dataclass(frozen=True)
class Gap:
    """A point: plan, bound and best plan known, and the configuration that holds the bound. Seconds of an iteration.

    `limit_placed_s` and `limit_timed_s` are the least pipeline bound and the least time of its placements.
    """

    point: str
    plan_s: float
    bound_s: float
    best_s: float
    num_open: int
    limit: str
    limit_is_refined: bool
    limit_placed_s: float
    limit_timed_s: float

    @property
    def whole(self) -> float:
        """The gap as a plan states it."""
        return 1.0 - self.bound_s / self.plan_s

    @property
    def of_plan(self) -> float:
        """The part that a better plan closes, at least."""
        return 1.0 - self.best_s / self.plan_s

    @property
    def missing(self) -> str:
        """What would raise the bound."""
        if not self.limit_is_refined:
            return "refinement: the least bound is a closed form"
        placed = self.limit_placed_s / self.bound_s - 1.0
        timed = self.limit_timed_s / self.limit_placed_s - 1.0
        return f"placement +{100 * placed:.0f} %, schedule and exchanges +{100 * timed:.0f} %"


def searched(request: PlanRequest) -> tuple[Search, Plan | None]:
    """A search by the seconds of CPU that this process takes."""
    context = Context.of(request)
    hooks = Hooks(lambda _: None, lambda _: None, lambda: False, time.process_time, time.process_time())
    search = Search(context, enumerate_space(request), hooks, NoWorkerPool())
    return search, search.run()


def gap_of(point: Point, seconds: float, long_s: float) -> Gap | None:
    """Search a point twice; None where there is no plan."""
    request = request_of(point, seconds)
    alone = request.options.model_copy(update={"reproducible": False, "workers": 1})
    search, plan = searched(request.model_copy(update={"options": alone}))
    long = alone.model_copy(update={"time_limit_s": long_s, "seed": alone.seed + 1})
    _, better = searched(request.model_copy(update={"options": long}))
    if plan is None:
        return None
    best_s = min(one.metrics.iteration_s for one in (plan, better) if one is not None)
    frontier, cutoff = search.frontier, search.best.value
    index = int(np.argmin(frontier.bound))
    configuration = frontier.configuration(index)
    found = (
        evaluate(frontier.context, one, search.schedulers.quick) for one in placed(frontier.context, configuration)
    )
    timed = [one for one in found if one is not None]
    degrees = configuration.degrees
    return Gap(
        point=str(point),
        plan_s=plan.metrics.iteration_s,
        bound_s=plan.proof.lower_bound_s,
        best_s=best_s,
        num_open=int(np.count_nonzero(frontier.bound < cutoff)),
        limit=f"tp {degrees.tp} cp {degrees.cp} ep {degrees.ep} pp {degrees.pp} dp {degrees.dp} vpp {degrees.vpp}, "
        f"{configuration.num_microbatches} micro-batches, {configuration.family}, {configuration.layer_split}",
        limit_is_refined=index in frontier.refined,
        limit_placed_s=min((max(map(lower_bound, one.problems)) + one.optimizer_s for one in timed), default=np.inf),
        limit_timed_s=min((one.iteration_s for one in timed), default=np.inf),
    )


def report(rows: list[Gap]) -> Iterator[str]:
    """A row per point, and the distribution."""
    yield "| point | plan s | bound s | gap | of it the plan's | configuration with the bound | what the bound lacks |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        shares = f"{100 * row.whole:.1f} % | {100 * row.of_plan:.1f} %"
        yield f"| {row.point} | {row.plan_s:.4g} | {row.bound_s:.4g} | {shares} | {row.limit} | {row.missing} |"
    gaps = np.percentile([100 * row.whole for row in rows], [50, 90, 100])
    near = sum(row.of_plan <= 0.01 for row in rows)
    yield f"\nGaps: median {gaps[0]:.1f} %, nine of ten {gaps[1]:.1f} %, largest {gaps[2]:.1f} %."
    yield f"{near} of {len(rows)} plans are within 1 % of the best known."


def main() -> int:
    """Print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=48)
    parser.add_argument("--first", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of CPU per point")
    parser.add_argument("--long", type=float, default=240.0, help="seconds of CPU of the longer search")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="JSON file to write one object per point to")
    arguments = parser.parse_args()
    compile_first()
    chosen = points(arguments.points, arguments.seed)[: arguments.first]
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("forkserver")) as pool:
        running = [pool.submit(gap_of, point, arguments.seconds, arguments.long) for point in chosen]
        rows = [row for one in running if (row := one.result()) is not None]
    if not rows:
        sys.stdout.write("no point has a plan\n")
        return 1
    sys.stdout.write("\n".join(report(rows)) + "\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
