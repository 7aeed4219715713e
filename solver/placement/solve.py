"""Solve a placement: a programme of rank blocks per tier and crossings, cheapest first, until none can be better.

Every programme is relaxed first and, where that leaves a gap, its choices are made (HiGHS) and its counts made whole
(CP-SAT).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import highspy
import numpy as np
from ortools.sat.python import cp_model

from solver.placement.least_spans import least_span_s
from solver.placement.model import TICK_S, RankBlockModel, most_blocks
from solver.placement.problem import PlacementProblem, PlacementSolution, RouteCount, Tier, loss_s, shortest_block
from solver.placement.routes import chained
from solver.placement.strategies import PATTERNS

RELATIVE_GAP = 1e-6  # that a better placement has to gain; above the rounding to ticks
LEAST_TIME_S = 0.05  # with less no programme is begun; set by hand
SHARES = (0.3, 0.5)  # of the time left that each programme may take, first and once more where it remains open
MAX_COLUMNS = 8_000  # beyond, the search only reads the programme before its time is up
MAX_BLOCKS = 2 * MAX_COLUMNS  # beyond, a programme is not even written: it takes longer than what a search has for it


@dataclass(frozen=True)
class _Answer:
    """Values of the columns if any were found, what no solution beats, and whether the two meet."""

    values: list[int] | None
    bound_s: float
    closed: bool


@dataclass
class _Best:
    """The best routes so far."""

    problem: PlacementProblem
    routes: tuple[RouteCount, ...] | None = None
    value_s: float = float("inf")

    def offer(self, routes: tuple[RouteCount, ...] | None) -> None:
        """Keep routes that lose less, if their blocks are long enough."""
        if routes is None or any(shortest_block(route.capacity_groups) < self.problem.least_block for route in routes):
            return
        if (value := loss_s(self.problem, routes)) < self.value_s:
            self.routes, self.value_s = routes, value

    @property
    def cutoff_s(self) -> float:
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
    if any(pin.num_replicas > problem.num_replicas for pin in problem.minimums):
        return None
    deadline = clock() + time_limit_s
    best = _Best(problem)
    for pattern in PATTERNS:
        best.offer(pattern(problem))
    open_s = {(tier, crossings): least_s for least_s, tier, crossings in _programmes(problem)}
    for share in SHARES:
        for (tier, crossings), least_s in sorted(open_s.items(), key=lambda one: (one[1], one[0][1])):
            left_s = deadline - clock()
            if least_s >= best.cutoff_s or left_s <= LEAST_TIME_S:
                break
            if most_blocks(problem, crossings) > MAX_BLOCKS:
                continue
            limits = _Limits(clock() + share * left_s, workers, seed, clock)
            open_s[tier, crossings] = max(least_s, _solve_one(best, RankBlockModel(problem, tier, crossings), limits))
    if best.routes is None:
        return None
    bound = min([best.value_s, *open_s.values()])
    return PlacementSolution(best.routes, bound, proven=bound >= best.cutoff_s)


def _programmes(problem: PlacementProblem) -> list[tuple[float, Tier, int]]:
    """Every tier and number of crossings with the least that its placements lose, least first.

    0 crossings belong to the cheapest tier alone, and more of them than blocks long enough would need do not exist.
    """
    most = problem.num_ranks // max(problem.least_block, 1)
    found = [
        (tier.crossing_s * crossings + least_span_s(problem, tier, crossings), tier, crossings)
        for number, tier in enumerate(_tiers(problem))
        for crossings in range(min(number, 1), most)
    ]
    return sorted((one for one in found if one[0] < float("inf")), key=lambda one: (one[0], one[2]))


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
    """Until when and how a programme is searched."""

    ends_s: float
    workers: int
    seed: int
    clock: Callable[[], float]

    @property
    def left_s(self) -> float:
        """A little in any case."""
        return max(self.ends_s - self.clock(), LEAST_TIME_S)


def _solve_one(best: _Best, model: RankBlockModel, limits: _Limits) -> float:
    """Offer what the programme finds, and return what it cannot beat: most programmes end with the relaxation.

    Then the choices are made with counts in parts, which few of them need whole, and the counts made whole under these
    choices. Only where that does not close it everything is searched whole.
    """
    if not model.blocks:
        return float("inf")
    fixed_s = model.tier.crossing_s * model.crossings + model.constant_s
    bound_s = fixed_s + _mixed(model, limits, choose=False).bound_s
    if bound_s >= best.cutoff_s or len(model.blocks) > MAX_COLUMNS:
        return bound_s
    mixed = _mixed(model, limits, choose=True)
    bound_s = max(bound_s, fixed_s + mixed.bound_s)
    if mixed.values is not None:
        chosen = {column: mixed.values[column] for column in model.choices}
        _offer(best, model, _searched(model, limits, chosen=chosen))
    if bound_s >= best.cutoff_s or not mixed.closed or limits.left_s <= LEAST_TIME_S:
        return bound_s
    answer = _searched(model, limits, cutoff_s=best.cutoff_s - fixed_s)
    _offer(best, model, answer)
    return float("inf") if answer.closed else max(bound_s, fixed_s + answer.bound_s)


def _offer(best: _Best, model: RankBlockModel, answer: _Answer) -> None:
    if answer.values is not None:
        counts = {block: answer.values[column] for block, column in model.blocks.items()}
        blocks = {block: count for block, count in counts.items() if count}
        best.offer(chained(model.problem, model.tier, blocks))


def _mixed(model: RankBlockModel, limits: _Limits, *, choose: bool) -> _Answer:
    """Counts in parts; choices too, or yes or no. Where time was too short nothing is known of the relaxation."""
    highs = highspy.Highs()
    options = {"output_flag": False, "threads": 1, "time_limit": limits.left_s, "mip_rel_gap": 1e-7}
    for name, value in options.items():
        highs.setOptionValue(name, value)
    highs.passModel(_as_lp(model, choose=choose))
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return _Answer(None, float("inf"), closed=True)
    closed = status == highspy.HighsModelStatus.kOptimal
    if not choose:
        return _Answer(None, info.objective_function_value * TICK_S if closed else -float("inf"), closed)
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = [round(value) for value in highs.getSolution().col_value] if found else None
    return _Answer(values, info.mip_dual_bound * TICK_S, closed)


def _as_lp(model: RankBlockModel, *, choose: bool) -> highspy.HighsLp:
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
    if choose:
        kinds = [highspy.HighsVarType.kContinuous] * lp.num_col_
        for column in model.choices:
            kinds[column] = highspy.HighsVarType.kInteger
        lp.integrality_ = kinds
    return lp


def _searched(
    model: RankBlockModel, limits: _Limits, *, cutoff_s: float = float("inf"), chosen: dict[int, int] | None = None
) -> _Answer:
    """Whole counts; only what is below `cutoff_s`, and under these choices, is looked for."""
    programme, exact = model.programme, cp_model.CpModel()
    columns = [exact.new_int_var(0, upper, f"x{index}") for index, upper in enumerate(programme.upper)]
    for entries, low, high in programme.rows:
        total = cp_model.LinearExpr.weighted_sum(
            [columns[index] for index, _ in entries], [value for _, value in entries]
        )
        exact.add(total == high if low is not None else total <= high)
    for column, value in (chosen or {}).items():
        exact.add(columns[column] == value)
    objective = cp_model.LinearExpr.weighted_sum(columns, programme.cost)
    if cutoff_s < float("inf"):
        exact.add(objective <= int(cutoff_s / TICK_S) + 1)
    exact.minimize(objective)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.left_s
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = limits.seed
    status = solver.solve(exact)
    if status == cp_model.INFEASIBLE:
        return _Answer(None, float("inf"), closed=True)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    values = [solver.value(column) for column in columns] if found else None
    return _Answer(values, solver.best_objective_bound * TICK_S, closed=status == cp_model.OPTIMAL)
