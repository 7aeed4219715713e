"""A good evaluation made better: the whole portfolio and CP-SAT for its schedules, and the priced placement.

Owns the order of these steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.context import Context
from solver.evaluation.by_type import priced_again
from solver.evaluation.candidate import Candidate
from solver.evaluation.crossings import prices_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.places import placements
from solver.evaluation.scheduling import Schedulers
from solver.placement.problem import Prices


def improve(context: Context, found: Evaluation, schedulers: Schedulers, until_s: float) -> Iterator[Evaluation]:
    """Evaluations that may be better: priced placement first, then thorough schedules of the better of both.

    `until_s` on the schedulers' clock is when they should end; the schedules share what the placement has left of it.
    """
    best = found
    if len(context.capacity_groups) > 1:
        prices = prices_of(context, found)
        for candidate in _priced(context, found.candidate, prices):
            priced = evaluate(context, candidate, schedulers.quick)
            if priced is not None:
                yield priced
                best = min(best, priced, key=lambda one: one.iteration_s)
    share = max(until_s - schedulers.clock(), 0.0) / max(len(set(best.problems)), 1)
    better = evaluate(context, best.candidate, lambda problem: schedulers.thorough(problem, share), like=best)
    if better is not None:
        yield better


def _priced(context: Context, candidate: Candidate, prices: Prices) -> Iterator[Candidate]:
    if candidate.configuration.layer_split == "by_gpu_type":
        return priced_again(context, candidate, prices)
    return placements(context, candidate.configuration, ("priced",), prices)
