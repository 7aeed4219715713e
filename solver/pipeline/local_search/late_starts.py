"""What an order is worth by the objective; for the span every rank starts as late as its earliest end allows.

A second pass of the replay: last ends stay as early as they can be, starts move right until something waits.
Exact for the order and those ends: no first start can be later without a last end being later.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from solver.compiled import compiled, uncounted
from solver.pipeline.local_search.tabu import new_order, nodes_of, queue_of
from solver.pipeline.local_search.tabu_kernel import SHARED, Nodes, Order
from solver.pipeline.local_search.tabu_steps import load
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape
from solver.pipeline.simulate import PipelineReplay, durations, replay_shape, timed


def replayed(shape: PipelineShape, order: PipelineOrder, objective: str) -> PipelineReplay:
    """Times of an order: all as early as can be, and for the span then starts as late as ends allow.

    With blocking sends everything remains as early as can be: what is then late is not worked out.
    """
    run = replay_shape(shape, order)
    return started_late(shape, order, run) if objective == "span" and not shape.blocking else run


def started_late(shape: PipelineShape, order: PipelineOrder, run: PipelineReplay) -> PipelineReplay:
    """The replay of the order with everything as late as it can be while no rank ends later."""
    nodes, of_message = _columns(shape)
    work = new_order(nodes)
    load(nodes, work, queue_of(order, of_message))
    late = _latest(nodes, work, _due(shape, run, of_message, len(nodes.duration)))
    start = late[: shape.num_operations].copy()
    message_start = run.message_start.copy()
    known = of_message >= 0
    message_start[known] = late[of_message[known]]
    free = (shape.sync_s > 0) & ~known[shape.num_operations :]
    message_start[shape.num_operations :][free] = _last_ends(shape, start + durations(shape))[free]
    earliest_s = start.min(initial=0.0)
    return timed(shape, order, start - earliest_s, start + durations(shape) - earliest_s, message_start - earliest_s)


@lru_cache(maxsize=4)
def _columns(shape: PipelineShape) -> tuple[Nodes, Ints]:
    nodes, of_message = nodes_of(shape)
    return nodes._replace(role=np.full_like(nodes.role, SHARED)), of_message  # exchanges stay in their order, too


def _due(shape: PipelineShape, run: PipelineReplay, of_message: Ints, size: int) -> Floats:
    """When every node must have ended: what runs on a rank, its gradient exchanges included, when the rank has."""
    stage = np.arange(shape.num_operations) // shape.num_microbatches % shape.num_stages
    last_s = np.fmax(_last_ends(shape, run.end), run.message_end[shape.num_operations :])
    ends_r = np.zeros(shape.num_ranks)
    np.maximum.at(ends_r, shape.rank_of_s, last_s)
    due = np.full(size, np.inf)
    due[: shape.num_operations] = ends_r[shape.rank_of_s[stage]]
    for one in np.flatnonzero((shape.sync_s > 0) | (shape.sync_link_s >= 0)).tolist():  # one of no ticks has its turn
        node = of_message[shape.num_operations + one]
        if node >= 0:
            due[node] = ends_r[shape.rank_of_s[one]]
        else:
            own = slice(shape.operation_id(shape.num_kinds - 1, one, 0), None)
            due[own][: shape.num_microbatches] -= shape.sync_s[one]
    return due


def _last_ends(shape: PipelineShape, end: Floats) -> Floats:
    """Last end of every stage."""
    last: Floats = end.reshape(shape.num_kinds, shape.num_stages, shape.num_microbatches).max(axis=(0, 2))
    return last


@compiled
def _latest(nodes: Nodes, order: Order, due: Floats) -> Floats:
    """Latest start of every node, from the last to the first."""
    nodes, order, due = uncounted((nodes, order, due))
    late = np.zeros(due.size)
    for at in range(due.size - 1, -1, -1):
        node = order.topo[at]
        end = due[node]
        for target in (nodes.succ_a[node], nodes.succ_b[node]):
            if target >= 0:
                end = min(end, late[target] - nodes.lag[target])
        for target in (order.following[node], order.following_second[node]):
            if target >= 0:
                end = min(end, late[target])
        late[node] = end - nodes.duration[node]
    return late
