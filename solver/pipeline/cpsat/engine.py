"""One CP-SAT run over one instance: what is asked within a search and its limits; order and bound out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from ortools.sat.python import cp_model

from models.schedule import PipelineOptions
from solver.clock import WorkClock
from solver.pipeline.cpsat.families import FAMILIES
from solver.pipeline.cpsat.variables import EmptyDomain, Instance, Vars, create
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape

Tie: TypeAlias = tuple[int, int, int]
Place: TypeAlias = tuple[int, int, Tie]
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
        order = _order(instance, v, solver.value)
        bound = max(instance.bound, round(solver.best_objective_bound))
        return Found(order, round(solver.objective_value), bound, status == cp_model.OPTIMAL)
    raise AssertionError("the model is invalid: " + solver.solution_info())


def _order(instance: Instance, v: Vars, value_of: Callable[[cp_model.IntVar], int]) -> PipelineOrder:
    """Operations and messages sorted by their found starts, ties by `instant_rank`."""
    shape = instance.shape
    ranks: list[list[tuple[Place, int]]] = [[] for _ in range(shape.num_ranks)]
    for (k, s, j), variable in v.start_ksj.items():
        operation = shape.operation_id(k, s, j)
        place = _place(shape, value_of(variable), instance.duration(k, s), operation)
        ranks[shape.rank_of_s[s]].append((place, operation))
    channels: list[list[tuple[Place, int]]] = [[] for _ in range(shape.num_channels)]
    for (k, s, j), variable in v.message_ksj.items():
        hop, message = (s if k == 0 else s - 1), shape.operation_id(k, s, j)
        channel = shape.activation_channel_s[s] if k == 0 else shape.gradient_channel_s[hop]
        channels[channel].append((_place(shape, value_of(variable), int(shape.transfer_s[hop]), message), message))
    for s, variable in v.exchange_s.items():
        if shape.sync_link_s[s] >= 0:
            message = shape.num_operations + s
            place = _place(shape, value_of(variable), int(shape.sync_s[s]), message)
            for direction in (0, 1):
                channels[2 * shape.sync_link_s[s] + direction].append((place, message))
    return PipelineOrder(tuple(map(_sorted, ranks)), tuple(map(_sorted, channels)))


def instant_rank(shape: PipelineShape, operation: int) -> Tie:
    """The order within one instant: micro-batch after micro-batch, each along its way; exchanges come last.

    Every wait (data, order within a kind, memory) leads forwards in this order, so what takes no time never waits in
    a circle.

    >>> from types import SimpleNamespace
    >>> split = lambda one: (one // 4, one // 2 % 2, one % 2)
    >>> shape = SimpleNamespace(num_operations=12, num_microbatches=2, split=split)
    >>> sorted(range(13), key=lambda one: instant_rank(shape, one))
    [0, 2, 6, 4, 8, 10, 1, 3, 7, 5, 9, 11, 12]
    """
    if operation >= shape.num_operations:
        return shape.num_microbatches, operation, 0
    kind, stage, microbatch = shape.split(operation)
    return microbatch, kind, -stage if kind == 1 else stage


def _place(shape: PipelineShape, start: int, size: int, operation: int) -> Place:
    return start, start + size, instant_rank(shape, operation)


def _sorted(placed: list[tuple[Place, int]]) -> Ints:
    return np.array([one for _, one in sorted(placed)], dtype=np.int64)
