"""Placements by GPU type: which ranks are on which type, and how many layers they have where these are shared out.

Sharing out layers is `solver/configurations/by_type.py`, the patterns are `solver/placement/strategies.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple, get_args

import numpy as np

from models.plan import Configuration
from solver.bounds.kind_costs import kinds_by_name
from solver.bounds.partition_pipelines import best_partitions
from solver.bounds.typed_pipelines import Partition, PartitionPipelines
from solver.clock import Clock
from solver.configurations.by_type import TypeCost, layer_shares, type_costs
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.nearest_order import in_nearest_order
from solver.evaluation.places import by_island, chooses_by_price, on_cheap_types, placement_problem, pooled, solve
from solver.placement.problem import PlacementProblem, Prices, RouteCount
from solver.placement.strategies import keep_ranks_whole, keep_replicas_in_groups, keep_segments_whole

Routes = tuple[RouteCount, ...]
Orders = tuple[Callable[[TypeCost], float], ...]
Ranking = Callable[[TypeCost], tuple[float, ...]]
TypedPattern = Literal["types", "types_in_parts", "types_in_regions", "replicas_in_groups", "ranks_whole"]
_Kind = Literal["usual", "cheap", "near", "tight"]
ALL_PATTERNS: tuple[TypedPattern, ...] = get_args(TypedPattern)
# Placements of one configuration, those whose pipelines have the least bounds; of them inside one building of several
# types, where the fastest alone holds all ranks in several; and of them with fewer micro-batches in flight than usual,
# where that spares the slowest rank. Of 36 configurations of six points of the headline grid the best of these takes
# 0.3 % longer than the best of all, 5.5 % at most; with 6, 3 and 3 it is 0.15 %, and by the work of the slowest rank
# instead of the bound 1.4 and 12 %.
MOST_TIMED, MOST_NEAR, MOST_TIGHT = 4, 2, 2
MOST_CHEAP = 2  # of those on the cheapest types where the cost is to be least: two orders of the same types
IN_FLIGHT_PER_RANK = 2  # micro-batches that a first rank may hold beside each rank: more hide no more of a way
MOST_MEMORY: Orders = (lambda cost: -cost.capacity_bytes,)  # first, of the GPU types along the pipeline
ALL_ORDERS: Orders = (lambda cost: cost.layer_s, lambda cost: -cost.layer_s, *MOST_MEMORY)  # fastest, slowest first
# Of the types, the fastest, or those with most memory: they hold the layers that do not fit on the fastest.
FILLED_FIRST: tuple[Ranking, ...] = (lambda cost: (cost.layer_s,), lambda cost: (-cost.capacity_bytes, cost.layer_s))
# Of the types, those on which the work costs least too, where the cost is to be least.
OR_CHEAP_FIRST: tuple[Ranking, ...] = (*FILLED_FIRST, lambda cost: (cost.layer_usd, cost.layer_s))
MOST_TOGETHER, MOST_PARTED = 4, 16  # capacity groups of one part, and capacity groups of a type that are parted


@dataclass(frozen=True)
class Segment:
    """Consecutive pipeline ranks on one GPU type in one region (0: in any), and the capacity groups open to them."""

    gpu: str
    region: int
    capacity_groups: frozenset[int]
    num_ranks: int = 0


Segments = tuple[Segment, ...]  # along the pipeline
Types = tuple[str, ...]  # names of GPU types, one for every pipeline rank


class _Shared(NamedTuple):
    """Layers shared out on routes: as usual, cheap, near or with few in flight (tight); the place in their pattern, and
    the price of one GPU of every rank together, 0 where prices are not known.
    """

    kind: _Kind
    partition: Partition
    place: int
    paid_usd_per_s: float


def typed_placements(
    context: Context, configuration: Configuration, patterns: tuple[TypedPattern, ...] = ALL_PATTERNS
) -> Iterator[Candidate]:
    """Candidates with their layers shared out: by the bound of their pipeline, then every pattern in turn."""
    costs, prices = type_costs(context, configuration), context.usd_per_gpu_s
    whole = placement_problem(context, configuration)
    pipelines = PartitionPipelines.of(context, [configuration])
    kinds = kinds_by_name(pipelines.gpus)
    found: dict[tuple[Routes, tuple[int, ...]], _Shared] = {}
    islands = list(by_island(context, whole))
    problems: list[tuple[PlacementProblem, _Kind]] = [
        (cheap, "cheap") for problem in islands for cheap in on_cheap_types(context, configuration, problem)
    ]
    problems += [(problem, "usual") for problem in islands]
    problems += [(inside, "near") for problem in islands for inside in _inside_one_building(context, problem, costs)]
    for problem, kind in problems:
        for types, routes, place in _everywhere(context, problem, costs, patterns):
            cost_r, kind_r = [costs[gpu] for gpu in types], tuple(kinds[gpu] for gpu in types)
            paid = sum(prices.get(gpu, 0.0) for gpu in types)
            for number, shared in enumerate(layer_shares(configuration, cost_r, context.job.num_layers)):
                own: _Kind = "tight" if number and kind == "usual" else kind
                found.setdefault(
                    (routes, shared.layers_per_stage), _Shared(own, (kind_r, shared.layers_r), place, paid)
                )
    if not found:
        return
    partitions = list(dict.fromkeys(one.partition for one in found.values()))
    bound_s = dict(zip(partitions, pipelines.bounds_s(partitions, np.full(len(partitions), np.inf)), strict=True))
    best_first = sorted(found, key=lambda one: (bound_s[found[one].partition], found[one].place))
    usual, cheap, near, tight = ([one for one in best_first if found[one].kind == kind] for kind in get_args(_Kind))
    others = near[:MOST_NEAR] or tight[:MOST_TIGHT]
    timed = usual[: MOST_TIMED - len(others)] + others
    target_s = context.request.objective.target_iteration_s or float("inf")
    ends_s = {one: bound_s[found[one].partition] for one in cheap}
    cheap.sort(key=lambda one: (ends_s[one] > target_s, found[one].paid_usd_per_s * ends_s[one]))
    timed = cheap[:MOST_CHEAP] + timed
    yield from dict.fromkeys(_with_layers(context, configuration, *one) for one in timed)


def _with_layers(context: Context, configuration: Configuration, routes: Routes, layers: tuple[int, ...]) -> Candidate:
    """The candidate with these layers by stage on these routes, ranks of one type in the nearest order."""
    shared_out = configuration.model_copy(update={"layers_per_stage": layers})
    return in_nearest_order(context, Candidate(shared_out, pooled(context, shared_out, routes)))


def _inside_one_building(
    context: Context, problem: PlacementProblem, costs: dict[str, TypeCost]
) -> Iterator[PlacementProblem]:
    """The problem inside every building that holds all ranks on several types, each on one of them.

    Only where the fastest type alone holds all ranks, but in no building (`solver/configurations/nearness.py`).
    """
    fastest, building_u = min(costs, key=lambda gpu: costs[gpu].layer_s), np.array(context.geography.building_u)
    if _ranks_by_type(context, problem)[fastest] < problem.num_ranks:
        return
    found = []
    for building in range(context.geography.num_buildings):
        capacity_u = np.where(building_u == building, problem.capacity_u, 0)
        inside = replace(problem, capacity_u=tuple(capacity_u.tolist()))
        held = _ranks_by_type(context, inside)
        if held[fastest] >= problem.num_ranks:
            return
        if held.total() >= problem.num_ranks and len(+held) > 1:
            found.append(inside)
    yield from found


def _ranks_by_type(context: Context, problem: PlacementProblem) -> Counter[str]:
    """Pipeline ranks that each GPU type holds with all their replicas."""
    groups_of = dict[str, list[int]]()
    for u, group in enumerate(context.capacity_groups):
        groups_of.setdefault(group.gpu, []).append(u)
    return Counter({gpu: _most_ranks(problem, groups) for gpu, groups in groups_of.items()})


def _most_ranks(problem: PlacementProblem, groups: Iterable[int]) -> int:
    """Ranks, of all that there are at most, that some capacity groups hold with all their replicas.

    Where pipelines may not cross buildings, each holds all these ranks of as many replicas as it has room for; where
    replicas may not, all replicas of as many ranks.
    """
    held_b, replicas = Counter[int](), problem.num_replicas
    for u in groups:
        held_b[problem.building_u[u]] += problem.capacity_u[u]
    held = held_b.values()
    if not problem.replicas_may_cross:
        ranks = [own // replicas for own in held]
        return sum(ranks) if problem.ranks_may_cross else max(ranks, default=0)
    if problem.ranks_may_cross:
        return sum(held) // replicas
    fitting = (ranks for ranks in range(problem.num_ranks, 0, -1) if sum(own // ranks for own in held) >= replicas)
    return next(fitting, 0)


def memory_first_placements(context: Context, configuration: Configuration) -> Iterator[Candidate]:
    """Candidates with even layers whose first ranks, which hold activations longest, are on types with more memory.

    None where every type has memory enough for them, and for a V, whose ranks hold theirs equally long.
    """
    costs = type_costs(context, configuration)
    if configuration.family == "v" or not _memory_binds(configuration, costs, context.job.num_layers):
        return
    whole = placement_problem(context, configuration)
    for problem in by_island(context, whole):
        orders = [
            segments
            for in_regions in (False, True)
            for segments in _segment_orders(context, problem, costs, in_regions=in_regions, keys=MOST_MEMORY)
        ]
        for routes in dict.fromkeys(_along(problem, segments) for segments in orders):
            if routes is not None:
                yield in_nearest_order(context, Candidate(configuration, pooled(context, configuration, routes)))


def _memory_binds(configuration: Configuration, costs: dict[str, TypeCost], num_layers: int) -> bool:
    """Whether the first rank has other memory on some types, and on the least twice as many micro-batches as there are
    ranks, or all of them, do not fit.
    """
    degrees, layers = configuration.degrees, num_layers / configuration.degrees.pp
    least, most = (pick(costs.values(), key=lambda one: one.capacity_bytes) for pick in (min, max))
    free_bytes = least.capacity_bytes - layers * least.layer_bytes - least.first_bytes
    in_flight = min(configuration.num_microbatches, IN_FLIGHT_PER_RANK * degrees.pp)
    return least.capacity_bytes < most.capacity_bytes and in_flight * layers * least.held_bytes > free_bytes


def best_partitioned(
    context: Context, configuration: Configuration, cutoff_s: float, clock: Clock
) -> Iterator[Candidate]:
    """Candidates with the types and layers whose pipelines have the least bounds, rank after rank on its type: one
    route for all replicas, in each island that holds it.

    Shares by the slowest rank alone are far from these where there are few micro-batches: then all ranks of the way of
    one micro-batch count.
    """
    if not np.isfinite(cutoff_s):
        return
    whole = placement_problem(context, configuration)
    for types, layers in best_partitions(context, configuration, cutoff_s, clock):
        for problem in by_island(context, whole):
            routes = keep_ranks_whole(_on_types(context, problem, types))
            if routes is not None:
                yield _with_layers(context, configuration, routes, layers)


def priced_again(context: Context, candidate: Candidate, prices: Prices) -> Iterator[Candidate]:
    """The integer flow with every rank on the type that it has, and the layers as they are."""
    configuration = candidate.configuration
    types = candidate.gpu_types(context)
    for problem in by_island(context, placement_problem(context, configuration, prices)):
        for routes in dict.fromkeys(solve(context, _on_types(context, problem, types), "priced")):
            yield Candidate(configuration, pooled(context, configuration, routes))


def ranks_by_type(context: Context, candidate: Candidate) -> bool:
    """Whether every rank is on one GPU type in all replicas, and not all ranks on the same or layers shared out so."""
    if candidate.configuration.layer_split == "by_gpu_type":
        return True
    pools_r = zip(*(route.pools for route in candidate.routes), strict=True)
    ranks = [{context.pools[pool].gpu.name for pool in pools} for pools in pools_r]
    return all(len(names) == 1 for names in ranks) and len(set().union(*ranks)) > 1


def _everywhere(
    context: Context, problem: PlacementProblem, costs: dict[str, TypeCost], patterns: tuple[TypedPattern, ...]
) -> Iterator[tuple[Types, Routes, int]]:
    """GPU types of the ranks with routes on them, and their place in their pattern; else what the flow finds."""
    orders = _segment_orders(context, problem, costs, in_regions=False)
    tried = [orders] if "types" in patterns else []
    if "types_in_parts" in patterns:
        tried.append([parts for segments in orders if (parts := _parted(context, problem, segments)) is not None])
    if "types_in_regions" in patterns and len(set(context.geography.region_u)) > 1:
        tried.append(_segment_orders(context, problem, costs, in_regions=True))
    ways = [[(_types(segments), _along(problem, segments)) for segments in some] for some in tried]
    pinned = _pinned_types(context, problem, costs)
    along = pinned + [_types(segments) for segments in orders]
    if "replicas_in_groups" in patterns:
        ways.append([(types, keep_replicas_in_groups(_on_types(context, problem, types))) for types in along])
    if "ranks_whole" in patterns:
        ways.append([(types, keep_ranks_whole(_on_types(context, problem, types))) for types in along])
    closed = [(types, routes, place) for way in ways for place, (types, routes) in enumerate(way) if routes is not None]
    if not closed and "types" in patterns:
        flows = [(types, _on_types(context, problem, types)) for types in along]
        closed = [(types, routes, 0) for types, flow in flows for routes in solve(context, flow, "priced")]
    yield from closed


def _pinned_types(context: Context, problem: PlacementProblem, costs: dict[str, TypeCost]) -> list[Types]:
    """GPU types of all ranks where pins keep some from a type: of those open to each the fastest that has room.

    Ranks with fewest types open choose first, from the first rank on and from the last on. None without such pins.
    """
    gpu_u, ranks = [group.gpu for group in context.capacity_groups], range(problem.num_ranks)
    open_r = [{gpu for gpu, may in zip(gpu_u, problem.allowed_pu[rank], strict=True) if may} for rank in ranks]
    for pin in problem.minimums:
        for rank in pin.ranks:
            open_r[rank] &= {gpu_u[u] for u in pin.capacity_groups}
    if all(one == set(gpu_u) for one in open_r):
        return []
    found = []
    for order in (ranks, reversed(ranks)):
        left, types = _ranks_by_type(context, problem), dict[int, str]()
        for rank in sorted(order, key=lambda rank: len(open_r[rank])):
            fitting = [gpu for gpu in open_r[rank] if left[gpu] > 0]
            if not fitting:
                break
            types[rank] = min(fitting, key=lambda gpu: (costs[gpu].layer_s, gpu))
            left[types[rank]] -= 1
        else:
            found.append(tuple(types[rank] for rank in ranks))
    return list(dict.fromkeys(found))


def _parted(context: Context, problem: PlacementProblem, segments: Segments) -> Segments | None:
    """Each segment in parts of few capacity groups that hold whole ranks, so that exchanges have few members.

    None where no segment can be parted.
    """
    parts = tuple(part for segment in segments for part in _parts(context, problem, segment))
    return parts if len(parts) > len(segments) else None


def _parts(context: Context, problem: PlacementProblem, segment: Segment) -> Iterator[Segment]:
    """Of the fewest capacity groups, in as few regions as it goes, those that leave least capacity beside their ranks.

    No part leaves more of the segment's spare GPUs than its share of the ranks; what cannot be parted remains together.
    """
    groups, left, replicas = set(segment.capacity_groups), segment.num_ranks, problem.num_replicas
    while left:
        spare = sum(problem.capacity_u[u] for u in groups) - left * replicas
        found = []
        for size in range(1, MOST_TOGETHER + 1 if len(groups) <= MOST_PARTED else 1):
            for chosen in combinations(sorted(groups), size):
                capacity = sum(problem.capacity_u[u] for u in chosen)
                ranks = min(capacity // replicas, left)
                wasted = capacity - ranks * replicas
                if ranks and wasted * left <= spare * ranks:
                    found.append((len({context.geography.region_u[u] for u in chosen}), wasted / ranks, chosen, ranks))
            if found:
                break
        _, _, chosen, ranks = min(found, default=(0, 0.0, tuple(groups), left))
        yield replace(segment, capacity_groups=frozenset(chosen), num_ranks=ranks)
        groups, left = groups - set(chosen), left - ranks


def _along(problem: PlacementProblem, segments: Segments) -> Routes | None:
    """Routes that keep every segment in its capacity groups; None where there are none."""
    return keep_segments_whole(problem, tuple((segment.num_ranks, segment.capacity_groups) for segment in segments))


def _types(segments: Segments) -> Types:
    """GPU type of every pipeline rank."""
    return tuple(segment.gpu for segment in segments for _ in range(segment.num_ranks))


def _on_types(context: Context, problem: PlacementProblem, types: Sequence[str]) -> PlacementProblem:
    """The problem with every rank kept to the capacity groups of its type."""
    allowed = tuple(
        tuple(may and group.gpu == gpu for may, group in zip(row, context.capacity_groups, strict=True))
        for row, gpu in zip(problem.allowed_pu, types, strict=True)
    )
    return replace(problem, allowed_pu=allowed)


def _segment_orders(
    context: Context,
    problem: PlacementProblem,
    costs: dict[str, TypeCost],
    *,
    in_regions: bool,
    keys: Orders = ALL_ORDERS,
) -> list[Segments]:
    """GPU types one after another, region by region where asked, in the order of each key.

    Ranks are on the fastest types, and on those with most memory where these are others.
    """
    whole = _segments(context, in_regions=in_regions)
    firsts = OR_CHEAP_FIRST if chooses_by_price(context) else FILLED_FIRST
    fillings = dict.fromkeys(tuple(_filled(problem, whole, costs, first)) for first in firsts)
    return list(dict.fromkeys(one for filled in fillings if filled for one in _sequences(filled, costs, keys)))


def _sequences(segments: Segments, costs: dict[str, TypeCost], keys: Orders) -> Iterator[Segments]:
    """The same segments in the order of each key, the region with most ranks first."""
    held = Counter[int]()
    for one in segments:
        held[one.region] += one.num_ranks
    for key in keys:
        yield tuple(sorted(segments, key=lambda one: (-held[one.region], one.region, key(costs[one.gpu]), one.gpu)))


def _segments(context: Context, *, in_regions: bool) -> list[Segment]:
    """Capacity groups of one type, in one region where asked."""
    grouped: dict[tuple[str, int], list[int]] = {}
    for u, group in enumerate(context.capacity_groups):
        grouped.setdefault((group.gpu, context.geography.region_u[u] if in_regions else 0), []).append(u)
    return [Segment(gpu, region, frozenset(groups)) for (gpu, region), groups in grouped.items()]


def _filled(
    problem: PlacementProblem, segments: list[Segment], costs: dict[str, TypeCost], first: Ranking
) -> list[Segment]:
    """As many ranks as there are, on some types first, each with all its replicas in its segment's capacity groups."""
    left, filled = problem.num_ranks, list[Segment]()
    num_ranks = {one: _most_ranks(problem, one.capacity_groups) for one in segments}
    for one in sorted(segments, key=lambda one: (first(costs[one.gpu]), -num_ranks[one], one.gpu, one.region)):
        taken = min(left, num_ranks[one])
        if taken:
            filled.append(replace(one, num_ranks=taken))
            left -= taken
    return filled if not left else []
