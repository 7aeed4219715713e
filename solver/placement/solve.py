"""Solve a placement: one stay programme per tier and number of crossings, cheapest first, until none can be better.

Every programme is relaxed first (HiGHS) and searched (CP-SAT) where the relaxation leaves room. Owns the order of the
programmes and the bound over all of them. Never prices anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import highspy
import numpy as np
from ortools.sat.python import cp_model

from solver.placement.model import TICK_S, Stay, StayModel
from solver.placement.problem import PlacementProblem, PlacementSolution, RouteCount, Tier, loss_s, shortest_stay
from solver.placement.routes import chained
from solver.placement.strategies import PATTERNS

RELATIVE_GAP = 1e-6
LEAST_TIME_S = 0.05
MAX_COLUMNS = 8_000  # beyond, the search only reads the programme before its time is up


@dataclass(frozen=True)
class _Answer:
    """Stays with counts if any were found, what no solution of the programme beats, and whether the two meet."""

    stays: dict[Stay, int] | None
    bound_s: float
    closed: bool


@dataclass
class _Best:
    """The best routes so far, and the least bound of the programmes that were cut short."""

    problem: PlacementProblem
    routes: tuple[RouteCount, ...] | None = None
    value_s: float = float("inf")
    open_s: float = float("inf")

    def offer(self, routes: tuple[RouteCount, ...] | None) -> None:
        """Keep routes that lose less, if their stays are long enough."""
        if routes is None or any(shortest_stay(route.units) < self.problem.least_stay for route in routes):
            return
        if (value := loss_s(self.problem, routes)) < self.value_s:
            self.routes, self.value_s = routes, value

    @property
    def cut_s(self) -> float:
        """A programme that cannot get below this is not worth solving."""
        return self.value_s * (1.0 - RELATIVE_GAP) - 1e-12


def place(
    problem: PlacementProblem,
    *,
    time_limit_s: float,
    workers: int = 1,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> PlacementSolution | None:
    """Routes of least priced loss, or None when no placement exists (or none was found in time)."""
    deadline = clock() + time_limit_s
    best = _Best(problem)
    for pattern in PATTERNS:
        best.offer(pattern(problem))
    for least_s, tier, crossings in _programmes(problem):
        left_s = deadline - clock()
        if least_s >= best.cut_s:
            break
        if left_s <= LEAST_TIME_S:
            best.open_s = min(best.open_s, least_s)
            break
        _solve_one(best, StayModel(problem, tier, crossings), least_s, _Limits(left_s, workers, seed))
    if best.routes is None:
        return None
    bound = min(best.value_s, best.open_s)
    return PlacementSolution(best.routes, best.value_s, bound, proven=bound >= best.cut_s)


def _programmes(problem: PlacementProblem) -> list[tuple[float, Tier, int]]:
    """Every tier and number of crossings with the least that its placements lose, least first.

    0 crossings belong to the cheapest tier alone, and more of them than stays long enough would need do not exist.
    """
    most = problem.num_ranks // max(problem.least_stay, 1)
    found = [
        (tier.crossing_s * crossings + least_span_s(problem, tier, crossings), tier, crossings)
        for number, tier in enumerate(_tiers(problem))
        for crossings in range(min(number, 1), most)
    ]
    return sorted((one for one in found if one[0] < float("inf")), key=lambda one: (one[0], one[2]))


def least_span_s(problem: PlacementProblem, tier: Tier, crossings: int) -> float:
    """Exchanges that no placement saves when replicas cross so often and inside groups; infinite where none fits.

    Replicas stay in their group, so the groups hold all of them whole. A rank that lies whole in a building makes every
    replica visit it: then one group holds them all, and at most crossings + 1 buildings in it hold such ranks, each of
    them floor(capacity / replicas). At best these are the dearest ranks.
    """
    groups: dict[int, dict[int, int]] = {}
    for u, group in enumerate(tier.group_u):
        held = groups.setdefault(group, {})
        held[problem.building_u[u]] = held.get(problem.building_u[u], 0) + problem.capacity_u[u]
    replicas, ranks = problem.num_replicas, problem.num_ranks
    if sum(sum(held.values()) // ranks for held in groups.values()) < replicas:
        return float("inf")
    if problem.num_buildings == 1:
        return 0.0
    whole = 0
    for held in groups.values():
        if sum(held.values()) >= ranks * replicas:
            fits = sorted((capacity // replicas for capacity in held.values()), reverse=True)
            whole = max(whole, sum(fits[: crossings + 1]))
    return sum(sorted(problem.prices.span_s, reverse=True)[whole:])


def _tiers(problem: PlacementProblem) -> Iterator[Tier]:
    """Tiers in which a replica may cross; all of them hold the replicas that do not."""
    for tier in problem.prices.tiers:
        groups: dict[int, set[int]] = {}
        for u, group in enumerate(tier.group_u):
            groups.setdefault(group, set()).add(problem.building_u[u])
        if problem.ranks_may_cross or all(len(buildings) == 1 for buildings in groups.values()):
            yield tier


@dataclass(frozen=True)
class _Limits:
    """How long and how a programme is searched."""

    time_s: float
    workers: int
    seed: int


def _solve_one(best: _Best, model: StayModel, least_s: float, limits: _Limits) -> None:
    """The relaxation first: most programmes end there."""
    fixed_s = model.tier.crossing_s * model.crossings + model.constant_s
    relaxed_s = fixed_s + _relaxed_s(model, limits)
    if relaxed_s >= best.cut_s:
        return
    least_s = max(least_s, relaxed_s)
    if len(model.stays) > MAX_COLUMNS:
        best.open_s = min(best.open_s, least_s)
        return
    answer = _searched(model, limits, cut_s=best.cut_s - fixed_s)
    if answer.stays is not None:
        best.offer(chained(model.problem, model.tier, answer.stays))
    if not answer.closed:
        best.open_s = min(best.open_s, max(least_s, fixed_s + answer.bound_s))


def _relaxed_s(model: StayModel, limits: _Limits) -> float:
    """Least objective when replicas may be cut into parts; minus infinity where time was too short."""
    programme, lp = model.programme, highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(programme.cost), len(programme.rows)
    lp.col_cost_ = np.array(programme.cost, dtype=np.float64)
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.array(programme.upper, dtype=np.float64)
    lp.row_lower_ = np.array([-np.inf if low is None else float(low) for _, low, _ in programme.rows])
    lp.row_upper_ = np.array([float(high) for _, _, high in programme.rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(entries) for entries, _, _ in programme.rows)])
    lp.a_matrix_.index_ = np.array([index for entries, _, _ in programme.rows for index, _ in entries], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([float(value) for entries, _, _ in programme.rows for _, value in entries])
    highs = highspy.Highs()
    for name, value in (("output_flag", False), ("threads", 1), ("time_limit", limits.time_s)):
        highs.setOptionValue(name, value)
    highs.passModel(lp)
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return float("inf")
    found = status == highspy.HighsModelStatus.kOptimal
    return highs.getInfo().objective_function_value * TICK_S if found else -float("inf")


def _searched(model: StayModel, limits: _Limits, *, cut_s: float) -> _Answer:
    """Whole counts; only what is below `cut_s` is looked for."""
    programme, exact = model.programme, cp_model.CpModel()
    columns = [exact.new_int_var(0, upper, f"x{index}") for index, upper in enumerate(programme.upper)]
    for entries, low, high in programme.rows:
        total = cp_model.LinearExpr.weighted_sum(
            [columns[index] for index, _ in entries], [value for _, value in entries]
        )
        exact.add(total == high if low is not None else total <= high)
    objective = cp_model.LinearExpr.weighted_sum(columns, programme.cost)
    if cut_s < float("inf"):
        exact.add(objective <= int(cut_s / TICK_S) + 1)
    exact.minimize(objective)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.time_s
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = limits.seed
    status = solver.solve(exact)
    if status == cp_model.INFEASIBLE:
        return _Answer(None, float("inf"), closed=True)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    counts = {stay: solver.value(columns[column]) for stay, column in model.stays.items()} if found else {}
    stays = {stay: count for stay, count in counts.items() if count} if found else None
    return _Answer(stays, solver.best_objective_bound * TICK_S, closed=status == cp_model.OPTIMAL)
