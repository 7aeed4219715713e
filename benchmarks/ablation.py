"""What each engine adds: every part that orders a pipeline or bounds a configuration, taken out alone.

`python -m benchmarks.ablation [--schedules N] [--points N] [--seconds S] [--only WORD] [--json F] [--write F]` runs the
same cases with everything, then without one part at a time. First answers are the best of all generators without a
search; schedules (families and sizes of `pipeline_cases`) have S seconds of processor time each; plans (points of the
headline grid) S seconds of counted work. So load changes little of the second and nothing of the others. A row says
how many cases end worse, by how much in all, and how many proofs are lost. A part whose row is empty may go; one that
stays has its line in `docs/ablation.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.headline import points, request_of
from benchmarks.pipeline_cases import random_case, random_loop_case, random_v_case
from models.outcome import Planned
from models.request import PlanRequest
from models.schedule import PipelineProblem
from solver.bounds.connections import ConnectionLimits, MessageLoss
from solver.pipeline.bounds import lower_bound
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.portfolio import candidates
from solver.pipeline.problem import shape_of
from solver.pipeline.solve import search_pipeline
from solver.planner import plan

COLUMNS = "cases | worse | better | weaker bound | proofs lost | gap, mean change % | worst % | time"
PORTFOLIO = 4  # so many times as many first answers as searches: they take less
NOISE = 1e-4  # relative change of a value or a bound that counts
SIZES = ((8, 16), (16, 32), (16, 64))
LAYOUTS = {"one_way": random_case, "v": random_v_case, "loop": random_loop_case}
EVERYTHING, POLICIES = "everything", "list scheduling: grid of policies"
# What stands at a dotted name -> what stands there without the part, made of what is there.
Patches = Mapping[str, Callable[[Any], Any]]
Cases = dict[str, Callable[[], "Result"]]


def _answering(value: Any) -> Callable[[Any], Any]:
    """In place of a function: one that always returns this."""
    return lambda _: lambda *_, **__: value


def _of_no_seconds(original: Callable[..., Any]) -> Callable[..., Any]:
    """In place of a bound in columns or in records of them: the same shape, which says nothing."""

    def bound(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        if isinstance(found, np.ndarray):
            return np.zeros_like(found)
        first = fields(found)[0].name
        return replace(found, **{first: np.zeros_like(getattr(found, first))})

    return bound


def _of_no_seconds_at_all(original: Any) -> Any:
    """In place of a function whose record has nothing but seconds."""

    def bound(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        return replace(found, **{one.name: np.zeros_like(getattr(found, one.name)) for one in fields(found)})

    return bound


def _unraised(_: Any) -> Any:
    """In place of what raises the bound of some pipelines: the bound that is known."""
    return lambda _pipelines, bound_s, _high_s: bound_s


def _out_of_order(original: Any) -> Any:
    """In place of placements by all patterns: by those that do not fill places with rank after rank."""
    return lambda context, configuration, patterns: original(
        context, configuration, tuple(one for one in patterns if not one.startswith("in_order"))
    )


def _without_orders(_: Any) -> Any:
    """In place of a search that yields orders: one that has none."""
    return lambda *_, **__: iter(())


NOTHING, NO_SECONDS = _answering(None), _answering(0.0)
NO_LIMITS = _answering(ConnectionLimits(float("inf"), float("inf"), 0.0, MessageLoss(0.0, 0.0, 1, True, 1, 1)))
ORDERING: dict[str, Patches] = {
    "exact: state spaces of one rank": {"solver.pipeline.solve.close_by_state_space": _answering(False)},
    "exact: both stages of a rank": {"solver.pipeline.exact.horizon_search.joint_ranks_of": _answering(None)},
    "steady states that repeat": {"solver.pipeline.solve.repeat": NOTHING},
    "windows of an order": {"solver.pipeline.solve.improve_by_windows": NOTHING},
    "annealing": {"solver.pipeline.solve.anneal": NOTHING},
    "tabu search": {"solver.pipeline.local_search.descent.tabu_orders": _without_orders},
    "CP-SAT: horizon search": {"solver.pipeline.solve.prove_and_search": NOTHING},
}
BOUNDING: dict[str, Patches] = {
    "bound: network cut": {
        "solver.bounds.work.distance_cases": _answering(()),
        "solver.bounds.unequal_layers.distance_cases": _answering(()),
        "solver.bounds.relaxation.crossing_bound_s": _unraised,
    },
    "bound: connections": {"solver.bounds.cuts.connection_limits": NO_LIMITS},
    "bound: memory seconds of a rank": {"solver.bounds.work._memory_seconds_s": _of_no_seconds},
    "bound: head and tail of a rank": {"solver.bounds.work._rank_s": _of_no_seconds},
    "bound: ways through every rank (columns)": {"solver.bounds.work.even_pipelines_s": _of_no_seconds},
    "bound: slower types needed (columns)": {"solver.bounds.work._slower_types_s": _of_no_seconds},
    "bound: unequal layers (columns)": {"solver.bounds.work.unequal_bounds": _of_no_seconds},
    "bound: synchronisation inside a place": {
        "solver.bounds.relaxation.least_exchange_s": _of_no_seconds,
        "solver.bounds.kind_costs.least_exchange_s": _of_no_seconds,
    },
    "bound: exchange over any number of places": {"solver.bounds.relaxation._spread": _of_no_seconds_at_all},
    "bound: slower ranks (pigeonhole)": {"solver.bounds.relaxation.slower_ranks_s": NO_SECONDS},
    "bound: ranks on slower types (pipelines)": {"solver.bounds.relaxation.halves": _answering(())},
    "bound: stage partition": {"solver.bounds.relaxation.stage_partition_bound_s": NO_SECONDS},
    "bound: relaxed pipeline": {"solver.bounds.crossing_pipelines.makespan_bound": NO_SECONDS},
    "bound: pipelines that cross a cut": {"solver.bounds.relaxation.crossing_bound_s": _unraised},
    "bound: screening": {"solver.bounds.screening._block": _of_no_seconds},
    "estimate: crossing patterns": {"solver.estimates.iteration.crossing_patterns": _answering(())},
    "placements: ranks in their order": {"solver.search.tasks.placements": _out_of_order},
    "placements: partitions of the least bounds": {"solver.search.tasks.best_partitioned": _answering(())},
    "placements: types reordered": {"solver.search.tasks.reordered": _answering(())},
    "improvement of a good plan": {
        "solver.search.tasks.improve": _answering(()),
        "solver.search.tasks.improved_schedules": _answering(()),
    },
}


@contextmanager
def without(patches: Patches) -> Iterator[None]:
    """The planner without what these names stand for."""
    with ExitStack() as stack:
        for name, instead in patches.items():
            stack.enter_context(patch(name, instead(resolve_name(name))))
        yield


@dataclass(frozen=True)
class Result:
    """What one case ended with."""

    value_s: float
    bound_s: float
    seconds: float

    @property
    def gap(self) -> float:
        """(value - bound) / value."""
        return (self.value_s - self.bound_s) / self.value_s if np.isfinite(self.value_s) else 1.0


def scheduled(problem: PipelineProblem) -> Result:
    """A schedule within its limit of processor time."""
    began_s = time.process_time()
    found = search_pipeline(problem, clock=time.process_time)
    return Result(found.value_s, found.bound_s, time.process_time() - began_s)


def planned(asked: PlanRequest) -> Result:
    """A plan within its limit of counted work."""
    began_s = time.process_time()
    outcome = plan(asked, clock=lambda: 0.0)
    seconds = time.process_time() - began_s
    if not isinstance(outcome, Planned):
        return Result(float("inf"), 0.0, seconds)
    proof = outcome.plan.proof
    return Result(outcome.plan.metrics.iteration_s, proof.lower_bound_s, seconds)


def pipelines(number: int, seconds: float) -> Iterator[tuple[str, PipelineProblem]]:
    """So many random pipelines of every size and layout."""
    for ranks, microbatches in SIZES:
        for which in range(number):
            for layout, make in LAYOUTS.items():
                problem = make(ranks, microbatches, 100 + which, seconds)
                yield f"{layout} {ranks}x{microbatches} {which}", problem


def first_answers(number: int) -> dict[str, dict[str, Result]]:
    """Without each generator, and without the grid of policies: the best of the others on every pipeline.

    "everything" is the best of all. Nothing is searched, so one pass over all orders answers for every row.
    """
    rows: dict[str, dict[str, Result]] = {}
    for case, problem in pipelines(number, 1.0):
        values: dict[str, float] = {}
        for one in candidates(shape_of(problem), problem.objective):
            name = POLICIES if one.name.startswith("policy") else f"generator {one.name}"
            values[name] = min(one.value_s, values.get(name, float("inf")))
        bound_s = lower_bound(problem)
        for name in (EVERYTHING, POLICIES, *(f"generator {one}" for one in GENERATORS)):
            least_s = min(value_s for other, value_s in values.items() if other != name)
            rows.setdefault(name, {})[case] = Result(least_s, bound_s, 1.0)
    return rows


def results_without(cases: Cases, parts: dict[str, Patches], only: str) -> Iterator[tuple[str, dict[str, Result]]]:
    """The cases with everything, then without each part whose name has this word."""
    next(iter(cases.values()))()  # what is compiled once is compiled before anything is timed
    yield EVERYTHING, {name: run() for name, run in cases.items()}
    for name, patches in parts.items():
        if only in name:
            with without(patches):
                yield name, {case: run() for case, run in cases.items()}


def row(name: str, with_all: dict[str, Result], alone: dict[str, Result]) -> str:
    """A line of the table: changes beyond noise, against everything."""
    worse = [case for case in alone if alone[case].value_s > with_all[case].value_s * (1 + NOISE)]
    better = [case for case in alone if alone[case].value_s < with_all[case].value_s * (1 - NOISE)]
    weaker = [case for case in alone if alone[case].bound_s < with_all[case].bound_s * (1 - NOISE)]
    gaps = [100 * (alone[case].gap - with_all[case].gap) for case in alone]
    lost = sum(with_all[case].gap <= NOISE < alone[case].gap for case in alone)
    spent = sum(one.seconds for one in alone.values()) / max(sum(with_all[case].seconds for case in alone), 1e-9)
    return (
        f"| {name} | {len(alone)} | {len(worse)} | {len(better)} | {len(weaker)} | {lost} "
        f"| {np.mean(gaps):+.3f} | {max(gaps):+.3f} | {spent:.2f} |"
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=4, help="cases per size and layout")
    parser.add_argument("--points", type=int, default=6, help="points of the headline grid")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of each case")
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--write", type=Path, help="write the table here")
    options = parser.parse_args()
    seconds, number = options.seconds, options.schedules
    searches: Cases = {name: partial(scheduled, one) for name, one in pipelines(number, seconds)}
    plans: Cases = {str(one): partial(planned, request_of(one, seconds)) for one in points(40, 11)[: options.points]}
    tables: dict[str, Iterable[tuple[str, dict[str, Result]]]] = {}
    if searches:
        tables["first answers"] = first_answers(PORTFOLIO * number).items()
        tables["schedules"] = results_without(searches, ORDERING, options.only)
    if plans:
        tables["plans"] = results_without(plans, {**ORDERING, **BOUNDING}, options.only)
    lines: list[str] = []
    results: dict[str, Any] = {}
    for kind, rows in tables.items():
        lines += ["", f"| {kind} without | {COLUMNS} |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
        _say("\n".join(lines[-3:]))
        with_all: dict[str, Result] = {}
        for name, alone in rows:
            results[f"{kind}, {name}"] = {case: asdict(one) for case, one in alone.items()}
            if name == EVERYTHING:
                with_all = alone
            else:
                lines.append(row(name, with_all, alone))
                _say(lines[-1])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
