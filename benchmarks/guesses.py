"""How well the guesses order configurations: guess against evaluation on a spread of requests.

`python -m benchmarks.guesses [--case NAME]... [--sample N] [--keep FILE]` evaluates a sample of every case's
configurations, the most promising ones and others drawn from those that may come near, and prints per case the rank
correlation of guess and evaluation (Spearman), of the guess ahead of pricing and of the priced one, the spread of
evaluation over guess, and the regret of trying the first k by guess: how much slower the best of them is than the best
of all that were evaluated. `--keep` remembers evaluations in a file, so that another guess is measured on them in a
moment.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import headline, scale
from models.catalogue import entry_names, named_entry
from models.plan import Configuration
from models.request import PlanRequest
from solver.arrays import FloatArray
from solver.bounds.screening import screening_bounds
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import within_framework
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.evaluate import evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import Schedulers
from solver.objective import Goal
from solver.search.frontier import Frontier
from solver.search.tasks import PATTERNS

FIRST = (1, 3, 10)
NUM_PORTIONS = 4  # what a search prices first
NEAR = 2.5  # configurations with a bound of more than this times the least are not drawn
NUM_POINTS, NUM_DRAWN = 24, 12  # of the grid of `benchmarks.headline`
TOO_LARGE = "64-buildings-1048576"  # one evaluation takes longer than the other cases together

Evaluations = dict[str, float | None]


def requests() -> dict[str, PlanRequest]:
    """Examples of the catalogue, the scale cases, and points of the headline grid that span buildings."""
    documents: dict[str, dict[str, Any]] = {name: named_entry("examples", name) for name in entry_names("examples")}
    documents |= {one.name: one.document for one in scale.cases() if one.name != TOO_LARGE}
    found = {name: PlanRequest.model_validate(document) for name, document in documents.items()}
    spread = [point for point in headline.points(NUM_POINTS, 0) if len(headline.buildings_of(point)) > 1]
    return found | {str(point): headline.request_of(point, 60.0) for point in spread[:NUM_DRAWN]}


@dataclass(frozen=True)
class Row:
    """Guesses and evaluations of the sample of one case."""

    name: str
    ahead_s: FloatArray
    guess_s: FloatArray
    evaluation_s: FloatArray

    def regret(self, number: int) -> float:
        """How much slower the best of the first ones is."""
        first = np.argsort(self.guess_s, kind="stable")[:number]
        return float(self.evaluation_s[first].min() / self.evaluation_s.min()) - 1.0

    def __str__(self) -> str:
        ratio = np.percentile(self.evaluation_s / self.guess_s, [10, 50, 90])
        regrets = " ".join(f"{100 * self.regret(number):6.1f}" for number in FIRST)
        return (
            f"{self.name[:58]:58s} {len(self.evaluation_s):4d}  {spearman(self.ahead_s, self.evaluation_s):5.2f} "
            f"{spearman(self.guess_s, self.evaluation_s):5.2f}  {' '.join(f'{one:5.2f}' for one in ratio)}  {regrets}  "
            f"{self.evaluation_s.min():8.3f}"
        )


HEADER = (
    f"{'case':58s} {'n':>4s}  {'ahead':>5s} {'rank':>5s}  {'timed/guess 10,50,90 %':>17s}  "
    f"{'regret % of ' + ', '.join(map(str, FIRST)):>20s}  {'best s':>8s}"
)


def spearman(one: FloatArray, other: FloatArray) -> float:
    """Correlation of ranks; equal values share their mean rank."""
    ranks = [_ranks(values) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1]) if len(one) > 2 else float("nan")


def _ranks(values: FloatArray) -> FloatArray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return ranks


def sampled(frontier: Frontier, number: int) -> list[int]:
    """Half the most promising in the order of the search, half drawn from all that may come near, with a fixed seed."""
    random, taken = np.random.default_rng(0), list[int]()
    while len(taken) < number // 2 and (index := frontier.next(float("inf"))) is not None:
        frontier.explored.add(index)
        taken.append(index)
    near = np.flatnonzero(frontier.bound <= NEAR * float(frontier.bound.min(initial=float("inf"))))
    others = np.setdiff1d(near, taken)
    return [*taken, *random.choice(others, size=min(number - len(taken), len(others)), replace=False).tolist()]


def evaluated_s(context: Context, configuration: Configuration, schedulers: Schedulers) -> float | None:
    """The least time over its placements; None where none is found."""
    by_type = configuration.layer_split == "by_gpu_type"
    found = typed_placements(context, configuration) if by_type else placements(context, configuration, PATTERNS)
    evaluations = [evaluate(context, candidate, schedulers.quick) for candidate in found]
    return min((one.iteration_s for one in evaluations if one is not None), default=None)


def measured(name: str, request: PlanRequest, number: int, known: Evaluations) -> Row | None:
    """The sample of one case with its evaluations, those known already among them."""
    request = within_framework(request)
    context = Context.of(request)
    frontier = Frontier(context, enumerate_space(request), Goal.of(context))
    for _ in range(NUM_PORTIONS):
        frontier.load_for(np.ones(len(frontier.space), dtype=np.bool_))
    keys = {_key(name, frontier.configuration(index)): index for index in sampled(frontier, number)}
    if not keys:
        return None
    schedulers = Schedulers(context, time.monotonic, lambda: False)
    for key, index in keys.items():
        if key not in known:
            known[key] = evaluated_s(context, frontier.configuration(index), schedulers)
    timed = {index: time_s for key, index in keys.items() if (time_s := known[key]) is not None}
    chosen = np.array(list(timed), dtype=np.int64)
    ahead_s = screening_bounds(context, frontier.space.take(frontier.rows[chosen])).guess_s
    return Row(name, ahead_s, frontier.guess[chosen], np.array(list(timed.values())))


def _key(name: str, configuration: Configuration) -> str:
    return f"{name} {configuration.model_dump_json()}"


def rows(names: list[str] | None, number: int, known: Evaluations) -> Iterator[Row]:
    """All cases, or those named."""
    for name, request in requests().items():
        if not names or any(one in name for one in names):
            row = measured(name, request, number, known)
            if row is not None:
                yield row


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="only cases with this in their name")
    parser.add_argument("--sample", type=int, default=48, help="configurations evaluated per case")
    parser.add_argument("--keep", type=Path, help="JSON file of evaluations already timed")
    arguments = parser.parse_args()
    known: Evaluations = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else {}
    sys.stdout.write(HEADER + "\n")
    for row in rows(arguments.case, arguments.sample, known):
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
        if arguments.keep:
            arguments.keep.write_text(json.dumps(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
