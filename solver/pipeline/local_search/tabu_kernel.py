"""Compiled parts of the tabu search over orders: longest paths, critical blocks, moves and their estimated values.

The graph of an order (nodes are operations, then messages of channels), and what one iteration does with it. An order
within stage and kind is never changed, memory is respected by every move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints

TABU_SLOTS = 2**18  # of a hash of pairs of nodes
REACH = 4  # places that one move carries a node at most
MOST_MOVES = 48  # moves estimated per iteration
SHARED, EXCHANGES, OTHER_DIRECTION = 0, 1, 2  # roles of a machine


class Nodes(NamedTuple):
    """What never changes: columns by node, and offsets and budgets by machine (ranks, then channels).

    `lag` is the time between the end of `pred` and the start of the node. `given` says what keeps its order: family
    (stage and kind, or stream of a channel), micro-batch, place on the micro-batch's way, whether it is an exchange.
    `second` is the other direction of a gradient exchange. `after` is the time after the end of a node in which an
    exchange that waits for nothing else runs. `role` says by machine whether others send on it, too: `SHARED`, or a
    direction of a link of exchanges alone, the first of which is `EXCHANGES`.
    """

    duration: Floats
    pred: Ints
    lag: Floats
    succ_a: Ints
    succ_b: Ints
    given: Ints
    machine: Ints
    second: Ints
    change: Floats
    offsets: Ints
    budget: Floats
    after: Floats
    role: Ints


class Order(NamedTuple):
    """What changes: sequences of all machines, places in them, times, and scratch by node."""

    queue: Ints
    place: Ints
    place_second: Ints
    head: Floats
    tail: Floats
    held: Floats
    topo: Ints
    waits: Ints
    following: Ints
    following_second: Ints
    new_head: Floats
    new_tail: Floats
    stamp: Ints
    tabu: Ints
    random_state: Ints


@inlined
def draw(random_state: Ints, below: int) -> int:
    """A number from 0 to below - 1 by chance; the state is the order's own (Knuth's linear congruence)."""
    random_state[0] = random_state[0] * 6364136223846793005 + 1442695040888963407
    return int(((random_state[0] >> 33) & 0x7FFFFFFF) % below)


@compiled
def evaluate(nodes: Nodes, order: Order) -> float:
    """Heads, tails and the makespan; infinity when the order waits for itself.

    Links of exchanges alone serve them as they get ready, which ends them earliest.
    """
    nodes, order = uncounted((nodes, order))
    succ_a, succ_b, duration, lag, after = nodes.succ_a, nodes.succ_b, nodes.duration, nodes.lag, nodes.after
    following, again, head, waits, topo = order.following, order.following_second, order.head, order.waits, order.topo
    count = _link(nodes, order)
    at, best = 0, 0.0
    while at < count:
        node = topo[at]
        at += 1
        end = head[node] + duration[node]
        best = max(best, end + after[node])
        for which in range(4):
            if which < 2:
                target = succ_a[node] if which == 0 else succ_b[node]
                time = end + lag[target]
            else:
                target = following[node] if which == 2 else again[node]
                time = end
            if target >= 0:
                head[target] = max(head[target], time)
                waits[target] -= 1
                if waits[target] == 0:
                    topo[count] = target
                    count += 1
    if count < topo.size:
        return np.inf
    for machine in range(nodes.role.size):
        if nodes.role[machine] == EXCHANGES:
            best = max(best, _serve_exchanges(nodes, order, machine))
    _fill_tails(nodes, order)
    return best


@inlined
def _serve_exchanges(nodes: Nodes, order: Order, machine: int) -> float:
    """Order the exchanges of a link by their heads and run them, with their tails; the end of the last one."""
    queue, head, duration = order.queue, order.head, nodes.duration
    first, last = nodes.offsets[machine], nodes.offsets[machine + 1]
    second = nodes.offsets[nodes.second[queue[first]]]
    for place in range(first, last):
        node, at = queue[place], place
        while at > first and head[queue[at - 1]] > head[node]:
            queue[at] = queue[at - 1]
            at -= 1
        queue[at] = node
    end = 0.0
    for place in range(first, last):
        node = queue[place]
        order.place[node] = place
        order.place_second[node] = second + place - first
        queue[second + place - first] = node
        head[node] = max(head[node], end)
        end = head[node] + duration[node]
    tail = 0.0
    for place in range(last - 1, first - 1, -1):
        order.tail[queue[place]] = tail
        tail += duration[queue[place]]
    return float(end)


@inlined
def _link(nodes: Nodes, order: Order) -> int:
    """Who follows whom on the machines and how many predecessors every node has; those without any come first."""
    following, again, waits, head = order.following, order.following_second, order.waits, order.head
    queue, offsets, machine, topo = order.queue, nodes.offsets, nodes.machine, order.topo
    following[:] = -1
    again[:] = -1
    head[:] = 0.0
    for node in range(waits.size):
        waits[node] = 1 if nodes.pred[node] >= 0 else 0
    for one in range(offsets.size - 1):
        if nodes.role[one] != SHARED:
            continue
        for place in range(offsets[one], offsets[one + 1] - 1):
            node = queue[place]
            if machine[node] == one:
                following[node] = queue[place + 1]
            else:
                again[node] = queue[place + 1]
            waits[queue[place + 1]] += 1
    count = 0
    for node in range(waits.size):
        if waits[node] == 0:
            topo[count] = node
            count += 1
    return count


@inlined
def _fill_tails(nodes: Nodes, order: Order) -> None:
    """Time from the end of every node to the end of everything that waits for it."""
    succ_a, succ_b, duration, lag = nodes.succ_a, nodes.succ_b, nodes.duration, nodes.lag
    following, again, tail, topo = order.following, order.following_second, order.tail, order.topo
    for at in range(topo.size - 1, -1, -1):
        node = topo[at]
        if nodes.role[nodes.machine[node]] != SHARED:
            continue
        value = nodes.after[node]
        for which in range(4):
            if which < 2:
                target = succ_a[node] if which == 0 else succ_b[node]
                between = lag[target]
            else:
                target = following[node] if which == 2 else again[node]
                between = 0.0
            if target >= 0:
                value = max(value, between + duration[target] + tail[target])
        tail[node] = value


@inlined
def fill_held(nodes: Nodes, order: Order, first: int, last: int, held: float) -> None:
    """Memory after every place of a queue from `first` to `last`, starting with what is held before."""
    for place in range(first, last):
        held += nodes.change[order.queue[place]]
        order.held[place] = held


@compiled
def critical_path(nodes: Nodes, order: Order, makespan: float, path: Ints) -> int:
    """Nodes of one longest path from its end to its start, ties by chance; returns how many."""
    slack = 1e-9 * makespan
    node, seen = -1, 0
    for one in range(nodes.duration.size):
        if order.head[one] + nodes.duration[one] + nodes.after[one] >= makespan - slack:
            seen += 1
            if draw(order.random_state, seen) == 0:
                node = one
    count = 0
    while node >= 0:
        path[count] = node
        count += 1
        node = _critical_before(nodes, order, node, slack)
    return count


@inlined
def _critical_before(nodes: Nodes, order: Order, node: int, slack: float) -> int:
    best, seen = -1, 0
    head = order.head[node]
    data = nodes.pred[node]
    if data >= 0 and order.head[data] + nodes.duration[data] + nodes.lag[node] >= head - slack:
        best, seen = data, 1
    place = order.place[node]
    if place > nodes.offsets[nodes.machine[node]]:
        before = order.queue[place - 1]
        if order.head[before] + nodes.duration[before] >= head - slack:
            seen += 1
            if draw(order.random_state, seen) == 0:
                best = before
    if nodes.second[node] >= 0 and order.place_second[node] > nodes.offsets[nodes.second[node]]:
        before = order.queue[order.place_second[node] - 1]
        if order.head[before] + nodes.duration[before] >= head - slack:
            seen += 1
            if draw(order.random_state, seen) == 0:
                best = before
    return int(best)


@inlined
def keeps_order(given: Ints, early: int, late: int) -> bool:
    """Two neighbours whose order is given: one family, one exchange, or one micro-batch on its way."""
    if given[early, 0] == given[late, 0] or given[early, 3] + given[late, 3] > 0:
        return True
    return bool(given[early, 1] == given[late, 1] and given[early, 2] < given[late, 2])


@inlined
def tabu_slot(early: int, late: int) -> int:
    """Where it is kept until when `early` may not come before `late` again."""
    return (early * 1_000_003 + late * 7_919) % TABU_SLOTS


@inlined
def write_segment(order: Order, source: int, target: int, pulled: int, segment: Ints) -> tuple[int, int]:
    """The changed places in their new order: the first place and how many.

    The node at `source` goes to `target`; `pulled` is the place of a release that goes right before it, or -1.
    """
    low, high = min(source, target), max(source, target, pulled)
    mover = order.queue[source]
    size = 0
    if source > target:
        if pulled >= 0:
            segment[0] = order.queue[pulled]
            size = 1
        segment[size] = mover
        size += 1
    for place in range(low, high + 1):
        if place not in (source, pulled):
            segment[size] = order.queue[place]
            size += 1
    if source < target:
        segment[size] = mover
        size += 1
    return low, size


@inlined
def estimate(nodes: Nodes, order: Order, low: int, size: int, stamp: int, segment: Ints) -> float:
    """Longest path through the changed places in their new order; infinity: memory forbids it.

    Heads before and tails after the places are taken as they are (Taillard's estimate).
    """
    machine = nodes.machine[segment[0]]
    if not fits(nodes, order, low, size, segment):
        return np.inf
    now = 0.0
    if low > nodes.offsets[machine]:
        before = order.queue[low - 1]
        now = order.head[before] + nodes.duration[before]
    for at in range(size):
        node = segment[at]
        data = nodes.pred[node]
        if data >= 0:
            ready = order.new_head[data] if order.stamp[data] == stamp else order.head[data]
            now = max(now, ready + nodes.duration[data] + nodes.lag[node])
        order.new_head[node] = now
        order.stamp[node] = stamp
        now += nodes.duration[node]
    after = 0.0
    if low + size < nodes.offsets[machine + 1]:
        following = order.queue[low + size]
        after = nodes.duration[following] + order.tail[following]
    best = 0.0
    for at in range(size - 1, -1, -1):
        node = segment[at]
        after = max(after, nodes.after[node])
        for succ in (nodes.succ_a[node], nodes.succ_b[node]):
            if succ >= 0:
                tail = order.new_tail[succ] if order.stamp[succ] == stamp else order.tail[succ]
                after = max(after, nodes.lag[succ] + nodes.duration[succ] + tail)
        order.new_tail[node] = after
        after += nodes.duration[node]
        best = max(best, order.new_head[node] + after)
    return best


@inlined
def fits(nodes: Nodes, order: Order, low: int, size: int, segment: Ints) -> bool:
    """Memory remains within the budget at every place of the segment."""
    machine = nodes.machine[segment[0]]
    budget = nodes.budget[machine]
    if budget == np.inf:
        return True
    held = order.held[low - 1] if low > nodes.offsets[machine] else 0.0
    for at in range(size):
        change = nodes.change[segment[at]]
        held += change
        if change > 0 and held > budget * (1 + 1e-9):
            return False
    return True


@inlined
def put(nodes: Nodes, order: Order, low: int, size: int, segment: Ints) -> None:
    """Exchange the places from `low` with the segment, which holds the old content afterwards."""
    machine = nodes.machine[segment[0]]
    for at in range(size):
        node = segment[at]
        segment[at] = order.queue[low + at]
        order.queue[low + at] = node
        order.place[node] = low + at
    held = order.held[low - 1] if low > nodes.offsets[machine] else 0.0
    fill_held(nodes, order, low, low + size, held)
