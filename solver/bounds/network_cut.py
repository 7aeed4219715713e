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
from solver.bounds.gradient_exchange import ExchangeLink, GradientExchange, UnknownShares, least_parameters
from solver.bounds.leaving_messages import LeavingMessages, or_unlinked
from solver.bounds.lightest import before_exchange_s, lightest_rank_s
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import LOOP_FAMILY
from solver.configurations.pricing import Shares, StageCosts
from solver.context import Context
from solver.cost.columns import Columns
from solver.cost.data_parallel import step_traffic
from solver.cost.stage import StageCost, boundary_bytes
from solver.network.topology import Edge
from solver.placement.capacity_groups import groups_by_row


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
    """Stage messages between groups of a cut: bytes of one, GPUs that send it, what one takes that loses nothing.

    `link_bytes_per_s` is the most that leaves the one or the other of two groups; of more, all of them together.
    """

    message_bytes: FloatArray
    num_gpus: IntArray
    transfer_s: FloatArray
    latency_s: float
    loss: MessageLoss
    link_bytes_per_s: float

    @classmethod
    def of(cls, cut: NetworkCut, columns: Columns, message_bytes: FloatArray) -> CrossingMessages:
        """Each GPU of a stage sends its part over a connection of its own."""
        num_gpus = columns.tp * columns.cp
        transfer_s = message_bytes / (num_gpus * cut.limits.message_bytes_per_s)
        rate = or_unlinked(cut.rate_g.max() if len(cut.rate_g) == 2 else cut.rate_g.sum())
        return cls(message_bytes, num_gpus, transfer_s, cut.nearest_s + cut.limits.step_s, cut.limits.loss, rate)

    def each_s(self, num_replicas: IntArray) -> FloatArray:
        """Least time of each of the crossings of a replica where so many replicas cross."""
        wait_s = self.loss.each_s(self.transfer_s, self.message_bytes, self.num_gpus, num_replicas)
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
        return np.where(self.num_replicas > 0, crossings * self.messages.each_s(self.num_replicas), 0.0)


@dataclass(frozen=True)
class CutCase:
    """One way to lie over the groups of a cut: the rows that can, what exchanges and messages take, and the delay.

    Where some rank is not whole, `spanning` is how it exchanges. Where all are, each in one of two groups, `most_ranks`
    is how many either holds (rows x groups).
    """

    possible: BoolArray
    least_s: FloatArray
    delay: CrossingDelay
    spanning: ExchangeLink | None = None
    most_ranks: IntArray | None = None


def with_distance_s(
    bound_s: FloatArray, cases_by_cut: Iterable[Iterable[CutCase]], pipeline_s: Callable[[CrossingDelay], FloatArray]
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
    price: StageCosts,
    shares: Shares,
    overlap_s: FloatArray,
    ranks: Sequence[StageCost] | UnknownShares,
    *,
    jointly: bool = False,
    within_s: FloatArray | None = None,
) -> Iterator[Iterable[CutCase]]:
    """The cases of every cut: the ranks that lie whole in a group are in h of them, h = 0, 1, 2 ...

    `jointly`: by the number of these ranks as well, where that says more. Of those that take longer than `within_s`
    (seconds) it is enough to know that.
    `ranks` are the costs of the first and the last one. With `UnknownShares` those in `shares` are the smallest, and
    all work may overlap.
    """
    context, columns = price.context, price.columns
    found = cuts(context)
    if not found:
        return
    unknown = ranks if isinstance(ranks, UnknownShares) else None
    ends = () if isinstance(ranks, UnknownShares) else ranks
    begin = np.maximum(columns.num_microbatches * before_exchange_s(price, shares, ends) - overlap_s, 0.0)
    inside = _Inside.of(price, shares, overlap_s, ends)
    looped = shares.family == LOOP_FAMILY
    first = row_of = np.arange(len(columns))
    if within_s is None:
        first, row_of = distinct_rows(columns.tp, columns.cp, columns.dp, columns.pp, columns.vpp, looped)
    some = columns.take(first)
    capacities = [groups_by_row(context.pools, cut.group_of_pool, some.tp, some.cp) for cut in found]
    num_places = np.maximum(-(-some.dp // np.maximum(capacities[0].max(axis=1), 1)), 2)[row_of]
    exchanged = GradientExchange.of(price, shares, num_places, ranks)
    senders = np.maximum(columns.dp // num_places, 1) * columns.tp * columns.cp
    each_bytes = boundary_bytes(context.job, columns)
    for cut, held in zip(found, capacities, strict=True):
        fewest = np.clip(-(-some.dp // np.maximum(held.max(axis=1), 1)), 2, held.shape[1])[row_of]
        link = ExchangeLink(
            begin,
            np.maximum(inside.work_s - overlap_s, 0.0),
            cut.exchange_rates[fewest] * cut.limits.most_share(senders),
            cut.limits.most_bytes_per_s(senders),
            2.0 * (num_places - 1) * cut.nearest_s,
            num_places,
        )
        messages = CrossingMessages.of(cut, columns, each_bytes)
        leaving = LeavingMessages(some, looped[first], held, cut.rate_g)
        yield _Cases(cut, columns, inside, exchanged, link, messages, leaving, row_of, fewest, unknown, within_s).each(
            jointly=jointly
        )


@dataclass(frozen=True)
class _Cases:
    """What the cases of a cut have in common. `leaving` has rows that differ in what leaves groups, `row_of` the one
    among them of every row. An exchange between groups has a part in `num_groups_r` of them at least. Of what takes
    longer than `within_s` (seconds) nothing more matters.
    """

    cut: NetworkCut
    columns: Columns
    inside: _Inside
    exchanged: GradientExchange
    link: ExchangeLink
    messages: CrossingMessages
    leaving: LeavingMessages
    row_of: IntArray
    num_groups_r: IntArray
    unknown: UnknownShares | None
    within_s: FloatArray | None

    def each(self, *, jointly: bool) -> Iterator[CutCase]:
        """No rank whole, and then some in h groups."""
        columns, some, held = self.columns, self.leaving.columns, self.leaving.held
        none_whole = self._exchanges_s(np.zeros_like(columns.pp))
        yield CutCase(columns.dp > 1, none_whole, CrossingDelay.none(len(columns)), self.link)
        by_group = np.minimum(held // some.dp[:, None], some.pp[:, None])
        whole, most = np.cumsum(-np.sort(-by_group, axis=1), axis=1), int(columns.pp.max(initial=1))
        for h in range(1, min(held.shape[1], most) + 1):
            retained = np.minimum(whole[:, h - 1], some.pp)
            if not jointly:
                fewest = self._fewest_whole(retained)
                yield self._case(h, retained >= np.maximum(fewest, 1), retained, fewest)
                continue
            if h > 1:  # each rank whole in one of these groups, or one or more in several
                most_ranks = by_group[self.row_of] if held.shape[1] == 2 else None
                yield replace(self._case(h, retained >= some.pp, some.pp, some.pp), most_ranks=most_ranks)
                fewer = np.minimum(retained, some.pp - 1)
                yield self._case(h, fewer > 0, fewer, np.ones_like(fewer))
                continue
            for number in range(1, most + 1):
                ranks = np.full_like(retained, number)
                yield self._case(h, (retained >= ranks) & (some.pp >= ranks), ranks, ranks)

    def _case(self, num_groups: int, possible: BoolArray, most: IntArray, fewest: IntArray) -> CutCase:
        """The ranks that are whole lie in so many groups: no more than `most` of them and `fewest` or more."""
        columns, row_of = self.columns, self.row_of
        by_rate = self.leaving.by_rate(num_groups, fewest)[row_of]
        crossing, retained = self.leaving.num_crossing(num_groups, fewest)[row_of], most[row_of]
        spanning = columns.pp > retained
        sent_bytes = columns.num_microbatches * self.messages.message_bytes
        queue_s = sent_bytes * columns.vpp / (self.messages.num_gpus * self.cut.limits.message_bytes_per_s)
        parts = [
            np.where(spanning, self._exchanges_s(retained), 0.0),
            np.maximum(sent_bytes * by_rate, np.where(by_rate > 0, queue_s, 0.0)),
        ]
        parts.append(self._all_bytes(num_groups, fewest, retained, sent_bytes) / or_unlinked(self.cut.rate_g.sum()))
        if self.cut.of_places:
            parts.append(self.inside.work_s + self.inside.exposed_s)
        delay = CrossingDelay(crossing, self.leaving.looped[row_of], max(num_groups, 2), self.messages)
        return CutCase(possible[row_of], np.maximum.reduce(parts), delay, self.link if spanning.all() else None)

    def _exchanges_s(self, retained: IntArray) -> FloatArray:
        """Exchanges of all ranks beside so many that lie whole."""
        spanning = np.maximum(self.columns.pp - retained, 0)
        return self.exchanged.least_s(spanning, self.columns.vpp, retained, self.link)

    def _all_bytes(self, num_groups: int, fewest: IntArray, retained: IntArray, sent_bytes: FloatArray) -> FloatArray:
        """Bytes that leave groups in an iteration, exchanges and messages, with ranks as in `_case`.

        Where shares are free, ranks that span groups have some usual layers, u; of these each exchanges, and the fewer
        they are, the more runs of other layers there are between whole ranks. In u that is least at one of two points.
        """
        columns, share = self.columns, self.unknown
        messages = sent_bytes * self.leaving.in_all(num_groups, fewest)[self.row_of]
        spanning = np.maximum(columns.pp - retained, 0)
        exchanges = np.where(spanning > 0, self.exchanged.of_others(spanning, columns.vpp, retained), 0.0)
        least = self.num_groups_r * exchanges + messages
        if share is None or not share.longest_others:
            return least
        start, each = (sent_bytes * one[self.row_of] for one in self.leaving.around(num_groups, fewest))
        num_stages = np.maximum(columns.pp - fewest[self.row_of], 0) * columns.vpp
        most_around = start + each * num_stages / share.longest_others
        less_around = each * share.per_usual / share.longest_others
        per_usual = self.num_groups_r * self.exchanged.usual
        fewest_usual = np.maximum(share.num_usual - share.most_usual(retained), 0.0)
        equal = np.maximum((most_around - messages) / less_around, fewest_usual)
        with_fewest = per_usual * fewest_usual + np.maximum(messages, most_around - less_around * fewest_usual)
        found: FloatArray = np.maximum(least, np.minimum(with_fewest, per_usual * equal + messages))
        return found

    def _fewest_whole(self, most: IntArray) -> IntArray:
        """The least number of whole ranks, no more than `most`, that leaves exchanges for which there is time; or 1."""
        fewest = np.ones_like(most)
        if self.within_s is None:
            return fewest
        most = np.maximum(most, 1)
        for _ in range(int(most.max()).bit_length()):
            middle = (fewest + most) // 2
            all_whole, exchanges_s = middle >= self.columns.pp, self._exchanges_s(middle)
            enough = all_whole | (exchanges_s <= self.within_s)
            fewest, most = np.where(enough, fewest, np.minimum(middle + 1, most)), np.where(enough, middle, most)
        return fewest


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
