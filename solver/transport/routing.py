"""Bytes between places split over paths, so that the fullest edge is done as early as possible.

The linear programme (PuLP with HiGHS), column generation and the bound that its duals prove. Index suffixes: k
commodity (everything with the same ends), e edge.

    min T + tiny * detours    sum_path x[k, path] = 1
                              carried[e] + sum_k,path size[k] x[k, path] [e in path] <= T capacity[e]

`carried` are bytes of others. Column generation ends when no path is cheaper under the duals, or when the bound
sum_k size[k] dist_y(k) + sum_e y[e] carried[e], y = dual / capacity (Shahrokhi & Matula 1990), meets T. Where no path
may be a detour, only paths that leave buildings least often count, everywhere in this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pulp

from solver.arrays import BoolArray, FloatArray
from solver.network.paths import LinkGraph, Paths, direct_first, least_paths, leaving_buildings, link_graph
from solver.network.split import Parts, Step, part_by_edge
from solver.network.topology import Topology

Path = tuple[int, ...]
SplitK = tuple[Parts, ...]
Columns = tuple[dict[Path, None], ...]  # paths of each commodity, in the order found

RELATIVE_GAP = 1e-6  # between time and bound at which a routing counts as optimal
_DETOUR_WEIGHT = 1e-8  # orders among optima, far below the gap
_MAX_ROUNDS = 80  # of column generation, which ends by its gap long before
_NUM_PROPOSALS = 16  # flows that go round what is full, before the first programme; set by hand
_PROPOSAL_POWER = 5.0  # of how full an edge is, in the length of those paths; set by hand


class RoutingError(RuntimeError):
    """The linear programme did not solve to optimality, which is a bug and never an answer."""


@dataclass(frozen=True)
class PathFlow:
    """Parts of every commodity by path, the time of the fullest edge, each edge's price and the bound the prices prove.

    `price_e` is dT / d(bytes on e), in seconds per byte.
    """

    split_k: SplitK
    time_s: float
    price_e: FloatArray
    bound_s: float


@dataclass(frozen=True)
class _Master:
    """Solution of the programme over the paths known so far; time in units of the proposals' mean."""

    time: float
    part: dict[tuple[int, Path], float]
    dual_e: FloatArray
    dual_k: FloatArray


@dataclass(frozen=True)
class Commodities:
    """Bytes to ship between places, which are indices of the topology, beside those that edges have `carried` already.

    With `direct` no path may leave more buildings on its way than another one would.
    """

    topology: Topology
    capacity: FloatArray
    ends_k: tuple[tuple[int, int], ...]
    size_k: FloatArray
    carried_e: FloatArray
    direct: bool = False

    @cached_property
    def graph(self) -> LinkGraph:
        """Edges as `least_paths` takes them."""
        return link_graph(self.topology)

    @cached_property
    def leaving(self) -> BoolArray:
        """The edges out of buildings."""
        return leaving_buildings(self.topology)

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """Places that send."""
        return tuple(sorted({source for source, _ in self.ends_k}))

    def paths_under(self, weight_e: FloatArray) -> Paths:
        """Least paths from all senders."""
        ranked_e = direct_first(weight_e, self.leaving) if self.direct else weight_e
        return least_paths(self.graph, ranked_e, self.sources)

    def distance_k(self, weight_e: FloatArray) -> FloatArray:
        """Least weight between the ends of every commodity."""
        paths = self.paths_under(weight_e)
        return np.array([weight_e[list(paths.between(*ends))].sum() for ends in self.ends_k])


def route(
    topology: Topology,
    size_of: Mapping[Step, float],
    capacity_bytes_per_s: FloatArray,
    *,
    carried_bytes: FloatArray | None = None,
    direct: bool = False,
) -> PathFlow:
    """The best split of `size_of` bytes from place to place, where edges have these capacities.

    Edges carry `carried_bytes` of others, too, or nothing. Where the paths of least latency are as fast, they stay.
    With `direct` no path leaves more buildings than it must.
    """
    commodities = commodities_of(topology, size_of, capacity_bytes_per_s, carried_bytes=carried_bytes, direct=direct)
    best = solve_path_flow(commodities)
    plain_k = least_latency_split(commodities)
    plain_s = fullest_edge_s(commodities, plain_k)
    if plain_s <= best.time_s * (1 + RELATIVE_GAP):
        return replace(best, split_k=plain_k, time_s=plain_s)
    return replace(best, time_s=fullest_edge_s(commodities, best.split_k))


def commodities_of(
    topology: Topology,
    size_of: Mapping[Step, float],
    capacity_bytes_per_s: FloatArray,
    *,
    carried_bytes: FloatArray | None = None,
    direct: bool = False,
) -> Commodities:
    """Bytes by place as columns of the programme."""
    ends_k = tuple((topology.index_of[source], topology.index_of[target]) for source, target in size_of)
    carried_e = np.zeros(len(capacity_bytes_per_s)) if carried_bytes is None else carried_bytes
    return Commodities(topology, capacity_bytes_per_s, ends_k, np.array(list(size_of.values())), carried_e, direct)


def least_latency_split(commodities: Commodities) -> SplitK:
    """Everything on its path of least latency."""
    paths = commodities.paths_under(commodities.topology.latency_s)
    return tuple(((paths.between(*ends), 1.0),) for ends in commodities.ends_k)


def fullest_edge_s(commodities: Commodities, split_k: SplitK) -> float:
    """Time at which the fullest edge of those that a split takes is done."""
    load_e = bytes_by_edge(zip(split_k, commodities.size_k.tolist(), strict=True), len(commodities.capacity))
    return fullest_s(load_e, commodities.carried_e, commodities.capacity)


def bytes_by_edge(splits: Iterable[tuple[Parts, float]], num_edges: int) -> FloatArray:
    """What every edge carries of messages that are split so, each given with its bytes."""
    load_e = np.zeros(num_edges)
    for parts, size in splits:
        for edge, part in part_by_edge((parts,)).items():
            load_e[edge] += part * size
    return load_e


def fullest_s(load_e: FloatArray, carried_e: FloatArray, capacity_e: FloatArray) -> float:
    """Time at which the fullest of the edges with a load is done, which have `carried_e` bytes of others, too."""
    used = load_e > 0.0
    return float(np.max((load_e[used] + carried_e[used]) / capacity_e[used], initial=0.0))


def solve_path_flow(commodities: Commodities) -> PathFlow:
    """Least time to ship all commodities, to a relative gap of 1e-6."""
    columns: Columns = tuple({} for _ in commodities.ends_k)
    unit_s = _propose(commodities, columns)
    latency_e = commodities.topology.latency_s
    total_latency = float(commodities.size_k @ commodities.distance_k(latency_e))
    detour_e = _DETOUR_WEIGHT * latency_e / total_latency if total_latency > 0 else np.zeros(len(latency_e))
    bound_s = 0.0
    for _ in range(_MAX_ROUNDS):
        master = _solve_master(commodities, columns, unit_s, detour_e)
        time_s = master.time * unit_s
        price_e = master.dual_e / commodities.capacity
        others_s = float(price_e @ commodities.carried_e)
        bound_s = max(bound_s, float(commodities.size_k @ commodities.distance_k(price_e)) + others_s)
        added = _add_cheaper(commodities, columns, price_e / unit_s + detour_e, master.dual_k)
        if bound_s >= time_s * (1 - RELATIVE_GAP) or (not added and not detour_e.any()):
            break
        unit_s = time_s  # keeps the programme's time near one, far above its tolerances
        detour_e = detour_e if added else np.zeros_like(detour_e)  # a very long detour may be worth more than the gap
    return PathFlow(_split(commodities, master), time_s, price_e, bound_s)


def _propose(commodities: Commodities, columns: Columns) -> float:
    """Fill `columns` with promising paths: all-or-nothing flows under lengths that grow with the load so far.

    Returns the time of the mean of these flows, near the optimum and so the programme's unit of time.
    """
    load_e, carried_e = np.zeros(len(commodities.capacity)), commodities.carried_e
    for number in range(_NUM_PROPOSALS):
        if number == 0:
            weight_e = commodities.topology.latency_s
        else:
            fill_e = (load_e + carried_e) / commodities.capacity
            weight_e = (fill_e / fill_e.max()) ** _PROPOSAL_POWER / commodities.capacity + 1e-3 / commodities.capacity
        now_e = _all_or_nothing(commodities, columns, weight_e)
        load_e += (now_e - load_e) * (1.0 if number == 0 else 2.0 / (number + 2))
    return fullest_s(load_e, carried_e, commodities.capacity)


def _all_or_nothing(commodities: Commodities, columns: Columns, weight_e: FloatArray) -> FloatArray:
    paths = commodities.paths_under(weight_e)
    load_e = np.zeros(len(weight_e))
    for k, (source, target) in enumerate(commodities.ends_k):
        path = paths.between(source, target)
        columns[k][path] = None
        load_e[list(path)] += commodities.size_k[k]
    return load_e


def _solve_master(commodities: Commodities, columns: Columns, unit_s: float, detour_e: FloatArray) -> _Master:
    problem = pulp.LpProblem("routing", pulp.LpMinimize)
    time = problem.add_variable("time", lowBound=0)
    objective: list[tuple[pulp.LpVariable, float]] = [(time, 1.0)]
    on_edge: dict[int, list[tuple[pulp.LpVariable, float]]] = {}
    part: dict[tuple[int, Path], pulp.LpVariable] = {}
    rows_k: list[pulp.LpConstraint] = []
    for k, paths in enumerate(columns):
        size = float(commodities.size_k[k])
        for number, path in enumerate(paths):
            variable = problem.add_variable(f"part[{k},{number}]", lowBound=0)
            part[k, path] = variable
            objective.append((variable, size * float(detour_e[list(path)].sum())))
            for edge in path:
                on_edge.setdefault(edge, []).append((variable, size / (float(commodities.capacity[edge]) * unit_s)))
        rows_k.append(pulp.LpAffineExpression([(part[k, path], 1.0) for path in paths]) == 1)
    filled_e = commodities.carried_e / (commodities.capacity * unit_s)
    rows_e = {
        edge: pulp.LpAffineExpression([*terms, (time, -1.0)]) <= -float(filled_e[edge])
        for edge, terms in on_edge.items()
    }
    problem.setObjective(pulp.LpAffineExpression(objective))
    for k, row in enumerate(rows_k):
        problem.addConstraint(row, f"ship[{k}]")
    for edge, row in rows_e.items():
        problem.addConstraint(row, f"fill[{edge}]")
    _solve(problem)
    dual_e = np.zeros(len(commodities.capacity))
    for edge, row in rows_e.items():
        dual_e[edge] = max(0.0, -float(row.pi))
    return _Master(
        time=float(time.value()),
        part={key: max(0.0, float(variable.value())) for key, variable in part.items()},
        dual_e=dual_e / max(float(dual_e.sum()), 1e-300),
        dual_k=np.array([float(row.pi) for row in rows_k]),
    )


def _solve(problem: pulp.LpProblem) -> None:
    """Interior point with crossover, twice as fast here as dual simplex, which answers where the former gives up.

    PuLP's status alone would call a stopped solve optimal; `sol_status` does not.
    """
    tolerances = {"dual_feasibility_tolerance": 1e-10, "primal_feasibility_tolerance": 1e-10}
    for method in ("ipm", "simplex"):
        problem.solve(pulp.HiGHS(msg=False, threads=1, solver=method, **tolerances))
        if problem.status == pulp.LpStatusOptimal and problem.sol_status == pulp.LpSolutionOptimal:
            return
    raise RoutingError(f"the routing programme ended as {pulp.LpStatus[problem.status]!r}")


def _add_cheaper(commodities: Commodities, columns: Columns, weight_e: FloatArray, dual_k: FloatArray) -> int:
    """Add every path that is cheaper under the duals than the best known one of its commodity; how many there were."""
    paths = commodities.paths_under(weight_e)
    added = 0
    for k, (source, target) in enumerate(commodities.ends_k):
        path = paths.between(source, target)
        cost = commodities.size_k[k] * float(weight_e[list(path)].sum())
        if cost < dual_k[k] - 1e-10 and path not in columns[k]:
            columns[k][path] = None
            added += 1
    return added


def _split(commodities: Commodities, master: _Master) -> SplitK:
    """Parts above the solver's noise, scaled to add up to one exactly."""
    parts: list[list[tuple[Path, float]]] = [[] for _ in commodities.ends_k]
    for (k, path), part in master.part.items():
        if part > 1e-9:
            parts[k].append((path, part))
    return tuple(normalised(one) for one in parts)


def normalised(parts: Sequence[tuple[Path, float]]) -> Parts:
    """The paths with parts that add up to one."""
    total = sum(part for _, part in parts)
    return tuple((path, part / total) for path, part in parts)
