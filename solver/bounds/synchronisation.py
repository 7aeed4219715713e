"""The least time that exchanges of gradients take inside a place, whatever the placement: of a stage and of a rank.

Proofs: docs/bounds.md, "Exchanges inside a place".
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.schedule import PipelineProblem
from solver.bounds.gradient_exchange import least_parameters, smallest_stages
from solver.bounds.network_cut import heaviest_stage_s
from solver.bounds.spread_exchange import ExchangeBound
from solver.configurations.enumerate import num_places
from solver.configurations.pricing import Shares, StageCosts, least_of
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import step_traffic
from solver.cost.fabric import Fabric
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost


def replicas_in_a_place(columns: Columns, row: int, num_places: int) -> IntArray:
    """Numbers of replicas of a configuration that the fullest of so many places may hold: its even part or more.

    An expert group spans `ep / cp` replicas, so a place holds multiples of that.
    """
    dp, bundle = int(columns.dp[row]), max(1, int(columns.ep[row]) // int(columns.cp[row]))
    return np.arange(-(-dp // (num_places * bundle)), dp // bundle + 1) * bundle


def least_replicas(columns: Columns, num_places: int) -> IntArray:
    """The fewest of these numbers, by configuration."""
    bundle = np.maximum(columns.ep // columns.cp, 1)
    fewest: IntArray = -(-columns.dp // (num_places * bundle)) * bundle
    return fewest


def least_exchange_s(
    context: Context,
    columns: Columns,
    fabric: Fabric,
    *,
    dense: FloatArray,
    experts: FloatArray,
    num_places: int,
) -> FloatArray:
    """Least time that stages of any of the configurations exchange, by entry of the last axis of the parameters.

    `dense` and `experts` have one row, or one per configuration, of parameters of a stage on one GPU. For each number
    of replicas that the fullest place may hold the time is a straight line in the parameters of each kind; the least
    line counts, and lines that are nowhere below another one are left out.
    """
    held = [replicas_in_a_place(columns, row, num_places) for row in range(len(columns))]
    replicas, row = np.concatenate(held), np.repeat(np.arange(len(held)), [len(one) for one in held])
    at = replace(columns.take(row), dp=replicas)

    def time_s(some_dense: FloatArray, some_experts: FloatArray) -> FloatArray:
        traffic = step_traffic(some_dense, some_experts, at, fabric, context.stack, job=context.job)
        return traffic.reduce_s + traffic.gather_s

    zero, times = np.zeros(len(replicas)), list[_AffineTimes]()
    for parameters, of_both in ((dense, lambda scale: (scale, zero)), (experts, lambda scale: (zero, scale))):
        if not parameters.any():
            continue
        each = np.broadcast_to(np.atleast_2d(parameters), (len(columns), parameters.shape[-1]))
        scale = np.where((each > 0).any(axis=1), each.max(axis=1), 1.0)
        half, whole = (time_s(*of_both(part * scale[row])) for part in (0.5, 1.0))
        times.append(_AffineTimes(each / scale[:, None], whole, 2.0 * (whole - half)))
    if not times:
        return np.zeros(dense.shape[-1])
    retained = _not_above(times, row)
    least: FloatArray = np.add.reduce([one.at(retained, row) for one in times]).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def rank_exchanges_s(problem: PipelineProblem, exchange_s: FloatArray, overlap_s: FloatArray) -> float:
    """End of the exchanges of the ranks of a pipeline at least: they take the cards of a rank one after another.

    `exchange_s` and `overlap_s` have the least time of every stage's exchange and its largest head start. The value is
    the largest over ranks and k of (earliest start of an exchange of the first k chunks) + (all k exchanges).
    """
    m, latest_s = problem.num_microbatches, 0.0
    lead_s = [0.0, *itertools.accumulate(one.forward_s for one in problem.stages)]
    stages_of = defaultdict[int, list[int]](list)
    for stage, rank in enumerate(problem.placement):
        stages_of[rank].append(stage)
    for own in stages_of.values():
        forward_s = sum(problem.stages[stage].forward_s for stage in own)
        back_s = sum(problem.stages[stage].input_grad_s for stage in own)
        ready_s, total_s = np.inf, 0.0
        for stage in own:
            one = problem.stages[stage]
            end_s = lead_s[own[0]] + m * (forward_s + back_s + one.weight_grad_s)
            ready_s = min(ready_s, max(end_s - float(overlap_s[stage]), 0.0))
            total_s += float(exchange_s[stage])
            back_s -= one.input_grad_s
            latest_s = max(latest_s, ready_s + total_s if total_s > 0 else 0.0)
    return latest_s


@dataclass(frozen=True)
class _AffineTimes:
    """Times of numbers of replicas: `whole` at the most parameters, so much more for all of them, 0 for none.

    `share` is a row for each configuration of parameters over the most.
    """

    share: FloatArray
    whole: FloatArray
    slope: FloatArray

    def at(self, retained: IntArray, row: IntArray) -> FloatArray:
        """Of some numbers of replicas, each of the configuration of this row."""
        share = self.share[row[retained]]
        return np.where(share > 0, self.whole[retained, None] + self.slope[retained, None] * (share - 1.0), 0.0)


def _not_above(times: list[_AffineTimes], row: IntArray) -> IntArray:
    """Places that are not above one of the same configuration, whatever the parameters: neither end is."""
    ends = np.stack([end for one in times for end in (one.whole, one.whole - one.slope)])
    first = np.flatnonzero(np.diff(row, prepend=-1))
    least = np.minimum.reduceat(ends[::2].sum(axis=0), first)[np.searchsorted(row[first], row)]
    is_least = ends[::2].sum(axis=0) <= least
    chosen = np.flatnonzero(is_least)[np.searchsorted(row[is_least], row)]
    retained: IntArray = np.flatnonzero(is_least | (ends < ends[:, chosen]).any(axis=0))
    return retained


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

    The stage is taken to have the fewest layers and no end.
    """
    context, columns = prices[0].context, prices[0].columns
    parameters, experts = least_parameters(prices[0], shares)
    fabrics = [price.gpu_class.fabric for price in prices]
    exchange = ExchangeBound.of(context, columns, fabrics, parameters, experts)
    beside = [heaviest_stage_s(price, shares) for price in prices]
    overlap = context.stack.data_parallel_overlap.value * np.maximum.reduce(beside)
    updates = [
        optimizer_s(parameters, experts, columns, gpu=price.gpu_class.gpu, stack=context.stack, job=context.job)
        for price in prices
    ]
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
    found: FloatArray = np.where(exchanges_s > 0, before_s - overlap_s + exchanges_s, 0.0)
    return found


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
    below: FloatArray = np.maximum(start_s + more_s, 0.0)
    return below


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
