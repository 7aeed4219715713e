"""Tabu search over the orders of ranks and channels: quick, any layout, any size, never proves.

Translates between `PipelineOrder` and the kernel's columns, and restarts. Every order yielded is within
memory and better than the one before; its value is the makespan of its earliest times. Same seed and same number of
iterations, same result.
"""

from collections.abc import Callable, Iterator

import numpy as np

from solver.pipeline.local_search.tabu_kernel import (
    EXCHANGES,
    OTHER_DIRECTION,
    REACH,
    SHARED,
    TABU_SLOTS,
    Nodes,
    Order,
    evaluate,
)
from solver.pipeline.local_search.tabu_steps import load, perturb, search
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape
from solver.pipeline.simulate import channel_messages, durations, memory_changes, occupancies, replay_shape

CHUNK_NODES = 500_000  # node evaluations between two looks at the clock
PATIENCE_NODES = 200_000  # node evaluations without improvement before a restart


def tabu_orders(
    shape: PipelineShape, start: PipelineOrder, *, seed: int, target_s: float, stop: Callable[[], bool]
) -> Iterator[PipelineOrder | None]:
    """Ever better orders than `start`, until one reaches `target_s` or `stop` says so; None: a chunk found none."""
    nodes, of_message = nodes_of(shape)
    order = new_order(nodes)
    best = queue_of(in_order(shape, start), of_message)
    order.random_state[0] = seed
    value = load(nodes, order, best)
    if not np.isfinite(value):
        return
    size = len(nodes.duration)
    numbers = np.array([value, value, target_s * (1 + 1e-9)])
    clock = np.array([0, 0, 0, max(PATIENCE_NODES // size, 100), 0], dtype=np.int64)
    restarts, best_s = 0, replay_shape(shape, start).makespan_s
    known = best_s
    while not stop() and numbers[1] > numbers[2]:
        clock[1] = clock[0] + max(CHUNK_NODES // size, 5)
        search(nodes, order, best, numbers, clock)
        found = order_of(shape, nodes, best) if numbers[1] < known else None
        known = numbers[1]
        found_s = np.inf if found is None else replay_shape(shape, found).makespan_s
        yield found if found_s < best_s else None
        best_s = min(best_s, found_s)
        if clock[0] - clock[2] >= clock[3]:
            restarts += 1
            _restart(nodes, order, best, restarts)
            numbers[0], clock[2] = evaluate(nodes, order), clock[0]


def _restart(nodes: Nodes, order: Order, best: Ints, restarts: int) -> None:
    """Back to the best order with a few random exchanges, then more and more, then few again."""
    load(nodes, order, best)
    perturb(nodes, order, 4 + 4 * (restarts % 8), np.zeros(4 * REACH + 4, dtype=np.int64))


def in_order(shape: PipelineShape, order: PipelineOrder) -> PipelineOrder:
    """The order with micro-batches renamed so that each stage and kind has them in order (docs/bounds.md)."""
    seen: dict[int, int] = {}

    def renamed(queue: Ints) -> Ints:
        seen.clear()
        names = []
        for one in queue.tolist():
            if one >= shape.num_operations:
                names.append(one)
                continue
            family = one // shape.num_microbatches
            names.append(family * shape.num_microbatches + seen.get(family, 0))
            seen[family] = seen.get(family, 0) + 1
        return np.array(names, dtype=np.int64)

    return PipelineOrder(tuple(map(renamed, order.rank_ops)), tuple(map(renamed, order.channel_ops)))


def nodes_of(shape: PipelineShape) -> tuple[Nodes, Ints]:
    """The kernel's columns, and the node of every message id (-1: no message)."""
    n, m, num_stages = shape.num_operations, shape.num_microbatches, shape.num_stages
    channels = channel_messages(shape)
    messages = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *channels]))
    of_message = np.full(n + num_stages, -1, dtype=np.int64)
    of_message[messages] = n + np.arange(len(messages))
    size = n + len(messages)
    operation = np.arange(n)
    kind, stage, microbatch = operation // (m * num_stages), operation // m % num_stages, operation % m
    is_exchange = messages >= n
    family = np.concatenate([operation // m, -2 - messages // m]).astype(np.int64)
    machine, second = _machines(shape, channels, of_message, size)
    pred, lag = _data(shape, of_message, messages, size)
    succ_a, succ_b = _followers(pred)
    level = np.select([kind == 0, kind == 1], [stage, 2 * num_stages - stage], 0)
    level = np.concatenate([np.where(kind == 2, 2 * num_stages - stage + 1, level), np.zeros(len(messages))])
    way = np.concatenate([microbatch, -1 - np.arange(len(messages))])
    counts = np.bincount(shape.rank_of_s, minlength=shape.num_ranks) * shape.num_kinds * m
    lengths = np.concatenate([counts, [len(one) for one in channels]]).astype(np.int64)
    unlimited = np.full(shape.num_channels, np.inf)
    return (
        Nodes(
            np.concatenate([durations(shape), occupancies(shape)[messages]]),
            pred,
            lag,
            succ_a,
            succ_b,
            np.stack([family, way, level, np.concatenate([np.zeros(n), is_exchange])], axis=1).astype(np.int64),
            machine,
            second,
            np.concatenate([memory_changes(shape, operation), np.zeros(len(messages))]),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([shape.budget_r, unlimited]),
            _after(shape, succ_a, lag),
            _roles(shape, channels),
        ),
        of_message,
    )


def _after(shape: PipelineShape, succ_a: Ints, lag: Floats) -> Floats:
    """What counts after the end of a node: exchanges off the links, each after the last weight gradient of its stage.

    A message that arrives before its channel is free, for replicas in turn, counts up to its arrival.
    """
    after = np.where(succ_a >= 0, np.minimum(lag[succ_a], 0.0), 0.0)
    after[: shape.num_operations] = 0.0
    for stage in np.flatnonzero(shape.sync_link_s < 0).tolist():
        after[shape.operation_id(shape.num_kinds - 1, stage, shape.num_microbatches - 1)] = shape.sync_s[stage]
    return after


def _roles(shape: PipelineShape, channels: tuple[Ints, ...]) -> Ints:
    """Ranks and channels on which messages go are shared; the others come in pairs, the directions of a link."""
    roles = np.full(shape.num_ranks + len(channels), SHARED)
    for link in range(len(channels) // 2):
        both = np.concatenate(channels[2 * link : 2 * link + 2])
        if len(both) and (both >= shape.num_operations).all():
            roles[shape.num_ranks + 2 * link : shape.num_ranks + 2 * link + 2] = EXCHANGES, OTHER_DIRECTION
    return roles


def _machines(shape: PipelineShape, channels: tuple[Ints, ...], of_message: Ints, size: int) -> tuple[Ints, Ints]:
    machine, second = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    n = shape.num_operations
    machine[:n] = np.repeat(np.tile(shape.rank_of_s, shape.num_kinds), shape.num_microbatches)
    for channel, ids in enumerate(channels):
        own = of_message[ids]
        again = machine[own] >= 0
        second[own[again]] = shape.num_ranks + channel
        machine[own[~again]] = shape.num_ranks + channel
    return machine, second


def _data(shape: PipelineShape, of_message: Ints, messages: Ints, size: int) -> tuple[Ints, Floats]:
    """The node whose end each node waits for by data, and the lag after it."""
    n, m, last = shape.num_operations, shape.num_microbatches, shape.num_stages - 1
    pred, lag = np.full(size, -1, dtype=np.int64), np.zeros(size)
    j = np.arange(m)

    def base(kind: int, stage: int) -> Ints:
        return np.asarray(shape.operation_id(kind, stage, 0) + j, dtype=np.int64)

    pred[base(1, last)] = base(0, last)
    for kind, sender, receiver, hop, _ in shape.messages():
        through = of_message[base(kind, sender)]
        pred[base(kind, receiver)] = np.where(through >= 0, through, base(kind, sender))
        lag[base(kind, receiver)] = float(shape.latency_s[hop])
    for stage in range(shape.num_stages if shape.num_kinds == 3 else 0):
        pred[base(2, stage)] = base(1, stage)
    for message in messages.tolist():
        is_exchange = message >= n
        pred[of_message[message]] = (
            shape.operation_id(shape.num_kinds - 1, message - n, m - 1) if is_exchange else message
        )
    return pred, lag


def _followers(pred: Ints) -> tuple[Ints, Ints]:
    """Up to three nodes wait for one by data; an exchange is the only third and never the only one of its stage."""
    succ_a, succ_b = np.full(len(pred), -1, dtype=np.int64), np.full(len(pred), -1, dtype=np.int64)
    for node, before in enumerate(pred.tolist()):
        if before < 0:
            continue
        if succ_a[before] < 0:
            succ_a[before] = node
        else:
            assert succ_b[before] < 0, "a node has at most two followers by data"
            succ_b[before] = node
    return succ_a, succ_b


def new_order(nodes: Nodes) -> Order:
    """Room for what changes; `load` fills it."""
    size, places = len(nodes.duration), int(nodes.offsets[-1])
    whole, real = [np.zeros(size, dtype=np.int64) for _ in range(3)], [np.zeros(size) for _ in range(4)]
    return Order(
        queue=np.zeros(places, dtype=np.int64),
        place=whole[0],
        place_second=whole[1],
        head=real[0],
        tail=real[1],
        held=np.zeros(places),
        topo=whole[2],
        waits=np.zeros(size, dtype=np.int64),
        following=np.zeros(size, dtype=np.int64),
        following_second=np.zeros(size, dtype=np.int64),
        new_head=real[2],
        new_tail=real[3],
        stamp=np.full(size, -2, dtype=np.int64),
        tabu=np.zeros(TABU_SLOTS, dtype=np.int64),
        random_state=np.zeros(1, dtype=np.int64),
    )


def queue_of(order: PipelineOrder, of_message: Ints) -> Ints:
    """All sequences one after the other, in nodes."""
    parts = [*order.rank_ops, *(of_message[one] for one in order.channel_ops)]
    return np.concatenate(parts).astype(np.int64)


def order_of(shape: PipelineShape, nodes: Nodes, queue: Ints) -> PipelineOrder:
    """The inverse of `queue_of`."""
    parts = [queue[nodes.offsets[at] : nodes.offsets[at + 1]] for at in range(len(nodes.offsets) - 1)]
    n = shape.num_operations
    messages = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *channel_messages(shape)]))
    return PipelineOrder(
        tuple(part.copy() for part in parts[: shape.num_ranks]),
        tuple(messages[part - n] for part in parts[shape.num_ranks :]),
    )
