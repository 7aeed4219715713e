"""Large neighbourhoods: re-solve a window of time with CP-SAT so that all that follows can start earlier.

In the model of a window, what starts before it stays, what starts in it is free, what starts after it moves left as one
block by `shift`, which is maximised. Every order found is replayed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import charge
from solver.pipeline.cpsat.engine import Limits, set_parameters, work_of
from solver.pipeline.cpsat.extract import Tie, instant_rank
from solver.pipeline.cpsat.window_graph import Graph, graph_of, slack_ticks
from solver.pipeline.local_search.progress import Search
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape
from solver.pipeline.quantise import TickShape

WINDOW_OPERATIONS = 1_000
WINDOW_TIME_S = 4.0


@dataclass(frozen=True, eq=False)
class Window:
    """The nodes of a window and how far the rest may shift."""

    graph: Graph
    free: Ints
    is_before: Ints
    is_after: Ints
    most_shift: int


def improve(search: Search, ticks: TickShape) -> None:
    """Slide windows over the schedule until the time is up or two sweeps have changed nothing."""
    share = min(1.0, WINDOW_OPERATIONS / search.shape.num_operations)
    idle_sweeps = 0
    while not search.over and idle_sweeps < 2:
        before_s = search.value_s
        _sweep(search, ticks, share)
        idle_sweeps = idle_sweeps + 1 if search.value_s == before_s else 0
        share = min(1.0, share * 1.5)


def _sweep(search: Search, ticks: TickShape, share: float) -> None:
    """Windows of half their width apart."""
    for place in np.arange(0.0, 1.0, share / 2):
        if search.over:
            return
        assert search.order is not None, "a search starts with an order"
        graph = graph_of(ticks.shape, search.order)
        window = cut_window(ticks.shape, graph, search.order, (place, place + share))
        if window is None:
            search.worked(1)
            continue
        order = _solve(search, ticks.shape, window)
        if order is not None:
            search.offer(order, "cpsat windows")


def cut_window(shape: PipelineShape, graph: Graph, order: PipelineOrder, part: tuple[float, float]) -> Window | None:
    """The nodes that start within a part of the makespan; None when the rest cannot move whatever the window does."""
    used = np.concatenate([*order.rank_ops, *(one + shape.num_operations for one in order.channel_ops)])
    end = int((graph.early + graph.size).max())
    first, last = int(part[0] * end), int(part[1] * end)
    start = graph.early
    is_used = np.zeros(len(start), dtype=np.int64)
    is_used[used] = 1
    before = is_used * (start < first)
    after = is_used * (start >= last)
    free = np.flatnonzero(is_used * (start >= first) * (start < last))
    most = slack_ticks(graph, before.astype(np.float64), after.astype(np.float64))
    if most <= 0 or not free.size:
        return None
    return Window(graph, free, before, after, most)


def _solve(search: Search, shape: PipelineShape, window: Window) -> PipelineOrder | None:
    model = cp_model.CpModel()
    graph = window.graph
    end = int((graph.early + graph.size).max())
    shift = model.new_int_var(0, window.most_shift, "shift")
    low, high = _domains(graph, window, end)
    start = {node: model.new_int_var(int(low[node]), end, "") for node in window.free.tolist()}
    _add_waits(model, graph, window, start, shift)
    _add_machines(model, graph, window, start, shift)
    for node, variable in start.items():
        model.add_hint(variable, int(graph.early[node]))
        if not np.isfinite(high[node]):
            model.add(variable + int(graph.size[node]) + shift <= end)
    model.maximize(shift)
    options = search.problem.options
    solver = cp_model.CpSolver()
    limit_s = min(WINDOW_TIME_S, search.left_s)
    limits = Limits(limit_s, options.workers, options.seed, counts_work=search.counts_work, cap_s=search.cap_s)
    set_parameters(solver, limits)
    status = solver.solve(model)
    charge(search.clock, work_of(solver))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solver.value(shift) == 0:
        return None
    return _order(search, shape, window, {node: solver.value(variable) for node, variable in start.items()})


def _domains(graph: Graph, window: Window, end: int) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Earliest start against what is fixed before; infinite `high` marks nodes with nothing after them."""
    low = np.zeros(len(graph.early), dtype=np.int64)
    is_free = np.zeros(len(graph.early), dtype=np.bool_)
    is_free[window.free] = True
    for source, target, lag in ((graph.edge_from, graph.edge_to, graph.edge_lag),):
        enters = (window.is_before[source] == 1) & is_free[target]
        np.maximum.at(low, target[enters], graph.early[source[enters]] + lag[enters])
    busy_until: dict[int, int] = {}
    for node in np.flatnonzero(window.is_before).tolist():
        machine = int(graph.machine[node])
        busy_until[machine] = max(busy_until.get(machine, 0), int(graph.early[node] + graph.size[node]))
    for node in window.free.tolist():
        low[node] = max(int(low[node]), busy_until.get(int(graph.machine[node]), 0))
    high = np.full(len(graph.early), np.inf)
    high[graph.edge_from[window.is_after[graph.edge_to] == 1]] = end
    return low, high


def _add_waits(
    model: cp_model.CpModel,
    graph: Graph,
    window: Window,
    start: dict[int, cp_model.IntVar],
    shift: cp_model.IntVar,
) -> None:
    """Waits inside the window, and of what follows on the window: latest start - shift >= start + lag."""
    inside = np.isin(graph.edge_from, window.free)
    for source, target, lag in zip(
        graph.edge_from[inside].tolist(), graph.edge_to[inside].tolist(), graph.edge_lag[inside].tolist(), strict=True
    ):
        if target in start:
            model.add(start[target] >= start[source] + lag)
        elif window.is_after[target]:
            model.add(start[source] + lag + shift <= int(graph.late[target]))


def _add_machines(
    model: cp_model.CpModel,
    graph: Graph,
    window: Window,
    start: dict[int, cp_model.IntVar],
    shift: cp_model.IntVar,
) -> None:
    """One thing at a time on every rank and channel; what follows there starts after all of the window."""
    by_machine: dict[int, list[int]] = {}
    for node in window.free.tolist():
        by_machine.setdefault(int(graph.machine[node]), []).append(node)
    next_start: dict[int, int] = {}
    for node in np.flatnonzero(window.is_after).tolist():
        machine = int(graph.machine[node])
        next_start[machine] = min(next_start.get(machine, 2**60), int(graph.late[node]))
    for machine, nodes in by_machine.items():
        model.add_no_overlap(
            model.new_fixed_size_interval_var(start[node], int(graph.size[node]), "") for node in nodes
        )
        if machine in next_start:
            for node in nodes:
                model.add(start[node] + int(graph.size[node]) + shift <= next_start[machine])


def _order(search: Search, shape: PipelineShape, window: Window, found: dict[int, int]) -> PipelineOrder:
    """Before, then the window by its new starts, then after, on every rank and channel."""
    assert search.order is not None, "a search starts with an order"
    graph, n = window.graph, shape.num_operations

    def place(node: int) -> tuple[int, int, Tie]:
        return found[node], found[node] + int(graph.size[node]), instant_rank(shape, node if node < n else node - n)

    def merged(queue: Ints) -> Ints:
        nodes = queue.tolist()
        inside = sorted((node for node in nodes if node in found), key=place)
        ahead = [node for node in nodes if window.is_before[node]]
        behind = [node for node in nodes if window.is_after[node]]
        return np.array(ahead + inside + behind, dtype=np.int64)

    return PipelineOrder(
        tuple(merged(one) for one in search.order.rank_ops),
        tuple(merged(one + n) - n for one in search.order.channel_ops),
    )
