"""Stage messages between the groups of a cut: how long each takes, and what those of a pass add to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.connections import MessageLoss, SharedPlanes
from solver.bounds.cuts import NetworkCut
from solver.bounds.leaving_messages import or_unlinked
from solver.configurations.distinct import distinct_rows
from solver.cost.columns import Columns
from solver.cost.data_parallel import replicas_together

ALIKE = 1.0 - 2e-9  # messages in time slots keep the pace of all at once but for rounding


@dataclass(frozen=True)
class CrossingMessages:
    """Stage messages between groups of a cut: bytes of one, GPUs that send it, what one takes that loses nothing.

    `link_bytes_per_s` is the most that leaves the one or the other of two groups; of more, all of them together.
    `shared` are planes that all connections are hashed to, if so; so many replicas share every place `together`.
    """

    message_bytes: FloatArray
    num_gpus: IntArray
    transfer_s: FloatArray
    latency_s: float
    loss: MessageLoss
    link_bytes_per_s: float
    shared: SharedPlanes | None
    together: IntArray

    @classmethod
    def of(cls, cut: NetworkCut, columns: Columns, message_bytes: FloatArray) -> CrossingMessages:
        """Each GPU of a stage sends its part over a connection of its own."""
        num_gpus = columns.tp * columns.cp
        transfer_s = message_bytes / (num_gpus * cut.limits.message_bytes_per_s)
        rate = or_unlinked(cut.rate_g.max() if len(cut.rate_g) == 2 else cut.rate_g.sum())
        latency_s = cut.nearest_s + cut.limits.step_s
        together, shared = replicas_together(columns), cut.limits.shared
        return cls(message_bytes, num_gpus, transfer_s, latency_s, cut.limits.loss, rate, shared, together)

    def each_s(self, num_replicas: IntArray) -> FloatArray:
        """Least time of each of the crossings of a replica where so many replicas cross."""
        wait_s = self.loss.each_s(self.transfer_s, self.message_bytes, self.num_gpus, num_replicas)
        return self.latency_s + self.transfer_s + wait_s

    def queue_s(self, num_hops: IntArray, beyond_s: FloatArray) -> FloatArray:
        """For how long each message takes its queue, at some boundary of so many between groups.

        What it takes alone where that cannot be more than `beyond_s`, since the rate of a queue takes time to find.
        """
        queue_s = self.transfer_s.copy()
        if self.shared is not None:
            num_bundles, gpus = -(-num_hops // self.together), self.num_gpus * self.together
            most_s = self.message_bytes / (self.num_gpus * self.shared.least_queue_bytes_per_s(num_bundles, gpus))
            rows = np.flatnonzero(most_s > beyond_s)
            first, row_of = distinct_rows(num_bundles[rows], gpus[rows])
            pairs = zip(num_bundles[rows[first]].tolist(), gpus[rows[first]].tolist(), strict=True)
            rates = np.array([self.shared.queue_bytes_per_s(*pair) for pair in pairs])[row_of]
            queue_s[rows] = np.maximum(queue_s[rows], self.message_bytes[rows] / (self.num_gpus[rows] * rates))
        return queue_s * ALIKE


@dataclass(frozen=True)
class CrossingDelay:
    """Groups that every pass through the ranks of so many replicas visits, and the messages between them.

    Replicas of a row have `num_hops` boundaries between groups in all, at least, no two of one between the same groups.
    """

    num_replicas: IntArray
    looped: BoolArray
    num_hops: IntArray
    num_groups: int = 2
    messages: CrossingMessages | None = None

    @classmethod
    def none(cls, num_rows: int) -> CrossingDelay:
        """Nothing crosses."""
        zeros = np.zeros(num_rows, dtype=np.int64)
        return cls(zeros, np.zeros(num_rows, dtype=np.bool_), zeros)

    def passes_s(
        self, num_passes: IntArray | FloatArray | float, num_ways_home: IntArray | FloatArray | float
    ) -> FloatArray:
        """What crossings add to so many passes and, in a loop, ways home between them; 0 where no replica crosses."""
        if self.messages is None:
            return np.zeros(len(self.num_replicas))
        crossings = (self.num_groups - 1) * np.asarray(num_passes) + np.where(self.looped, num_ways_home, 0.0)
        return np.where(self.num_replicas > 0, crossings * self.messages.each_s(self.num_replicas), 0.0)

    def queued_s(self, num_messages: IntArray, beyond_s: FloatArray) -> FloatArray:
        """Time of so many messages in the slowest queue of any replica; zero where no replica crosses.

        No more than `beyond_s` where it may be less than what it is.
        """
        if self.messages is None:
            return np.zeros(len(self.num_replicas))
        each_s = np.where(self.num_replicas > 0, (beyond_s - self.messages.latency_s) / num_messages, np.inf)
        queued_s = num_messages * self.messages.queue_s(self.num_hops, each_s) + self.messages.latency_s
        return np.where(self.num_replicas > 0, queued_s, 0.0)
