"""A good evaluation made better: priced placement, other sharding domains, then generators and local search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from solver.clock import Clock
from solver.configurations.enumerate import optimizer_copies
from solver.context import Context
from solver.evaluation.by_type import priced_again, ranks_by_type
from solver.evaluation.candidate import Candidate, bundle_of
from solver.evaluation.crossings import prices_of
from solver.evaluation.evaluate import Evaluation, evaluate, evaluate_on_paths
from solver.evaluation.places import placements
from solver.evaluation.scheduling import MANY_PROBLEMS, Schedulers
from solver.placement.problem import Prices


def improve(context: Context, found: Evaluation, schedulers: Schedulers, until_s: float) -> Iterator[Evaluation]:
    """Evaluations that may be better: priced placement, other sharding domains, then thorough schedules of the best.

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
    for candidate in other_domains(context, best.candidate):
        moved = evaluate(context, candidate, schedulers.quick, cutoff_s=best.iteration_s)
        if moved is not None:
            yield moved
            best = min(best, moved, key=lambda one: one.iteration_s)
    yield from improved_schedules(context, best, schedulers, until_s)


def improved_schedules(
    context: Context, found: Evaluation, schedulers: Schedulers, until_s: float
) -> Iterator[Evaluation]:
    """The placement with thorough schedules, each from what is known, with its share of the time until `until_s`."""
    shares_s = _shares_s(schedulers.clock, until_s, len(set(found.problems)))
    better = evaluate_on_paths(
        context,
        found.candidate,
        lambda problem: schedulers.thorough(problem, next(shares_s), found.timings),
        found.paths,
        divided=found.time_divided,
    )
    if better is not None:
        yield better


def _shares_s(clock: Clock, until_s: float, num_left: int) -> Iterator[float]:
    """Seconds for one schedule after another: equal shares of few, and of many, most of which take over an order of
    those before them, half of what is left each.
    """
    while True:
        yield max(until_s - clock(), 0.0) / (num_left if num_left <= MANY_PROBLEMS else 2)
        num_left = max(num_left - 1, 1)


def other_domains(context: Context, candidate: Candidate) -> Iterator[Candidate]:
    """The candidate with more or fewer copies of the optimizer state, each inside a place; replicas stay in place."""
    used = candidate.configuration
    if used.sharding != "zero1":
        return
    framework = context.request.constraints.framework
    for copies in optimizer_copies(context.request, list(context.pools)):
        if copies == used.num_state_copies or used.degrees.dp % copies or used.degrees.dp == copies:
            continue
        moved = used.model_copy(update={"shard_group_replicas": used.degrees.dp // copies})
        if framework is not None and any(framework.lacks(moved, context.request.workload)):
            continue
        if all(route.num_replicas % bundle_of(moved) == 0 for route in candidate.routes):
            yield replace(candidate, configuration=moved)


def _priced(context: Context, candidate: Candidate, prices: Prices) -> Iterator[Candidate]:
    if ranks_by_type(context, candidate):
        return priced_again(context, candidate, prices)
    return placements(context, candidate.configuration, ("priced",), prices)
