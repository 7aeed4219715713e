"""The delay-aware greedy for any layout, with and without sub-blocks, and the eager list scheduler with look-ahead.

Owns the choice of policies. Idea of the delay-aware greedy and its sub-blocks: CrossPipe (Chen et al. 2025): forwards
while memory lasts, then F and B in turns, W where memory blocks or nothing else has arrived. A W cut into n sub-blocks
that are merged afterwards starts whenever one of them fits in the gap, which is what `weight_share` = 1/n says.
"""

from __future__ import annotations

from solver.pipeline.generators.list_scheduler import Policy, greedy_order
from solver.pipeline.problem import PipelineOrder, PipelineShape

ALTERNATE = 2
LONGEST_TAIL = 2


def greedy(shape: PipelineShape) -> PipelineOrder:
    """Backward first, W in gaps."""
    return greedy_order(shape, Policy(message_rule=LONGEST_TAIL))


def greedy_depth_first(shape: PipelineShape) -> PipelineOrder:
    """Backward first, and of several the earliest micro-batch: chunked layouts then need least memory."""
    policy = Policy(weight_share=0.3, backward_wait=0.3, earlier_microbatch=True, message_rule=LONGEST_TAIL)
    return greedy_order(shape, policy)


def cross_greedy(shape: PipelineShape) -> PipelineOrder:
    """F and B in turns, W where memory blocks or a whole W fits."""
    policy = Policy(preference=ALTERNATE, weight_share=1.0, weight_when_blocked=True)
    return greedy_order(shape, policy)


def cross_greedy_sub(shape: PipelineShape) -> PipelineOrder:
    """The same with W cut into four sub-blocks."""
    policy = Policy(preference=ALTERNATE, weight_share=0.25, weight_when_blocked=True)
    return greedy_order(shape, policy)


def cross_look_ahead(shape: PipelineShape) -> PipelineOrder:
    """F and B in turns, a rank waiting for a backward known to arrive shortly."""
    policy = Policy(
        preference=ALTERNATE, weight_share=0.3, backward_wait=0.3, weight_when_blocked=True, message_rule=LONGEST_TAIL
    )
    return greedy_order(shape, policy)


def eager_look_ahead(shape: PipelineShape) -> PipelineOrder:
    """List scheduling that keeps a rank waiting for a backward or forward known to arrive shortly."""
    policy = Policy(weight_share=0.6, backward_wait=0.3, weight_when_blocked=True, message_rule=LONGEST_TAIL)
    return greedy_order(shape, policy)
