"""The exact replay of a pipeline order: earliest start of everything, in continuous time.

The order of operations on ranks and of messages on channels is given; memory is a property of the order alone, since a
rank runs one operation at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from models.schedule import PipelineProblem
from solver.pipeline.problem import (
    KNOWN_SHAPES,
    Floats,
    Ints,
    PipelineOrder,
    PipelineShape,
    ragged,
    shape_of,
)
from solver.pipeline.simulate_kernel import columns_of, replay_kernel

Stream = tuple[int, int]
BUDGET_TOLERANCE = 1 + 1e-9  # sums of bytes are floats


class BrokenOrderError(ValueError):
    """The order is not one of this problem: incomplete, repeated, misplaced, or waiting for itself."""


@dataclass(frozen=True, eq=False)
class PipelineReplay:
    """Times of an order: by operation id, by message id (NaN where an operation sends none), and the totals."""

    start: Floats
    end: Floats
    message_start: Floats
    message_end: Floats
    makespan_s: float
    span_s: float
    peak_memory_bytes: Floats

    def value_s(self, objective: str) -> float:
        """What an objective makes of it, in seconds."""
        return self.span_s if objective == "span" else self.makespan_s

    def fits(self, shape: PipelineShape) -> bool:
        """Whether no rank holds more than its budget."""
        return bool(np.all(self.peak_memory_bytes <= shape.budget_r * BUDGET_TOLERANCE))


def replay(problem: PipelineProblem, order: PipelineOrder) -> PipelineReplay:
    """Times, totals and peak memory of an order; `BrokenOrderError` when it cannot run."""
    return replay_shape(shape_of(problem), order)


def replay_shape(shape: PipelineShape, order: PipelineOrder) -> PipelineReplay:
    """`replay` for columns that exist already."""
    _check_complete(shape, order)
    return replay_complete(shape, order)


def replay_complete(shape: PipelineShape, order: PipelineOrder) -> PipelineReplay:
    """`replay_shape` for an order that is known to name everything once."""
    rank_flat, rank_offsets = ragged(order.rank_ops)
    start, message_start = replay_kernel(columns_of(shape), rank_flat, rank_offsets, *ragged(order.channel_ops))
    if np.isnan(start).any():
        stuck = int(np.flatnonzero(np.isnan(start))[0])
        raise BrokenOrderError(f"the order deadlocks: {shape.text(stuck)} never becomes ready")
    end = start + durations(shape)
    return timed(shape, order, start, end, message_start)


def timed(
    shape: PipelineShape, order: PipelineOrder, start: Floats, end: Floats, message_start: Floats
) -> PipelineReplay:
    """Totals and memory of given times."""
    message_end = message_start + occupancies(shape)
    span, makespan = rank_totals(shape, start, end, message_end)
    changes = memory_changes(shape, np.concatenate(order.rank_ops))
    ends = np.cumsum([len(ops) for ops in order.rank_ops])[:-1]
    memory = np.array([np.cumsum(own).max(initial=0.0) for own in np.split(changes, ends)])
    return PipelineReplay(start, end, message_start, message_end, makespan, span, memory)


def durations(shape: PipelineShape) -> Floats:
    """Duration of every operation, by id."""
    return np.repeat(shape.duration_ks.ravel(), shape.num_microbatches)


def occupancies(shape: PipelineShape) -> Floats:
    """Time every message takes its channel, by message id; 0 where there is no message."""
    forward = shape.transfer_s
    gradient = np.concatenate([[0.0], shape.transfer_s[:-1]])
    others = np.zeros(max(shape.num_kinds - 2, 0) * shape.num_stages)
    per_stage = np.repeat(np.concatenate([forward, gradient, others]), shape.num_microbatches)
    return np.concatenate([per_stage, shape.sync_s])


def rank_totals(shape: PipelineShape, start: Floats, end: Floats, message_end: Floats) -> tuple[float, float]:
    """(span, makespan): largest per-rank and overall first start to last end, gradient exchange included."""
    shaped = (shape.num_kinds, shape.num_stages, shape.num_microbatches)
    first_s = start.reshape(shaped).min(axis=(0, 2))
    last_s = end.reshape(shaped).max(axis=(0, 2))
    last_s = np.fmax(last_s, message_end[shape.num_operations :])
    first_r, last_r = np.full(shape.num_ranks, np.inf), np.full(shape.num_ranks, -np.inf)
    np.minimum.at(first_r, shape.rank_of_s, first_s)
    np.maximum.at(last_r, shape.rank_of_s, last_s)
    return float((last_r - first_r).max()), float(last_r.max() - first_r.min())


def memory_changes(shape: PipelineShape, operations: Ints) -> Floats:
    """What each operation adds to its rank's memory: F its activation; B context minus activation; W minus context."""
    kind, stage = np.divmod(operations // shape.num_microbatches, shape.num_stages)
    per_kind = [shape.activation_s, shape.context_s - shape.activation_s, -shape.context_s]
    return np.array(per_kind)[kind, stage]


def peak_memory_bytes(shape: PipelineShape, operations: Ints) -> float:
    """Largest running sum of the memory changes along a rank's order.

    F adds at its start and the others change at their end, so the sum after each operation is the largest it reaches.
    """
    return float(np.cumsum(memory_changes(shape, operations)).max(initial=0.0))


@lru_cache(maxsize=KNOWN_SHAPES)
def channel_streams(shape: PipelineShape) -> tuple[tuple[Stream, ...], ...]:
    """Per channel: first message and number of all of one hop and kind, or of one gradient exchange."""
    streams: list[list[Stream]] = [[] for _ in range(shape.num_channels)]
    for kind, sender, _, _, channel in shape.messages():
        if channel >= 0:
            streams[channel].append((shape.operation_id(kind, sender, 0), shape.num_microbatches))
    for stage, link in enumerate(shape.sync_link_s.tolist()):
        if link >= 0:
            for channel in (2 * link, 2 * link + 1):
                streams[channel].append((shape.num_operations + stage, 1))
    return tuple(map(tuple, streams))


@lru_cache(maxsize=KNOWN_SHAPES)
def channel_messages(shape: PipelineShape) -> tuple[Ints, ...]:
    """The messages that must be ordered on every channel, by id."""
    nothing = np.zeros(0, dtype=np.int64)
    return _constant(
        np.sort(np.concatenate([nothing, *(np.arange(first, first + count) for first, count in one)]))
        for one in channel_streams(shape)
    )


@lru_cache(maxsize=KNOWN_SHAPES)
def _rank_operations(shape: PipelineShape) -> tuple[Ints, ...]:
    """The operations that every rank must run, by id."""
    rank_of_op = np.repeat(np.tile(shape.rank_of_s, shape.num_kinds), shape.num_microbatches)
    return _constant(np.flatnonzero(rank_of_op == rank) for rank in range(shape.num_ranks))


def _constant(found: Iterable[Ints]) -> tuple[Ints, ...]:
    """The same, not to be written to, since many share them."""
    columns = tuple(found)
    for one in columns:
        one.flags.writeable = False
    return columns


def _check_complete(shape: PipelineShape, order: PipelineOrder) -> None:
    if len(order.rank_ops) != shape.num_ranks or len(order.channel_ops) != shape.num_channels:
        raise BrokenOrderError(f"the order must name {shape.num_ranks} ranks and {shape.num_channels} channels")
    for rank, (own, operations) in enumerate(zip(_rank_operations(shape), order.rank_ops, strict=True)):
        if not np.array_equal(np.sort(operations), own):
            raise BrokenOrderError(f"rank {rank} must run each of its operations exactly once")
    for channel, (expected, given) in enumerate(zip(channel_messages(shape), order.channel_ops, strict=True)):
        if not np.array_equal(np.sort(given), expected):
            name = shape.link_names[channel // 2]
            raise BrokenOrderError(f"link {name}: each of its messages must be ordered exactly once")
