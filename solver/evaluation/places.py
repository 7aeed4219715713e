"""Placements of one configuration: the closed-form patterns at once, the priced integer flow when asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Literal

from models.plan import Configuration
from solver.configurations.by_type import type_costs
from solver.context import Context
from solver.evaluation.candidate import Candidate, bundle_of
from solver.evaluation.crossings import nominal_prices
from solver.placement.capacity_groups import groups_of
from solver.placement.fill import PooledRoute, fill
from solver.placement.in_order import fill_in_order
from solver.placement.problem import MinimumReplicas, PlacementProblem, Prices, RouteCount
from solver.placement.solve import place
from solver.placement.strategies import (
    keep_ranks_in_groups,
    keep_ranks_whole,
    keep_replicas_in_groups,
    keep_replicas_whole,
    spread_end_ranks,
)

Pattern = Literal[
    "replicas_whole",
    "ranks_whole",
    "ranks_in_groups",
    "ranks_in_regions",
    "replicas_in_groups",
    "ranks_spread",
    "in_order",
    "in_order_spread_before",
    "in_order_spread",
    "priced",
]
CLOSED: dict[Pattern, Callable[[PlacementProblem], tuple[RouteCount, ...] | None]] = {
    "replicas_whole": keep_replicas_whole,
    "ranks_whole": keep_ranks_whole,
    "ranks_in_groups": keep_ranks_in_groups,
    "replicas_in_groups": keep_replicas_in_groups,
    "ranks_spread": spread_end_ranks,
    "in_order": fill_in_order,
    "in_order_spread_before": partial(fill_in_order, before=True),
    "in_order_spread": partial(fill_in_order, before=True, after=True),
}
FLOW_SHARE, MAX_FLOW_S = 0.1, 5.0  # of the time to search, and seconds at most, for one integer flow


def placements(
    context: Context,
    configuration: Configuration,
    patterns: tuple[Pattern, ...],
    prices: Prices | None = None,
    *,
    pure: bool = False,
) -> Iterator[Candidate]:
    """Candidates of the named patterns, each route set once; where no pattern serves, the integer flow has to.

    `pure`: of these patterns alone. Pins with counts, which no closed form serves, are left to the integer flow.
    """
    whole = placement_problem(context, configuration, prices)
    if pure and whole.minimums:
        together = not {"ranks_whole", "ranks_in_regions"}.isdisjoint(patterns)
        whole = replace(whole, replicas_may_cross=whole.replicas_may_cross and not together)
        patterns = ("priced",)
    seen: set[tuple[RouteCount, ...]] = set()
    for island in by_island(context, whole):
        cheap = () if pure else on_cheap_types(context, configuration, island)
        for problem in chain(cheap, on_fast_types(context, configuration, island)):
            found = [routes for pattern in patterns for routes in solve(context, problem, pattern)]
            if not found and not pure and problem is island and "priced" not in patterns:
                found = solve(context, problem, "priced")
            for routes in found:
                if routes not in seen:
                    seen.add(routes)
                    yield Candidate(configuration, pooled(context, configuration, routes))


def by_island(context: Context, problem: PlacementProblem) -> Iterator[PlacementProblem]:
    """The problem on every island of the link graph that has room for it."""
    for island in sorted(set(context.geography.island_u)):
        capacity = tuple(
            available if one == island else 0
            for available, one in zip(problem.capacity_u, context.geography.island_u, strict=True)
        )
        if sum(capacity) >= problem.num_ranks * problem.num_replicas:
            yield replace(problem, capacity_u=capacity)


def on_fast_types(
    context: Context, configuration: Configuration, problem: PlacementProblem
) -> Iterator[PlacementProblem]:
    """The problem on the fewest GPU types that have the capacity, the fastest ones, then on all of them.

    Even shares run at the pace of the slowest type in use.
    """
    capacity = _capacity_by_type(context, problem)
    if len(capacity) > 1:
        costs = type_costs(context, configuration)
        fast = _first_that_hold(
            problem, capacity, sorted(capacity, key=lambda one: (costs[one].layer_s, -costs[one].capacity_bytes))
        )
        if len(fast) < len(capacity):
            yield _on_some_types(context, problem, fast)
    yield problem


def chooses_by_price(context: Context) -> bool:
    """Whether the cost is to be least, and there are GPUs of several prices to choose from."""
    return context.request.objective.kind == "cost_per_token" and len(set(context.usd_per_gpu_s.values())) > 1


def on_cheap_types(
    context: Context, configuration: Configuration, problem: PlacementProblem
) -> Iterator[PlacementProblem]:
    """The problem on each GPU type alone that has the capacity, then on the fewest that have it, the cheapest ones.

    Cheap is what costs little for the work of a layer. Only where the cost is to be least and prices differ: even
    shares on a dear and a cheap type cost more than on one of them, and a target may rule out the cheapest.
    """
    if not chooses_by_price(context):
        return
    costs, capacity = type_costs(context, configuration), _capacity_by_type(context, problem)
    cheap_first = sorted(capacity, key=lambda one: (costs[one].layer_usd, costs[one].layer_s))
    alone = [[gpu] for gpu in cheap_first if capacity[gpu] >= problem.num_ranks * problem.num_replicas]
    for types in (*alone, _first_that_hold(problem, capacity, cheap_first)):
        yield _on_some_types(context, problem, types)


def _capacity_by_type(context: Context, problem: PlacementProblem) -> Counter[str]:
    """Bundles that the capacity groups of each GPU type hold."""
    capacity = Counter[str]()
    for group, available in zip(context.capacity_groups, problem.capacity_u, strict=True):
        capacity[group.gpu] += available
    return capacity


def _first_that_hold(problem: PlacementProblem, capacity: Counter[str], order: Iterable[str]) -> list[str]:
    """The first GPU types of an order that have the capacity together."""
    found, held = list[str](), 0
    for gpu in order:
        if held < problem.num_ranks * problem.num_replicas:
            found.append(gpu)
            held += capacity[gpu]
    return found


def _on_some_types(context: Context, problem: PlacementProblem, types: Collection[str]) -> PlacementProblem:
    """The problem on these GPU types alone."""
    retained = zip(context.capacity_groups, problem.capacity_u, strict=True)
    return replace(problem, capacity_u=tuple(available if group.gpu in types else 0 for group, available in retained))


def placement_problem(context: Context, configuration: Configuration, prices: Prices | None = None) -> PlacementProblem:
    """Capacities in bundles of replicas; pins as allowed pairs or minimum counts. Prices are nominal without others."""
    degrees, constraints = configuration.degrees, context.request.constraints
    bundle = bundle_of(configuration)
    capacity = tuple(
        sum(_bundles(context, pool, configuration) for pool in group.pools) for group in context.capacity_groups
    )
    allowed = [[True] * len(context.capacity_groups) for _ in range(degrees.pp)]
    minimums = []
    for pin in constraints.pins:
        inside = _capacity_groups_inside(context, pin.place)
        ranks = range(pin.first_pipeline_rank, min(pin.last_pipeline_rank + 1, degrees.pp))
        if pin.num_replicas is not None:
            minimums.append(MinimumReplicas(ranks, tuple(sorted(inside)), -(-pin.num_replicas // bundle)))
            continue
        for rank in ranks:
            allowed[rank] = [one and u in inside for u, one in enumerate(allowed[rank])]
    return PlacementProblem(
        num_ranks=degrees.pp,
        num_replicas=degrees.dp // bundle,
        num_microbatches=configuration.num_microbatches,
        capacity_u=capacity,
        building_u=context.geography.building_u,
        allowed_pu=tuple(tuple(row) for row in allowed),
        prices=prices or nominal_prices(context, configuration),
        minimums=tuple(minimums),
        ranks_may_cross=constraints.pipeline_may_cross_buildings,
        replicas_may_cross=constraints.data_parallel_may_cross_buildings,
    )


def pooled(context: Context, configuration: Configuration, routes: tuple[RouteCount, ...]) -> tuple[PooledRoute, ...]:
    """Routes over capacity groups become routes over pools, in replicas and stage groups instead of bundles."""
    bundle = bundle_of(configuration)
    pools_u = [
        [(pool, _bundles(context, pool, configuration)) for pool in group.pools] for group in context.capacity_groups
    ]
    return tuple(
        replace(
            route,
            num_replicas=route.num_replicas * bundle,
            first_group=tuple(offset * bundle for offset in route.first_group),
        )
        for route in fill(routes, pools_u)
    )


def _bundles(context: Context, pool: int, configuration: Configuration) -> int:
    """Bundles of stage groups that a pool holds; forbidden or unsuitable pools hold none."""
    degrees = configuration.degrees
    return groups_of(context.pools[pool], degrees.tp, degrees.cp) // bundle_of(configuration)


def _capacity_groups_inside(context: Context, place_id: str) -> set[int]:
    """Capacity groups whose pools lie inside a place: pins never cut through a capacity group."""
    return {
        index
        for index, group in enumerate(context.capacity_groups)
        if all(place_id in context.topology.ancestors(context.pools[pool].place) for pool in group.pools)
    }


def solve(context: Context, problem: PlacementProblem, pattern: Pattern) -> list[tuple[RouteCount, ...]]:
    """Routes of a pattern. The flow answers twice, once with two ranks at least side by side: adjacent cut hops cost
    more than the prices say.
    """
    if pattern == "ranks_in_regions":
        return solve(context, problem, "ranks_whole") + solve(context, problem, "ranks_in_groups")
    if pattern != "priced":
        closed = CLOSED[pattern](problem)
        return [] if closed is None else [closed]
    options = context.request.options
    workers = 1 if options.reproducible else options.workers
    limit_s = min(MAX_FLOW_S, FLOW_SHARE * options.time_limit_s)
    solutions = [
        place(replace(problem, least_block=block), time_limit_s=limit_s, workers=workers, seed=options.seed)
        for block in (2, 1)
        if block <= problem.num_ranks
    ]
    return [solution.routes for solution in solutions if solution is not None]
