"""A pipeline as machines of up to three streams and waits between their jobs, in the form that compiled code takes.

A stream is one kind of one stage (or the messages of one hop and direction); its jobs go in micro-batch order (argument
in `pipeline.bounds`), so what a machine has done is three counters.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from solver.pipeline.bounds import memory_waits
from solver.pipeline.problem import Ints, PipelineShape
from solver.pipeline.simulate import durations, occupancies

STREAMS = 3  # F, B and W of a stage
CHANNEL, STAGE, CHAINS = 0, 1, 2  # roles of machines
Wait = tuple[int, int, int]
Stream = tuple[int, int, int]  # first job, how many, ticks of each


class Machines(NamedTuple):
    """Columns by machine: streams by first job and number of jobs; what memory allows on a rank; ticks by job.

    `role`: a channel, a rank of one stage, or one whose streams are `chains`. `capacity[k, d]`: on a rank of one stage
    the most F without B while d jobs are between B and W; -1: not allowed. `most[k, y, z]`: on one of chains the most
    jobs of the first stream with so many of the second and of the third.
    """

    first: Ints
    length: Ints
    ticks: Ints
    role: Ints
    capacity: Ints
    most: Ints


class Waits(NamedTuple):
    """Jobs in an order in which every wait goes forwards, and their places in it; waits by job, out and in.

    `machine`: that of every job, or -1; `last`: ticks from its start to the end of what only it holds up.
    """

    topo: Ints
    place: Ints
    out_at: Ints
    out_to: Ints
    out_lag: Ints
    in_at: Ints
    in_from: Ints
    in_lag: Ints
    machine: Ints
    last: Ints


class StateSpace(NamedTuple):
    """`complete`: an order of all machines is a schedule within memory, so that a search may end with an answer."""

    machines: Machines
    waits: Waits
    complete: bool


def state_space_of(shape: PipelineShape) -> StateSpace:
    """The columns of a shape in whole ticks; what has more than three streams is relaxed to several machines."""
    shared = shared_channels(shape)
    streams = [*_ranks(shape), *(one[at : at + STREAMS] for one in shared for at in range(0, len(one), STREAMS))]
    waits = waits_of(shape, streams)
    alone = len(set(shape.rank_of_s.tolist())) == shape.num_stages
    narrow = all(len(one) <= STREAMS for one in shared)
    complete = alone and narrow and not (shape.sync_link_s >= 0).any()
    return StateSpace(_machines_of(shape, streams), waits, complete)


def _ranks(shape: PipelineShape) -> list[list[Stream]]:
    """The kinds of every stage."""
    m = shape.num_microbatches
    return [
        [(shape.operation_id(kind, s, 0), m, int(shape.duration_ks[kind, s])) for kind in range(shape.num_kinds)]
        for s in range(shape.num_stages)
    ]


def shared_channels(shape: PipelineShape) -> list[list[Stream]]:
    """The hops of every link and direction, where there are several: one alone is in order already."""
    m, n = shape.num_microbatches, shape.num_operations
    channels: dict[int, list[Stream]] = {}
    for kind, sender, _, hop, channel in shape.messages():
        if channel >= 0:
            first = n + shape.operation_id(kind, sender, 0)
            channels.setdefault(channel, []).append((first, m, int(shape.transfer_s[hop])))
    return [one for one in channels.values() if len(one) > 1]


def _machines_of(shape: PipelineShape, streams: list[list[Stream]]) -> Machines:
    columns = np.zeros((2, len(streams), STREAMS), dtype=np.int64)
    for machine, parts in enumerate(streams):
        for at, (first, count, _) in enumerate(parts):
            columns[:, machine, at] = first, count
    capacity = np.full((len(streams), shape.num_microbatches + 1), shape.num_microbatches, dtype=np.int64)
    for s in range(shape.num_stages):
        capacity[s] = _capacity(shape, s)
    role = np.where(np.arange(len(streams)) < shape.num_stages, STAGE, CHANNEL)
    return Machines(columns[0], columns[1], ticks_of(shape), role, capacity, np.zeros((1, 0, 0), np.int64))


def ticks_of(shape: PipelineShape) -> Ints:
    """Durations (ticks) of all jobs: operations, then the message of each on its channel, if any."""
    return np.concatenate([durations(shape), occupancies(shape)[: shape.num_operations]]).astype(np.int64)


def _capacity(shape: PipelineShape, stage: int) -> Ints:
    """Most F without B by the number of B without W: (F - B) a + (B - W) c <= budget; fused: the second is none."""
    m = shape.num_microbatches
    between = np.arange(m + 1.0) * (shape.num_kinds == 3)
    budget = float(shape.budget_r[shape.rank_of_s[stage]]) * (1 + 1e-9)
    left = budget - between * float(shape.context_s[stage])
    activation = float(shape.activation_s[stage])
    fits = left / activation if activation > 0 else np.full(m + 1, float(m))
    return np.where(left < 0, -1, np.floor(np.minimum(fits, m))).astype(np.int64)


def waits_of(shape: PipelineShape, streams: list[list[Stream]]) -> Waits:
    """What waits for what by data, order within streams and waits for memory, with the machines of these streams."""
    topo = np.array(list(_in_precedence_order(shape)), dtype=np.int64)
    rows = np.array(list(_waits(shape)), dtype=np.int64).reshape(-1, 3)
    out_order = np.argsort(rows[:, 0], kind="mergesort")
    in_order = np.argsort(rows[:, 1], kind="mergesort")
    num_jobs = 2 * shape.num_operations
    jobs = np.arange(num_jobs + 1)
    machine = np.full(num_jobs, -1, dtype=np.int64)
    for number, parts in enumerate(streams):
        for first, count, _ in parts:
            machine[first : first + count] = number
    place = np.zeros(num_jobs, dtype=np.int64)
    place[topo] = np.arange(len(topo))
    return Waits(
        topo,
        place,
        np.searchsorted(rows[out_order, 0], jobs),
        rows[out_order, 1],
        rows[out_order, 2],
        np.searchsorted(rows[in_order, 1], jobs),
        rows[in_order, 0],
        rows[in_order, 2],
        machine,
        _last_of(shape),
    )


def _last_of(shape: PipelineShape) -> Ints:
    """Ticks between the start of a job and the end of it and, after the last kind, of the gradient exchange."""
    last = ticks_of(shape)
    last[shape.num_operations :] = 0
    for s in range(shape.num_stages):
        last[shape.operation_id(shape.num_kinds - 1, s, shape.num_microbatches - 1)] += int(shape.sync_s[s])
    return last


def _in_precedence_order(shape: PipelineShape) -> Iterator[int]:
    """Every job after all it waits for: micro-batch after micro-batch, each along its way."""
    n = shape.num_operations
    for j in range(shape.num_microbatches):
        for kind, stages in ((0, range(shape.num_stages)), (1, range(shape.num_stages - 1, -1, -1))):
            for s in stages:
                job = shape.operation_id(kind, s, j)
                yield from (job, n + job)
        if shape.num_kinds == 3:
            yield from (shape.operation_id(2, s, j) for s in range(shape.num_stages))


def _waits(shape: PipelineShape) -> Iterator[Wait]:
    """(early, late, lag): late starts at least lag after early; data, order within streams, waits for memory."""
    m, last, memory = shape.num_microbatches, shape.num_stages - 1, memory_waits(shape)
    ticks = shape.duration_ks.astype(np.int64).tolist()
    for j in range(m):
        yield shape.operation_id(0, last, j), shape.operation_id(1, last, j), ticks[0][last]
        for s in range(shape.num_stages):
            for kind in range(shape.num_kinds):
                job = shape.operation_id(kind, s, j)
                if j > 0:
                    yield job - 1, job, ticks[kind][s]
                if kind == 2:
                    yield shape.operation_id(1, s, j), job, ticks[1][s]
            for at in range(memory.at[s], memory.at[s + 1]):
                freed, kind, before = int(memory.stage[at]), int(memory.kind[at]), j - int(memory.distance[at])
                if before >= 0:
                    release = shape.operation_id(kind, freed, before)
                    yield release, shape.operation_id(0, s, j), ticks[kind][freed]
        yield from _messages(shape, j)


def _messages(shape: PipelineShape, microbatch: int) -> Iterator[Wait]:
    """Of a micro-batch: every message goes after what sends it, and what receives it starts after its arrival."""
    n = shape.num_operations
    for kind, sender, to_stage, hop, channel in shape.messages():
        latency, transfer = int(shape.latency_s[hop]), int(shape.transfer_s[hop])
        job, receiver = (shape.operation_id(kind, stage, microbatch) for stage in (sender, to_stage))
        ticks = int(shape.duration_ks[kind, sender])
        if channel < 0:
            yield job, receiver, ticks + latency
            continue
        yield job, n + job, ticks
        yield n + job, receiver, transfer + latency
        if microbatch > 0:
            yield n + job - 1, n + job, transfer
