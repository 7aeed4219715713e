"""Slices of tabu search over the order of a running search: the quickest way to a better schedule.

Owns how long a slice lasts and what it counts as work. The kernel's value is the makespan; for the span its orders are
taken where their span is better too. Never proves anything.
"""

from __future__ import annotations

from solver.clock import charge
from solver.pipeline.local_search.progress import Search
from solver.pipeline.local_search.tabu import tabu_orders

CHUNK_WORK_S = 0.06  # a chunk between two looks at the clock, twice what it takes on a core of 2020


def descend(search: Search, seconds: float) -> None:
    """Better orders from the best one, for so long or until one meets the bound; every slice has its own seed."""
    if search.order is None:
        return
    until_s = search.elapsed_s + min(seconds, search.left_s)

    def stop() -> bool:
        return search.over or search.elapsed_s >= until_s

    search.slices += 1
    seed = search.problem.options.seed + search.slices
    for order in tabu_orders(search.shape, search.order, seed=seed, target_s=search.bound_s, stop=stop):
        charge(search.clock, CHUNK_WORK_S)
        if order is not None:
            search.offer(order, "tabu")
