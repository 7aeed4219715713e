"""The compiled list scheduler: an event simulation in which idle ranks and links pick their next work by a policy.

Within one stage and kind micro-batches go in order. Memory is respected at every start, with room kept for the later
stages of the rank, so that no order ever blocks itself (see `_fits`). The rank's choice is in `list_scheduler_choice`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.generators.list_scheduler_choice import (
    FILL,
    IDLE,
    LONGEST_TAIL,
    DispatchState,
    Policy,
    choose,
    given_or_weight,
    next_operation,
)
from solver.pipeline.problem import Floats, Ints
from solver.pipeline.simulate_kernel import ShapeColumns

ARRIVAL, RANK_DONE, CHANNEL_DONE = 0, 1, 2


class EventQueue(NamedTuple):
    """A binary heap of events by time, ties by code; `size` of them are pending.

    A code is 3 times a number and the kind of event. The number of an end is the rank or channel, that of an arrival
    the rank, which looks at all that has arrived, or with blocking sends the operation that may begin.
    """

    time: Floats
    code: Ints
    size: Ints


class Record(NamedTuple):
    """What the simulation writes: orders by rank and channel with their offsets and fill."""

    rank_flat: Ints
    rank_offsets: Ints
    rank_fill: Ints
    channel_flat: Ints
    channel_offsets: Ints
    channel_fill: Ints


class ChangedServers(NamedTuple):
    """Servers, channels before ranks, with something new at this instant: a mark each, and a list of them."""

    mark: Ints
    listed: Ints
    size: Ints


@compiled
def dispatch(columns: ShapeColumns, state: DispatchState, record: Record, given: Ints, policy: Policy) -> float:
    """Run the simulation; returns the end of the last operation, or -1 when the given order blocks itself.

    `given` is a fixed rank order in the layout of `record.rank_flat`, or one of F and B alone whose gaps W fills, or
    empty when the policy chooses.
    """
    servers = columns.num_ranks + columns.num_channels
    touched = ChangedServers(np.zeros(servers, np.int64), np.zeros(servers, np.int64), np.zeros(1, np.int64))
    # An end for each server; arrivals: one when a message leaves, and one when it or the end of an operation finds its
    # rank idle and leaves it so. There are fewer messages than operations.
    most = 2 * servers + 3 * columns.num_kinds * columns.num_stages * columns.num_microbatches
    events = EventQueue(np.empty(most), np.empty(most, np.int64), np.zeros(1, np.int64))
    return _run(columns, state, record, (touched, events), given, policy)


@compiled
def _run(
    columns: ShapeColumns,
    state: DispatchState,
    record: Record,
    pending: tuple[ChangedServers, EventQueue],
    given: Ints,
    policy: Policy,
) -> float:
    columns, state, record, (touched, events) = uncounted((columns, state, record, pending))
    given, policy = uncounted((given, policy))
    num_operations = columns.num_kinds * columns.num_stages * columns.num_microbatches
    now, done, last = 0.0, 0, 0.0
    for rank in range(columns.num_ranks):
        _start_rank(columns, state, record, events, rank, now, given, policy)
    while events.size[0] > 0:
        now = events.time[0]
        while events.size[0] > 0 and events.time[0] == now:
            done += _apply(columns, state, events, touched, now)
        last = now if done > 0 else last
        _sort(touched)
        for at in range(touched.size[0]):
            server = touched.listed[at]
            touched.mark[server] = 0
            if server < columns.num_channels:
                _start_channel(columns, state, record, events, server, now, policy)
            else:
                _start_rank(columns, state, record, events, server - columns.num_channels, now, given, policy)
        touched.size[0] = 0
    return last if done == num_operations else -1.0


@inlined
def _push(events: EventQueue, time: float, code: int) -> None:
    """One more event."""
    at = events.size[0]
    events.size[0] = at + 1
    while at > 0:
        up = (at - 1) >> 1
        if events.time[up] < time or (events.time[up] == time and events.code[up] < code):
            break
        events.time[at], events.code[at] = events.time[up], events.code[up]
        at = up
    events.time[at], events.code[at] = time, code


@inlined
def _pop(events: EventQueue) -> int:
    """The code of the first event, which is taken off."""
    first, size = events.code[0], events.size[0] - 1
    events.size[0] = size
    time, code, at, below = events.time[size], events.code[size], 0, 1
    while below < size:
        if below + 1 < size and (
            events.time[below + 1] < events.time[below]
            or (events.time[below + 1] == events.time[below] and events.code[below + 1] < events.code[below])
        ):
            below += 1
        if time < events.time[below] or (time == events.time[below] and code < events.code[below]):
            break
        events.time[at], events.code[at] = events.time[below], events.code[below]
        at, below = below, 2 * below + 1
    events.time[at], events.code[at] = time, code
    return int(first)


@inlined
def _touch(touched: ChangedServers, server: int) -> None:
    if touched.mark[server] == 0:
        touched.mark[server] = 1
        touched.listed[touched.size[0]] = server
        touched.size[0] += 1


@inlined
def _sort(touched: ChangedServers) -> None:
    """Put the few that are listed in order."""
    for end in range(1, touched.size[0]):
        server, at = touched.listed[end], end
        while at > 0 and touched.listed[at - 1] > server:
            touched.listed[at] = touched.listed[at - 1]
            at -= 1
        touched.listed[at] = server


@inlined
def _apply(columns: ShapeColumns, state: DispatchState, events: EventQueue, touched: ChangedServers, now: float) -> int:
    """Take one event off the queue; returns 1 when it ends an operation."""
    code = _pop(events)
    event, item = code % 3, code // 3
    if event == ARRIVAL and not columns.blocking:
        _touch(touched, columns.num_channels + item)
        return 0
    if event == ARRIVAL:
        kind_stage = item // columns.num_microbatches
        stage = kind_stage % columns.num_stages
        sender = columns.rank_of_s[stage - 1 if kind_stage < columns.num_stages else stage + 1]
        state.sending_r[sender] = 0
        _touch(touched, columns.num_channels + columns.rank_of_s[stage])
        _touch(touched, columns.num_channels + sender)
        return 0
    if event == CHANNEL_DONE:
        state.channel_busy[item] = 0
        _touch(touched, item)
        _touch(touched, item ^ 1)
        return 0
    state.rank_busy[item] = 0
    _touch(touched, columns.num_channels + item)
    _produce(columns, state, events, touched, item, now)
    return 1


@inlined
def _produce(
    columns: ShapeColumns, state: DispatchState, events: EventQueue, touched: ChangedServers, rank: int, now: float
) -> None:
    """What the operation that a rank has run leaves behind: memory, and what may follow."""
    m, num_stages = columns.num_microbatches, columns.num_stages
    kind, stage, microbatch = state.running_r[rank, 0], state.running_r[rank, 1], state.running_r[rank, 2]
    operation = (kind * num_stages + stage) * m + microbatch
    if kind == 1:
        state.memory_r[rank] += columns.context_s[stage] - columns.activation_s[stage]
        state.inflight_s[stage] -= 1
        if columns.num_kinds == 3:
            state.arrival[operation + num_stages * m] = now
    elif kind == 2:
        state.memory_r[rank] -= columns.context_s[stage]
    if kind == 0 and stage == num_stages - 1:
        state.arrival[operation + num_stages * m] = now
    elif kind == 0 or (kind == 1 and stage > 0):
        _emit(columns, state, events, touched, (operation, kind, stage), now)
    if kind == columns.num_kinds - 1 and microbatch == m - 1 and columns.sync_link_s[stage] >= 0:
        state.message_ready[columns.num_kinds * num_stages * m + stage] = now
        _touch(touched, 2 * columns.sync_link_s[stage])


@inlined
def _emit(
    columns: ShapeColumns,
    state: DispatchState,
    events: EventQueue,
    touched: ChangedServers,
    done: tuple[int, int, int],
    now: float,
) -> None:
    """The message of an operation, given with its kind and stage, begins to wait for its channel, or travels."""
    operation, kind, stage = done
    hop, step = (stage, 1) if kind == 0 else (stage - 1, -1)
    channel = columns.activation_channel_s[hop] if kind == 0 else columns.gradient_channel_s[hop]
    if columns.blocking and (channel >= 0 or columns.latency_s[hop] > 0):
        state.sending_r[columns.rank_of_s[stage]] = 1
    if channel >= 0:
        state.message_ready[operation] = now
        _touch(touched, channel)
        return
    target, receiver = operation + step * columns.num_microbatches, columns.rank_of_s[stage + step]
    state.arrival[target] = now + columns.latency_s[hop]
    if columns.latency_s[hop] > 0:
        _announce(columns, state, events, receiver, target)
    else:
        _touch(touched, columns.num_channels + receiver)


@inlined
def _announce(columns: ShapeColumns, state: DispatchState, events: EventQueue, receiver: int, target: int) -> None:
    """An event for what arrives at a rank that is idle; a busy one looks at what has arrived when it is done."""
    if columns.blocking:
        _push(events, state.arrival[target], 3 * target + ARRIVAL)
    elif state.rank_busy[receiver] == 0:
        _push(events, state.arrival[target], 3 * receiver + ARRIVAL)


@inlined
def _next_arrival(columns: ShapeColumns, state: DispatchState, rank: int, now: float) -> float:
    """When the next F or B that is on its way arrives at a rank."""
    first_s = np.inf
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        for kind in range(2):
            operation = next_operation(columns, state, kind, state.stage_flat[at])
            if operation != IDLE and now < state.arrival[operation] < first_s:
                first_s = state.arrival[operation]
    return first_s


@inlined
def _start_rank(
    columns: ShapeColumns,
    state: DispatchState,
    record: Record,
    events: EventQueue,
    rank: int,
    now: float,
    given: Ints,
    policy: Policy,
) -> None:
    if state.rank_busy[rank] == 1:
        return
    at = record.rank_offsets[rank] + record.rank_fill[rank]
    if at >= record.rank_offsets[rank + 1]:
        return
    is_given = given.size > 0 and policy.preference != FILL
    if is_given:
        operation = given[at] if state.arrival[given[at]] <= now else IDLE
    elif given.size > 0:
        operation = given_or_weight(columns, state, rank, now, given)
    else:
        operation = choose(columns, state, rank, now, policy)
    if operation == IDLE:
        next_s = state.arrival[given[at]] if is_given else _next_arrival(columns, state, rank, now)
        if next_s < np.inf and not columns.blocking:
            _push(events, next_s, 3 * rank + ARRIVAL)
        return
    kind_stage = operation // columns.num_microbatches
    kind, stage = kind_stage // columns.num_stages, kind_stage % columns.num_stages
    if kind < 2 and state.sending_r[rank] == 1:
        return
    record.rank_flat[at] = operation
    record.rank_fill[rank] += 1
    state.next_ks[kind, stage] += 1
    state.rank_busy[rank] = 1
    if kind == 0:
        state.memory_r[rank] += columns.activation_s[stage]
        state.inflight_s[stage] += 1
    state.last_kind_r[rank] = kind if kind < 2 else 2 + state.last_kind_r[rank] % 2
    state.running_r[rank, 0], state.running_r[rank, 1] = kind, stage
    state.running_r[rank, 2] = operation - kind_stage * columns.num_microbatches
    _push(events, now + columns.duration_ks[kind, stage], 3 * rank + RANK_DONE)


@inlined
def _start_channel(
    columns: ShapeColumns,
    state: DispatchState,
    record: Record,
    events: EventQueue,
    channel: int,
    now: float,
    policy: Policy,
) -> None:
    if state.channel_busy[channel] == 1:
        return
    best, best_key = IDLE, np.inf
    for slot in range(state.stream_offsets[channel], state.stream_offsets[channel + 1]):
        message = state.stream_head[slot]
        if state.stream_left[slot] > 0 and state.message_ready[message] <= now:
            key = _message_key(columns, state, message, policy)
            if key < best_key:
                best, best_key = slot, key
    if best == IDLE:
        return
    message = state.stream_head[best]
    num_operations = columns.num_kinds * columns.num_stages * columns.num_microbatches
    if message >= num_operations:
        _start_exchange(columns, state, record, events, channel, message, now)
        return
    _take(state, record, channel, message, best)
    kind_stage = message // columns.num_microbatches
    kind, stage = kind_stage // columns.num_stages, kind_stage % columns.num_stages
    hop, step = (stage, 1) if kind == 0 else (stage - 1, -1)
    free = now + columns.transfer_s[hop]
    target = message + step * columns.num_microbatches
    state.arrival[target] = free + columns.latency_s[hop]
    _push(events, free, 3 * channel + CHANNEL_DONE)
    _announce(columns, state, events, columns.rank_of_s[stage + step], target)


@inlined
def _start_exchange(
    columns: ShapeColumns,
    state: DispatchState,
    record: Record,
    events: EventQueue,
    channel: int,
    message: int,
    now: float,
) -> None:
    """A gradient exchange takes both directions at once, so it waits until both are free."""
    other = channel ^ 1
    if state.channel_busy[other] == 1:
        return
    num_operations = columns.num_kinds * columns.num_stages * columns.num_microbatches
    for one in (channel, other):
        for slot in range(state.stream_offsets[one], state.stream_offsets[one + 1]):
            if state.stream_head[slot] == message and state.stream_left[slot] > 0:
                _take(state, record, one, message, slot)
                _push(events, now + columns.sync_s[message - num_operations], 3 * one + CHANNEL_DONE)


@inlined
def _take(state: DispatchState, record: Record, channel: int, message: int, slot: int) -> None:
    record.channel_flat[record.channel_offsets[channel] + record.channel_fill[channel]] = message
    record.channel_fill[channel] += 1
    state.stream_head[slot] += 1
    state.stream_left[slot] -= 1
    state.channel_busy[channel] = 1


@inlined
def _message_key(columns: ShapeColumns, state: DispatchState, message: int, policy: Policy) -> float:
    """Small goes first: by readiness or by the longest remaining path, and gradient exchanges last."""
    num_operations = columns.num_kinds * columns.num_stages * columns.num_microbatches
    if message >= num_operations:
        return 1e18
    return float(-state.tail[message] if policy.message_rule == LONGEST_TAIL else state.message_ready[message])
