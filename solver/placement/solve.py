"""Solve a placement: the closed form where no replica needs to cross, CP-SAT otherwise.

Owns the choice between both and the reading of CP-SAT's answer. Never prices anything.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from solver.placement.model import FAMILIES, TICK_S, Variables, make_variables, objective_terms
from solver.placement.problem import PlacementProblem, PlacementSolution, RouteCount
from solver.placement.routes import decompose


def place(problem: PlacementProblem, *, time_limit_s: float, workers: int, seed: int) -> PlacementSolution | None:
    """Routes of least priced loss, or None when no placement exists (or none was found in time)."""
    model = cp_model.CpModel()
    variables = make_variables(model, problem)
    for family in FAMILIES:
        family(model, problem, variables)
    model.minimize(sum(objective_terms(problem, variables)))
    for route in whole_replicas(problem):
        for p, u in enumerate(route.units):
            model.add_hint(variables.count_pu[p][u], route.num_replicas)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    routes = decompose(problem.num_ranks, problem.num_units, _flows(solver, variables), _counts(solver, variables))
    return PlacementSolution(
        routes=routes,
        objective_s=solver.objective_value * TICK_S,
        bound_s=solver.best_objective_bound * TICK_S,
        proven=status == cp_model.OPTIMAL,
    )


def whole_replicas(problem: PlacementProblem) -> tuple[RouteCount, ...]:
    """As many replicas as fit whole into one unit each, largest units first; may be fewer than asked for."""
    routes, missing = [], problem.num_replicas
    for u in sorted(range(problem.num_units), key=lambda u: -problem.capacity_u[u]):
        if missing and all(problem.allowed_pu[p][u] for p in range(problem.num_ranks)):
            count = min(missing, problem.capacity_u[u] // problem.num_ranks)
            if count:
                routes.append(RouteCount(units=(u,) * problem.num_ranks, num_replicas=count))
                missing -= count
    return tuple(routes)


def _flows(solver: cp_model.CpSolver, variables: Variables) -> dict[tuple[int, int, int], int]:
    values = {key: solver.value(flow) for key, flow in variables.flow_puv.items()}
    return {key: value for key, value in values.items() if value}


def _counts(solver: cp_model.CpSolver, variables: Variables) -> list[list[int]]:
    return [[solver.value(count) for count in counts] for counts in variables.count_pu]
