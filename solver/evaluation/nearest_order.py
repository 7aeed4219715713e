"""Ranks on the same GPU type in the order that makes the way over all ranks shortest.

Where all replicas take one route, ranks on one type may change places: their work, layers and capacity remain. So
segments of two types that lie in two regions each meet in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, groupby, pairwise

from solver.context import Context
from solver.cost.columns import columns_of
from solver.cost.stage import boundary_bytes
from solver.evaluation.candidate import Candidate
from solver.placement.along_links import steps_between_s

MOST_RUNS = 24  # of ranks in one pool one after another; trying all pairs of more takes as long as timing a placement

Rank = tuple[int, int]  # pool and first group of one pipeline rank
Run = tuple[Rank, ...]  # ranks in one pool, one after another


def in_nearest_order(context: Context, candidate: Candidate) -> Candidate:
    """The candidate with ranks of one type in an order that no small change makes shorter.

    From place to place the way takes the latency and the messages of a micro-batch of all replicas on the links (s). In
    a loop it goes back to the first rank. As it is where replicas take several routes or ranks are pinned.
    """
    route, configuration = candidate.routes[0], candidate.configuration
    ranks = zip(route.pools, route.first_group, strict=True)
    runs = [tuple(own) for _, own in groupby(ranks, lambda rank: rank[0])]
    if len(candidate.routes) > 1 or context.request.constraints.pins or not 2 < len(runs) <= MOST_RUNS:
        return candidate
    num_bytes = configuration.degrees.dp * float(boundary_bytes(context.job, columns_of(configuration))[0])
    place_of = {pool: context.pools[pool].place for pool in route.pools}
    index = {place: number for number, place in enumerate(dict.fromkeys(place_of.values()))}
    step_s = steps_between_s(context.topology, list(index), num_bytes)

    def way_s(runs: Sequence[Run]) -> float:
        at = [index[place_of[run[0][0]]] for run in runs]
        steps = pairwise([*at, at[0]] if configuration.family == "loop" else at)
        return sum(float(step_s[step]) for step in steps)

    shortest = _shortest(runs, lambda run: context.pools[run[0][0]].gpu.name, way_s)
    pools, first_group = zip(*chain.from_iterable(shortest), strict=True)
    return replace(candidate, routes=(replace(route, pools=pools, first_group=first_group),))


def _shortest(
    runs: Sequence[Run], type_of: Callable[[Run], str], way_s: Callable[[Sequence[Run]], float]
) -> Sequence[Run]:
    """The runs in the order that no change makes shorter."""
    while True:
        best = min(_changed(runs, type_of), key=way_s, default=runs)
        if way_s(best) >= way_s(runs):
            return runs
        runs = best


def _changed(runs: Sequence[Run], type_of: Callable[[Run], str]) -> Iterator[list[Run]]:
    """With some runs of one type in a row turned round (2-opt), or with two of one type exchanged that are equally
    long.
    """
    types = [type_of(run) for run in runs]
    for here, there in combinations(range(len(runs)), 2):
        before, between, after = runs[:here], runs[here + 1 : there], runs[there + 1 :]
        if len(set(types[here : there + 1])) == 1:
            yield [*before, runs[there], *between[::-1], runs[here], *after]
        elif types[here] == types[there] and len(runs[here]) == len(runs[there]):
            yield [*before, runs[there], *between, runs[here], *after]
