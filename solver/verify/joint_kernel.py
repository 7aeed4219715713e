"""The compiled event loop of the joint replay: operations on ranks, messages as fluid flows that share edges.

Two things end: operations (and messages without a link), which wait in a heap by their end, and flows on links, whose
end is known only until the rates change. Time jumps to whichever ends first; rates change when a flow starts or ends,
or when an exchange takes its part of the edges.

Arrays are indexed by operation, rank, channel (a link name in one direction), edge (`_e`) or stage (`_s`), as
`joint_columns` numbers them; a scalar that the loop changes is an array of one.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints
from solver.verify.joint_columns import Network, Work

SAME = 1e-12  # relative: ends closer together than this are one end
LEAST_BYTES = 1e-9  # of a flow that has not ended by its rate: rounding must not end it early


class JointReplayState(NamedTuple):
    """What the loop knows at one instant."""

    end: Floats  # of every operation; NaN until it has ended
    ready: Ints  # 1 once an operation may start
    sent: Ints  # 1 once the message of an operation waits for its channel
    rank_at: Ints  # position in the order of each rank, of the operation that is next
    rank_busy: Ints
    on_way: Ints  # messages of each rank that have not landed yet
    channel_at: Ints  # position in the order of each channel, of the message that is next
    channel_in_tail: Ints  # 1 while the time slots behind a delivered message still take the channel
    active: Ints  # the channels with a flow; the first `num_active` count
    num_active: Ints
    left: Floats  # bytes that the flow of each channel has to send yet, as of clock[0]
    rate: Floats  # of the flow of each channel; -1 until it is first shared out
    clock: Floats  # [0] the instant that `left` holds for, [1] when the first of the flows ends
    dirty: Ints  # 1: flows have changed, rates have to be shared out anew
    held_e: Floats  # rate that exchanges keep of each edge
    flow_e: Floats  # rate of all messages on each edge
    peak_e: Floats  # highest rate of messages and exchanges on each edge so far
    bytes_e: Floats  # bytes of messages over each edge so far
    left_w: Ints  # weight gradients left, by route and stage
    routes_left_s: Ints  # routes on which the exchange of each stage has still to wait


@compiled
def joint_kernel(work: Work, network: Network) -> tuple[Floats, Floats, Floats]:
    """End of every operation (NaN: never), and per edge the highest rate and the bytes of messages."""
    state = _new_state(work, network)
    _run(work, network, state)
    return state.end, state.peak_e, state.bytes_e


@compiled
def _run(work: Work, network: Network, state: JointReplayState) -> None:
    """Go from end to end until nothing runs."""
    work, network, state = uncounted((work, network, state))
    heap = [(0.0, -1)]
    for rank in range(len(work.rank_offsets) - 1):
        _start_next(work, state, heap, rank, 0.0)
    now = 0.0
    while True:
        if state.dirty[0]:
            _share(work, network, state, now)
        now = min(heap[0][0] if len(heap) > 0 else np.inf, state.clock[1])
        if now == np.inf:
            return
        while len(heap) > 0 and heap[0][0] <= now:
            _, event = heapq.heappop(heap)
            if event >= len(work.duration):
                _land(work, state, heap, event - len(work.duration), now)
            elif event >= 0:
                _finish(work, network, state, heap, event, now)
        if state.clock[1] <= now:
            _arrive(work, network, state, heap, now)


@compiled
def _new_state(work: Work, network: Network) -> JointReplayState:
    size, channels, edges = len(work.duration), len(work.channel_offsets) - 1, len(network.capacity_e)
    ranks, stages = len(work.rank_offsets) - 1, len(network.hold_se)
    return JointReplayState(
        end=np.full(size, np.nan),
        ready=work.ready.copy(),
        sent=np.zeros(size, dtype=np.int64),
        rank_at=work.rank_offsets[:-1].copy(),
        rank_busy=np.zeros(ranks, dtype=np.int64),
        on_way=np.zeros(ranks, dtype=np.int64),
        channel_at=work.channel_offsets[:-1].copy(),
        channel_in_tail=np.zeros(channels, dtype=np.int64),
        active=np.zeros(channels, dtype=np.int64),
        num_active=np.zeros(1, dtype=np.int64),
        left=np.zeros(channels),
        rate=np.zeros(channels),
        clock=np.array([0.0, np.inf]),
        dirty=np.zeros(1, dtype=np.int64),
        held_e=np.zeros(edges),
        flow_e=np.zeros(edges),
        peak_e=np.zeros(edges),
        bytes_e=np.zeros(edges),
        left_w=network.left_w.copy(),
        routes_left_s=np.full(stages, len(network.left_w) // max(stages, 1), dtype=np.int64),
    )


@inlined
def _start_next(work: Work, state: JointReplayState, heap: list[tuple[float, int]], rank: int, now: float) -> None:
    """Start the next operation of a rank's order, if it is ready, and the rank is free and need not wait for a send."""
    at = state.rank_at[rank]
    if state.rank_busy[rank] or at >= work.rank_offsets[rank + 1] or not state.ready[work.rank_flat[at]]:
        return
    operation = work.rank_flat[at]
    if work.waits[operation] and state.on_way[rank] > 0:
        return
    state.rank_busy[rank] = 1
    state.rank_at[rank] += 1
    heapq.heappush(heap, (now + work.duration[operation], operation))


@inlined
def _land(work: Work, state: JointReplayState, heap: list[tuple[float, int]], operation: int, now: float) -> None:
    """The message of an operation has landed: what waits for it may start, and its sender may send again."""
    state.ready[work.target[operation]] = 1
    state.on_way[work.rank[operation]] -= 1
    _start_next(work, state, heap, work.rank[work.target[operation]], now)
    _start_next(work, state, heap, work.rank[operation], now)


@inlined
def _finish(
    work: Work, network: Network, state: JointReplayState, heap: list[tuple[float, int]], operation: int, now: float
) -> None:
    """End an operation: what it releases may start, its message leaves, its rank goes on."""
    rank = work.rank[operation]
    state.end[operation] = now
    state.rank_busy[rank] = 0
    if work.released[operation] >= 0:
        state.ready[work.released[operation]] = 1
    if work.target[operation] >= 0:
        state.on_way[rank] += 1
        channel = work.channel[operation]
        if channel < 0:
            heapq.heappush(heap, (now + work.delay[operation], operation + len(work.duration)))
        else:
            state.sent[operation] = 1
            if state.left[channel] == 0.0:
                _send_next(work, network, state, channel)
    if work.weight_stage[operation] >= 0:
        _count_gradient(network, state, work.weight_stage[operation])
    _start_next(work, state, heap, rank, now)


@inlined
def _count_gradient(network: Network, state: JointReplayState, row: int) -> None:
    """Count one weight gradient; the exchange of the stage takes its part once it may be about to start."""
    state.left_w[row] -= 1
    if state.left_w[row] != network.until_exchange_w[row]:
        return
    stage = row % len(state.routes_left_s)
    state.routes_left_s[stage] -= 1
    if state.routes_left_s[stage] == 0:
        for edge in range(len(state.held_e)):
            state.held_e[edge] = max(state.held_e[edge], network.hold_se[stage, edge])
        state.dirty[0] = 1


@inlined
def _send_next(work: Work, network: Network, state: JointReplayState, channel: int) -> None:
    """Let the next message of a channel's order become a flow, if it has been sent."""
    at = state.channel_at[channel]
    if at >= work.channel_offsets[channel + 1] or not state.sent[work.channel_flat[at]]:
        return
    state.channel_at[channel] += 1
    state.active[state.num_active[0]] = channel
    state.num_active[0] += 1
    state.left[channel] = network.bytes[work.flow[work.channel_flat[at]]]
    state.rate[channel] = -1.0
    state.dirty[0] = 1


@inlined
def _arrive(work: Work, network: Network, state: JointReplayState, heap: list[tuple[float, int]], now: float) -> None:
    """Take flows that end now off their edges; time slots behind a message and what waits for the channel start."""
    began = state.clock[0]
    retained, done = 0, []
    for position in range(state.num_active[0]):
        channel = state.active[position]
        if state.rate[channel] > 0 and began + state.left[channel] / state.rate[channel] <= now * (1.0 + SAME):
            done.append(channel)
        else:
            state.active[retained] = channel
            retained += 1
    _pass_time(state, now, retained)
    state.num_active[0] = retained
    for channel in done:
        operation = work.channel_flat[state.channel_at[channel] - 1]
        if not state.channel_in_tail[channel]:
            heapq.heappush(heap, (now + work.delay[operation], operation + len(work.duration)))
            state.left[channel] = network.tail[work.flow[operation]]
            state.channel_in_tail[channel] = state.left[channel] > 0.0
        else:
            state.left[channel], state.channel_in_tail[channel] = 0.0, 0
        if state.channel_in_tail[channel]:
            state.active[state.num_active[0]] = channel
            state.num_active[0] += 1
        else:
            _send_next(work, network, state, channel)
    state.dirty[0] = 1
    state.clock[1] = np.inf


@inlined
def _pass_time(state: JointReplayState, now: float, num_active: int) -> None:
    """Bytes that went until now at the rates of the last sharing."""
    elapsed = now - state.clock[0]
    for position in range(num_active):
        channel = state.active[position]
        if state.rate[channel] > 0:
            state.left[channel] = max(state.left[channel] - state.rate[channel] * elapsed, LEAST_BYTES)
    for edge in range(len(state.bytes_e)):
        state.bytes_e[edge] += state.flow_e[edge] * elapsed
    state.clock[0] = now


@inlined
def _share(work: Work, network: Network, state: JointReplayState, now: float) -> None:
    """New rates of all flows, what they put on the edges, and when the first of them ends."""
    count = state.num_active[0]
    _pass_time(state, now, count)
    flows = np.zeros(count, dtype=np.int64)
    for position in range(count):
        channel = state.active[position]
        flows[position] = work.flow[work.channel_flat[state.channel_at[channel] - 1]]
    rates = fair_rates(network, flows, network.capacity_e - state.held_e)
    state.flow_e[:] = 0.0
    state.clock[1] = np.inf
    for position in range(count):
        channel, flow = state.active[position], flows[position]
        state.rate[channel] = rates[position]
        if rates[position] > 0:
            state.clock[1] = min(state.clock[1], now + state.left[channel] / rates[position])
        for index in range(network.edge_offsets[flow], network.edge_offsets[flow + 1]):
            part = network.weight[flow] * network.part_flat[index]
            state.flow_e[network.edge_flat[index]] += part * rates[position]
    for edge in range(len(state.peak_e)):
        state.peak_e[edge] = max(state.peak_e[edge], state.flow_e[edge] + state.held_e[edge])
    state.dirty[0] = 0


WAITING, RISING, FIXED = 0, 1, 2


@compiled
def fair_rates(network: Network, flows: Ints, capacity_e: Floats) -> Floats:
    """Max-min fair rate of every flow per replica, between its floor and its cap: progressive filling.

    All flows begin at their floors; one level rises from zero, lifts each flow that it reaches, and fixes those whose
    cap it meets or one of whose edges is full. `free` is what the flows that do not rise leave of an edge.
    """
    rates, state = np.zeros(len(flows)), np.zeros(len(flows), dtype=np.int64)
    free, rising_e = capacity_e.copy(), np.zeros(len(capacity_e))
    for position in range(len(flows)):
        rates[position] = network.floor[flows[position]]
        _load(network, flows[position], free, -rates[position])
    level, open_flows = 0.0, len(flows)
    while open_flows > 0:
        level = max(level, _next_level(network, flows, state, free, rising_e))
        lifted = 0
        for position in range(len(flows)):
            if state[position] == WAITING and rates[position] <= level:
                state[position], lifted = RISING, 1
                _load(network, flows[position], free, rates[position])
                _load(network, flows[position], rising_e, 1.0)
        if not lifted:
            open_flows -= _fix(network, flows, state, rates, free, rising_e, level)
    return rates


@inlined
def _load(network: Network, flow: int, column_e: Floats, rate: float) -> None:
    """Add a rate per replica to a column of edges, on every edge of a flow."""
    for index in range(network.edge_offsets[flow], network.edge_offsets[flow + 1]):
        column_e[network.edge_flat[index]] += network.weight[flow] * network.part_flat[index] * rate


@inlined
def _limit(network: Network, flow: int, free: Floats, rising_e: Floats) -> float:
    """Level at which a rising flow stops."""
    limit = float(network.cap[flow])
    for index in range(network.edge_offsets[flow], network.edge_offsets[flow + 1]):
        edge = network.edge_flat[index]
        limit = min(limit, max(free[edge], 0.0) / rising_e[edge])
    return limit


@inlined
def _next_level(network: Network, flows: Ints, state: Ints, free: Floats, rising_e: Floats) -> float:
    """Where the rising level next meets something: a floor that it lifts, a cap or a full edge."""
    level = np.inf
    for position in range(len(flows)):
        if state[position] == WAITING:
            level = min(level, network.floor[flows[position]])
        elif state[position] == RISING:
            level = min(level, _limit(network, flows[position], free, rising_e))
    return level


@inlined
def _fix(
    network: Network, flows: Ints, state: Ints, rates: Floats, free: Floats, rising_e: Floats, level: float
) -> int:
    """Fix every rising flow that stops at this level; how many they are."""
    stops = np.zeros(len(flows), dtype=np.int64)
    for position in range(len(flows)):
        if state[position] == RISING:
            limit = _limit(network, flows[position], free, rising_e)
            stops[position] = limit <= level * (1.0 + SAME) or limit == level
    for position in range(len(flows)):
        if stops[position]:
            state[position] = FIXED
            rates[position] = max(network.floor[flows[position]], min(level, network.cap[flows[position]]))
            _load(network, flows[position], free, -rates[position])
            _load(network, flows[position], rising_e, -1.0)
    return int(stops.sum())
