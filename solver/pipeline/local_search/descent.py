"""Tabu search over the order of a running search: the quickest way to a better schedule, on two threads where allowed.

The searches of a slice start from the best order, each with its own seed, and go on side by side by chunks of fixed
work, so that the same work gives the same answer. The kernel's value is the makespan; for the span its orders are taken
where their span is better too.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from solver.clock import charge
from solver.pipeline.local_search.progress import PipelineSearch
from solver.pipeline.local_search.tabu import tabu_orders
from solver.pipeline.problem import PipelineOrder

CHUNK_WORK_S = 0.03  # a chunk between two looks at the clock, twice what it takes on a core of 2020
CHUNKS = 32  # of a slice, after which all start again from the best order: about a second


def descend(search: PipelineSearch, seconds: float) -> None:
    """Better orders from the best one, for so long or until one meets the bound."""
    stop = search.stop_after(seconds)
    with ThreadPoolExecutor(search.num_threads) as pool:
        while not stop():
            _slice(search, pool, stop)


def improvements(search: PipelineSearch, stop: Callable[[], bool]) -> Iterator[PipelineOrder | None]:
    """Tabu search from the best order, with a seed of its own."""
    search.slices += 1
    seed = search.problem.options.seed + search.slices
    return tabu_orders(search.shape, search.best_order, seed=seed, target_s=search.bound_s, stop=stop)


def _slice(search: PipelineSearch, pool: ThreadPoolExecutor, stop: Callable[[], bool]) -> None:
    slices = [improvements(search, lambda: False) for _ in range(search.num_threads)]
    for _ in range(CHUNKS):
        found = list(pool.map(lambda orders: next(orders, None), slices))
        charge(search.clock, CHUNK_WORK_S)
        for order in found:
            if order is not None:
                search.offer(order, "tabu")
        if stop():
            return
