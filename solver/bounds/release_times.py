"""Release times of gradient exchanges: when each can begin, from where on they follow each other on cards and on links.

Proof: docs/bounds.md, "Release times of exchanges".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import FloatArray
from solver.pipeline.bounds import last_ends
from solver.pipeline.problem import PipelineShape


@dataclass(frozen=True)
class ReleaseTimes:
    """No earlier (seconds) can each stage exchange (`stage_s`), nor 1, 2 ... stages of a rank (ranks x chunks)."""

    stage_s: FloatArray
    rank_rc: FloatArray

    @classmethod
    def of(cls, shape: PipelineShape, overlap_s: FloatArray) -> ReleaseTimes:
        """Of a pipeline, so much of whose exchanges runs beside the last backward of each stage at most."""
        stage_s, rank_s = last_ends(shape)
        by_rank = [shape.rank_of_s == rank for rank in range(shape.num_ranks)]
        begin_rc = np.stack([np.sort((stage_s - overlap_s)[own]) for own in by_rank])
        last_s = rank_s - np.array([overlap_s[own].max() for own in by_rank])
        begin_rc[:, -1] = np.maximum(begin_rc[:, -1], last_s)
        return cls(np.maximum(stage_s - overlap_s, 0.0), np.maximum(begin_rc, 0.0))

    def on_cards_s(self, shape: PipelineShape, cards_s: FloatArray) -> float:
        """End of the exchanges of the latest rank, which follow each other on its cards, of each stage for so long."""
        latest_s = 0.0
        for rank, ready_c in enumerate(self.rank_rc):
            own = np.flatnonzero(shape.rank_of_s == rank)
            order = own[np.argsort(self.stage_s[own], kind="stable")]
            left_s = np.cumsum(cards_s[order][::-1])[::-1]
            latest_s = max(
                latest_s, float((self.stage_s[order] + left_s).max()), float(ready_c[-1] + cards_s[own].min())
            )
        return latest_s

    def last_of_each(self, sent: FloatArray, num_ranks: int) -> tuple[FloatArray, FloatArray]:
        """Times, and the bytes that so many ranks exchange no earlier, as many of each (times x configurations).

        `sent` are those of each stage (configurations x stages): of all of a rank, of all but one, and so on.
        """
        chunks = self.rank_rc.shape[1]
        number = np.arange(chunks, 0, -1)[:, None] * num_ranks
        return self.rank_rc.min(axis=0), number * sent.min(axis=1)

    def last_of_any(self, sent: FloatArray, num_ranks: int) -> tuple[FloatArray, FloatArray]:
        """The same of any of their stages: of all but the first, the first two, and so on, whichever ranks it is."""
        if num_ranks == len(self.rank_rc):
            order = np.argsort(self.stage_s, kind="stable")
            return self.stage_s[order], np.cumsum(sent[:, order[::-1]], axis=1)[:, ::-1].T
        count = num_ranks * self.rank_rc.shape[1]
        fewest = np.cumsum(np.sort(sent, axis=1)[:, :count], axis=1)
        return np.sort(self.rank_rc, axis=None)[:count], fewest[:, ::-1].T
