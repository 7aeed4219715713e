"""An order as a graph of waits in ticks: nodes are operations and messages, edges are waits that its times obey.

Edges are data, micro-batch order, memory, and what follows what on a rank or channel; over them run earliest and latest
times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solver.compiled import compiled
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape
from solver.pipeline.simulate import durations, memory_changes, occupancies, replay_shape


@dataclass(frozen=True, eq=False)
class Graph:
    """Columns by node (operations first, then messages), and edges: late node >= early node + lag."""

    early: Ints
    late: Ints
    machine: Ints
    size: Ints
    edge_from: Ints
    edge_to: Ints
    edge_lag: Ints
    queue_from: Ints
    queue_to: Ints


def graph_of(shape: PipelineShape, order: PipelineOrder) -> Graph:
    """The graph of an order with its earliest times and, within the same makespan, its latest."""
    run = replay_shape(shape, order)
    n = shape.num_operations
    size = np.concatenate([durations(shape), occupancies(shape)]).astype(np.int64)
    early = np.concatenate([run.start, np.nan_to_num(run.message_start)]).astype(np.int64)
    machine = np.full(len(size), -1, dtype=np.int64)
    for rank, operations in enumerate(order.rank_ops):
        machine[operations] = rank
    for channel, messages in enumerate(order.channel_ops):
        machine[messages + n] = shape.num_ranks + channel
    data = _data_edges(shape)
    waits = np.concatenate([data, _memory_edges(shape, order)], axis=1)
    queues = [*order.rank_ops, *(one + n for one in order.channel_ops)]
    queue_from = np.concatenate([one[:-1] for one in queues])
    queue_to = np.concatenate([one[1:] for one in queues])
    lag = waits[2]
    late = _latest(early, size, *(np.concatenate(pair) for pair in (
        (waits[0], queue_from), (waits[1], queue_to), (lag, size[queue_from]))))  # fmt: skip
    return Graph(early, late, machine, size, waits[0], waits[1], lag, queue_from, queue_to)


def _data_edges(shape: PipelineShape) -> Ints:
    """Rows from, to, lag of every data wait and of the order within stage and kind."""
    m, n, num_stages = shape.num_microbatches, shape.num_operations, shape.num_stages
    j = np.arange(m)
    duration = shape.duration_ks.astype(np.int64)
    rows: list[tuple[Ints, Ints, int]] = []
    for s in range(num_stages):
        base = [shape.operation_id(kind, s, 0) + j for kind in range(shape.num_kinds)]
        rows += [(base[kind][:-1], base[kind][1:], int(duration[kind, s])) for kind in range(shape.num_kinds)]
        rows.append((base[0], base[1], int(duration[0, s])))
        if shape.num_kinds == 3:
            rows.append((base[1], base[2], int(duration[1, s])))
        if s == num_stages - 1:
            continue
        latency, transfer = int(shape.latency_s[s]), int(shape.transfer_s[s])
        up = [shape.operation_id(kind, s + 1, 0) + j for kind in (0, 1)]
        for sender, receiver, kind, at in ((base[0], up[0], 0, s), (up[1], base[1], 1, s + 1)):
            if shape.activation_channel_s[s] < 0:
                rows.append((sender, receiver, int(duration[kind, at]) + latency))
            else:
                rows.append((sender, sender + n, int(duration[kind, at])))
                rows.append((sender + n, receiver, transfer + latency))
    return _edge_rows(rows)


def _edge_rows(rows: list[tuple[Ints, Ints, int]]) -> Ints:
    parts = [np.array([one, two, np.full(len(one), lag)], dtype=np.int64) for one, two, lag in rows]
    return np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), dtype=np.int64)


def _memory_edges(shape: PipelineShape, order: PipelineOrder) -> Ints:
    """Each F waits for the first releases of its rank, as many as it needs by the budget in this order.

    Whatever moves, memory stays within the budget: of the F that have started take the one that is last in this
    order; all of them are among those it was counted with, and the releases it was counted with have ended.
    """
    duration = np.repeat(shape.duration_ks.ravel(), shape.num_microbatches).astype(np.int64)
    sources: list[int] = []
    targets: list[int] = []
    for rank, operations in enumerate(order.rank_ops):
        if np.isfinite(shape.budget_r[rank]):
            for forward, releases in _needed_releases(shape, operations, float(shape.budget_r[rank])):
                sources += releases
                targets += [forward] * len(releases)
    early = np.array(sources, dtype=np.int64)
    return np.array([early, np.array(targets, dtype=np.int64), duration[early]], dtype=np.int64)


def _needed_releases(shape: PipelineShape, operations: Ints, budget: float) -> Iterator[tuple[int, list[int]]]:
    """Every F of a rank with the last release of each stage and kind among the first that make room for it."""
    m, num_stages = shape.num_microbatches, shape.num_stages
    change = memory_changes(shape, operations)
    is_forward = operations < num_stages * m
    taken = np.cumsum(np.where(is_forward, change, 0.0))
    releases = operations[~is_forward]
    given = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(-change[~is_forward])]))
    last: dict[int, int] = {}
    counted = 0
    for forward, held in zip(operations[is_forward].tolist(), taken[is_forward].tolist(), strict=True):
        while given[counted] < held - budget * (1 + 1e-9) and counted < len(releases):
            last[int(releases[counted]) // m] = int(releases[counted])
            counted += 1
        yield forward, list(last.values())


@compiled
def _latest(early: Ints, size: Ints, edge_from: Ints, edge_to: Ints, edge_lag: Ints) -> Ints:
    """Latest start of every node within the same makespan: waits taken from the last to the first, until none moves."""
    end = (early + size).max()
    late: Ints = end - size
    by_start = np.argsort(-early[edge_from], kind="mergesort")
    moved = True
    while moved:
        moved = False
        for at in by_start:
            most = late[edge_to[at]] - edge_lag[at]
            if late[edge_from[at]] > most:
                late[edge_from[at]] = most
                moved = True
    return late


def slack_ticks(graph: Graph, before: Floats, after: Floats) -> int:
    """How far everything after can move left against everything before it (boolean columns), window left out."""
    best = int((graph.early + graph.size).max())
    for source, target, lag in (
        (graph.edge_from, graph.edge_to, graph.edge_lag),
        (graph.queue_from, graph.queue_to, graph.size[graph.queue_from]),
    ):
        across = before[source].astype(np.bool_) & after[target].astype(np.bool_)
        if across.any():
            slack = graph.late[target[across]] - graph.early[source[across]] - lag[across]
            best = min(best, int(slack.min()))
    return best
