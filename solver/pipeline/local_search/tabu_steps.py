"""One chunk of tabu search: many iterations of the best allowed move on a longest path, compiled.

The neighbourhood is that of job shops: a node of a critical block goes to another place of its block (Nowicki and
Smutnicki 1996, Balas and Vazacopoulos 1998).
"""

from __future__ import annotations

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.local_search.tabu_kernel import (
    MOST_MOVES,
    REACH,
    Nodes,
    Order,
    critical_path,
    draw,
    estimate,
    evaluate,
    fill_held,
    fits,
    keeps_order,
    put,
    tabu_slot,
    write_segment,
)
from solver.pipeline.problem import Floats, Ints

NOTHING = -1


@compiled
def load(nodes: Nodes, order: Order, queue: Ints) -> float:
    """Take over the sequences of all machines and evaluate them."""
    nodes, order, queue = uncounted((nodes, order, queue))
    order.queue[:] = queue
    for machine in range(nodes.offsets.size - 1):
        first, last = nodes.offsets[machine], nodes.offsets[machine + 1]
        for place in range(first, last):
            node = queue[place]
            if nodes.machine[node] == machine:
                order.place[node] = place
            else:
                order.place_second[node] = place
        fill_held(nodes, order, first, last, 0.0)
    return evaluate(nodes, order)


@compiled
def search(nodes: Nodes, order: Order, best: Ints, numbers: Floats, clock: Ints) -> None:
    """Iterate until the target, the number of iterations, or the patience is reached.

    `numbers`: 0 value of the order, 1 best value (its queue in `best`), 2 target. `clock`: 0 iteration, 1 last
    iteration of this chunk, 2 iteration of the last improvement, 3 patience, 4 estimates so far.
    """
    nodes, order, best, numbers, clock = uncounted((nodes, order, best, numbers, clock))
    size = nodes.duration.size
    path, segment = np.zeros(size, dtype=np.int64), np.zeros(4 * REACH + 4, dtype=np.int64)
    moves = np.zeros((MOST_MOVES, 3), dtype=np.int64)
    while clock[0] < clock[1] and numbers[1] > numbers[2] and clock[0] - clock[2] < clock[3]:
        clock[0] += 1
        length = critical_path(nodes, order, numbers[0], path)
        count = _list_moves(nodes, order, path, length, moves)
        chosen = _choose(nodes, order, moves, count, numbers[1], clock, segment)
        if chosen == NOTHING:
            perturb(nodes, order, 4, segment)
            numbers[0] = evaluate(nodes, order)
            continue
        source, target, pulled = moves[chosen]
        _forbid(order, source, target, clock[0])
        low, used = write_segment(order, source, target, pulled, segment)
        put(nodes, order, low, used, segment)
        value = evaluate(nodes, order)
        if value == np.inf:
            put(nodes, order, low, used, segment)
            value = evaluate(nodes, order)
        numbers[0] = value
        if value < numbers[1] * (1 - 1e-12):
            numbers[1] = value
            best[:] = order.queue
            clock[2] = clock[0]


@compiled
def _list_moves(nodes: Nodes, order: Order, path: Ints, length: int, moves: Ints) -> int:
    """Moves within the critical blocks of a path; a fair sample of them when there are too many."""
    nodes, order, path, moves = uncounted((nodes, order, path, moves))
    seen, at = 0, 0
    while at < length:
        last = at
        while last + 1 < length and _adjacent(nodes, order, path[last + 1], path[last]):
            last += 1
        high, low = order.place[path[at]], order.place[path[last]]
        for source in range(low, high + 1):
            mover = order.queue[source]
            for direction in (-1, 1):
                target = source + direction
                while low <= target <= high and abs(target - source) <= REACH:
                    passed = order.queue[target]
                    early, late = (passed, mover) if direction < 0 else (mover, passed)
                    if keeps_order(nodes.given, early, late):
                        break
                    seen = _note(order, moves, seen, source, target, -1)
                    target += direction
            if source > low and nodes.change[mover] > 0:
                seen = _moves_with_release(nodes, order, source, moves, seen)
        at = last + 1
    return min(seen, MOST_MOVES)


@inlined
def _note(order: Order, moves: Ints, seen: int, source: int, target: int, pulled: int) -> int:
    slot = seen if seen < MOST_MOVES else draw(order.random_state, seen + 1)
    if slot < MOST_MOVES:
        moves[slot, 0], moves[slot, 1], moves[slot, 2] = source, target, pulled
    return seen + 1


@inlined
def _moves_with_release(nodes: Nodes, order: Order, source: int, moves: Ints, seen: int) -> int:
    """A forward goes one place to the left with a release from its right before it, which makes its room."""
    passed, mover = order.queue[source - 1], order.queue[source]
    if keeps_order(nodes.given, passed, mover):
        return seen
    end = min(source + 2 * REACH, nodes.offsets[nodes.machine[mover] + 1] - 1)
    for pulled in range(source + 1, end + 1):
        release = order.queue[pulled]
        if nodes.change[release] >= 0:
            continue
        legal = True
        for place in range(source - 1, pulled):
            legal = legal and not keeps_order(nodes.given, order.queue[place], release)
        if legal:
            seen = _note(order, moves, seen, source, source - 1, pulled)
    return seen


@inlined
def _adjacent(nodes: Nodes, order: Order, early: int, late: int) -> bool:
    """Neighbours on one machine."""
    return bool(nodes.machine[early] == nodes.machine[late] and order.place[early] + 1 == order.place[late])


@compiled
def _choose(nodes: Nodes, order: Order, moves: Ints, count: int, best: float, clock: Ints, segment: Ints) -> int:
    """The allowed move of least estimate, ties by chance; else one by chance that memory allows."""
    nodes, order, moves, clock, segment = uncounted((nodes, order, moves, clock, segment))
    chosen, chosen_value, ties = NOTHING, np.inf, 0
    spare, spares = NOTHING, 0
    for index in range(count):
        source, target, pulled = moves[index]
        clock[4] += 1
        low, size = write_segment(order, source, target, pulled, segment)
        value = estimate(nodes, order, low, size, clock[4], segment)
        if value == np.inf:
            continue
        spares += 1
        if draw(order.random_state, spares) == 0:
            spare = index
        if _is_tabu(order, source, target, clock[0]) and value >= best:
            continue
        if value < chosen_value * (1 - 1e-12):
            chosen, chosen_value, ties = index, value, 1
        elif value <= chosen_value * (1 + 1e-12):
            ties += 1
            if draw(order.random_state, ties) == 0:
                chosen = index
    return chosen if chosen != NOTHING else spare


@inlined
def _is_tabu(order: Order, source: int, target: int, now: int) -> bool:
    mover = order.queue[source]
    step = 1 if target > source else -1
    for place in range(source + step, target + step, step):
        passed = order.queue[place]
        early, late = (passed, mover) if step > 0 else (mover, passed)
        if order.tabu[tabu_slot(early, late)] > now:
            return True
    return False


@inlined
def _forbid(order: Order, source: int, target: int, now: int) -> None:
    """What the mover passes may not be passed back for a while."""
    mover = order.queue[source]
    step = 1 if target > source else -1
    until = now + 8 + draw(order.random_state, 16)
    for place in range(source + step, target + step, step):
        passed = order.queue[place]
        early, late = (mover, passed) if step > 0 else (passed, mover)
        order.tabu[tabu_slot(early, late)] = until


@compiled
def perturb(nodes: Nodes, order: Order, times: int, segment: Ints) -> None:
    """Perturb an order: exchange random neighbours, each exchange legal by itself."""
    nodes, order, segment = uncounted((nodes, order, segment))
    total = order.queue.size
    done = 0
    for _ in range(20 * times):
        if done >= times:
            return
        source = draw(order.random_state, total)
        early = order.queue[source]
        machine = nodes.machine[early]
        if not nodes.offsets[machine] <= source < nodes.offsets[machine + 1] - 1:
            continue
        if keeps_order(nodes.given, early, order.queue[source + 1]):
            continue
        low, size = write_segment(order, source, source + 1, -1, segment)
        if not fits(nodes, order, low, size, segment):
            continue
        put(nodes, order, low, size, segment)
        if evaluate(nodes, order) == np.inf:
            put(nodes, order, low, size, segment)
        else:
            done += 1
