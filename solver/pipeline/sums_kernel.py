"""Compiled sums of what comes before and after every operation on its rank, and every message on its channel.

Micro-batches of a stage and kind run in order, and each runs F stage after stage and B back. So of the stages of a rank
F[j] of one comes after F[0..j] of all before it, B[j] after F[0..j] of all and B[0..j] of all behind it, and W[j] after
B[j]; the same of messages that share a channel. Proof: docs/bounds.md, "One pipeline".
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from solver.compiled import compiled, inlined, uncounted
from solver.pipeline.problem import Floats, Ints
from solver.pipeline.simulate_kernel import ShapeColumns


class StageSums(NamedTuple):
    """Seconds of one micro-batch, by kind and stage: of the stages of its rank before it, behind it, and of all.

    By hop (the stage before it): messages on the channel of its activation before and after this one, and the same of
    its gradient. `first_r` is the first stage of each rank that counts, or -1.
    """

    before: Floats
    behind: Floats
    whole: Floats
    before_activation: Floats
    after_activation: Floats
    before_gradient: Floats
    after_gradient: Floats
    first_r: Ints


@inlined
def stage_sums(columns: ShapeColumns, first_stage: int) -> StageSums:
    """The sums of stages from `first_stage` on."""
    num_stages, num_kinds = columns.num_stages, columns.num_kinds
    before, behind = np.zeros((num_kinds, num_stages)), np.zeros((num_kinds, num_stages))
    whole = np.zeros((num_kinds, num_stages))
    before_hop, after_hop = np.zeros((2, num_stages)), np.zeros((2, num_stages))  # activations, gradients
    first_r, sum_r = np.full(columns.num_ranks, -1), np.zeros((num_kinds, columns.num_ranks))
    activations_c, gradients_c = np.zeros(columns.num_channels), np.zeros(columns.num_channels)
    for s in range(first_stage, num_stages):
        rank, up, down = columns.rank_of_s[s], columns.activation_channel_s[s], columns.gradient_channel_s[s]
        if first_r[rank] < 0:
            first_r[rank] = s
        for kind in range(num_kinds):
            before[kind, s] = sum_r[kind, rank]
            sum_r[kind, rank] += columns.duration_ks[kind, s]
        if up >= 0:
            before_hop[0, s] = activations_c[up]
            activations_c[up] += columns.transfer_s[s]
        if down >= 0:
            after_hop[1, s] = gradients_c[down]
            gradients_c[down] += columns.transfer_s[s]
    for s in range(first_stage, num_stages):
        rank, up, down = columns.rank_of_s[s], columns.activation_channel_s[s], columns.gradient_channel_s[s]
        for kind in range(num_kinds):
            whole[kind, s] = sum_r[kind, rank]
            behind[kind, s] = sum_r[kind, rank] - before[kind, s] - columns.duration_ks[kind, s]
        if up >= 0:
            after_hop[0, s] = activations_c[up] - before_hop[0, s] - columns.transfer_s[s] + gradients_c[up]
        if down >= 0:
            before_hop[1, s] = gradients_c[down] - after_hop[1, s] - columns.transfer_s[s] + activations_c[down]
    return StageSums(before, behind, whole, before_hop[0], after_hop[0], before_hop[1], after_hop[1], first_r)


@compiled
def forwards_fed(columns: ShapeColumns, rank: int, channel: int, head: Floats) -> tuple[Floats, Floats]:
    """Lengths of the F of a rank and when each may start (s), where a channel takes so long for each activation.

    The n-th message ends no earlier than n of them take from the first on, each when it is ready. Of F that wait for
    one, and can have it before the next message ends, the longest is taken: no other choice has more work for the rank
    at any time. F that wait for none of their own start at their heads.
    """
    columns, head = uncounted((columns, head))
    m, stages = columns.num_microbatches, np.flatnonzero(columns.rank_of_s == rank)
    hop_of = _feeding_hops(columns, stages, channel)
    fed = np.flatnonzero(hop_of >= 0)
    num_fed, way_s, takes_s = len(fed) * m, np.inf, np.inf
    length, start = np.empty(len(stages) * m), np.empty(len(stages) * m)
    ready, work = np.empty(num_fed), np.empty(num_fed)
    for place, at in enumerate(fed):
        hop, s = hop_of[at], stages[at]
        way_s, takes_s = min(way_s, _way_s(columns, hop, s)), min(takes_s, columns.transfer_s[hop])
        ready[place * m : (place + 1) * m] = head[0, hop] + columns.duration_ks[0, hop]
        work[place * m : (place + 1) * m] = columns.duration_ks[0, s]
    by_ready = np.argsort(ready, kind="mergesort")
    longest, taken = [0.0], 0
    longest.pop()
    ended = ready[by_ready[0]] + takes_s if num_fed else 0.0
    for number in range(num_fed):
        later = max(ended, ready[by_ready[number + 1]]) + takes_s if number + 1 < num_fed else np.inf
        while taken < num_fed and ready[by_ready[taken]] + takes_s <= later:
            heapq.heappush(longest, -work[by_ready[taken]])
            taken += 1
        length[number], start[number] = -heapq.heappop(longest), ended + way_s
        ended = later
    for place, at in enumerate(np.flatnonzero(hop_of < 0)):
        first, s = num_fed + place * m, stages[at]
        length[first : first + m], start[first : first + m] = columns.duration_ks[0, s], head[0, s]
    return length, start


@inlined
def _feeding_hops(columns: ShapeColumns, stages: Ints, channel: int) -> Ints:
    """The last hop on the channel before each stage and behind the one before it on the rank, or -1."""
    found = np.full(len(stages), -1)
    for place in range(len(stages)):
        before = stages[place - 1] if place else 0
        for hop in range(before, stages[place]):
            if columns.activation_channel_s[hop] == channel:
                found[place] = hop
    return found


@inlined
def _way_s(columns: ShapeColumns, hop: int, stage: int) -> float:
    """Least time from the end of a message over a hop to the start of a later stage."""
    way_s = columns.latency_s[hop]
    for s in range(hop + 1, stage):
        way_s += columns.duration_ks[0, s] + columns.latency_s[s] + columns.transfer_s[s]
    return float(way_s)
