"""The least work of one micro-batch on a rank or a stage of even pipelines, and the most on a stage, in columns."""

import operator
from collections.abc import Callable, Sequence

import numpy as np

from solver.arrays import FloatArray
from solver.configurations.pricing import Shares, StageCosts, kinds
from solver.cost.stage import StageCost

Seconds = Callable[[StageCost], FloatArray]  # of what a stage costs
total_s: Seconds = operator.attrgetter("total_s")
forward: Seconds = operator.attrgetter("forward_s")


def backward(cost: StageCost) -> FloatArray:
    """Both gradients of a micro-batch (s)."""
    return cost.input_grad_s + cost.weight_grad_s


def both(cost: StageCost) -> FloatArray:
    """Forward and input gradient of a micro-batch (s)."""
    return cost.forward_s + cost.input_grad_s


def lightest_rank_s(price: StageCosts, shares: Shares, ends: Sequence[StageCost]) -> FloatArray:
    """Work of one micro-batch on the lightest rank, of which `ends` are the first and the last."""
    return _least_of_ranks(price, shares, ends, total_s)


def inner_rank_s(price: StageCosts, shares: Shares, of: Seconds = total_s) -> FloatArray:
    """Work of one micro-batch on the lightest rank between the ends, of the cheaper kind; infinite without one."""
    layer_s = np.minimum.reduce(_layers_s(price, of))
    return np.where(price.columns.pp > 2, shares.inner_ranks()[0] * layer_s, np.inf)


def _least_of_ranks(price: StageCosts, shares: Shares, ends: Sequence[StageCost], of: Seconds) -> FloatArray:
    least: FloatArray = np.minimum.reduce([inner_rank_s(price, shares, of), *(of(cost) for cost in ends)])
    return least


def before_exchange_s(price: StageCosts, shares: Shares, ends: Sequence[StageCost]) -> FloatArray:
    """Work of one micro-batch that a rank has done before a stage of it exchanges: all forwards, one stage's backward.

    The last micro-batch has then gone forward through all of its stages, and so have all others. Of the stage alone
    where `ends` are not known.
    """
    if not ends:
        return _lightest_stage_s(price, shares, total_s)
    forward_s = _least_of_ranks(price, shares, ends, forward)
    return forward_s + _lightest_stage_s(price, shares, backward)


def beside_messages_s(price: StageCosts, shares: Shares) -> FloatArray:
    """Work of a replica before its first message between stages and after its last: a stage forwards, one backwards."""
    return _lightest_stage_s(price, shares, forward) + _lightest_stage_s(price, shares, backward)


def _lightest_stage_s(price: StageCosts, shares: Shares, of: Seconds) -> FloatArray:
    """Work of one micro-batch on the lightest stage: the first, the last, or one between of the cheaper kind."""
    layer_s = np.minimum.reduce(_layers_s(price, of))
    inner = np.where(price.columns.pp * price.columns.vpp > 2, shares.split.middle * layer_s, np.inf)
    lightest: FloatArray = np.minimum.reduce([inner, *map(of, _end_stages(price, shares))])
    return lightest


def heaviest_stage_s(price: StageCosts, shares: Shares) -> FloatArray:
    """No stage does more than this on one micro-batch: the first, the last, or one between of the dearer kind."""
    layer_s, split = np.maximum.reduce(_layers_s(price, total_s)), shares.split
    inner = np.where(price.columns.pp * price.columns.vpp > 2, (split.middle + (split.num_more > 0)) * layer_s, 0.0)
    heaviest: FloatArray = np.maximum.reduce([inner, *map(total_s, _end_stages(price, shares))])
    return heaviest


def _end_stages(price: StageCosts, shares: Shares) -> tuple[StageCost, StageCost]:
    """One micro-batch on the first and on the last stage; where there is only one it is both."""
    alone = _is_one_stage(price)
    first = price.of(*kinds(price.context, 0, shares.split.first), embedding=1.0, logits=alone)
    return first, last_stage(price, shares)


def last_stage(price: StageCosts, shares: Shares) -> StageCost:
    """One micro-batch on the last stage, which has the logits and may have no layers; an only one has both ends."""
    total, alone = shares.num_layers, _is_one_stage(price)
    return price.of(*kinds(price.context, total - shares.split.last, total), embedding=alone, logits=1.0)


def _is_one_stage(price: StageCosts) -> FloatArray:
    """1 where the first stage is the last, else 0."""
    return np.where(price.columns.pp * price.columns.vpp == 1, 1.0, 0.0)


def _layers_s(price: StageCosts, of: Seconds) -> list[FloatArray]:
    """One micro-batch on a layer of each kind that the model has."""
    return [of(one) for one in price.layer_of_each_kind()]
