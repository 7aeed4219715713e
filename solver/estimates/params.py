"""The tunable parameters of the estimates that order a search, all in one place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class EstimateParams:
    """Parameters of the guessed iteration times. None of them bears on what is proven.

    A comment is about the one or more parameters up to the next. All were set by hand. `python -m
    benchmarks.guesses` shows what a change does: the rank correlation of guess and evaluation, and how much slower the
    best of the first k by guess is than the best.
    """

    # Memory and limits

    # Times the bound and the fill, where memory holds too few micro-batches for a usual schedule by far; the second
    # with several chunks per rank, of which schedules with less memory cost less: on 2,256 random loops and Vs the best
    # quick schedule was on average 1.03 times the bound at 1.4 times the memory, 1.09 at 2.2, 1.16 at 3.5.
    few_in_flight: float = 1.4
    few_chunks_in_flight: float = 1.17
    # Times the memory there is is what a usual schedule would need by far; with less the factor is nearer to 1.
    by_far: float = 1.5
    chunks_by_far: float = 3.0
    # Times the guess, where a GPU type is needed that the ends of the pipeline do not fit on, or no pattern is
    # possible.
    unlikely: float = 10.0
    # Times the bound, where not even one micro-batch fits as far as a rough look can tell.
    oversize: float = 100.0
    # Seconds, where more bytes cross buildings than the request allows: tried last.
    over_limit_s: float = 1e6

    # Crossings

    # Work w and messages c hold each other up where they take as long: (w^n + c^n)^(1/n), n two to this power, whose
    # squares and roots take a tenth of the time of any power.
    joint_squarings: int = 2
    # Exponent of what a split of messages may gain, since near links are soon full.
    split_gain: float = 0.9
    # Times as many messages share the links of those that are split: of 118 chains and loops over random meshes, what
    # detours are taken to carry together is 1 to 1.27 times the best flow (`solver/placement/distances.py`).
    crowded: float = 1.25
    # Weight of the fewest replicas that must leave a place, by count, against even shares (a geometric mean).
    trust_in_fewest: float = 0.75
    # Of an edge, what messages and exchanges leave each other where both use it.
    beside: float = 0.5

    def joint_s(self, work_s: FloatArray, messages_s: FloatArray) -> FloatArray:
        """Seconds that work and messages take together.

        >>> EstimateParams().joint_s(np.array([1.0, 3.0]), np.array([1.0, 0.0])).round(3).tolist()
        [1.189, 3.0]
        """
        for _ in range(self.joint_squarings):
            work_s, messages_s = np.square(work_s), np.square(messages_s)
        together_s: FloatArray = work_s + messages_s
        for _ in range(self.joint_squarings):
            together_s = np.sqrt(together_s)
        return together_s

    def crowding(self, need: FloatArray, capacity: FloatArray, num_chunks: IntArray) -> FloatArray:
        """Factor of the time where usual schedules need so many bytes of this capacity: 1 where they fit.

        >>> EstimateParams().crowding(np.array([1.0, 1.25, 4.0]), np.array([1.0, 1.0, -1.0]), np.ones(3)).tolist()
        [1.0, 1.2, 1.4]
        >>> EstimateParams().crowding(np.array([1.0, 2.0, 4.0]), np.ones(3), np.full(3, 2)).tolist()
        [1.0, 1.085, 1.17]
        """
        ratio = np.where(capacity > 0, need / np.maximum(capacity, 1e-9), np.inf)
        one = num_chunks == 1
        by_far = np.where(one, self.by_far, self.chunks_by_far)
        most = np.where(one, self.few_in_flight, self.few_chunks_in_flight)
        beyond = np.clip((ratio - 1.0) / (by_far - 1.0), 0.0, 1.0)
        return 1.0 + (most - 1.0) * beyond


ESTIMATES = EstimateParams()
