"""The least time that exchanges of gradients take inside a place, whatever the placement: of a stage and of a rank.

Proofs: docs/bounds.md, "Exchanges inside a place".
"""

import itertools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from models.plan import Configuration
from solver.bounds.gradient_exchange import least_parameters, smallest_stages
from solver.bounds.lightest import heaviest_stage_s
from solver.bounds.spread_exchange import ExchangeBound, pools_of
from solver.configurations.enumerate import num_places
from solver.configurations.pricing import Shares, StageCosts, least_of
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import replicas_sharing_experts, step_traffic
from solver.cost.fabric import Fabric
from solver.cost.stage import StageCost

SOME_PARAMETERS = 1e8  # lines go through the times of so many and of twice as many, which rounding leaves exact


def replicas_in_a_place(columns: Columns, row: int, num_places: int) -> IntArray:
    """Numbers of replicas of a configuration that the fullest of so many places may hold: its even part or more.

    Expert groups join replicas, so a place holds multiples of as many.
    """
    dp, bundle = int(columns.dp[row]), int(replicas_sharing_experts(columns.ep[row], columns.cp[row]))
    return np.arange(-(-dp // (num_places * bundle)), dp // bundle + 1) * bundle


def least_replicas(columns: Columns, num_places: int) -> IntArray:
    """The fewest of these numbers, by configuration."""
    bundle = replicas_sharing_experts(columns.ep, columns.cp)
    fewest: IntArray = -(-columns.dp // (num_places * bundle)) * bundle
    return fewest


def least_exchange_s(
    context: Context,
    columns: Columns,
    fabric: Fabric,
    *,
    dense: FloatArray,
    experts: FloatArray,
    names: AbstractSet[str],
) -> FloatArray:
    """Least time that stages of any of the configurations exchange, by entry of the last axis of the parameters.

    All replicas are on GPUs of types with these names. `dense` and `experts` have one row, or one per configuration, of
    parameters of a stage on one GPU. For each number of replicas that the fullest place may hold the time is a straight
    line in the parameters of each kind; the least line counts.
    """
    affine = _affine_times_of_each(context, columns, fabric, num_places(pools_of(context, names)))
    row = np.repeat(np.arange(len(affine)), [len(one.start_s[0]) for one in affine])
    start_s, slope_s = (np.concatenate(one, axis=1) for one in zip(*affine, strict=True))
    times_s = np.zeros((len(row), dense.shape[-1]))
    for kind, parameters in enumerate((dense, experts)):
        if parameters.any():
            each = np.broadcast_to(np.atleast_2d(parameters), (len(columns), parameters.shape[-1]))[row]
            times_s += np.where(each > 0, start_s[kind][:, None] + slope_s[kind][:, None] * each, 0.0)
    least: FloatArray = times_s.min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def rank_exchanges_s(
    configuration: Configuration, work_s: Sequence[FloatArray], exchange_s: FloatArray, overlap_s: FloatArray
) -> float:
    """End of the exchanges of the ranks of a pipeline at least: they take the cards of a rank one after another.

    `work_s` are forward, input gradient and weight gradient of every stage, `exchange_s` and `overlap_s` the least time
    of its exchange and its largest head start. The value is the largest over ranks and k of (earliest start of an
    exchange of the first k chunks) + (all k exchanges).
    """
    m, latest_s = configuration.num_microbatches, 0.0
    forward, input_grad, weight_grad = (one.tolist() for one in work_s)
    lead_s = [0.0, *itertools.accumulate(forward)]
    for rank in range(configuration.degrees.pp):
        own = configuration.stages_of_rank(rank)
        forward_s, back_s = (sum(one[stage] for stage in own) for one in (forward, input_grad))
        ready_s, total_s = np.inf, 0.0
        for stage in own:
            end_s = lead_s[own[0]] + m * (forward_s + back_s + weight_grad[stage])
            ready_s = min(ready_s, max(end_s - float(overlap_s[stage]), 0.0))
            total_s += float(exchange_s[stage])
            back_s -= input_grad[stage]
            latest_s = max(latest_s, ready_s + total_s if total_s > 0 else 0.0)
    return latest_s


class _AffineTimes(NamedTuple):
    """Exchange times of numbers of replicas: at hardly any parameters, and per parameter on one GPU (seconds).

    A row each for dense and for expert parameters. Numbers whose lines are nowhere below those of another are left out.
    """

    start_s: FloatArray
    slope_s: FloatArray


def _affine_times_of_each(context: Context, columns: Columns, fabric: Fabric, num_places: int) -> list[_AffineTimes]:
    """Those of every configuration, remembered by what they depend on: many configurations share them."""
    by = (columns.tp, columns.cp, columns.ep, columns.dp, columns.sharding, columns.shard_group)
    keys = [(fabric, num_places, *own) for own in zip(*(one.tolist() for one in by), strict=True)]
    return context.known.exchanges.each(
        keys, lambda rows: _affine_times(context, columns.take(np.array(rows)), fabric, num_places)
    )


def _affine_times(context: Context, columns: Columns, fabric: Fabric, num_places: int) -> list[_AffineTimes]:
    """Those of some configurations, from the times of two numbers of parameters."""
    held = [replicas_in_a_place(columns, row, num_places) for row in range(len(columns))]
    row = np.repeat(np.arange(len(held)), [len(one) for one in held])
    at, nothing = replace(columns.take(row), dp=np.concatenate(held)), np.zeros(len(row))

    def time_s(number: float, *, are_experts: bool) -> FloatArray:
        some = np.full(len(row), number)
        dense, experts = (nothing, some) if are_experts else (some, nothing)
        traffic = step_traffic(dense, experts, at, fabric, context.stack, job=context.job)
        return traffic.reduce_s + traffic.gather_s

    once, twice = (
        np.stack([time_s(number, are_experts=one) for one in (False, True)])
        for number in (SOME_PARAMETERS, 2.0 * SOME_PARAMETERS)
    )
    start_s, slope_s = 2.0 * once - twice, (twice - once) / SOME_PARAMETERS
    found = []
    for number in range(len(held)):
        own = row == number
        found.append(_not_above(_AffineTimes(start_s[:, own], slope_s[:, own])))
    return found


def _not_above(times: _AffineTimes) -> _AffineTimes:
    """Without those that are nowhere below the line which is least at many parameters: neither end is."""
    if not times.slope_s.size:
        return times
    flattest = np.lexsort((times.start_s.sum(axis=0), times.slope_s.sum(axis=0)))[0]
    is_below = [(one < one[:, flattest : flattest + 1]).any(axis=0) for one in times]
    retained = np.concatenate([[flattest], np.flatnonzero(is_below[0] | is_below[1])])
    return _AffineTimes(times.start_s[:, retained], times.slope_s[:, retained])


@dataclass(frozen=True)
class SynchronisationTail:
    """What follows the last weight gradient of a stage: an exchange beyond what can overlap, then the update.

    `cards_s` of the exchange are on the cards of its rank.
    """

    exposed_s: FloatArray
    overlap_s: FloatArray
    cards_s: FloatArray
    update_s: FloatArray


def tail_of(prices: list[StageCosts], shares: Shares) -> SynchronisationTail:
    """The exchange of the smallest stage, the most that overlaps, the least update, over the types.

    The stage is taken to have the fewest layers and no end, or to be the last.
    """
    context, columns = prices[0].context, prices[0].columns
    parameters, experts = least_parameters(prices[0], shares)
    fabrics = [price.gpu_class.fabric for price in prices]
    exchange = ExchangeBound.of(context, columns, fabrics, parameters, experts)
    beside = [heaviest_stage_s(price, shares) for price in prices]
    overlap = context.stack.data_parallel_overlap.value * np.maximum.reduce(beside)
    updates = [price.update_s(parameters, experts) for price in prices]
    exposed = np.maximum(exchange.duration_s - overlap, 0.0)
    return SynchronisationTail(exposed, overlap, exchange.cards_s, np.minimum.reduce(updates))


def rank_cards_s(prices: list[StageCosts], rank: StageCost) -> FloatArray:
    """The exchanges of all chunks of a rank on its cards: no less than one exchange of all that they have (seconds)."""
    fabrics = [price.gpu_class.fabric for price in prices]
    of_all = ExchangeBound.of(prices[0].context, prices[0].columns, fabrics, rank.parameters, rank.expert_parameters)
    return of_all.cards_s


def average_rank_exchanges_s(
    prices: list[StageCosts], shares: Shares, whole: StageCost, overlap_s: FloatArray
) -> FloatArray:
    """The exchanges of an average rank, one after another, behind the work that the first of them waits for (seconds).

    m (f + i1 + w1) - overlap + exchange of all parameters / pp, with f of an average rank and i1, w1 of the smallest
    stage.
    """
    columns, price = prices[0].columns, least_of(prices)
    parameters, experts = whole.parameters / columns.pp, whole.expert_parameters / columns.pp
    if len(prices) == 1:
        exchanges_s = _inside_s(price, parameters, experts)
    else:
        none = np.zeros_like(parameters)
        exchanges_s = _below_all_s(prices, parameters, none) + _below_all_s(prices, none, experts)
    chunk_s = np.minimum.reduce([one.input_grad_s + one.weight_grad_s for one in smallest_stages(price, shares)])
    before_s = columns.num_microbatches * (whole.forward_s / columns.pp + chunk_s)
    return np.where(exchanges_s > 0, before_s - overlap_s + exchanges_s, 0.0)


def _inside_s(price: StageCosts, parameters: FloatArray, experts: FloatArray) -> FloatArray:
    """Exchange of so many dense and expert parameters on one GPU among the fewest replicas that some place holds."""
    context, columns = price.context, price.columns
    alone = replace(columns, dp=least_replicas(columns, num_places(context.pools)))
    fabric = price.gpu_class.fabric.at_best()
    traffic = step_traffic(parameters, experts, alone, fabric, context.stack, job=context.job)
    return traffic.reduce_s + traffic.gather_s


def _below_all_s(prices: list[StageCosts], parameters: FloatArray, experts: FloatArray) -> FloatArray:
    """The line below those of all fabrics, at so many parameters of one kind."""
    start_s, more_s = affine_exchange(prices, parameters, experts)
    return np.maximum(start_s + more_s, 0.0)


def affine_exchange(
    prices: Sequence[StageCosts], parameters: FloatArray, experts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Exchange inside a place of n times so many parameters of one kind: its start, and what each time adds (seconds).

    The line through the least start and the least slope of all fabrics; zero where there are no parameters.
    """
    if not (parameters.any() or experts.any()):
        return np.zeros(len(parameters)), np.zeros(len(parameters))
    whole = [_inside_s(price, parameters, experts) for price in prices]
    half = [_inside_s(price, 0.5 * parameters, 0.5 * experts) for price in prices]
    slopes = [2.0 * (all_s - half_s) for all_s, half_s in zip(whole, half, strict=True)]
    starts = [all_s - slope_s for all_s, slope_s in zip(whole, slopes, strict=True)]
    return np.minimum.reduce(starts), np.minimum.reduce(slopes)
