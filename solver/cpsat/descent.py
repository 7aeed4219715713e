"""Slices of tabu search over the order of a running search: the quickest way to a better schedule.

Owns how long a slice lasts and what it counts as work. Only for the makespan: the kernel's value is no other. Never
proves anything.
"""

from __future__ import annotations

from solver.cpsat.search import Search
from solver.schedules.tabu import CHUNK_NODES, tabu_orders

COST_OF_MOVE = 4  # an iteration takes about as long as so many plain evaluations of its order


def descend(search: Search, seconds: float) -> None:
    """Better orders from the best one, for so long or until one meets the bound; every slice has its own seed."""
    if search.problem.objective != "makespan" or search.order is None:
        return
    until_s = search.elapsed_s + min(seconds, search.left_s)
    num_orders = max(COST_OF_MOVE * CHUNK_NODES // search.shape.num_operations, 1)

    def stop() -> bool:
        return search.over or search.elapsed_s >= until_s

    search.slices += 1
    seed = search.problem.options.seed + search.slices
    for order in tabu_orders(search.shape, search.order, seed=seed, target_s=search.bound_s, stop=stop):
        if order is None:
            search.worked(num_orders)
        else:
            search.offer(order, "tabu")
