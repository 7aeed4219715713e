"""ZB-H1, ZB-H2 and the automatic scheduler. Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism".

1F1B whose W fills bubbles. With F = B = W and enough micro-batches ZB-H1 idles (ranks - 1)(F + B - W) at 1F1B's memory,
ZB-H2 (ranks - 1)(F + B - 2 W) per rank at 2 ranks - 1 activations.
"""

from collections.abc import Iterator
from itertools import product

from solver.pipeline.generators.list_scheduler import greedy_order
from solver.pipeline.generators.list_scheduler_choice import ALTERNATE, Policy
from solver.pipeline.generators.orders import Step, fastest, in_flight_limits, is_one_way, planned
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, PipelineOrder, PipelineShape

BACKWARD_FIRST = 0  # a preference of the list scheduler


def zb_h1(shape: PipelineShape) -> PipelineOrder | None:
    """Warm-up of 1F1B; W of rank r lags r micro-batches behind B, so every rank holds as much as the first."""
    p = shape.num_ranks
    return _zero_bubble(shape, [p - rank for rank in range(p)], list(range(p)))


def zb_h2(shape: PipelineShape) -> PipelineOrder | None:
    """Twice the warm-up, which also fills the bubble before the first B; W lags 2 r."""
    p = shape.num_ranks
    return _zero_bubble(shape, [2 * (p - rank) - 1 for rank in range(p)], [2 * rank for rank in range(p)])


def _zero_bubble(shape: PipelineShape, warm_ups: list[int], lags: list[int]) -> PipelineOrder | None:
    if not is_one_way(shape) or shape.num_kinds == 2:
        return None
    limits = in_flight_limits(shape).tolist()
    warm_ups = [min(wished, most, shape.num_microbatches) for wished, most in zip(warm_ups, limits, strict=True)]
    lags = [min(lag, most - warm) for lag, most, warm in zip(lags, limits, warm_ups, strict=True)]
    ranks = [_rank(shape.num_microbatches, rank, warm_ups[rank], lags[rank]) for rank in range(shape.num_ranks)]
    return planned(shape, ranks)


def _rank(num_microbatches: int, rank: int, warm_up: int, lag: int) -> Iterator[Step]:
    for microbatch in range(warm_up):
        yield FORWARD, rank, microbatch
    for microbatch in range(num_microbatches):
        yield BACKWARD, rank, microbatch
        if microbatch >= lag:
            yield WEIGHT, rank, microbatch - lag
        if microbatch + warm_up < num_microbatches:
            yield FORWARD, rank, microbatch + warm_up
    for microbatch in range(max(num_microbatches - lag, 0), num_microbatches):
        yield WEIGHT, rank, microbatch


def zb_auto(shape: PipelineShape) -> PipelineOrder | None:
    """The automatic scheduler (section 3.1) as policies of the list scheduler; None for a fused backward.

    Forwards as memory allows until the first B; then F and B alternate or B is first; W where the gap holds it or
    memory asks for it; one choice each whether a forward may delay the first B and whether half a W may overrun a gap.
    Of all eight the best by makespan, as in the original, which knows one delay where true ones per hop are used here.
    """
    if not is_one_way(shape) or shape.num_kinds == 2:
        return None
    settings = product((BACKWARD_FIRST, ALTERNATE), (0.0, 1.0), (1.0, 0.5))
    policies = (Policy(preference, share, wait, weight_when_blocked=True) for preference, wait, share in settings)
    return fastest(shape, (greedy_order(shape, policy) for policy in policies))
