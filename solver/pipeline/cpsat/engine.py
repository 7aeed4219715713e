"""One CP-SAT run over one instance: model and limits in; order and bound out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from solver.pipeline.cpsat.extract import extract
from solver.pipeline.cpsat.families import FAMILIES
from solver.pipeline.cpsat.variables import EmptyDomain, Instance, Vars, create
from solver.pipeline.problem import PipelineOrder

LEAST_WORK_S = 0.01  # so that whoever counts work gets to an end
SECONDS_PER_UNIT = 1.5  # of CP-SAT's deterministic time, which leaves out how long a model takes to build and presolve


@dataclass(frozen=True)
class RunLimits:
    """When a run stops and what it may use. A run that `counts_work` takes its limit in CP-SAT's deterministic time."""

    time_limit_s: float
    workers: int
    seed: int
    left_s: Callable[[], float]
    subsolvers: tuple[str, ...]
    counts_work: bool
    cap_s: float
    probing: bool


@dataclass(frozen=True, eq=False)
class Found:
    """An order, if one was found, its value, and a bound that holds for every order within the horizon."""

    order: PipelineOrder | None
    value_ticks: int | None
    bound_ticks: int
    proven: bool
    work_s: float = 0.0


def run(instance: Instance, limits: RunLimits) -> Found:
    """The first order of value at most the horizon that is found.

    Nothing found and proven means that the bound is the horizon + 1.
    """
    model = cp_model.CpModel()
    try:
        v = create(model, instance)
    except EmptyDomain:
        return Found(None, None, instance.horizon + 1, True)
    for family in FAMILIES:
        family(model, instance, v)
    model.minimize(v.value)
    if not limits.counts_work:  # to build a large model takes its time
        limits = replace(limits, time_limit_s=min(limits.time_limit_s, limits.left_s()))
    solver = cp_model.CpSolver()
    set_parameters(solver, limits)
    status = solver.solve(model)
    return replace(_read(instance, v, solver, status), work_s=work_of(solver))


def work_of(solver: cp_model.CpSolver) -> float:
    """Seconds of work that a run took, never quite nothing: whoever counts it gets to an end."""
    return max(SECONDS_PER_UNIT * float(solver.response_proto.deterministic_time), LEAST_WORK_S)


def set_parameters(solver: cp_model.CpSolver, limits: RunLimits) -> None:
    """Explicit parameters; no other place sets any."""
    wished_s = max(limits.time_limit_s, 0.01)
    if limits.counts_work:
        solver.parameters.max_deterministic_time = wished_s / SECONDS_PER_UNIT
    solver.parameters.max_time_in_seconds = max(limits.cap_s, 0.01) if limits.counts_work else wished_s
    solver.parameters.num_workers = limits.workers
    # all pairs of a rank get an order literal: quicker on every family tried (decision 0102)
    solver.parameters.max_size_to_create_precedence_literals_in_disjunctive = 400
    # more order among the operations of a rank is found: a case open after 14 s of one core is refuted in 2.5
    solver.parameters.use_dynamic_precedence_in_disjunctive = True
    # one short presolve: most refutations need no more, and long probing is most of the time of a question
    solver.parameters.max_presolve_iterations = 1
    solver.parameters.presolve_probing_deterministic_time_limit = 0.02
    solver.parameters.symmetry_level = 0
    if not limits.probing:
        solver.parameters.cp_model_probing_level = 0
    solver.parameters.random_seed = limits.seed
    solver.parameters.stop_after_first_solution = True
    if limits.workers > 1:
        solver.parameters.subsolvers.extend(limits.subsolvers)


def _read(instance: Instance, v: Vars, solver: cp_model.CpSolver, status: cp_model.CpSolverStatus) -> Found:
    if status == cp_model.INFEASIBLE:
        return Found(None, None, instance.horizon + 1, True)
    if status == cp_model.UNKNOWN:
        return Found(None, None, max(instance.bound, int(solver.best_objective_bound)), False)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = extract(instance, v, solver.value)
        bound = max(instance.bound, round(solver.best_objective_bound))
        return Found(order, round(solver.objective_value), bound, status == cp_model.OPTIMAL)
    raise AssertionError("the model is invalid: " + solver.solution_info())
