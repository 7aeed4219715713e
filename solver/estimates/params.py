"""The tunable parameters of the estimates that order a search, all in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EstimateParams:
    """Parameters of the guessed iteration times. None of them bears on what is proven.

    All were set by hand. `python -m benchmarks.guesses` shows what a change does: the rank correlation of guess and
    evaluation, and how much slower the best of the first k by guess is than the best.

    Memory and limits
    -----------------
    few_in_flight
        Times the bound and the fill, where memory holds too few micro-batches for a usual schedule.
    unlikely
        Times the guess, where a GPU type is needed that the ends of the pipeline do not fit on, or no pattern is
        possible.
    oversize
        Times the bound, where not even one micro-batch fits as far as a rough look can tell.
    over_limit_s
        Seconds, where more bytes cross buildings than the request allows: tried last.

    Crossings
    ---------
    joint_norm
        Work w and messages c hold each other up where they take as long: (w^n + c^n)^(1/n).
    split_gain
        Exponent of what a split of messages may gain, since near links are soon full.
    crowded
        Times as many messages share the links of those that are split.
    trust_in_fewest
        Weight of the fewest replicas that must leave a place, by count, against even shares (a geometric mean).
    beside
        Of an edge, what messages and exchanges leave each other where both use it.
    """

    few_in_flight: float = 1.4
    unlikely: float = 10.0
    oversize: float = 100.0
    over_limit_s: float = 1e6

    joint_norm: float = 4.0
    split_gain: float = 0.9
    crowded: float = 2.0
    trust_in_fewest: float = 0.75
    beside: float = 0.5


ESTIMATES = EstimateParams()
