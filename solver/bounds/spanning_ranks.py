"""Pipeline ranks whose replicas lie in several groups of a cut, so that their gradients are exchanged between these.

Proof: docs/bounds.md, "Ranks that span groups".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.cuts import NetworkCut, exchange_rates, ring_rates
from solver.pipeline.problem import PipelineShape

SLOWEST = 1e-30  # bytes per second of exchanges between groups with nothing between them: they never end


@dataclass(frozen=True)
class PipelineRanks:
    """A pipeline with every cost and message at its least, and the GPU type of each rank, or 0 where that is any.

    By stage, `plain_s` are the messages as if nothing was lost, `sent_s` the bytes that it sends out of a place to
    exchange its gradients, and `overlap_s` the most seconds of that which overlap.
    """

    gpu_r: IntArray
    shape: PipelineShape
    plain_s: FloatArray
    sent_s: FloatArray
    overlap_s: FloatArray

    def without(self, some: BoolArray) -> PipelineRanks:
        """With nothing to do on some ranks, and no time for messages from them."""
        stages, shape = some[self.shape.rank_of_s], self.shape
        less = replace(
            shape,
            duration_ks=np.where(stages, 0.0, shape.duration_ks),
            latency_s=np.where(stages, 0.0, shape.latency_s),
        )
        return replace(self, shape=less, plain_s=np.where(stages, 0.0, self.plain_s))


@dataclass(frozen=True)
class SpanningRanks:
    """Ranks of so many replicas that span groups of a cut, of which each holds `num_gt` stage groups of each type."""

    cut: NetworkCut
    num_replicas: int
    num_gt: IntArray

    def least_s(self, ranks: PipelineRanks) -> FloatArray:
        """No less time passes (seconds) where this or that rank lies in several groups; infinite where it cannot.

        All of its exchanges follow the first one, and one of them all work of the rank. Where another one of the type
        has to span groups as well, the exchanges of both take the links.
        """
        shape, each, found = ranks.shape, np.empty(len(ranks.gpu_r)), np.full(len(ranks.gpu_r), np.inf)
        if self.num_replicas == 1:
            return found
        begin_s, sent = np.empty(len(found)), np.bincount(shape.rank_of_s, weights=ranks.sent_s)
        for rank, gpu in enumerate(ranks.gpu_r.tolist()):
            begin_s[rank], last_s = _work_before(ranks, rank)
            each[rank] = self._rates[gpu][0]
            exchange_s = ranks.sent_s / each[rank] - ranks.overlap_s
            found[rank] = max(
                begin_s[rank] + sent[rank] / each[rank], last_s + exchange_s[shape.rank_of_s == rank].min()
            )
        for gpu in set(ranks.gpu_r.tolist()):
            own = np.flatnonzero(ranks.gpu_r == gpu)
            if self._fills(gpu, len(own)):
                two_s = (
                    np.minimum.outer(begin_s[own], begin_s[own])
                    + np.add.outer(sent[own], sent[own]) / self._rates[gpu][1]
                )
                np.fill_diagonal(two_s, np.inf)
                found[own] = np.maximum(found[own], two_s.min(axis=1))
        return found

    def _fills(self, gpu: int, num_ranks: int) -> bool:
        """Whether the ranks of a type fill its groups: with all but one of them whole, the last one is, too."""
        held, d = self.num_gt[:, gpu], self.num_replicas
        return num_ranks > 1 and not (held % d).any() and int(held.sum()) <= num_ranks * d

    @cached_property
    def _rates(self) -> list[tuple[float, float]]:
        """Of each type: bytes per second that the exchange of one rank, and those of several at once, may send out of
        each of their groups.
        """
        found = []
        for held_g in self.num_gt.T:
            rate_g, fewest = self.cut.rate_g[held_g > 0], max(-(-self.num_replicas // max(int(held_g.max()), 1)), 2)
            rates = [(each(rate_g)[fewest] if fewest <= len(rate_g) else 0.0) for each in (ring_rates, exchange_rates)]
            found.append((float(min(rates)) or SLOWEST, float(rates[1]) or SLOWEST))
        return found


def _work_before(ranks: PipelineRanks, rank: int) -> tuple[float, float]:
    """When the first exchange of a rank can begin at the earliest, and when all its work can be done (seconds)."""
    shape, own = ranks.shape, ranks.shape.rank_of_s == rank
    before_s = float((shape.duration_ks[0] + shape.latency_s)[: np.flatnonzero(own)[0]].sum())
    forward, gradients = shape.duration_ks[0, own].sum(), shape.duration_ks[1:, own].sum(axis=0)
    begin_s = before_s + shape.num_microbatches * (forward + gradients.min()) - ranks.overlap_s[own].max()
    return float(begin_s), float(before_s + shape.num_microbatches * (forward + gradients.sum()))
