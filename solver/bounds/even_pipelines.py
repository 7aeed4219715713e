"""The pipeline of even configurations in columns: messages, few micro-batches, memory and exchanges of every rank.

A weaker form of what `relaxation.py` finds for one configuration, for all rows at once. Proofs: docs/bounds.md, "Work,
memory and slower types".
"""

from collections.abc import Sequence

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.crossing_messages import CrossingDelay
from solver.bounds.even_pipelines_kernel import UNKNOWN, PipelineRows, pipelines_s
from solver.bounds.least_hops import least_hops_s
from solver.bounds.synchronisation import SynchronisationTail
from solver.configurations.enumerate import LOOP_FAMILY, V_FAMILY
from solver.configurations.framework import backward_of
from solver.configurations.pricing import Shares, StageCosts
from solver.cost.stage import StageCost


def even_pipelines(price: StageCosts, shares: Shares) -> PipelineRows:
    """The pipelines of all rows, with memory for everything and no exchanges."""
    columns, split, context = price.columns, shares.split, price.context
    nothing = np.zeros(len(columns))
    return PipelineRows(
        num_microbatches=_whole_numbers(columns.num_microbatches),
        pp=_whole_numbers(columns.pp),
        vpp=_whole_numbers(columns.vpp),
        folded=shares.family == V_FAMILY,
        looped=shares.family == LOOP_FAMILY,
        first=_whole_numbers(split.first),
        middle=_whole_numbers(split.middle),
        num_more=_whole_numbers(split.num_more),
        moe_before=context.moe_before,
        part_cqn=_parts(price),
        budget_qn=np.full((4, len(columns)), np.inf),
        hop_s=least_hops_s(context, columns),
        exposed_s=nothing,
        overlap_s=nothing,
        cards_s=nothing,
        rank_cards_s=nothing,
    )


def with_ends(
    pipelines: PipelineRows, budgets: Sequence[FloatArray], tail: SynchronisationTail, rank_cards: FloatArray
) -> PipelineRows:
    """The pipelines with their exchanges (`rank_cards`: of the last rank but one) and the bytes of the first, second,
    last but one and last rank.
    """
    return pipelines._replace(
        budget_qn=np.stack(budgets),
        exposed_s=tail.exposed_s,
        overlap_s=tail.overlap_s,
        cards_s=tail.cards_s,
        rank_cards_s=rank_cards,
    )


def even_pipelines_s(pipelines: PipelineRows, delay: CrossingDelay, at_least_s: FloatArray | None = None) -> FloatArray:
    """Seconds before the update, with the delays of replicas that cross.

    `at_least_s` is the same without delays, where it is known: rows of which no replica crosses keep it.
    """
    late_s = np.zeros(len(pipelines.hop_s))
    if delay.messages is not None:
        each_s = delay.messages.each_s(delay.num_replicas)
        late_s = np.where(delay.num_replicas > 0, np.maximum(each_s - pipelines.hop_s, 0.0), 0.0)
    if at_least_s is None:
        return pipelines_s(pipelines, late_s, delay.num_groups, np.full(len(late_s), UNKNOWN))
    return pipelines_s(pipelines, late_s, delay.num_groups, at_least_s) if late_s.any() else at_least_s


def _whole_numbers(column: IntArray) -> IntArray:
    return np.ascontiguousarray(column, dtype=np.int64)


def _parts(price: StageCosts) -> FloatArray:
    """Costs of a layer of each kind, of the embedding and of the logits: by cost, part and row."""
    fused = backward_of(price.context.request) == "fused"
    parts = (price.of(1, 0), price.of(0, 1), price.of(0, 0, embedding=1.0), price.of(0, 0, logits=1.0))
    return np.stack([_costs(one, fused=fused) for one in parts], axis=1)


def _costs(cost: StageCost, *, fused: bool) -> FloatArray:
    """Forward, input gradient, weight gradient, bytes until the one and from there to the other.

    A backward in one piece is an input gradient that nothing follows.
    """
    backward, weight_grad, context = cost.input_grad_s, cost.weight_grad_s, cost.weight_grad_context_bytes
    if fused:
        backward, weight_grad, context = backward + weight_grad, 0.0 * weight_grad, 0.0 * context
    return np.stack([cost.forward_s, backward, weight_grad, cost.activation_bytes, context])
