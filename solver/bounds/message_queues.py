"""Messages of a replica between groups wait for each other, and exchanges for the last of them.

At every boundary between ranks in different groups a replica has a queue each way. Some replica's are as slow as the
planes make them that all queues share; after the last message of a queue come the gradients of some stages, whose
exchanges follow each other on the cards of their rank. Proof: docs/bounds.md, "Queues of messages".
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.arrays import FloatArray
from solver.pipeline.bounds import memory_waits
from solver.pipeline.bounds_kernel import heads
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, PipelineShape
from solver.pipeline.simulate_kernel import columns_of

Message = tuple[int, int]  # kind and stage of the operation that sends it


@dataclass(frozen=True)
class MessageQueues:
    """A pipeline with every cost at its least: of each stage's exchange what the cards take and what overlaps (s)."""

    shape: PipelineShape
    cards_s: FloatArray
    overlap_s: FloatArray

    def least_s(self, message_s: float, after_s: float) -> float:
        """End of the last exchange, where at one boundary or another each message takes a queue for `message_s`.

        It arrives `after_s` or more after that.
        """
        ranks = range(self.shape.num_ranks - 1)
        return min(max(self._end_s(queue, message_s, after_s) for queue in self._queues(rank)) for rank in ranks)

    def _queues(self, rank: int) -> Iterator[list[Message]]:
        """The messages from a rank to the next, and those the other way."""
        ways = list(enumerate(itertools.pairwise(self.shape.rank_of_s.tolist())))
        for sender, receiver in ((rank, rank + 1), (rank + 1, rank)):
            activations = [(FORWARD, stage) for stage, way in ways if way == (sender, receiver)]
            yield activations + [(BACKWARD, stage + 1) for stage, way in ways if way == (receiver, sender)]

    def _end_s(self, queue: list[Message], message_s: float, after_s: float) -> float:
        shape = self.shape
        begin_s = min(float(self._head[kind, stage, 0] + shape.duration_ks[kind, stage]) for kind, stage in queue)
        busy_s = shape.num_microbatches * len(queue) * message_s
        gradients = [stage for kind, stage in queue if kind == BACKWARD]
        last = min(gradients) - 1 if gradients else None
        way_s = self._way_home_s(max(stage for _, stage in queue) if last is None else last, forward=last is None)
        return begin_s + busy_s + after_s + self._exchanged_s(way_s)

    def _way_home_s(self, stage: int, *, forward: bool) -> FloatArray:
        """From a message's arrival to the end of each stage's weight gradient; infinite of those that may be before.

        The message is the activation behind `stage`, or the gradient that goes to it.
        """
        shape, num_stages = self.shape, self.shape.num_stages
        hop_s = np.append(shape.latency_s[: num_stages - 1], 0.0)
        home_s = np.append(np.cumsum((shape.duration_ks[BACKWARD] + hop_s)[::-1])[::-1], 0.0)  # of all from a stage on
        weight_s = shape.duration_ks[WEIGHT] if shape.num_kinds > WEIGHT else np.zeros(num_stages)
        if forward:
            on_s = (shape.duration_ks[FORWARD] + hop_s)[stage + 1 :].sum()
            return np.asarray(on_s + home_s[:-1] + weight_s)
        way_s = home_s[:-1] - home_s[stage + 1] - hop_s[stage] + weight_s
        return np.where(np.arange(num_stages) <= stage, way_s, np.inf)

    def _exchanged_s(self, way_s: FloatArray) -> float:
        """The latest rank: of its stages that wait the first to exchange, and all their exchanges on its cards."""
        waits, latest_s = np.isfinite(way_s), 0.0
        for rank in range(self.shape.num_ranks):
            own = waits & (self.shape.rank_of_s == rank)
            if own.any():
                first_s = float((way_s - self.overlap_s)[own].min())
                latest_s = max(latest_s, first_s + float(self.cards_s[own].sum()), float(way_s[own].max()))
        return latest_s

    @cached_property
    def _head(self) -> FloatArray:
        return heads(columns_of(self.shape), memory_waits(self.shape), 0)
