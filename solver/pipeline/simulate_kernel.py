"""The compiled replay of a pipeline order: earliest start of every operation and message.

Every operation and message is touched once, so the time is linear.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import KNOWN_SHAPES, Floats, Ints, PipelineShape


class ShapeColumns(NamedTuple):
    """The columns of `PipelineShape` in the form that compiled code takes."""

    num_microbatches: int
    num_stages: int
    num_ranks: int
    num_kinds: int
    num_channels: int
    rank_of_s: Ints
    duration_ks: Floats
    latency_s: Floats
    transfer_s: Floats
    activation_channel_s: Ints
    gradient_channel_s: Ints
    activation_s: Floats
    context_s: Floats
    budget_r: Floats
    sync_s: Floats
    sync_link_s: Ints
    blocking: bool


@lru_cache(maxsize=KNOWN_SHAPES)
def columns_of(shape: PipelineShape) -> ShapeColumns:
    """The kernel's view of a shape."""
    return ShapeColumns(*(getattr(shape, name) for name in ShapeColumns._fields))


class ReplayState(NamedTuple):
    """Everything the worklist loop writes. A server is a rank or, numbered after the ranks, a channel."""

    start: Floats  # of every operation; NaN until it is known
    ready: Floats  # when every operation may start at the earliest; NaN until it is known
    message_start: Floats  # the same of every message
    message_ready: Floats
    free: Floats  # when each server has done what it has begun
    position: Ints  # of each server in its order: what is next
    stack: Ints  # servers whose next entry may have become ready; the first `stack_size` count
    on_stack: Ints  # 1 for a server that is on the stack already
    landed: Floats  # when what each rank sent last has landed; NaN while it is on its way. Kept with blocking sends
    weights_left_s: Ints  # weight gradients left of each stage, before its exchange may start
    weights_end_s: Floats  # end of the last weight gradient of each stage so far
    stack_size: Ints


@compiled
def replay_kernel(
    columns: ShapeColumns, rank_flat: Ints, rank_offsets: Ints, channel_flat: Ints, channel_offsets: Ints
) -> tuple[Floats, Floats]:
    """Start of every operation and of every message; NaN where the order never lets it start."""
    state = _new_state(columns)
    _run(columns, state, rank_flat, rank_offsets, channel_flat, channel_offsets)
    return state.start, state.message_start


@compiled
def _run(
    columns: ShapeColumns,
    state: ReplayState,
    rank_flat: Ints,
    rank_offsets: Ints,
    channel_flat: Ints,
    channel_offsets: Ints,
) -> None:
    """Advance ranks and channels until none has anything that may start."""
    columns, state = uncounted((columns, state))
    while state.stack_size[0] > 0:
        state.stack_size[0] -= 1
        server = state.stack[state.stack_size[0]]
        state.on_stack[server] = 0
        if server < columns.num_ranks:
            _advance_rank(columns, state, server, rank_flat, rank_offsets)
        else:
            _advance_channel(columns, state, server - columns.num_ranks, channel_flat, channel_offsets)


@compiled
def _new_state(columns: ShapeColumns) -> ReplayState:
    num_operations = columns.num_kinds * columns.num_stages * columns.num_microbatches
    num_messages = num_operations + columns.num_stages
    servers = columns.num_ranks + columns.num_channels
    ready = np.full(num_operations, np.nan)
    ready[: columns.num_microbatches] = 0.0
    state = ReplayState(
        start=np.full(num_operations, np.nan),
        ready=ready,
        message_start=np.full(num_messages, np.nan),
        message_ready=np.full(num_messages, np.nan),
        free=np.zeros(servers),
        position=np.zeros(servers, dtype=np.int64),
        stack=np.zeros(servers + 1, dtype=np.int64),
        on_stack=np.zeros(servers, dtype=np.int64),
        landed=np.zeros(columns.num_ranks),
        weights_left_s=np.full(columns.num_stages, columns.num_microbatches, dtype=np.int64),
        weights_end_s=np.zeros(columns.num_stages),
        stack_size=np.zeros(1, dtype=np.int64),
    )
    for rank in range(columns.num_ranks - 1, -1, -1):
        _push(state, rank)
    return state


@inlined
def _push(state: ReplayState, server: int) -> None:
    if state.on_stack[server] == 0:
        state.on_stack[server] = 1
        state.stack[state.stack_size[0]] = server
        state.stack_size[0] += 1


@inlined
def _advance_rank(columns: ShapeColumns, state: ReplayState, rank: int, flat: Ints, offsets: Ints) -> None:
    """Run operations of a rank in its order until one is not ready."""
    num_microbatches, num_stages = columns.num_microbatches, columns.num_stages
    while offsets[rank] + state.position[rank] < offsets[rank + 1]:
        operation = flat[offsets[rank] + state.position[rank]]
        if np.isnan(state.ready[operation]):
            return
        rest, microbatch = operation // num_microbatches, operation % num_microbatches
        kind, stage = rest // num_stages, rest % num_stages
        start = max(state.free[rank], state.ready[operation])
        if columns.blocking and kind < 2:
            if np.isnan(state.landed[rank]):
                return
            start = max(start, state.landed[rank])
        end = start + columns.duration_ks[kind, stage]
        state.start[operation] = start
        state.free[rank] = end
        state.position[rank] += 1
        if kind == 0 and stage == num_stages - 1:
            state.ready[(num_stages + stage) * num_microbatches + microbatch] = end
        elif kind == 0:
            _send(columns, state, operation, end)
        else:
            if kind == 1 and columns.num_kinds == 3:
                state.ready[(2 * num_stages + stage) * num_microbatches + microbatch] = end
            if kind == 1 and stage > 0:
                _send(columns, state, operation, end)
            if kind == columns.num_kinds - 1:
                _finish_weight(columns, state, stage, end)


@inlined
def _send(columns: ShapeColumns, state: ReplayState, operation: int, end: float) -> None:
    """Hand the message of an operation to its channel; without a channel only the latency lies between."""
    rest = operation // columns.num_microbatches
    kind, stage = rest // columns.num_stages, rest % columns.num_stages
    hop = stage if kind == 0 else stage - 1
    channel = columns.activation_channel_s[hop] if kind == 0 else columns.gradient_channel_s[hop]
    if channel < 0:
        target = stage + 1 if kind == 0 else stage - 1
        step = 1 if kind == 0 else -1
        arrival = end + columns.latency_s[hop]
        state.ready[operation + step * columns.num_microbatches] = arrival
        state.landed[columns.rank_of_s[stage]] = arrival
        _push(state, columns.rank_of_s[target])
    else:
        state.landed[columns.rank_of_s[stage]] = np.nan
        state.message_ready[operation] = end
        _push(state, columns.num_ranks + channel)


@inlined
def _finish_weight(columns: ShapeColumns, state: ReplayState, stage: int, end: float) -> None:
    """Count a weight gradient; after the last one the exchange of the stage is ready."""
    state.weights_left_s[stage] -= 1
    state.weights_end_s[stage] = max(state.weights_end_s[stage], end)
    if state.weights_left_s[stage] > 0 or (columns.sync_s[stage] == 0 and columns.sync_link_s[stage] < 0):
        return
    message = columns.num_kinds * columns.num_stages * columns.num_microbatches + stage
    link = columns.sync_link_s[stage]
    if link < 0:
        state.message_start[message] = state.weights_end_s[stage]
    else:
        state.message_ready[message] = state.weights_end_s[stage]
        _push(state, columns.num_ranks + 2 * link)


@inlined
def _advance_channel(columns: ShapeColumns, state: ReplayState, channel: int, flat: Ints, offsets: Ints) -> None:
    """Send messages of a channel in its order until one is not ready; an exchange takes both directions at once."""
    num_operations = columns.num_kinds * columns.num_stages * columns.num_microbatches
    server, other = columns.num_ranks + channel, columns.num_ranks + (channel ^ 1)
    while offsets[channel] + state.position[server] < offsets[channel + 1]:
        message = flat[offsets[channel] + state.position[server]]
        if np.isnan(state.message_ready[message]):
            return
        start = max(state.free[server], state.message_ready[message])
        if message >= num_operations:
            at = offsets[channel ^ 1] + state.position[other]
            if at >= offsets[(channel ^ 1) + 1] or flat[at] != message:
                return  # the direction that reaches the exchange last starts it
            start = max(start, state.free[other])
            state.message_start[message] = start
            state.free[server] = state.free[other] = start + columns.sync_s[message - num_operations]
            state.position[server] += 1
            state.position[other] += 1
            _push(state, other)
            continue
        _deliver(columns, state, message, start, server)
        state.position[server] += 1


@inlined
def _deliver(columns: ShapeColumns, state: ReplayState, message: int, start: float, server: int) -> None:
    """Occupy the channel with a message, and make ready what waits for it on the other side."""
    rest = message // columns.num_microbatches
    kind, stage = rest // columns.num_stages, rest % columns.num_stages
    hop = stage if kind == 0 else stage - 1
    step = 1 if kind == 0 else -1
    state.message_start[message] = start
    state.free[server] = start + columns.transfer_s[hop]
    arrival = state.free[server] + columns.latency_s[hop]
    state.ready[message + step * columns.num_microbatches] = arrival
    state.landed[columns.rank_of_s[stage]] = arrival
    _push(state, columns.rank_of_s[stage + step])
    if columns.blocking:
        _push(state, columns.rank_of_s[stage])
