"""No bound, early or late, is above any evaluation of its configuration, whatever the request says.

Requests are drawn at random; configurations of each are placed as the search would and anywhere, timed, and compared
with every bound that the search may rule them out by.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from models.plan import Configuration
from models.request import Objective
from solver.bounds.least_cost import least_work_usd
from solver.bounds.least_traffic import least_crossing_bytes
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.stage_partition import stage_partition_bound_s
from solver.bounds.work import lower_bounds, shape_bounds_s
from solver.configurations.enumerate import enumerate_space
from solver.configurations.framework import framework_reasons, within_framework
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.places import by_island, placement_problem, placements, pooled
from solver.evaluation.report import evaluation_cross_building_bytes, extra_usd
from solver.evaluation.scheduling import portfolio_timing
from solver.lint import lint
from solver.objective import Goal
from solver.placement.problem import RouteCount
from solver.placement.routes import merged
from tests.build_job import context_of
from tests.property.random_requests import random_request
from tests.property.test_unequal_bounds import any_share

SLACK = 1 + 1e-9
MOST_OPERATIONS = 96  # micro-batches times ranks, so that an evaluation takes milliseconds


@dataclass
class Tally:
    """What was tried: evaluations, the tightest ratio of time to each bound, and what is wrong."""

    num_requests: int = 0
    num_evaluations: int = 0
    tightest: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def compare(self, what: str, bound: float, value: float, where: str) -> None:
        """A bound and the value of an evaluation."""
        if not bound <= value * SLACK:
            self.wrong.append(f"{what} {bound:.9g} above {value:.9g}: {where}")
        if bound > 0:
            self.tightest[what] = min(self.tightest.get(what, np.inf), value / bound)


def anywhere(context: Context, configuration: Configuration, random: np.random.Generator) -> list[Candidate]:
    """Every stage group somewhere on an island; one GPU type per rank where layers are shared out by type."""
    found = []
    by_type = configuration.layer_split == "by_gpu_type"
    gpus = np.array([group.gpu for group in context.capacity_groups])
    for problem in by_island(context, placement_problem(context, configuration)):
        left, ranks, replicas = np.array(problem.capacity_u), problem.num_ranks, problem.num_replicas
        groups_p = np.zeros((ranks, replicas), dtype=np.int64)
        for rank in random.permutation(ranks):
            types = [gpu for gpu in sorted(set(gpus.tolist())) if left[gpus == gpu].sum() >= replicas]
            open_u = gpus == random.choice(types) if by_type and types else np.full(len(left), not by_type)
            slots = np.repeat(np.arange(len(left)), np.where(open_u, left, 0))
            if len(slots) < replicas:
                break
            groups_p[rank] = random.choice(slots, size=replicas, replace=False)
            np.subtract.at(left, groups_p[rank], 1)
        else:
            columns = np.sort(groups_p, axis=1) if random.random() < 0.5 else groups_p
            columns = np.sort(columns, axis=0) if random.random() < 0.3 and not by_type else columns
            routes = merged([RouteCount(tuple(one), 1) for one in columns.T.tolist()])
            found.append(Candidate(configuration, pooled(context, configuration, routes)))
    return found


def evaluations(context: Context, configuration: Configuration, random: np.random.Generator) -> list[Evaluation]:
    """Timed placements of a configuration, ours and any, with layers shared out in our way and in any."""
    any_places = [one for _ in range(2) for one in anywhere(context, configuration, random)]
    if configuration.layer_split == "by_gpu_type":
        found = list(typed_placements(context, configuration))
        for one in any_places:
            types = [context.pools[pool].gpu.name for pool in one.routes[0].pools]
            found.append(replace(one, configuration=any_share(context, configuration, types, random)))
    else:
        found = [*placements(context, configuration, ("replicas_whole", "ranks_whole")), *any_places]
    names = ("zb_h1", "greedy") if configuration.family == "one_way" else ("interleaved", "greedy")
    if context.request.constraints.framework is not None:
        names = ("one_f_one_b", "gpipe")
    timed = [evaluate(context, one, lambda problem: portfolio_timing(problem, names)) for one in found]
    return [one for one in timed if one is not None]


def try_request(seed: int, most: int, tally: Tally) -> None:
    """Time some configurations of one random request and compare them with their bounds."""
    request, random = random_request(seed), np.random.default_rng(seed)
    if lint(request) or framework_reasons(request):
        return
    context = context_of(within_framework(request))
    space = enumerate_space(context.request)
    small = np.flatnonzero(space.columns.num_microbatches * space.columns.pp * space.columns.vpp <= MOST_OPERATIONS)
    if not len(small):
        return
    tally.num_requests += 1
    some = space.take(random.choice(small, size=min(most, len(small)), replace=False))
    early_s, bounds, shapes_s = (
        screening_bounds(context, some).bound_s,
        lower_bounds(context, some),
        shape_bounds_s(context, some),
    )
    bytes_least, work_usd = least_crossing_bytes(context, some), least_work_usd(context, some)
    for row in range(len(some)):
        configuration = configuration_of(context, some, row)
        found = evaluations(context, configuration, random)
        if not found:
            continue
        tally.num_evaluations += len(found)
        where = f"seed {seed} {configuration}"
        if not bounds.fits[row]:
            tally.wrong.append(f"memory {bounds.least_memory_bytes[row]:.6g} B is too much: {where}")
        quickest_s = min(evaluation.iteration_s for evaluation in found)
        known = {
            "screening_bounds": float(early_s[row]),
            "shape": float(shapes_s[row]),
            "priced": float(bounds.iteration_s[row]),
        }
        for what, bound_s in (known | late_bounds_s(context, configuration, quickest_s)).items():
            tally.compare(what, bound_s, quickest_s, where)
        least = min(evaluation_cross_building_bytes(context, one) for one in found)
        tally.compare("bytes", float(bytes_least[row]), least, where)
        bound_usd, cost_usd = costs_usd(context, configuration, known["priced"], found)
        tally.compare("cost", max(bound_usd, float(work_usd[row])), cost_usd, where)


def late_bounds_s(context: Context, configuration: Configuration, quickest_s: float) -> dict[str, float]:
    """What the search refines the bound of a configuration to."""
    found = {"sharper": refined_bound_s(context, [configuration], 4.0 * quickest_s)}
    if configuration.layer_split == "by_gpu_type":
        return found | {"stage partition": stage_partition_bound_s(context, [configuration], 1.5 * quickest_s)}
    return found | {"relaxed": refined_bound_s(context, [configuration], 0.0)}


def costs_usd(
    context: Context, configuration: Configuration, bound_s: float, found: list[Evaluation]
) -> tuple[float, float]:
    """The least cost that the bound allows, and that of the cheapest evaluation, egress included."""
    goal = replace(Goal.of(context), objective=Objective(kind="cost_per_token"))
    size = float(configuration.degrees.num_gpus)
    extra = [extra_usd(context, one, goal.usd_per_gpu_s) if goal.priced else 0.0 for one in found]
    cost = min(goal.value(one.iteration_s, size, usd) for one, usd in zip(found, extra, strict=True))
    return goal.value(bound_s, size), cost


def tried(seeds: range, most: int) -> Tally:
    """The tally of these requests, so many configurations each; `--log-cli-level=INFO` prints it."""
    tally = Tally()
    for seed in seeds:
        try_request(seed, most, tally)
    ratios = ", ".join(f"{what} {ratio:.6g}" for what, ratio in sorted(tally.tightest.items()))
    counts = f"{tally.num_requests} requests, {tally.num_evaluations} evaluations"
    logging.getLogger(__name__).info("%s; least time over bound: %s", counts, ratios)
    return tally


@pytest.mark.parametrize("first", [0, 8, pytest.param(16, marks=pytest.mark.slow)])
def test_no_bound_is_above_an_evaluation_of_a_random_request(first: int) -> None:
    tally = tried(range(first, first + 8), most=3)
    assert tally.num_evaluations > 20
    assert not tally.wrong, "\n".join(tally.wrong[:5])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1400, 50))
def test_no_bound_is_above_an_evaluation_of_hundreds_of_random_requests(first: int) -> None:
    tally = tried(range(first, first + 50), most=10)
    assert tally.num_evaluations > 500
    assert not tally.wrong, "\n".join(tally.wrong[:5])
