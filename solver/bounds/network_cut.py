"""What distance costs every placement: gradients that must cross a cut, or messages of the pipelines that do.

For every number h of groups in which ranks lie with all their replicas, T is at least what the exchanges of all other
ranks take over the links and cards, what the messages between the groups take, and a pipeline with their delays; the
bound is the least over h. It holds for any placement and any paths: it counts only how many groups a rank needs, what
leaves a group, and its nearest way out.

Proof, an inequality per term: docs/bounds.md, "Cuts of the network".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.connections import ConnectionLimits, MessageLoss, connection_limits
from solver.bounds.gradient_exchange import ExchangeLink, GradientExchange, least_parameters
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import LOOP_FAMILY
from solver.configurations.pricing import Shares, StageCosts, kinds
from solver.context import Context
from solver.cost.columns import Columns
from solver.cost.data_parallel import step_traffic
from solver.cost.stage import StageCost, boundary_bytes
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

    @cached_property
    def exchange_rates(self) -> FloatArray:
        """Bytes per second that exchanges may send out of each of their groups together, for n = 0, 1, 2 ... groups.

        The least over j < n of (rates of all but the j widest groups) / (n - j); infinite below two groups.
        """
        narrow = np.cumsum(np.sort(self.rate_g))[::-1]
        rates = [min(narrow[j] / (n - j) for j in range(n)) for n in range(2, len(narrow) + 1)]
        return np.array([np.inf, np.inf, *(rate or np.inf for rate in rates)])


@dataclass(frozen=True)
class CrossingMessages:
    """Stage messages between groups of a cut: bytes of one, and what one takes at least that loses nothing."""

    message_bytes: FloatArray
    transfer_s: FloatArray
    latency_s: float
    loss: MessageLoss

    @classmethod
    def of(cls, cut: NetworkCut, columns: Columns, message_bytes: FloatArray) -> CrossingMessages:
        """Each GPU of a stage sends its part over a connection of its own."""
        transfer_s = message_bytes / (columns.tp * columns.cp * cut.limits.message_bytes_per_s)
        return cls(message_bytes, transfer_s, cut.nearest_s + cut.limits.step_s, cut.limits.loss)

    def each_s(self, num_replicas: IntArray, num_crossings: FloatArray) -> FloatArray:
        """Least time of each of the crossings of a replica, one after another, where so many replicas cross."""
        wait_s = self.loss.each_s(self.transfer_s, self.message_bytes, num_replicas, num_crossings)
        return self.latency_s + self.transfer_s + wait_s


@dataclass(frozen=True)
class CrossingDelay:
    """Groups that every pass through the ranks of so many replicas visits, and the messages between them."""

    num_replicas: IntArray
    looped: BoolArray
    num_groups: int = 2
    messages: CrossingMessages | None = None

    @classmethod
    def none(cls, num_rows: int) -> CrossingDelay:
        """Nothing crosses."""
        return cls(np.zeros(num_rows, dtype=np.int64), np.zeros(num_rows, dtype=np.bool_))

    def of_rows(self, rows: BoolArray) -> CrossingDelay:
        """The same of these rows alone; in the others nothing crosses."""
        return replace(self, num_replicas=np.where(rows, self.num_replicas, 0))

    def passes_s(
        self, num_passes: IntArray | FloatArray | float, num_ways_home: IntArray | FloatArray | float
    ) -> FloatArray:
        """Of so many passes and, in a loop, ways home between them; zero where no replica crosses."""
        if self.messages is None:
            return np.zeros(len(self.num_replicas))
        crossings = (self.num_groups - 1) * np.asarray(num_passes) + np.where(self.looped, num_ways_home, 0.0)
        return np.where(self.num_replicas > 0, crossings * self.messages.each_s(self.num_replicas, crossings), 0.0)


@dataclass(frozen=True)
class CutCase:
    """One way to lie over the groups of a cut: the rows that can, what exchanges and messages take, and the delay."""

    possible: BoolArray
    least_s: FloatArray
    delay: CrossingDelay


def with_distance_s(
    bound_s: FloatArray, cases_by_cut: Iterable[list[CutCase]], pipeline_s: Callable[[CrossingDelay], FloatArray]
) -> FloatArray:
    """The bound, or more: for every cut T >= min over its cases of max(exchanges and messages, pipeline).

    `pipeline_s` bounds the pipeline with these delays, which matter no more where a case before is below the bound.
    """
    for cases in cases_by_cut:
        least_s = np.full(len(bound_s), np.inf)
        for one in cases:
            delay = one.delay.of_rows(least_s > bound_s)
            least_s = np.where(one.possible, np.minimum(least_s, np.maximum(one.least_s, pipeline_s(delay))), least_s)
        bound_s = np.maximum(bound_s, least_s)
    return bound_s


def distance_cases(
    price: StageCosts, shares: Shares, overlap_s: FloatArray, ends: Sequence[StageCost] = ()
) -> Iterator[list[CutCase]]:
    """The cases of every cut: the ranks that lie whole in a group are in h of them, h = 0, 1, 2 ...

    `ends` are the costs of the first and the last rank; without them shares are not known: then `shares` has stages at
    their smallest, all work may overlap, and one rank may be the model.
    """
    context, columns = price.context, price.columns
    found = cuts(context)
    if not found:
        return
    begin = np.maximum(columns.num_microbatches * _lightest_stage_s(price, shares) - overlap_s, 0.0)
    inside = _Inside.of(price, shares, overlap_s, ends)
    first, row_of = distinct_rows(columns.tp, columns.cp, columns.dp, columns.pp)
    some = columns.take(first)
    capacities = [groups_by_row(context.pools, cut.group_of_pool, some.tp, some.cp) for cut in found]
    num_places = np.maximum(-(-some.dp // np.maximum(capacities[0].max(axis=1), 1)), 2)[row_of]
    exchanged = GradientExchange.of(price, shares, num_places, ends)
    group = columns.tp * columns.cp
    senders = np.maximum(columns.dp // num_places, 1) * group
    each_bytes = boundary_bytes(context.job, columns)
    message_bytes = columns.num_microbatches * each_bytes
    looped = shares.family == LOOP_FAMILY
    for cut, held in zip(found, capacities, strict=True):
        fewest = np.clip(-(-some.dp // np.maximum(held.max(axis=1), 1)), 2, held.shape[1])[row_of]
        cards_rate = cut.limits.most_bytes_per_s(senders)
        steps_s = 2.0 * (num_places - 1) * cut.nearest_s
        one_queue_s = message_bytes * columns.vpp / (group * cut.limits.message_bytes_per_s)
        rate = cut.exchange_rates[fewest] * cut.limits.most_share(senders)
        rank_work_s = np.maximum(inside.work_s - overlap_s, 0.0)
        link = ExchangeLink(begin, rank_work_s, rate, cards_rate, steps_s)
        none_whole = exchanged.least_s(columns.pp, columns.vpp, np.zeros_like(columns.pp), link)
        cases = [CutCase(columns.dp > 1, none_whole, CrossingDelay.none(len(columns)))]
        whole = np.cumsum(-np.sort(-(held // some.dp[:, None]), axis=1), axis=1)
        for h in range(1, min(held.shape[1], int(columns.pp.max(initial=1))) + 1):
            retained = np.minimum(whole[:, h - 1], some.pp)[row_of]
            by_rate = _leaving_by_rate(cut, held, some, h)[row_of]
            spanning = columns.pp - retained
            crossing = _num_crossing(held, some, h)[row_of]
            exchanges = np.where(spanning > 0, exchanged.least_s(spanning, columns.vpp, retained, link), 0.0)
            leaving = message_bytes * _times_left(columns.vpp, looped, h) * by_rate
            parts = [exchanges, np.maximum(leaving, np.where(by_rate > 0, one_queue_s, 0.0))]
            if cut.of_places:
                parts.append(inside.work_s + inside.exposed_s)
            delay = CrossingDelay(crossing, looped, max(h, 2), CrossingMessages.of(cut, columns, each_bytes))
            cases.append(CutCase(retained > 0, np.maximum.reduce(parts), delay))
        yield cases


def _times_left(vpp: IntArray, looped: BoolArray, num_groups: int) -> IntArray:
    """How often every micro-batch leaves a group, its gradients included, where each pass visits so many, at least 2.

    A pass crosses h - 1 times, and its gradients as often; of the crossings of one group half are the gradients'. Each
    cycle of a loop crosses h times, but for the last, which does not come home.
    """
    both_ways = 1 if num_groups == 1 else 2
    h = max(num_groups, 2)
    times: IntArray = both_ways * np.where(looped, vpp * h - 1, vpp * (h - 1))
    return times


@dataclass(frozen=True)
class _Inside:
    """Of a rank with all its replicas in one place: its work, and its exchange beyond what overlaps, at their least."""

    work_s: FloatArray
    exposed_s: FloatArray

    @classmethod
    def of(cls, price: StageCosts, shares: Shares, overlap_s: FloatArray, ends: Sequence[StageCost]) -> _Inside:
        """The lightest rank and the smallest stage; nothing where everything may overlap."""
        context, columns = price.context, price.columns
        if not np.isfinite(overlap_s).any():
            nothing = np.zeros(len(columns))
            return cls(nothing, nothing)
        parameters, experts = least_parameters(price, shares)
        traffic = [
            step_traffic(parameters, experts, columns, gpu_class.fabric, context.stack, job=context.job)
            for gpu_class in context.gpu_classes.values()
        ]
        exchange_s = np.minimum.reduce([one.reduce_s + one.gather_s for one in traffic])
        work_s = columns.num_microbatches * lightest_rank_s(price, shares, ends)
        return cls(work_s, np.maximum(exchange_s - overlap_s, 0.0))


def lightest_rank_s(price: StageCosts, shares: Shares, ends: Sequence[StageCost]) -> FloatArray:
    """Work of one micro-batch on the lightest rank, of which `ends` are the first and the last."""
    lightest: FloatArray = np.minimum.reduce([inner_rank_s(price, shares), *(cost.total_s for cost in ends)])
    return lightest


def inner_rank_s(price: StageCosts, shares: Shares) -> FloatArray:
    """Work of one micro-batch on the lightest rank between the ends, of the cheaper kind; infinite without one."""
    layer_s = np.minimum.reduce(_layers_s(price))
    inner: FloatArray = np.where(price.columns.pp > 2, shares.inner_ranks()[0] * layer_s, np.inf)
    return inner


def _leaving_by_rate(cut: NetworkCut, held: IntArray, columns: Columns, num_groups: int) -> FloatArray:
    """Least of replicas that leave a group on every pass, over the rate out of it, where ranks lie whole in so many.

    One group: (replicas that do not stay inside) / its rate, the least of all groups that hold a whole rank. Several:
    all dp replicas over the sum of the h largest rates.
    """
    if num_groups == 1:
        rate_g = np.where(cut.rate_g > 0, cut.rate_g, UNLINKED)
        by_rate: FloatArray = (_leaving(held, columns.dp, columns.pp) / rate_g).min(axis=1)
        return np.where(np.isfinite(by_rate), by_rate, 0.0)
    most = float(np.sort(cut.rate_g)[-num_groups:].sum())
    visiting: FloatArray = columns.dp.astype(np.float64) / (most or UNLINKED)
    return visiting


def _num_crossing(held: IntArray, columns: Columns, num_groups: int) -> IntArray:
    """Fewest replicas that leave a group where ranks lie whole in so many: all of them where these are several."""
    if num_groups > 1:
        return columns.dp
    fewest = _leaving(held, columns.dp, columns.pp).min(axis=1)
    return np.where(np.isfinite(fewest), fewest, 0.0).astype(np.int64)


def _leaving(held: IntArray, dp: IntArray, pp: IntArray) -> FloatArray:
    """Replicas that do not stay in a group which holds one of their ranks whole: dp - floor((g - dp) / (pp - 1)).

    Infinite where a group cannot hold a rank whole.

    >>> _leaving(np.array([[64, 12, 7]]), np.array([8]), np.array([8]))
    array([[ 0.,  8., inf]])
    """
    inside = (held - dp[:, None]) // np.maximum(pp - 1, 1)[:, None]
    leaving = np.where(pp[:, None] > 1, np.maximum(dp[:, None] - inside, 0).astype(np.float64), 0.0)
    return np.where(held >= dp[:, None], leaving, np.inf)


def cuts(context: Context) -> Sequence[NetworkCut]:
    """Between places with pools, between their buildings, between their regions; those alone that lie side by side."""
    return context.known.cuts.once("all", lambda: tuple(_cuts(context)))


def _cuts(context: Context) -> Iterator[NetworkCut]:
    topology, known = context.topology, set[tuple[int, ...]]()
    for level in ("place", "building", "region"):
        names = [_around(context, pool.place, level) for pool in context.pools]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        group_of_pool = tuple(numbers[name] for name in names)
        if len(numbers) < 2 or group_of_pool in known or any(_nested(context, name, numbers) for name in numbers):
            continue  # a ring between a place and one inside it leaves neither
        known.add(group_of_pool)
        rate_g, crossing, leaving_g = np.zeros(len(numbers)), list[Edge](), np.zeros(len(numbers), dtype=np.int64)
        for edge in topology.edges:
            left = set(topology.ancestors(edge.from_place)) - set(topology.ancestors(edge.to_place))
            for name in numbers.keys() & left:
                rate_g[numbers[name]] += edge.capacity_bytes_per_s
                leaving_g[numbers[name]] += 1
                crossing.append(edge)
        nearest_s = min((edge.latency_s for edge in crossing), default=0.0)
        whole = level == "place" or all(name != pool.place for name, pool in zip(names, context.pools, strict=True))
        num_edges = max(int(leaving_g.sum() - leaving_g.max()), 1)
        limits = connection_limits(context, tuple(crossing) if whole else (), nearest_s, num_edges)
        yield NetworkCut(group_of_pool, rate_g, nearest_s, limits, of_places=level == "place")


def _around(context: Context, place: str, level: str) -> str:
    """The building or region around a place; without one the place, or the building, stands for itself."""
    if level == "place":
        return place
    building = context.topology.enclosing(place, "building") or place
    return building if level == "building" else context.topology.enclosing(place, "region") or building


def _nested(context: Context, name: str, names: dict[str, int]) -> bool:
    return bool(names.keys() & set(context.topology.ancestors(name)[1:]))


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
