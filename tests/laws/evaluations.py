"""Random configurations of a request on the usual placements and on random ones, evaluated end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from models.plan import Configuration
from solver.configurations.enumerate import BY_GPU_TYPE, Space
from solver.context import Context
from solver.evaluation.by_type import memory_first_placements, typed_placements
from solver.evaluation.candidate import Candidate, configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.places import by_island, placement_problem, placements, pooled
from solver.evaluation.scheduling import portfolio_timing
from solver.placement.problem import PlacementProblem, RouteCount
from solver.placement.routes import merged

MOST_OPERATIONS = 1500  # forwards, input and weight gradients of one replica; larger ones take longer and say no more
MOST_ANYWHERE = 2
MOST_USUAL = 3
ORDERS = (("greedy",), ("one_f_one_b", "interleaved"), ("gpipe",))


@dataclass(frozen=True)
class Drawn:
    """An evaluation with the row of the space that its configuration is."""

    row: int
    configuration: Configuration
    evaluation: Evaluation


def random_evaluations(
    context: Context, space: Space, random: np.random.Generator, num_configurations: int
) -> Iterator[Drawn]:
    """Evaluations of so many random configurations; those that fit into no memory yield none."""
    columns = space.columns
    operations = 3 * columns.num_microbatches * columns.pp * columns.vpp
    rows = np.flatnonzero(operations <= MOST_OPERATIONS)
    for row in random.choice(rows, size=min(num_configurations, len(rows)), replace=False).tolist():
        configuration = configuration_of(context, space, row)
        for candidate in _candidates(context, space, configuration, row, random):
            found = evaluate(context, candidate, partial(portfolio_timing, names=_orders(context, random)))
            if found is not None:
                yield Drawn(row, configuration, found)


def _orders(context: Context, random: np.random.Generator) -> tuple[str, ...]:
    """Generators to time with: those of the framework where it names them."""
    framework = context.request.constraints.framework
    if framework is not None and framework.schedules is not None:
        return framework.schedules
    return ORDERS[int(random.integers(len(ORDERS)))]


def _candidates(
    context: Context, space: Space, configuration: Configuration, row: int, random: np.random.Generator
) -> Iterator[Candidate]:
    """The usual placements, and random ones; layers by GPU type follow a placement of their own."""
    if space.layer_split[row] == BY_GPU_TYPE:
        yield from typed_placements(context, configuration)
        return
    usual = list(placements(context, configuration, ("replicas_whole", "ranks_whole", "ranks_in_groups")))
    yield from usual[:MOST_USUAL]
    yield from memory_first_placements(context, configuration)
    whole = placement_problem(context, configuration)
    if not whole.minimums:
        for problem in list(by_island(context, whole))[:MOST_ANYWHERE]:
            for _ in range(MOST_ANYWHERE):
                routes = _anywhere(problem, random)
                if routes is not None:
                    yield Candidate(configuration, pooled(context, configuration, routes))


def _anywhere(problem: PlacementProblem, random: np.random.Generator) -> tuple[RouteCount, ...] | None:
    """Every stage group on a random capacity group that may hold it and has capacity; None in a dead end."""
    left = np.array(problem.capacity_u)
    building = np.array(problem.building_u)
    allowed = np.array(problem.allowed_pu)
    home_p = np.full(problem.num_ranks, -1)
    routes = []
    for _ in range(problem.num_replicas):
        groups_p: list[int] = []
        home = -1
        for rank in range(problem.num_ranks):
            may = allowed[rank] & (left > 0)
            if not problem.ranks_may_cross and home >= 0:
                may &= building == home
            if not problem.replicas_may_cross and home_p[rank] >= 0:
                may &= building == home_p[rank]
            options = np.flatnonzero(may)
            if not len(options):
                return None
            weights = left[options] / left[options].sum()
            u = groups_p[-1] if groups_p and groups_p[-1] in options and random.random() < 0.4 else None
            u = int(random.choice(options, p=weights)) if u is None else u
            left[u] -= 1
            groups_p.append(u)
            home = home_p[rank] = int(building[u])
        routes.append(RouteCount(tuple(groups_p), 1))
    return merged(routes)
