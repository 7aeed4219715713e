"""Ranks of several stages, and channels of many hops, as machines of three streams: by chains that keep their order.

An order of a rank is given. Its jobs are put into three groups by kind and stage, and those of a group keep their
order among themselves. Then what the rank has done is three counters again, memory included, and all that
`resource_kernel` proves holds for the orders that merge these chains anew. Messages of more than three hops on a
channel are put into three chains likewise. The first chain has F alone, so that what memory allows is an interval of
its counter. Other orders within a chain are tried with neighbours exchanged (`exchanged`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.pipeline.exact.columns import (
    CHAINS,
    CHANNEL,
    STREAMS,
    Machines,
    StateSpace,
    Waits,
    shared_channels,
    ticks_of,
    waits_of,
)
from solver.pipeline.exact.decision import order_of, with_shared
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape
from solver.pipeline.simulate import memory_changes


@dataclass(frozen=True)
class NamedSpace:
    """A state space whose job j is operation (or message) `old[j]`, in the numbers of `columns`."""

    state_space: StateSpace
    old: Ints

    def order(self, shape: PipelineShape, queues: Sequence[Ints]) -> PipelineOrder:
        """The order that has these queues of jobs."""
        named = [self.old[queue] for queue in queues]
        if not (self.state_space.machines.role == CHAINS).any():
            return order_of(shape, named)
        return PipelineOrder(tuple(named[: shape.num_ranks]), with_shared(shape, named[shape.num_ranks :]))


class ChainSpaces:
    """The state spaces of the orders of one shape, in whole ticks."""

    def __init__(self, shape: PipelineShape) -> None:
        self._shape = shape
        self._num_jobs = 2 * shape.num_operations
        self._chunk_s = shape.chunk_s
        self._waits = waits_of(shape, [])
        self._ticks = ticks_of(shape)
        self._channels = [
            [
                np.concatenate([np.arange(first, first + count) for first, count, _ in hops[at::STREAMS]])
                for at in range(min(len(hops), STREAMS))
            ]
            for hops in shared_channels(shape)
        ]

    @property
    def num_chunks(self) -> int:
        """Most stages of a rank."""
        return int(self._chunk_s.max()) + 1

    def chains(self, order: PipelineOrder, group: Ints) -> list[list[Ints]]:
        """Jobs of every rank by the group of their kind and chunk, of every shared channel by hops, in their order."""
        shape, n = self._shape, self._shape.num_operations
        of_job = group[:, self._chunk_s].repeat(shape.num_microbatches)
        ranks = [[queue[of_job[queue] == one] for one in range(STREAMS)] for queue in order.rank_ops]
        place = np.zeros(self._num_jobs, dtype=np.int64)
        for queue in order.channel_ops:
            place[n + queue] = np.arange(len(queue))
        return [*ranks, *([jobs[np.argsort(place[jobs])] for jobs in group] for group in self._channels)]

    def space(self, chains: list[list[Ints]], like: tuple[list[list[Ints]], NamedSpace] | None = None) -> NamedSpace:
        """The state space in which every chain keeps its order; `like`: other chains, mostly the same, with theirs."""
        filled = [[*one, *[np.zeros(0, dtype=np.int64)] * (STREAMS - len(one))] for one in chains]
        known = np.concatenate([jobs for one in filled for jobs in one])
        rest = np.setdiff1d(np.arange(self._num_jobs), known, assume_unique=True)
        old = np.concatenate([known, rest])
        length = np.array([[len(jobs) for jobs in one] for one in filled], dtype=np.int64)
        first = (np.cumsum(length) - length.ravel()).reshape(length.shape)
        ranks = self._shape.num_ranks
        role = np.where(np.arange(len(filled)) < ranks, CHAINS, CHANNEL)
        if like is None:
            most = np.stack([self._most(rank, filled[rank]) for rank in range(ranks)])
        else:
            most = like[1].state_space.machines.most.copy()
            for rank in range(ranks):
                if any(jobs is not other for jobs, other in zip(chains[rank], like[0][rank], strict=True)):
                    most[rank] = self._most(rank, filled[rank])
        capacity = np.zeros((len(filled), 0), dtype=np.int64)
        machines = Machines(first, length, self._ticks[old], role, capacity, most)
        machine = np.full(self._num_jobs, -1, dtype=np.int64)
        machine[: len(known)] = np.repeat(np.arange(len(filled)), length.sum(axis=1))
        return NamedSpace(StateSpace(machines, _renamed(self._waits, old, machine), complete=False), old)

    def _most(self, rank: int, chains: Sequence[Ints]) -> Ints:
        """Most jobs of the first chain that memory allows, by those of the others: sums over first jobs are held."""
        shape = self._shape
        size = int(shape.num_kinds * shape.num_microbatches * np.bincount(shape.rank_of_s).max()) + 1
        held = [np.cumsum(memory_changes(shape, jobs)) for jobs in chains]
        second, third = np.zeros(size), np.zeros(size)
        second[1 : len(held[1]) + 1], third[1 : len(held[2]) + 1] = held[1], held[2]
        budget = float(shape.budget_r[rank]) * (1 + 1e-9)
        left = budget - second[: len(held[1]) + 1, None] - third[None, : len(held[2]) + 1]
        most = np.full((size, size), -1, dtype=np.int64)
        most[: left.shape[0], : left.shape[1]] = np.where(left < 0, -1, np.searchsorted(held[0], left, side="right"))
        return most


def exchanged(chain: Ints, at: int) -> Ints:
    """The chain with the job at a place and the next one exchanged."""
    other = chain.copy()
    other[at], other[at + 1] = chain[at + 1], chain[at]
    return other


def _renamed(waits: Waits, old: Ints, machine: Ints) -> Waits:
    """Waits of jobs that are called by their places in `old`."""
    new = np.zeros(len(old), dtype=np.int64)
    new[old] = np.arange(len(old))
    out_at, out_by = _gathered(waits.out_at, old)
    in_at, in_by = _gathered(waits.in_at, old)
    return Waits(
        new[waits.topo],
        waits.place[old],
        out_at,
        new[waits.out_to[out_by]],
        waits.out_lag[out_by],
        in_at,
        new[waits.in_from[in_by]],
        waits.in_lag[in_by],
        machine,
        waits.last[old],
    )


def _gathered(at: Ints, old: Ints) -> tuple[Ints, Ints]:
    """Offsets of lists in a new order of their owners, and where their entries come from."""
    length = (at[1:] - at[:-1])[old]
    offsets = np.concatenate([[0], np.cumsum(length)])
    source = np.repeat(at[:-1][old] - offsets[:-1], length) + np.arange(offsets[-1])
    return offsets, source
