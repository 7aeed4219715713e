"""What an idle rank does next: the policy of the list scheduler, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined
from solver.pipeline.problem import Floats, Ints
from solver.pipeline.simulate_kernel import ShapeColumns

IDLE = -1
ALTERNATE, FILL, GUIDED, INTERLEAVE = 2, 3, 4, 5  # preferences beyond B first
ARRIVED_FORWARD, CROSSPIPE = 1, 2  # when W goes first
LONGEST_TAIL = 2  # the message rule beside 0


class Policy(NamedTuple):
    """How an idle rank chooses.

    `preference`: 0 B first, `ALTERNATE`, `FILL` a given order of F and B, `GUIDED` least `guide`, `INTERLEAVE` F first
    unless the last operation was one. `weight_share`: of W, what must fit before the next known arrival.
    `backward_wait`: share of an F within which an arriving B is waited for. `weight_when_blocked`: W goes first when
    memory blocks an F that has arrived, or by CrossPipe's rule any F that a W makes room for and a B does not.
    `earlier_microbatch`: of several chunks the earlier micro-batch first, else the later stage. `message_rule`: 0 what
    was ready first, or `LONGEST_TAIL`.

    With a guide, `weight_share` is what is added to the guide of W, in the guide's own unit, `backward_wait` the share
    of the choice within which an arriving F or B of less guide is waited for, and `earlier_microbatch` says whether the
    F of a rank go strictly in order of their guides.
    """

    preference: float = 0.0
    weight_share: float = 0.0
    backward_wait: float = 0.0
    weight_when_blocked: float = 0.0
    earlier_microbatch: float = 0.0
    message_rule: float = 0.0

    def in_floats(self) -> Policy:
        """The form that kernels take: they are compiled for one type of every entry."""
        return Policy(*map(float, self))


class DispatchState(NamedTuple):
    """State of the simulation. Streams are the FIFO message sequences of a channel."""

    arrival: Floats
    message_ready: Floats
    next_ks: Ints
    inflight_s: Ints
    limit_s: Ints
    memory_r: Floats
    reserve_s: Floats
    rank_busy: Ints
    running_r: Ints  # kind, stage and micro-batch of what the rank runs: ranks x 3
    sending_r: Ints  # 1 while a message of the rank is on its way; kept with blocking sends
    last_kind_r: Ints  # of F and B; 2 more after a W
    channel_busy: Ints
    stream_head: Ints
    stream_left: Ints
    stream_offsets: Ints
    stage_flat: Ints
    stage_offsets: Ints
    tail: Floats
    guide: Floats


@inlined
def choose(columns: ShapeColumns, state: DispatchState, rank: int, now: float, policy: Policy) -> int:
    """The operation that an idle rank starts now, or IDLE."""
    if policy.preference == GUIDED:
        return _guided(columns, state, rank, now, policy)
    earlier_first = policy.earlier_microbatch == 1
    backward = _best(columns, state, rank, 1, now, earlier_first)
    forward = _best(columns, state, rank, 0, now, earlier_first)
    weight = IDLE
    if columns.num_kinds == 3 and forward == IDLE:
        weight = _best(columns, state, rank, 2, now, earlier_first)
    if weight >= 0 and policy.weight_when_blocked == ARRIVED_FORWARD and _forward_blocked(columns, state, rank, now):
        return weight
    if weight >= 0 and policy.weight_when_blocked == CROSSPIPE and _only_weight_unblocks(columns, state, rank):
        return weight
    if forward >= 0 and backward >= 0:
        return forward if _forward_first(state, rank, policy) else backward
    if backward >= 0:
        return backward
    if forward >= 0:
        wait_s = policy.backward_wait * _duration(columns, forward)
        return IDLE if _arrives_soon(columns, state, rank, 1, (now, wait_s), np.inf) else forward
    if weight >= 0:
        return _weight_or_wait(columns, state, rank, now, weight, policy)
    return IDLE


@inlined
def _forward_first(state: DispatchState, rank: int, policy: Policy) -> bool:
    """Which of an F and a B that both have arrived."""
    last, preference = state.last_kind_r[rank], policy.preference
    return bool((preference == ALTERNATE and last % 2 == 1) or (preference == INTERLEAVE and last != 0))


@inlined
def _only_weight_unblocks(columns: ShapeColumns, state: DispatchState, rank: int) -> bool:
    """No F that is left fits on this rank; one would after a W but not after a B."""
    found = False
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        stage = state.stage_flat[at]
        if state.next_ks[0, stage] >= columns.num_microbatches:
            continue
        if _fits(columns, state, rank, stage):
            return False
        most = columns.budget_r[rank] * (1 + 1e-12) - state.reserve_s[stage]
        context = columns.context_s[stage]
        after_backward = state.memory_r[rank] + context  # an activation leaves, its context and the next one come
        after_weight = state.memory_r[rank] + columns.activation_s[stage] - context
        found = found or (after_backward > most and after_weight <= most)
    return found


@inlined
def _guided(columns: ShapeColumns, state: DispatchState, rank: int, now: float, policy: Policy) -> int:
    """The ready operation of least guide, unless an F or B of less guide is known to arrive shortly."""
    best, best_guide = IDLE, np.inf
    next_forward = _next_forward(columns, state, rank) if policy.earlier_microbatch == 1 else IDLE
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        stage = state.stage_flat[at]
        for kind in range(columns.num_kinds):
            operation = next_operation(columns, state, kind, stage)
            if operation == IDLE or state.arrival[operation] > now:
                continue
            if kind == 0 and (next_forward not in (IDLE, operation) or not _fits(columns, state, rank, stage)):
                continue
            guide = state.guide[operation] + (policy.weight_share if kind == 2 else 0.0)
            if guide < best_guide:
                best, best_guide = operation, guide
    if best == IDLE:
        return IDLE
    wait_s = policy.backward_wait * _duration(columns, best)
    for kind in range(2):
        if _arrives_soon(columns, state, rank, kind, (now, wait_s), best_guide):
            return IDLE
    return best


@inlined
def _next_forward(columns: ShapeColumns, state: DispatchState, rank: int) -> int:
    """The F of least guide, arrived or not."""
    best, best_guide = IDLE, np.inf
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        operation = next_operation(columns, state, 0, state.stage_flat[at])
        if operation != IDLE and state.guide[operation] < best_guide:
            best, best_guide = operation, state.guide[operation]
    return int(best)


@inlined
def given_or_weight(columns: ShapeColumns, state: DispatchState, rank: int, now: float, given: Ints) -> int:
    """The next F or B of the given order when it has arrived and fits, else a W that is ready."""
    m, num_stages = columns.num_microbatches, columns.num_stages
    before = 2 * m * state.stage_offsets[rank]
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        before += state.next_ks[0, state.stage_flat[at]] + state.next_ks[1, state.stage_flat[at]]
    end = 2 * m * state.stage_offsets[rank + 1]
    if before < end and state.arrival[given[before]] <= now:
        stage = given[before] // m % num_stages
        if given[before] >= num_stages * m or _fits(columns, state, rank, stage):
            return int(given[before])
    return int(_best(columns, state, rank, 2, now, False))


@inlined
def _weight_or_wait(
    columns: ShapeColumns, state: DispatchState, rank: int, now: float, weight: int, policy: Policy
) -> int:
    """W fills a gap unless F or B is known to arrive before the stated share of W would be over."""
    if _forward_blocked(columns, state, rank, now):
        return weight
    share_s = policy.weight_share * _duration(columns, weight)
    for kind in range(2):
        if _arrives_soon(columns, state, rank, kind, (now, share_s), np.inf):
            return IDLE
    return weight


@inlined
def _duration(columns: ShapeColumns, operation: int) -> float:
    rest = operation // columns.num_microbatches
    return float(columns.duration_ks[rest // columns.num_stages, rest % columns.num_stages])


@inlined
def next_operation(columns: ShapeColumns, state: DispatchState, kind: int, stage: int) -> int:
    """The first of a kind that a stage has not begun, or IDLE."""
    microbatch = state.next_ks[kind, stage]
    if microbatch >= columns.num_microbatches:
        return IDLE
    return int((kind * columns.num_stages + stage) * columns.num_microbatches + microbatch)


@inlined
def _best(columns: ShapeColumns, state: DispatchState, rank: int, kind: int, now: float, earlier_first: bool) -> int:
    """The best ready operation of one kind on a rank: of its later stages, or of the earlier micro-batches, first."""
    best, best_microbatch = IDLE, columns.num_microbatches
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        stage = state.stage_flat[at]
        operation = next_operation(columns, state, kind, stage)
        if operation == IDLE or state.arrival[operation] > now:
            continue
        if kind == 0 and not _fits(columns, state, rank, stage):
            continue
        if best == IDLE or not earlier_first or state.next_ks[kind, stage] < best_microbatch:
            best, best_microbatch = operation, state.next_ks[kind, stage]
    return best


@inlined
def _fits(columns: ShapeColumns, state: DispatchState, rank: int, stage: int) -> bool:
    """Room for this F and for one later micro-batch step: the oldest micro-batch can then always go on.

    An F leaves room for one activation of every later stage of its rank. The oldest unfinished micro-batch is first
    at each stage, so only an F of an earlier stage can have taken room since, and that one has left this room too.
    """
    if state.inflight_s[stage] >= state.limit_s[stage]:
        return False
    need = state.memory_r[rank] + columns.activation_s[stage] + state.reserve_s[stage]
    return bool(need <= columns.budget_r[rank] * (1 + 1e-12))


@inlined
def _forward_blocked(columns: ShapeColumns, state: DispatchState, rank: int, now: float) -> bool:
    """An F has arrived but does not fit."""
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        stage = state.stage_flat[at]
        operation = next_operation(columns, state, 0, stage)
        if operation != IDLE and state.arrival[operation] <= now and not _fits(columns, state, rank, stage):
            return True
    return False


@inlined
def _arrives_soon(
    columns: ShapeColumns, state: DispatchState, rank: int, kind: int, times: tuple[float, float], guide: float
) -> bool:
    """An operation of this kind is known to arrive after now, but within so long, and has less guide, if not any has.

    `times` are now and how long (seconds).
    """
    now, within_s = times
    if within_s <= 0:
        return False
    for at in range(state.stage_offsets[rank], state.stage_offsets[rank + 1]):
        stage = state.stage_flat[at]
        operation = next_operation(columns, state, kind, stage)
        if operation == IDLE or not now < state.arrival[operation] < now + within_s:
            continue
        if guide < np.inf and state.guide[operation] >= guide:
            continue
        if kind == 1 or _fits(columns, state, rank, stage):
            return True
    return False


@compiled
def tails(columns: ShapeColumns) -> Floats:
    """Longest path from the end of each operation's message to the end of the step, resources left out."""
    m, num_stages, num_kinds = columns.num_microbatches, columns.num_stages, columns.num_kinds
    last = 0.0
    after_backward = np.zeros(num_stages)
    for stage in range(num_stages):
        weight = columns.duration_ks[2, stage] if num_kinds == 3 else 0.0
        back = 0.0
        if stage > 0:
            back = columns.transfer_s[stage - 1] + columns.latency_s[stage - 1] + columns.duration_ks[1, stage - 1]
            back += after_backward[stage - 1]
        after_backward[stage] = max(weight, back)
    last = after_backward[num_stages - 1] + columns.duration_ks[1, num_stages - 1]
    tail = np.zeros(num_kinds * num_stages * m)
    for stage in range(num_stages - 1, -1, -1):
        if stage < num_stages - 1:
            last += columns.duration_ks[0, stage + 1] + columns.transfer_s[stage] + columns.latency_s[stage]
        for microbatch in range(m):
            behind = (m - 1 - microbatch) * columns.duration_ks[0, stage]
            tail[stage * m + microbatch] = last + behind
            tail[(num_stages + stage) * m + microbatch] = after_backward[stage] + behind
    return tail
