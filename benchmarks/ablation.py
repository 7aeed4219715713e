"""What each engine adds: every part that orders a pipeline or bounds a configuration, taken out alone.

`python -m benchmarks.ablation [--schedules N] [--points N] [--seconds S] [--only WORD] [--json F] [--write F]` runs the
same cases with everything, then without one part at a time. Schedules (families and sizes of `pipeline_cases`) have S
seconds of processor time each; plans (points of the headline grid) S seconds of counted work, so that load changes
little of the first and nothing of the second. A row says how many cases end worse, by how much in all, and how many
proofs are lost. A part whose row is empty may go; one that stays has its line in `docs/ablation.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.headline import points, request_of
from benchmarks.pipeline_cases import random_case, random_v_case
from models.outcome import Planned
from models.request import PlanRequest
from models.schedule import PipelineProblem
from solver.bounds.connections import ConnectionLimits
from solver.pipeline.generators.registry import GENERATORS
from solver.pipeline.solve import search_pipeline
from solver.planner import plan

NOISE = 1e-4  # relative change of a value or a bound that counts
SIZES = ((8, 16), (16, 32), (16, 64))
Patches = Mapping[str, Any]  # what stands at a dotted name -> what stands there without the part


def _nothing(*_: Any, **__: Any) -> None:
    """An engine that is left out."""


def _no_seconds(*_: Any, **__: Any) -> float:
    """A bound on one configuration that says nothing."""
    return 0.0


def _no_column(price: Any, *_: Any, **__: Any) -> Any:
    """A bound on a column of configurations that says nothing."""
    return np.zeros(len(price.columns))


def _no_part(original: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the bound of work that says nothing."""

    def part(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        return type(found)(np.zeros_like(found.seconds))

    return part


def _screening_without_bound(original: Callable[..., Any]) -> Callable[..., Any]:
    def screened(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        return type(found)(np.zeros_like(found.bound_s), found.guess_s)

    return screened


ORDERING: dict[str, Patches] = {
    "exact: state spaces of one rank": {"solver.pipeline.solve.close_by_state_space": lambda *_, **__: False},
    "steady states that repeat": {"solver.pipeline.solve.repeat": _nothing},
    "hill climbing over policies": {"solver.pipeline.solve.tune": _nothing},
    "tabu search": {
        "solver.pipeline.local_search.descent.tabu_orders": lambda *_, **__: iter(()),
        "solver.pipeline.exact.horizon_search.tabu_orders": lambda *_, **__: iter(()),
    },
    "CP-SAT: horizon search": {"solver.pipeline.solve.prove_and_search": _nothing},
    "CP-SAT: windows": {"solver.pipeline.solve.improve": _nothing},
    "list scheduling: grid of policies": {"solver.pipeline.portfolio.policies": lambda _: []},
    **{
        f"generator {name}": {f"solver.pipeline.generators.registry.GENERATORS[{name}]": lambda _: None}
        for name in GENERATORS
    },
}
BOUNDING: dict[str, Patches] = {
    "bound: network cut": {"solver.bounds.work.distance_s": _no_column},
    "bound: connections": {
        "solver.bounds.network_cut.connection_limits": lambda *_: ConnectionLimits(float("inf"), float("inf"))
    },
    "bound: memory seconds of a rank": {"solver.bounds.work._memory_seconds_s": _no_part},
    "bound: round trips under memory": {"solver.bounds.work._round_trips_s": _no_part},
    "bound: head and tail of a rank": {"solver.bounds.work._rank_s": _no_part},
    "bound: slower types needed (columns)": {"solver.bounds.work._slower_s": lambda *given: np.zeros(len(given[2]))},
    "bound: slower ranks (pigeonhole)": {"solver.bounds.relaxation.slower_ranks_s": _no_seconds},
    "bound: stage partition": {"solver.bounds.relaxation.line_bound_s": _no_seconds},
    "bound: relaxed pipeline": {"solver.bounds.relaxation._relaxed_s": _no_seconds},
    "bound: screening": {"solver.search.frontier.screening_bounds": _screening_without_bound},
    "estimate: crossing patterns": {"solver.estimates.iteration.crossing_patterns": lambda *_, **__: ()},
}
WRAPPED = (_no_part, _screening_without_bound)


@contextmanager
def without(patches: Patches) -> Iterator[None]:
    """The planner without what these names stand for."""
    with ExitStack() as stack:
        for name, instead in patches.items():
            if name.endswith("]"):
                stack.enter_context(patch.dict(GENERATORS, {name.split("[")[1][:-1]: instead}))
                continue
            new = instead
            if instead in WRAPPED:
                module, attribute = name.rsplit(".", 1)
                new = instead(getattr(sys.modules[module], attribute))
            stack.enter_context(patch(name, new))
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


def cases(schedules: int, num_points: int, seconds: float) -> dict[str, Callable[[], Result]]:
    """Cases by name, each ready to run."""
    found: dict[str, Callable[[], Result]] = {}
    for ranks, microbatches in SIZES:
        for number in range(schedules):
            for layout, make in (("one_way", random_case), ("v", random_v_case)):
                problem = make(ranks, microbatches, 100 + number, seconds)
                found[f"schedule {layout} {ranks}x{microbatches} {number}"] = lambda problem=problem: scheduled(problem)
    for point in points(40, 11)[:num_points]:
        asked = request_of(point, seconds)
        found[f"plan {point}"] = lambda asked=asked: planned(asked)
    return found


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
    every = cases(options.schedules, options.points, options.seconds)
    of_kind = {"schedule": ORDERING, "plan": {**ORDERING, **BOUNDING} if not options.schedules else BOUNDING}
    head = "| without | cases | worse | better | weaker bound | proofs lost | gap, mean change % | worst % | time |"
    lines = [head, "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    _say("\n".join(lines))
    results: dict[str, dict[str, Any]] = {}
    for kind, parts in of_kind.items():
        own = {name: run for name, run in every.items() if name.startswith(kind)}
        if not own:
            continue
        for run in list(own.values())[:1]:
            run()  # what is compiled once is compiled before anything is timed
        with_all = {name: run() for name, run in own.items()}
        results[f"everything, {kind}"] = {name: asdict(one) for name, one in with_all.items()}
        for name, patches in parts.items():
            if options.only not in name:
                continue
            with without(patches):
                alone = {case: run() for case, run in own.items()}
            results[f"{name}, {kind}"] = {case: asdict(one) for case, one in alone.items()}
            lines.append(row(f"{name}", with_all, alone))
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
