"""Steady states on a running search: rounds are found, unrolled and offered like any other order.

Tabu search improves what is unrolled.
"""

from collections import deque

from solver.clock import charge
from solver.pipeline.generators.periodic import SteadyState, steady_states
from solver.pipeline.generators.unrolling import is_worth_repeating, orders_of
from solver.pipeline.local_search.progress import PipelineSearch

SIZES = (1, 2, 3, 4)  # micro-batches per round
WORK_PER_PLACING_S = 1e-5  # per operation and stage of a rank: to place one round


def repeat(search: PipelineSearch, seconds: float) -> None:
    """Rounds of one micro-batch, then of more, each unrolled in every way while there is time."""
    if not is_worth_repeating(search.shape):
        return
    begin_s = search.elapsed_s
    for number, size in enumerate(SIZES, start=1):
        found_by_s = begin_s + (2 * number - 1) / (2 * len(SIZES)) * min(seconds, search.left_s)
        state = _shortest(search, size, found_by_s)
        if state is None:
            return
        for order in orders_of(search.shape, state):
            search.offer(order, "periodic")
            search.worked()
            if search.over or search.elapsed_s >= begin_s + number / len(SIZES) * seconds:
                break


def _shortest(search: PipelineSearch, size: int, until_s: float) -> SteadyState | None:
    placing_s = WORK_PER_PLACING_S * search.shape.num_kinds * search.shape.num_stages * size

    def stop() -> bool:
        charge(search.clock, placing_s)
        return search.over or search.elapsed_s >= until_s

    states = steady_states(search.shape, size, seed=search.problem.options.seed, stop=stop)
    return next(iter(deque(states, maxlen=1)), None)
