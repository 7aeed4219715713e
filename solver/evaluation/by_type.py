"""Placements of configurations that share out layers by GPU type: which ranks are on which type, where, and how long.

Sharing out layers is `solver/configurations/by_type.py`, the patterns are `solver/placement/strategies.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from models.plan import Configuration
from solver.configurations.by_type import TypeCost, shared_layers, type_costs
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.crossings import nominal_prices
from solver.evaluation.places import by_island, placement_problem, pooled, solve
from solver.placement.problem import PlacementProblem, Prices, RouteCount
from solver.placement.strategies import keep_ranks_whole, keep_segments_whole

Routes = tuple[RouteCount, ...]
TypedPattern = Literal["types", "types_in_parts", "types_in_regions", "ranks_whole"]
ALL_PATTERNS: tuple[TypedPattern, ...] = ("types", "types_in_parts", "types_in_regions", "ranks_whole")
MOST_TIMED = 4  # placements of one configuration, those with the quickest slowest rank, of every pattern in turn
MOST_TOGETHER, MOST_PARTED = 4, 16  # capacity groups of one part, and capacity groups of a type that are parted


@dataclass(frozen=True)
class Segment:
    """Consecutive pipeline ranks on one GPU type in one region, 0 for all, and the groups that they may be in."""

    gpu: str
    region: int
    units: frozenset[int]
    num_ranks: int = 0


Line = tuple[Segment, ...]


def typed_placements(
    context: Context, configuration: Configuration, patterns: tuple[TypedPattern, ...] = ALL_PATTERNS
) -> Iterator[Candidate]:
    """Candidates with their layers shared out, the quickest slowest rank first, and of these each pattern in turn."""
    costs = type_costs(context, configuration)
    whole = placement_problem(context, configuration, nominal_prices(context, configuration))
    found: dict[tuple[Routes, tuple[int, ...]], tuple[float, int]] = {}
    for problem in by_island(context, whole):
        for line, routes, turn in _everywhere(context, problem, costs, patterns):
            cost_r = [costs[gpu] for gpu in _types(line)]
            shared = shared_layers(configuration, cost_r, context.job.num_layers)
            if shared is not None:
                found.setdefault((routes, shared.layers_per_stage), (shared.slowest_s, turn))
    for routes, layers in sorted(found, key=lambda one: found[one])[:MOST_TIMED]:
        own = configuration.model_copy(update={"layers_per_stage": layers})
        yield Candidate(own, pooled(context, own, routes))


def priced_again(context: Context, candidate: Candidate, prices: Prices) -> Iterator[Candidate]:
    """The integer flow with every rank on the type that it has, and the layers as they are."""
    configuration = candidate.configuration
    types = [context.pools[pool].gpu.name for pool in candidate.routes[0].pools]
    for problem in by_island(context, placement_problem(context, configuration, prices)):
        for routes in dict.fromkeys(solve(context, _on_types(context, problem, types), "priced")):
            yield Candidate(configuration, pooled(context, configuration, routes))


def _everywhere(
    context: Context, problem: PlacementProblem, costs: dict[str, TypeCost], patterns: tuple[TypedPattern, ...]
) -> Iterator[tuple[Line, Routes, int]]:
    """Lines of segments with routes along them, and their turn in their pattern; else what the flow finds."""
    lines = _lines(context, problem, costs, in_regions=False)
    ways: list[list[tuple[Line, Routes | None]]] = []
    if "types" in patterns:
        ways.append([(line, _along(problem, line)) for line in lines])
    if "types_in_parts" in patterns:
        parted = [_parted(context, problem, line) for line in lines]
        ways.append([(line, _along(problem, line)) for line in parted if line is not None])
    if "types_in_regions" in patterns and len(set(context.geography.region_u)) > 1:
        ways.append([(line, _along(problem, line)) for line in _lines(context, problem, costs, in_regions=True)])
    if "ranks_whole" in patterns:
        ways.append([(line, keep_ranks_whole(_on_types(context, problem, _types(line)))) for line in lines])
    closed = [(line, routes, turn) for way in ways for turn, (line, routes) in enumerate(way) if routes is not None]
    if not closed and "types" in patterns:
        flows = [(line, _on_types(context, problem, _types(line))) for line in lines]
        closed = [(line, routes, 0) for line, flow in flows for routes in solve(context, flow, "priced")]
    yield from closed


def _parted(context: Context, problem: PlacementProblem, line: Line) -> Line | None:
    """Each segment in parts of few capacity groups that hold whole ranks: exchanges among few; None where none is."""
    parts = tuple(part for segment in line for part in _parts(context, problem, segment))
    return parts if len(parts) > len(line) else None


def _parts(context: Context, problem: PlacementProblem, segment: Segment) -> Iterator[Segment]:
    """Of the fewest capacity groups, in as few regions as it goes, those that leave least capacity beside their ranks.

    No part leaves more of the segment's spare GPUs than its share of the ranks; what cannot be parted stays together.
    """
    units, left, replicas = set(segment.units), segment.num_ranks, problem.num_replicas
    while left:
        spare = sum(problem.capacity_u[u] for u in units) - left * replicas
        found = []
        for size in range(1, MOST_TOGETHER + 1 if len(units) <= MOST_PARTED else 1):
            for chosen in combinations(sorted(units), size):
                capacity = sum(problem.capacity_u[u] for u in chosen)
                ranks = min(capacity // replicas, left)
                wasted = capacity - ranks * replicas
                if ranks and wasted * left <= spare * ranks:
                    found.append((len({context.geography.region_u[u] for u in chosen}), wasted / ranks, chosen, ranks))
            if found:
                break
        _, _, chosen, ranks = min(found, default=(0, 0.0, tuple(units), left))
        yield replace(segment, units=frozenset(chosen), num_ranks=ranks)
        units, left = units - set(chosen), left - ranks


def _along(problem: PlacementProblem, line: Line) -> Routes | None:
    return keep_segments_whole(problem, tuple((segment.num_ranks, segment.units) for segment in line))


def _types(line: Line) -> list[str]:
    """GPU type of every pipeline rank."""
    return [segment.gpu for segment in line for _ in range(segment.num_ranks)]


def _on_types(context: Context, problem: PlacementProblem, types: list[str]) -> PlacementProblem:
    """The problem with every rank kept to the capacity groups of its type."""
    allowed = tuple(
        tuple(may and unit.gpu == gpu for may, unit in zip(row, context.capacity_groups, strict=True))
        for row, gpu in zip(problem.allowed_pu, types, strict=True)
    )
    return replace(problem, allowed_pu=allowed)


def _lines(context: Context, problem: PlacementProblem, costs: dict[str, TypeCost], *, in_regions: bool) -> list[Line]:
    """Several types one after another, region by region where asked: fast, slow or roomy types first."""
    segments = _filled(problem, _segments(context, in_regions=in_regions), costs)
    if len({one.gpu for one in segments}) < 2:
        return []
    held: dict[int, int] = {}
    for one in segments:
        held[one.region] = held.get(one.region, 0) + one.num_ranks
    keys: tuple[dict[str, float], ...] = (
        {gpu: cost.layer_s for gpu, cost in costs.items()},
        {gpu: -cost.layer_s for gpu, cost in costs.items()},
        {gpu: -cost.capacity_bytes for gpu, cost in costs.items()},
    )
    orders = [sorted(segments, key=lambda one: (-held[one.region], one.region, key[one.gpu], one.gpu)) for key in keys]
    return list(dict.fromkeys(map(tuple, orders)))


def _segments(context: Context, *, in_regions: bool) -> list[Segment]:
    """Capacity groups of one type, in one region where asked."""
    grouped: dict[tuple[str, int], list[int]] = {}
    for u, unit in enumerate(context.capacity_groups):
        grouped.setdefault((unit.gpu, context.geography.region_u[u] if in_regions else 0), []).append(u)
    return [Segment(gpu, region, frozenset(units)) for (gpu, region), units in grouped.items()]


def _filled(problem: PlacementProblem, segments: list[Segment], costs: dict[str, TypeCost]) -> list[Segment]:
    """As many ranks as there are, on fast types first, each with all its replicas in its segment's capacity groups."""
    left, filled = problem.num_ranks, list[Segment]()
    capacities = {one: sum(problem.capacity_u[u] for u in one.units) // problem.num_replicas for one in segments}
    for one in sorted(segments, key=lambda one: (costs[one.gpu].layer_s, -capacities[one], one.gpu, one.region)):
        taken = min(left, capacities[one])
        if taken:
            filled.append(replace(one, num_ranks=taken))
            left -= taken
    return filled if not left else []
