"""What timing a candidate costs: evaluations per CPU second on the most promising configurations of the scale cases.

`python -m benchmarks.evaluations [--case NAME]...` prints one row per case. `--against FOLDER` times the checkout of
another version there on the same cases in turn, and prints the ratio: other programs on the machine slow both down
alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.scale import Case, cases
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import Pattern, placements
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.frontier import Frontier

PATTERNS: tuple[Pattern, ...] = ("replicas_whole", "ranks_whole", "ranks_in_groups", "ranks_spread")
NUM_CONFIGURATIONS = 4


def evaluation_times_s(case: Case) -> list[float]:
    """CPU seconds of every evaluation of the most promising configurations; the very first loads what is compiled."""
    request = PlanRequest.model_validate({**case.document, "options": {"time_limit_s": 600.0}})
    context = Context.of(request)
    frontier = Frontier(context, enumerate_space(request), Goal.of(context))
    frontier.load(float("inf"), planned=False)
    schedulers = Schedulers(context, time.process_time, lambda: False)
    taken: list[float] = []
    for _ in range(NUM_CONFIGURATIONS):
        index = frontier.next(float("inf"))
        if index is None:
            break
        frontier.explored.add(index)
        configuration = frontier.configuration(index)
        by_type = configuration.layer_split == "by_gpu_type"
        placed = typed_placements(context, configuration) if by_type else placements(context, configuration, PATTERNS)
        for candidate in placed:
            began_s = time.process_time()
            evaluate(context, candidate, schedulers.quick)
            taken.append(time.process_time() - began_s)
    return taken


def timed_alone(name: str, folder: Path) -> list[float]:
    """Evaluation times of a case in a process of its own, with the code of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--case", name, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def row(name: str, here: list[float], there: list[float] | None) -> str:
    """One line of the table; the first evaluation is counted apart."""
    rate = (len(here) - 1) / max(sum(here[1:]), 1e-9)
    text = f"{name:28s} {len(here):3d} evaluations  first {here[0]:6.2f} CPU s  then {rate:7.2f} evaluations per CPU s"
    if there is None:
        return text
    return f"{text}  {rate * sum(there[1:]) / max(len(there) - 1, 1):5.2f} times the other version's"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="only these cases")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="checkout of another version")
    parser.add_argument(
        "--json", action="store_true", help="CPU seconds of every evaluation of the one case, as a list"
    )
    arguments = parser.parse_args()
    chosen = [case for case in cases() if not arguments.case or case.name in arguments.case]
    if arguments.json:
        sys.stdout.write(json.dumps(evaluation_times_s(chosen[0])))
        return 0
    for case in chosen:
        here = timed_alone(case.name, Path(__file__).resolve().parents[1])
        there = None if arguments.against is None else timed_alone(case.name, arguments.against)
        sys.stdout.write(f"{row(case.name, here, there)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
