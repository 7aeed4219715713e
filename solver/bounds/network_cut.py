"""What distance costs every placement: gradients that must cross a cut, or messages of the pipelines that do.

Owns that either-or and its parts. It holds for any placement and any paths: it counts only how many groups a rank
needs, what leaves a group, and its nearest way out. Never places anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from solver.bounds.connections import ConnectionLimits, connection_limits
from solver.configurations.distinct import distinct_rows
from solver.configurations.pricing import Shares, StageCosts, kinds, rank_cost
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import crossing_bytes, group_parameters, step_traffic
from solver.network.topology import Edge
from solver.placement.capacity_groups import groups_by_row

UNLINKED = 1e30  # a group that nothing leaves: what would have to is not counted


@dataclass(frozen=True)
class NetworkCut:
    """Groups of pools with something between them: places, buildings or regions. `rate_g` is what leaves each.

    `limits` are those of a connection between two of them.
    """

    group_of_pool: tuple[int, ...]
    rate_g: FloatArray
    nearest_s: float
    limits: ConnectionLimits
    of_places: bool = False

    @property
    def second_rate(self) -> float:
        """Of two groups, one has no more than this."""
        return float(np.sort(self.rate_g)[-2]) or float("inf")


def distance_s(
    price: StageCosts, shares: Shares, overlap_s: FloatArray, pipeline_s: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """For every cut T >= min over h of max(exchanges of ranks that h groups do not hold whole, messages, pipeline).

    `pipeline_s` bounds the pipeline where every pass of a replica through its ranks holds so much delay.

    Proof. A group that g stage groups fit into holds at most floor(g / dp) ranks with all their dp replicas. Let the
    ranks that lie whole be in h groups: no more than fit into the h roomiest. *Exchanges*: each stage of every other
    rank sends the bytes of an exchange over k places out of one of two groups at least, which has no more than the
    second largest rate out; its ring takes 2 (k - 1) steps at the pace of the farthest, no less than the nearest way
    out of some group. Exchanges take the links one after another, the first not before all weight gradients of its
    stage less what overlaps. Of k places with replicas of a rank one has no more than dp / k, each with a connection
    per GPU; bytes grow and connections shrink with k. *Messages*: see `_leaving_by_rate`; those of a replica that
    crosses go one after another, over a connection per GPU of a stage. *Pipeline*: all replicas visit all h groups, so
    each pass crosses h - 1 cuts or more, and with h = 1 one where not all stay inside. *Inside*: all replicas of a
    rank that lies whole in a place exchange there, the last of its stages not before all of its work.
    """
    context, columns = price.context, price.columns
    bound: FloatArray = np.zeros(len(columns))
    found = list(cuts(context))
    if not found:
        return bound
    begin = np.maximum(columns.num_microbatches * _lightest_stage_s(price, shares) - overlap_s, 0.0)
    message_bytes = columns.num_microbatches * columns.vpp * price.of(1, 1).boundary_bytes
    inside = _Inside.of(price, shares, overlap_s)
    first, row_of = distinct_rows(columns, ("tp", "cp", "dp", "pp"))
    some = columns.take(first)
    capacities = [groups_by_row(context.pools, cut.group_of_pool, some.tp, some.cp) for cut in found]
    num_places = np.maximum(-(-some.dp // np.maximum(capacities[0].max(axis=1), 1)), 2)[row_of]
    size = _exchanged_bytes(price, shares, num_places)
    group = (columns.tp * columns.cp).astype(np.float64)
    senders = np.maximum(columns.dp // num_places, 1) * group
    for cut, held in zip(found, capacities, strict=True):
        rate = np.minimum(cut.second_rate, senders * cut.limits.exchange_bytes_per_s)
        one = size / rate + 2.0 * (num_places - 1) * cut.nearest_s
        in_turn_s = message_bytes / (group * cut.limits.message_bytes_per_s)
        best: FloatArray = np.where(columns.dp > 1, begin + columns.pp * columns.vpp * one, np.inf)
        whole = np.cumsum(-np.sort(-(held // some.dp[:, None]), axis=1), axis=1)
        for h in range(1, min(held.shape[1], int(columns.pp.max(initial=1))) + 1):
            kept = np.minimum(whole[:, h - 1], some.pp)
            by_rate = _leaving_by_rate(cut, held, some, h)
            spanning = (some.pp - kept)[row_of] * columns.vpp
            delay_s = np.where(by_rate > 0, max(h - 1, 1) * cut.nearest_s, 0.0)[row_of]
            exchanges = np.where(spanning > 0, begin + spanning * one, 0.0)
            messages = np.maximum(message_bytes * by_rate[row_of], np.where(by_rate[row_of] > 0, in_turn_s, 0.0))
            parts = [exchanges, messages, pipeline_s(delay_s)]
            if cut.of_places:
                parts.append(inside.work_s + inside.exposed_s)
            either = np.maximum.reduce(parts)
            best = np.where(kept[row_of] > 0, np.minimum(best, either), best)
        bound = np.maximum(bound, best)
    return bound


@dataclass(frozen=True)
class _Inside:
    """Of a rank with all its replicas in one place: its work, and its exchange beyond what overlaps, at their least."""

    work_s: FloatArray
    exposed_s: FloatArray

    @classmethod
    def of(cls, price: StageCosts, shares: Shares, overlap_s: FloatArray) -> _Inside:
        """The lightest rank and the smallest stage; nothing where everything may overlap."""
        context, columns = price.context, price.columns
        if not np.isfinite(overlap_s).any():
            nothing = np.zeros(len(columns))
            return cls(nothing, nothing)
        parameters, experts = least_parameters(price, shares)
        traffic = [
            step_traffic(
                parameters,
                experts,
                columns,
                gpu_class.fabric,
                context.stack,
                gradient_bytes=context.job.optimizer.gradient_bytes_per_parameter,
                weight_bytes=context.job.value_bytes,
            )
            for gpu_class in context.gpu_classes.values()
        ]
        exchange_s = np.minimum.reduce([one.reduce_s + one.gather_s for one in traffic])
        work_s = columns.num_microbatches * _lightest_rank_s(price, shares)
        return cls(work_s, np.maximum(exchange_s - overlap_s, 0.0))


def _lightest_rank_s(price: StageCosts, shares: Shares) -> FloatArray:
    """Work of one micro-batch on the lightest rank."""
    pp = price.columns.pp
    ends = [rank_cost(price, shares, rank).total_s for rank in (np.zeros_like(pp), pp - 1)]
    lightest: FloatArray = np.minimum.reduce([inner_rank_s(price, shares), *ends])
    return lightest


def inner_rank_s(price: StageCosts, shares: Shares) -> FloatArray:
    """Work of one micro-batch on the lightest rank between the ends, of the cheaper kind; infinite without one."""
    layer_s = np.minimum.reduce(_layers_s(price))
    inner: FloatArray = np.where(price.columns.pp > 2, shares.inner_ranks()[0] * layer_s, np.inf)
    return inner


def _leaving_by_rate(cut: NetworkCut, held: IntArray, columns: Columns, num_groups: int) -> FloatArray:
    """Least of replicas that leave a group on every pass, over the rate out of it, where ranks lie whole in so many.

    In one group: w replicas stay inside with all their ranks, the others hold at least one there, and dp - w of these
    leave: w pp + dp - w <= g. In h > 1 groups: all replicas visit all of them, and all but the two at the ends of the
    way are entered and left. Every crossing sends activations or gradients of every micro-batch out of the group. So
    T times the h largest rates is at least dp (2 h - 2).
    """
    if num_groups == 1:
        rate_g = np.where(cut.rate_g > 0, cut.rate_g, UNLINKED)
        by_rate: FloatArray = (_leaving(held, columns.dp, columns.pp) / rate_g).min(axis=1)
        return np.where(np.isfinite(by_rate), by_rate, 0.0)
    most = float(np.sort(cut.rate_g)[-num_groups:].sum())
    visiting: FloatArray = columns.dp.astype(np.float64) * (2.0 * num_groups - 2.0) / (most or UNLINKED)
    return visiting


def _leaving(held: IntArray, dp: IntArray, pp: IntArray) -> FloatArray:
    """Replicas that do not stay in a group which holds one of their ranks whole: dp - floor((g - dp) / (pp - 1)).

    Infinite where a group cannot hold a rank whole.

    >>> _leaving(np.array([[64, 12, 7]]), np.array([8]), np.array([8]))
    array([[ 0.,  8., inf]])
    """
    inside = (held - dp[:, None]) // np.maximum(pp - 1, 1)[:, None]
    leaving = np.where(pp[:, None] > 1, np.maximum(dp[:, None] - inside, 0).astype(np.float64), 0.0)
    return np.where(held >= dp[:, None], leaving, np.inf)


def cuts(context: Context) -> Iterator[NetworkCut]:
    """Between places with pools, between their buildings, between their regions; those alone that lie side by side."""
    topology, known = context.topology, set[tuple[int, ...]]()
    for level in ("place", "building", "region"):
        names = [_around(context, pool.place, level) for pool in context.pools]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        group_of_pool = tuple(numbers[name] for name in names)
        if len(numbers) < 2 or group_of_pool in known or any(_nested(context, name, numbers) for name in numbers):
            continue  # a ring between a place and one inside it leaves neither
        known.add(group_of_pool)
        rate_g, crossing = np.zeros(len(numbers)), list[Edge]()
        for edge in topology.edges:
            left = set(topology.ancestors(edge.from_place)) - set(topology.ancestors(edge.to_place))
            for name in numbers.keys() & left:
                rate_g[numbers[name]] += edge.capacity_bytes_per_s
                crossing.append(edge)
        nearest_s = min((edge.latency_s for edge in crossing), default=0.0)
        whole = level == "place" or all(name != pool.place for name, pool in zip(names, context.pools, strict=True))
        limits = connection_limits(context, tuple(crossing) if whole else (), nearest_s)
        yield NetworkCut(group_of_pool, rate_g, nearest_s, limits, of_places=level == "place")


def _around(context: Context, place: str, level: str) -> str:
    """The building or region around a place; without one the place, or the building, stands for itself."""
    if level == "place":
        return place
    building = context.topology.enclosing(place, "building") or place
    return building if level == "building" else context.topology.enclosing(place, "region") or building


def _nested(context: Context, name: str, names: dict[str, int]) -> bool:
    return bool(names.keys() & set(context.topology.ancestors(name)[1:]))


def _exchanged_bytes(price: StageCosts, shares: Shares, num_places: IntArray) -> FloatArray:
    """What the exchange of the smallest stage sends out of every one of so many places."""
    context, columns = price.context, price.columns
    parameters, experts = least_parameters(price, shares)
    everything = group_parameters(parameters, experts, columns)
    gradient_bytes = context.job.optimizer.gradient_bytes_per_parameter
    return crossing_bytes(
        everything, columns, num_places, gradient_bytes=gradient_bytes, weight_bytes=context.job.value_bytes
    )


def least_parameters(price: StageCosts, shares: Shares) -> tuple[FloatArray, FloatArray]:
    """Dense and expert parameters on one GPU of the stage with the fewest layers, of the kind that has fewer."""
    job, split = price.context.job, shares.split
    inner = np.where(price.columns.pp * price.columns.vpp > 2, split.middle, split.first)
    layers = np.minimum.reduce([split.first, split.last, inner])
    dense, moe = price.of(layers, 0), price.of(0, layers)
    if job.num_dense_layers and job.num_moe_layers:
        return np.minimum(dense.parameters, moe.parameters), np.zeros(len(price.columns))
    small = moe if job.num_moe_layers else dense
    return small.parameters, small.expert_parameters


def _lightest_stage_s(price: StageCosts, shares: Shares) -> FloatArray:
    """Work of one micro-batch on the lightest stage: the first, the last, or one between of the cheaper kind."""
    first, last = _end_stages_s(price, shares)
    layer_s = np.minimum.reduce(_layers_s(price))
    inner = np.where(price.columns.pp * price.columns.vpp > 2, shares.split.middle * layer_s, np.inf)
    lightest: FloatArray = np.minimum.reduce([first, last, inner])
    return lightest


def heaviest_stage_s(price: StageCosts, shares: Shares) -> FloatArray:
    """No stage does more than this on one micro-batch: the first, the last, or one between of the dearer kind."""
    first, last = _end_stages_s(price, shares)
    layer_s, split = np.maximum.reduce(_layers_s(price)), shares.split
    inner = np.where(price.columns.pp * price.columns.vpp > 2, (split.middle + (split.num_more > 0)) * layer_s, 0.0)
    heaviest: FloatArray = np.maximum.reduce([first, last, inner])
    return heaviest


def _end_stages_s(price: StageCosts, shares: Shares) -> tuple[FloatArray, FloatArray]:
    """Work of one micro-batch on the first and on the last stage; where there is only one it is both."""
    split, total, alone = shares.split, shares.num_layers, price.columns.pp * price.columns.vpp == 1
    first = price.of(*kinds(price.context, 0, split.first), embedding=1.0, logits=np.where(alone, 1.0, 0.0))
    last = price.of(*kinds(price.context, total - split.last, total), embedding=np.where(alone, 1.0, 0.0), logits=1.0)
    return first.total_s, last.total_s


def _layers_s(price: StageCosts) -> list[FloatArray]:
    """Work of one micro-batch on a layer of each kind that the model has."""
    return [one.total_s for one in price.layer_of_each_kind()]
