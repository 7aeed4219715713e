"""One CP-SAT run over one instance: what is asked within a search and its limits; order and bound out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from models.schedule import PipelineOptions
from solver.clock import WorkClock
from solver.pipeline.cpsat.extract import extract
from solver.pipeline.cpsat.families import FAMILIES
from solver.pipeline.cpsat.variables import EmptyDomain, Instance, Vars, create
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.problem import PipelineOrder

LEAST_WORK_S = 0.01  # of a run, asked or taken, so that whoever counts work gets to an end
SECONDS_PER_UNIT = 1.5  # of CP-SAT's deterministic time, which leaves out how long a model takes to build and presolve


@dataclass(frozen=True, eq=False)
class Found:
    """An order, if one was found, its value, and a bound that holds for every order within the horizon."""

    order: PipelineOrder | None
    value_ticks: int | None
    bound_ticks: int
    proven: bool
    work_s: float = 0.0


def run(
    search: PipelineSearch, instance: Instance, time_limit_s: float, subsolvers: tuple[str, ...], *, probing: bool
) -> Found:
    """The first order of value at most the horizon that is found within so long, or until the search ends.

    Nothing found and proven means that the bound is the horizon + 1. Time counts from when the model is built.
    """
    model = cp_model.CpModel()
    try:
        v = create(model, instance)
    except EmptyDomain:
        return Found(None, None, instance.horizon + 1, True)
    for family in FAMILIES:
        family(model, instance, v)
    model.minimize(v.value)
    solver = cp_model.CpSolver()
    _set_limits(solver, search.clock, max(min(time_limit_s, search.left_s), LEAST_WORK_S))
    _set_parameters(solver, search.problem.options, subsolvers, probing=probing)
    status = solver.solve(model)
    work_s = max(SECONDS_PER_UNIT * float(solver.response_proto.deterministic_time), LEAST_WORK_S)
    return replace(_read(instance, v, solver, status), work_s=work_s)


def _set_limits(solver: cp_model.CpSolver, clock: Callable[[], float], limit_s: float) -> None:
    """A search that counts work has its limit in CP-SAT's deterministic time, and the wall clock for a cap."""
    if isinstance(clock, WorkClock):
        solver.parameters.max_deterministic_time = limit_s / SECONDS_PER_UNIT
        limit_s = max(clock.left_s, LEAST_WORK_S)
    solver.parameters.max_time_in_seconds = limit_s


def _set_parameters(
    solver: cp_model.CpSolver, options: PipelineOptions, subsolvers: tuple[str, ...], *, probing: bool
) -> None:
    """All other parameters, explicitly; no other place sets any."""
    solver.parameters.num_workers = options.workers
    # all pairs of a rank get an order literal: quicker on every family tried (decision 0102)
    solver.parameters.max_size_to_create_precedence_literals_in_disjunctive = 400
    # more order among the operations of a rank would be found, but OR-Tools 9.15 then aborts the process on one of a
    # few dozen small pipelines: "do not support adding conflicting constraint at positive level"
    solver.parameters.use_dynamic_precedence_in_disjunctive = False
    # one short presolve: most refutations need no more, and long probing is most of the time of a question
    solver.parameters.max_presolve_iterations = 1
    solver.parameters.presolve_probing_deterministic_time_limit = 0.02
    solver.parameters.symmetry_level = 0
    if not probing:
        solver.parameters.cp_model_probing_level = 0
    solver.parameters.random_seed = options.seed
    solver.parameters.stop_after_first_solution = True
    if options.workers > 1:
        solver.parameters.subsolvers.extend(subsolvers)


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
