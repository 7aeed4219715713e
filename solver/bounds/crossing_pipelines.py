"""A bound of even pipelines that have to cross a cut: of every way to lie over it, exchanges or delayed pipelines.

Proof. `network_cut.py` has all ways in which the ranks of a configuration may lie over the groups of a cut, what
exchanges and messages take at least in each, and how many groups the pipelines of how many replicas visit. A replica
that crosses has the delays of `least_hops.py` on its way, wherever it crosses; with these its own pipeline bound
holds. So T >= min over the ways of max(exchanges and messages, pipeline).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from models.plan import Configuration
from solver.bounds.least_hops import MessageDelays, crossings_of
from solver.bounds.network_cut import CrossingDelay, CrossingMessages, cuts
from solver.bounds.work import even_cases
from solver.configurations.enumerate import FAMILY_CODES, LAYER_SPLIT_CODES, Space
from solver.context import Context
from solver.cost.columns import Columns, columns_of_all
from solver.cost.stage import boundary_bytes

WORTH = 0.002  # of a bound: what all crossings of a micro-batch have to add to it, or the cases are not looked at


def crossing_bound_s(
    context: Context,
    configurations: Sequence[Configuration],
    bound_s: float,
    hop_s: float,
    pipeline_s: Callable[[float, MessageDelays], float],
) -> float:
    """`bound_s` (seconds) of configurations that are alike, or more where every way over some cut takes longer.

    `pipeline_s` bounds the pipeline of a replica whose crossings take so long, which adds up to these delays; `hop_s`
    is the least that any message takes.
    """
    first, columns = configurations[0], columns_of_all(configurations)
    if first.degrees.pp == 1 or not _may_matter(context, first, columns, bound_s, hop_s):
        return bound_s
    family, split = FAMILY_CODES.index(first.family), LAYER_SPLIT_CODES.index(first.layer_split)
    space = Space(columns, np.full(len(columns), family), np.full(len(columns), split))
    cases_by_cut, update_s = even_cases(context, space)
    known: dict[tuple[float, MessageDelays], float] = {}
    for cases in cases_by_cut:
        least_s = float("inf")
        for case in cases:
            alone_s = float(np.where(case.possible, case.least_s + update_s, np.inf).min())
            if alone_s >= least_s:
                continue  # whatever its pipeline takes
            delays = _delays(first, case.delay, hop_s)
            if delays is not None and delays not in known:
                known[delays] = pipeline_s(*delays)
            least_s = min(least_s, max(alone_s, bound_s if delays is None else known[delays]))
            if least_s <= bound_s:
                break
        bound_s = max(bound_s, least_s)
    return bound_s


def _may_matter(context: Context, first: Configuration, columns: Columns, bound_s: float, hop_s: float) -> bool:
    """Some cut is so far apart that crossing it may be what a bound lacks."""
    size, number = boundary_bytes(context.job, columns), np.full(len(columns), crossings_of(first))
    each_s = [CrossingMessages.of(cut, columns, size).each_s(columns.dp, number).max() for cut in cuts(context)]
    return max((float(number[0]) * (one - hop_s) for one in each_s), default=0.0) > WORTH * bound_s


def _delays(first: Configuration, crossing: CrossingDelay, hop_s: float) -> tuple[float, MessageDelays] | None:
    """What each crossing takes of the replicas that cross, and all messages; None where none has to."""
    if crossing.messages is None or not crossing.num_replicas.all():
        return None
    numbers = (crossings_of(first, crossing.num_groups), float("inf"))
    each_s = [crossing.messages.each_s(crossing.num_replicas, np.full(len(crossing.num_replicas), n)) for n in numbers]
    crossing_s = [max(float(one.min()), hop_s) for one in each_s]
    return crossing_s[0], MessageDelays.along(first, hop_s, crossing_s, crossing.num_groups)
