"""What static generators share: sequences of (kind, stage, micro-batch) per rank, and tests of the layout."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from solver.pipeline.generators.list_scheduler import with_messages
from solver.pipeline.problem import BACKWARD, WEIGHT, Ints, PipelineOrder, PipelineShape
from solver.pipeline.simulate import replay_shape

Step: TypeAlias = tuple[int, int, int]


def planned(shape: PipelineShape, ranks: Sequence[Iterable[Step]]) -> PipelineOrder | None:
    """The order of the given sequences, with messages as they come; W is left out where B is fused."""
    return with_messages(shape, [ids(shape, steps) for steps in ranks])


def ids(shape: PipelineShape, steps: Iterable[Step]) -> Ints:
    """Operation ids of a sequence."""
    retained = [step for step in steps if step[0] < shape.num_kinds]
    return np.array([shape.operation_id(*step) for step in retained], dtype=np.int64)


def whole_backward(stage: int, microbatch: int) -> Iterator[Step]:
    """B and W of one micro-batch in one go."""
    yield BACKWARD, stage, microbatch
    yield WEIGHT, stage, microbatch


def warmed_up(shape: PipelineShape, forwards: Ints, backwards: Ints, warm_up: int) -> Ints:
    """Ids of a rank that runs so many forwards, then one forward and one whole backward alternately.

    Both sequences hold stage * micro-batches + micro-batch, the same ones in any two orders.
    """
    per_kind = shape.num_stages * shape.num_microbatches
    num_pairs = max(len(forwards) - warm_up, 0)
    whole = np.stack([backwards + kind * per_kind for kind in range(1, shape.num_kinds)], axis=1)
    pairs = np.concatenate([forwards[warm_up:, None], whole[:num_pairs]], axis=1)
    return np.concatenate([forwards[:warm_up], pairs.ravel(), whole[num_pairs:].ravel()])


def fastest(shape: PipelineShape, orders: Iterable[PipelineOrder | None]) -> PipelineOrder | None:
    """The order with the least makespan; None where there is none."""
    found = (order for order in orders if order is not None)
    return min(found, key=lambda order: replay_shape(shape, order).makespan_s, default=None)


def fastest_that_fits(shape: PipelineShape, orders: Iterable[PipelineOrder]) -> PipelineOrder | None:
    """The order that memory allows with the least makespan; None where it allows none."""
    runs = ((order, replay_shape(shape, order)) for order in orders)
    fitting = [pair for pair in runs if pair[1].fits(shape)]
    return min(fitting, key=lambda pair: pair[1].makespan_s)[0] if fitting else None


def is_one_way(shape: PipelineShape) -> bool:
    """One stage on every rank, in order."""
    return shape.num_stages == shape.num_ranks and bool((shape.rank_of_s == np.arange(shape.num_ranks)).all())


def is_loop(shape: PipelineShape) -> bool:
    """Stage s lies on rank s mod ranks, as many on every rank."""
    cyclic = shape.rank_of_s == np.arange(shape.num_stages) % shape.num_ranks
    return shape.num_stages % shape.num_ranks == 0 and bool(cyclic.all())


def is_v(shape: PipelineShape) -> bool:
    """Two stages on every rank, down and back up."""
    p = shape.num_ranks
    down = np.arange(p)
    return shape.num_stages == 2 * p and bool((shape.rank_of_s == np.concatenate([down, down[::-1]])).all())


def in_flight_limits(shape: PipelineShape) -> Ints:
    """How many activations of each stage its rank can hold (context counted where it is larger)."""
    held = np.maximum(shape.activation_s, shape.context_s)
    fits = np.full(shape.num_stages, float(shape.num_microbatches))
    np.divide(shape.budget_r[shape.rank_of_s] * (1 + 1e-12), held, out=fits, where=held > 0)
    limits: Ints = np.minimum(fits, shape.num_microbatches).astype(np.int64)
    return limits
