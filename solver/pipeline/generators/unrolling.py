"""From a steady state to schedules: the round repeated with fill and drain, and the generator of that name.

Either the order of the round is kept throughout, and only the times of fill and drain move together; or the times of
the rounds guide the list scheduler, which then fills and drains without idling. The first keeps the period, the second
has the shorter ends. The replay says which is better.
"""

from collections.abc import Iterator
from itertools import count, islice, product

import numpy as np

from solver.pipeline.generators.list_scheduler import greedy_order, with_messages, with_weights_filled
from solver.pipeline.generators.list_scheduler_choice import GUIDED, LONGEST_TAIL, Policy
from solver.pipeline.generators.orders import fastest_that_fits
from solver.pipeline.generators.periodic import SteadyState, steady_states
from solver.pipeline.problem import Floats, Ints, PipelineOrder, PipelineShape

LEAST_ROUNDS = 2  # micro-batches per rank from which on a steady state is worth repeating
WAITS = (0.3, 0.0, 1.0)  # look-ahead of a guided rank, as in policies; the more promising first
LIMITS = (None, 0, 1, 4)  # micro-batches in flight beyond those of the round
FEW_PLACINGS, FEW_GUIDES = 200, 3  # of the generator, which is to be quick; set by hand


def is_worth_repeating(shape: PipelineShape) -> bool:
    """Many micro-batches for so many ranks."""
    return shape.num_microbatches >= LEAST_ROUNDS * shape.num_ranks


def periodic(shape: PipelineShape) -> PipelineOrder | None:
    """The best of a few orders of a round found quickly; None for few micro-batches or where no time passes."""
    if not is_worth_repeating(shape):
        return None
    placings = count()
    states = list(steady_states(shape, 1, seed=0, stop=lambda: next(placings) >= FEW_PLACINGS))
    if not states:
        return None
    return fastest_that_fits(shape, islice(orders_of(shape, states[-1]), 2 + FEW_GUIDES))


def orders_of(shape: PipelineShape, steady: SteadyState) -> Iterator[PipelineOrder]:
    """The round repeated, then guided list schedules, the more promising first; memory is not checked."""
    repeated = [with_messages(shape, unrolled(shape, steady, shape.num_kinds), LONGEST_TAIL)]
    if shape.num_kinds == 3:
        repeated.append(with_weights_filled(shape, unrolled(shape, steady, 2), shape.budget_r))
    yield from (order for order in repeated if order is not None)
    guide, held = guide_of(shape, steady), in_flight(shape, steady)
    late = (float(guide.max()) + steady.length_s, steady.length_s, 0.0) if shape.num_kinds == 3 else (0.0,)
    for wait, more, weight_later_s in product(WAITS, LIMITS, late):
        policy = Policy(GUIDED, weight_later_s, wait, message_rule=LONGEST_TAIL)
        yield greedy_order(shape, policy, None if more is None else held + more, guide=guide)


def unrolled(shape: PipelineShape, steady: SteadyState, num_kinds: int) -> list[Ints]:
    """Rank orders of all micro-batches, of the first kinds only, by the times of the rounds."""
    guide = guide_of(shape, steady)
    kind, stage = np.divmod(np.arange(shape.num_operations) // shape.num_microbatches, shape.num_stages)
    orders = []
    for rank in range(shape.num_ranks):
        own = np.flatnonzero((shape.rank_of_s[stage] == rank) & (kind < num_kinds))
        orders.append(own[np.argsort(guide[own], kind="stable")].astype(np.int64))
    return orders


def guide_of(shape: PipelineShape, steady: SteadyState) -> Floats:
    """Start of every operation in repeated rounds, by id; in order within stage and kind (docs/bounds.md)."""
    rounds, one = np.divmod(np.arange(shape.num_microbatches), steady.num_microbatches)
    times: Floats = np.sort(steady.start[:, :, one] + rounds * steady.length_s, axis=2)
    return times.ravel()


def in_flight(shape: PipelineShape, steady: SteadyState) -> Ints:
    """Most micro-batches between the start of F and the end of B at every stage."""
    most = np.zeros(shape.num_stages, dtype=np.int64)
    back = steady.start[1] + shape.duration_ks[1][:, None]
    for one in range(steady.num_microbatches):
        now = steady.start[0][:, one, None]
        begun = np.floor((now - steady.start[0]) / steady.length_s + 1e-9)
        done = np.floor((now - back) / steady.length_s + 1e-9)
        most = np.maximum(most, (begun - done).sum(axis=1).astype(np.int64))
    return most
