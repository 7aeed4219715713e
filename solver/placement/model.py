"""The placement as integer flow on the layered graph pipeline rank x unit, for CP-SAT.

One function per constraint family, each with its formula. The number of variables is ranks x units^2, whatever the
number of replicas. Never decodes routes: that is `routes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ortools.sat.python import cp_model

from solver.placement.problem import PlacementProblem
from solver.quantise import seconds_to_ticks

TICK_S = 1e-6


@dataclass(frozen=True)
class Variables:
    """count_pu replicas with rank p in u; flow_puv of them with rank p+1 in v; used_pu, crossed_puv booleans."""

    count_pu: list[list[cp_model.IntVar]]
    flow_puv: dict[tuple[int, int, int], cp_model.IntVar]
    used_pu: dict[tuple[int, int], cp_model.IntVar]
    crossed_puv: dict[tuple[int, int, int], cp_model.IntVar]
    boundary_p: list[cp_model.IntVar]
    excess: cp_model.IntVar


def make_variables(model: cp_model.CpModel, problem: PlacementProblem) -> Variables:
    """Tight domains: a count never exceeds the capacity, a forbidden pair is fixed to zero."""
    replicas, units = problem.num_replicas, range(problem.num_units)
    room_pu = [
        [min(replicas, problem.capacity_u[u]) if problem.allowed_pu[p][u] else 0 for u in units]
        for p in range(problem.num_ranks)
    ]
    count_pu = [
        [model.new_int_var(0, room_pu[p][u], f"count[{p},{u}]") for u in units] for p in range(problem.num_ranks)
    ]
    flow, crossed, boundary = {}, {}, []
    for p in range(problem.num_ranks - 1):
        boundary.append(model.new_int_var(0, _worst_boundary(problem), f"boundary[{p}]"))
        for u in units:
            for v in units:
                room = min(room_pu[p][u], room_pu[p + 1][v])
                if room:
                    flow[p, u, v] = model.new_int_var(0, room, f"flow[{p},{u},{v}]")
                    if u != v:
                        crossed[p, u, v] = model.new_bool_var(f"crossed[{p},{u},{v}]")
    used = {
        (p, u): model.new_bool_var(f"used[{p},{u}]") for p in range(problem.num_ranks) for u in units if room_pu[p][u]
    }
    excess = model.new_int_var(0, _worst_excess(problem), "excess")
    return Variables(count_pu, flow, used, crossed, boundary, excess)


def add_completeness(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """Every replica has every rank once: sum_u count[p,u] = replicas."""
    for counts in v.count_pu:
        model.add(sum(counts) == problem.num_replicas)


def add_conservation(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """Replicas leave rank p where they are and arrive at rank p+1: sums of flow equal both counts."""
    units = range(problem.num_units)
    for p in range(problem.num_ranks - 1):
        for u in units:
            model.add(sum(v.flow_puv[p, u, w] for w in units if (p, u, w) in v.flow_puv) == v.count_pu[p][u])
            model.add(sum(v.flow_puv[p, w, u] for w in units if (p, w, u) in v.flow_puv) == v.count_pu[p + 1][u])


def add_capacity(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """A unit holds what it has: sum_p count[p,u] <= capacity[u]."""
    for u in range(problem.num_units):
        model.add(sum(counts[u] for counts in v.count_pu) <= problem.capacity_u[u])


def add_minimums(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """Pins: sum over the named units of count[rank] >= the replicas asked for."""
    for pin in problem.minimums:
        model.add(sum(v.count_pu[pin.rank][u] for u in pin.units) >= pin.num_replicas)


def add_usage(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """used[p,u] and crossed[p,u,v] are true where the count or the flow is positive."""
    for (p, u), used in v.used_pu.items():
        model.add(v.count_pu[p][u] <= problem.num_replicas * used)
    for key, crossed in v.crossed_puv.items():
        model.add(v.flow_puv[key] <= problem.num_replicas * crossed)


def add_boundary_price(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """boundary[p] >= price[u,v] * crossed[p,u,v]: replicas that wait at the same boundary wait once."""
    for (p, u, w), crossed in v.crossed_puv.items():
        model.add(v.boundary_p[p] >= seconds_to_ticks(problem.prices.boundary_s[u][w], TICK_S) * crossed)


def add_link_excess(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """excess >= m * (slot[u,v] * sum_p (flow[p,u,v] + flow[p,v,u]) - work): messages beyond the work that hides them.

    One direction carries the activations of one flow and the gradients of the opposite one.
    """
    work = seconds_to_ticks(problem.prices.work_s, TICK_S)
    for u in range(problem.num_units):
        for w in range(problem.num_units):
            keys = [key for p in range(problem.num_ranks - 1) for key in ((p, u, w), (p, w, u))]
            flows = [v.flow_puv[key] for key in keys if key in v.flow_puv]
            slot = seconds_to_ticks(problem.prices.slot_s[u][w], TICK_S)
            if u != w and flows and slot:
                model.add(v.excess >= problem.num_microbatches * (slot * sum(flows) - work))


def add_crossing_rules(model: cp_model.CpModel, problem: PlacementProblem, v: Variables) -> None:
    """Where crossing buildings is switched off: no flow between buildings, or one building per rank."""
    if not problem.ranks_may_cross:
        for (_, u, w), flow in v.flow_puv.items():
            if problem.building_u[u] != problem.building_u[w]:
                model.add(flow == 0)
    if not problem.replicas_may_cross:
        for p in range(problem.num_ranks):
            for u in range(problem.num_units):
                for w in range(u):
                    pair = (v.used_pu.get((p, u)), v.used_pu.get((p, w)))
                    if problem.building_u[u] != problem.building_u[w] and pair[0] is not None and pair[1] is not None:
                        model.add_bool_or([pair[0].Not(), pair[1].Not()])


Family = Callable[[cp_model.CpModel, PlacementProblem, Variables], None]
FAMILIES: tuple[Family, ...] = (
    add_completeness,
    add_conservation,
    add_capacity,
    add_minimums,
    add_usage,
    add_boundary_price,
    add_link_excess,
    add_crossing_rules,
)


def objective_terms(problem: PlacementProblem, v: Variables) -> list[cp_model.LinearExprT]:
    """Boundaries, link excess and, per rank, the price of every unit beyond the first."""
    terms: list[cp_model.LinearExprT] = [*v.boundary_p, v.excess]
    for (p, _), used in v.used_pu.items():
        terms.append(seconds_to_ticks(problem.prices.span_s[p], TICK_S) * used)
    return terms


def _worst_boundary(problem: PlacementProblem) -> int:
    return max((seconds_to_ticks(s, TICK_S) for row in problem.prices.boundary_s for s in row), default=0)


def _worst_excess(problem: PlacementProblem) -> int:
    slot = max((seconds_to_ticks(s, TICK_S) for row in problem.prices.slot_s for s in row), default=0)
    return problem.num_microbatches * slot * problem.num_replicas * problem.num_ranks + 1
