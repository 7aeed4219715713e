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
from solver.bounds.bounded import ROUNDING
from solver.bounds.crossing_messages import CrossingDelay, CrossingMessages
from solver.bounds.cuts import NetworkCut, cuts
from solver.bounds.gradient_exchange import (
    ExchangeLink,
    GradientExchange,
    SplitLayers,
    SplitRanks,
    UnknownShares,
    least_parameters,
)
from solver.bounds.leaving_messages import LeavingMessages, or_unlinked, times_left
from solver.bounds.lightest import before_exchange_s, beside_messages_s, lightest_rank_s
from solver.bounds.ring_connections import least_fill
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import LOOP_FAMILY
from solver.configurations.pricing import Shares, StageCosts
from solver.cost.columns import Columns
from solver.cost.data_parallel import crossing_bytes, replicas_together, step_traffic
from solver.cost.stage import StageCost, boundary_bytes
from solver.placement.capacity_groups import bundles_by_row

PARTS = 4  # of the numbers of ranks that lie whole in one group: of each the most exchange, of the least all cross


@dataclass(frozen=True)
class CutCase:
    """One way to lie over the groups of a cut: the rows that can, what exchanges and messages take, and the delay.

    Where some ranks are not whole, `spanning` is how they exchange. Where all are, each in one of two groups,
    `most_ranks` is how many either holds (rows x groups). Where every replica is inside a group, `most_replicas` is
    how many each holds (rows x groups).
    """

    possible: BoolArray
    least_s: FloatArray
    delay: CrossingDelay
    spanning: SplitRanks | None = None
    most_ranks: IntArray | None = None
    most_replicas: IntArray | None = None


def with_distance_s(
    bound_s: FloatArray, cases_by_cut: Iterable[Iterable[CutCase]], pipeline_s: Callable[[CrossingDelay], FloatArray]
) -> FloatArray:
    """The bound, or more: for every cut T >= min over its cases of max(exchanges and messages, pipeline).

    `pipeline_s` bounds the pipeline with these delays, which matter no more where a case before is below the bound.
    """
    for cases in cases_by_cut:
        least_s = np.full(len(bound_s), np.inf)
        for one in cases:
            delay = replace(one.delay, num_replicas=np.where(least_s > bound_s, one.delay.num_replicas, 0))
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
    if not (found := cuts(context)):
        return
    unknown, ends = (ranks, ()) if isinstance(ranks, UnknownShares) else (None, ranks)
    inside, beside_s = _Inside.of(price, shares, overlap_s, ends), beside_messages_s(price, shares)
    looped, together = shares.family == LOOP_FAMILY, replicas_together(columns)
    first = row_of = np.arange(len(columns))
    if within_s is None:
        first, row_of = distinct_rows(columns.tp, columns.cp, columns.dp, columns.pp, columns.vpp, looped, together)
    some = columns.take(first)
    capacities = [bundles_by_row(context.pools, cut.group_of_pool, some.tp, some.cp, together[first]) for cut in found]
    exchanges = _Exchanges(
        price,
        shares,
        ranks,
        np.maximum(columns.num_microbatches * before_exchange_s(price, shares, ends) - overlap_s, 0.0),
        np.maximum(inside.work_s - overlap_s, 0.0),
        num_places=np.maximum(-(-some.dp // np.maximum(capacities[0].max(axis=1), 1)), 2)[row_of],
        together=together,
    )
    for cut, held in zip(found, capacities, strict=True):
        fewest = np.clip(-(-some.dp // np.maximum(held.max(axis=1), 1)), 2, held.shape[1])[row_of]
        cases = _Cases(
            cut=cut,
            columns=columns,
            inside=inside,
            exchanges=exchanges,
            link=exchanges.link(cut, fewest, exchanges.num_places),
            messages=CrossingMessages.of(cut, columns, boundary_bytes(context.job, columns)),
            beside_s=beside_s + cut.nearest_s,
            leaving=LeavingMessages(some, looped[first], held, cut.rate_g, cut.rate_of_set),
            row_of=row_of,
            num_groups_r=fewest,
            unknown=unknown,
            within_s=within_s,
        )
        yield cases.each(jointly=jointly)


@dataclass(frozen=True)
class _Exchanges:
    """What exchanges of ranks over places send, and what they wait for. `begin_s` and `rank_work_s` are the least work
    of a rank before a stage exchanges and in all, less what overlaps (seconds).

    Replicas `together` share every place, so that a rank needs `num_places` or more, if not one.
    """

    price: StageCosts
    shares: Shares
    ranks: Sequence[StageCost] | UnknownShares
    begin_s: FloatArray
    rank_work_s: FloatArray
    num_places: IntArray
    together: IntArray

    @cached_property
    def usual(self) -> GradientExchange:
        """Over the fewest places."""
        return GradientExchange.of(self.price, self.shares, self.num_places, self.ranks)

    def over(self, num_places: IntArray) -> GradientExchange:
        """Over so many places: of every parameter as many times what it sends over the fewest."""
        columns, job = self.price.columns, self.price.context.job
        each, usual = (
            crossing_bytes(np.ones(len(columns)), columns, one, job) for one in (num_places, self.num_places)
        )
        return self.usual.times(np.divide(each, usual, out=np.ones_like(usual), where=usual > 0))

    def senders(self, num_places: IntArray) -> IntArray:
        """GPUs of a rank in the one of so many places that has fewest."""
        columns, share = self.price.columns, num_places * self.together
        return np.asarray(np.maximum(columns.dp // share, 1) * self.together * columns.tp * columns.cp)

    def link(self, cut: NetworkCut, num_groups: IntArray, num_places: IntArray) -> ExchangeLink:
        """The links between so many groups or more, over so many places."""
        senders, num_steps = self.senders(num_places), 2.0 * (num_places - 1)
        rates = np.stack([cut.exchange_rates[num_groups], or_unlinked(cut.rate_g.sum()) / num_groups])
        rate, all_rate = rates * cut.limits.most_share(senders)
        return ExchangeLink(
            self.begin_s,
            self.rank_work_s,
            rate,
            all_rate,
            np.minimum(cut.limits.most_bytes_per_s(senders), cut.ring_rates[num_groups]),
            np.asarray(num_steps * cut.nearest_s),
            num_places,
        )


@dataclass(frozen=True)
class _Cases:
    """What the cases of a cut have in common. `leaving` has rows that differ in what leaves groups, `row_of` the one
    among them of every row. An exchange between groups has a part in `num_groups_r` of them at least, over `link`.
    Before its first message and after its last a replica has work for `beside_s` (seconds). Of what takes longer than
    `within_s` (seconds) nothing more matters.
    """

    cut: NetworkCut
    columns: Columns
    inside: _Inside
    exchanges: _Exchanges
    link: ExchangeLink
    messages: CrossingMessages
    beside_s: FloatArray
    leaving: LeavingMessages
    row_of: IntArray
    num_groups_r: IntArray
    unknown: UnknownShares | None
    within_s: FloatArray | None

    def each(self, *, jointly: bool) -> Iterator[CutCase]:
        """No rank whole, and then some in h groups."""
        columns, some, held = self.columns, self.leaving.columns, self.leaving.held
        yield from self._none_whole(jointly=jointly)
        by_group = self.leaving.whole
        whole, most = np.cumsum(-np.sort(-by_group, axis=1), axis=1), int(columns.pp.max(initial=1))
        for h in range(1, min(held.shape[1], most) + 1):
            retained = np.minimum(whole[:, h - 1], some.pp) if h > 1 else self.leaving.most_whole
            if not jointly:
                parts = PARTS if h == 1 and self.unknown is None else 1
                for fewest, upto in _parts_of(self._fewest_whole(retained), retained, parts):
                    yield self._case(h, upto >= fewest, upto, fewest)
                continue
            if h > 1:  # each rank whole in one of these groups, or one or more in several
                most_ranks = by_group[self.row_of] if held.shape[1] == 2 else None
                yield replace(self._case(h, retained >= some.pp, some.pp, some.pp), most_ranks=most_ranks)
                fewer = np.minimum(retained, some.pp - 1)
                yield self._case(h, fewer > 0, fewer, np.ones_like(fewer))
                continue
            for number in range(1, most + 1):
                ranks = np.full_like(retained, number)
                yield self._case(h, (retained >= ranks) & (some.pp >= ranks), ranks, ranks, jointly=True)

    def _none_whole(self, *, jointly: bool) -> Iterator[CutCase]:
        """Some replicas are inside one of j groups each, in all of which each rank exchanges; all others cross.

        `jointly`: j = 2, 3 ... up to as many as all replicas need; else the least of both for all smaller j.
        """
        columns, possible = self.columns, (self.columns.dp > 1) & self._are_held[self.row_of]
        most_inside, needed = (one[self.row_of] for one in (self.leaving.most_inside, self.leaving.groups_for_all))
        end = int(needed.max(initial=0))
        for j in range(2, end if jointly else min(end, 3)):
            upto = np.full_like(needed, j) if jointly else np.maximum(needed - 1, j)
            inside = np.take_along_axis(most_inside, upto[:, None] - 1, axis=1)[:, 0]
            yield self._all_split(possible & (needed > j), np.full_like(needed, j), np.maximum(columns.dp - inside, 1))
        most = len(self.cut.rate_g)
        yield self._all_split(possible & (needed <= most), np.minimum(needed, most), np.zeros_like(needed))

    def _all_split(self, possible: BoolArray, num_groups: IntArray, crossing: IntArray) -> CutCase:
        """No rank is whole: each exchanges in so many groups or more, and so many replicas cross, or none."""
        columns, exchanged, link, num_rows = self.columns, self.exchanges.usual, self.link, len(self.columns)
        num_groups = np.maximum(num_groups, self.num_groups_r)
        if (num_groups > self.num_groups_r).any():
            num_places = np.maximum(num_groups, self.exchanges.num_places)
            exchanged, link = self.exchanges.over(num_places), self.exchanges.link(self.cut, num_groups, num_places)
        looped = self.leaving.looped[self.row_of]
        messages = 2.0 * self._sent_bytes * times_left(columns.vpp, looped, 1) * crossing
        every = SplitRanks(columns.pp, link, messages / or_unlinked(self.cut.rate_g.sum()))
        exchanges_s = exchanged.least_s(every, columns.vpp, np.zeros_like(columns.pp))
        if not crossing.any():
            inside = self.leaving.inside[self.row_of]
            return CutCase(possible, exchanges_s, CrossingDelay.none(num_rows), every, most_replicas=inside)
        queued_s = np.where(crossing > 0, self._queue_s + self.beside_s, 0.0)
        delay = CrossingDelay(crossing, looped, crossing, 2, self.messages)
        return CutCase(possible, np.maximum(exchanges_s, queued_s), delay, every)

    @cached_property
    def _queue_s(self) -> FloatArray:
        """What all messages that a replica sends over a boundary one way take its queue."""
        rate = self.messages.num_gpus * self.cut.limits.message_bytes_per_s
        return np.asarray(self._sent_bytes * self.columns.vpp / rate)

    @cached_property
    def _sent_bytes(self) -> FloatArray:
        """Of all messages of a replica that cross once."""
        return self.columns.num_microbatches * self.messages.message_bytes

    @cached_property
    def _are_held(self) -> BoolArray:
        """Where the groups hold all ranks of all replicas, those together that share a place."""
        some = self.leaving.columns
        held: BoolArray = self.leaving.held.sum(axis=1) >= some.pp * some.dp
        return held if self.unknown is None else np.ones_like(held)

    def _case(
        self, num_groups: int, possible: BoolArray, most: IntArray, fewest: IntArray, *, jointly: bool = False
    ) -> CutCase:
        """The ranks that are whole lie in so many groups: no more than `most` of them and `fewest` or more."""
        columns, row_of = self.columns, self.row_of
        leaving, retained = self.leaving.least(num_groups, fewest).at(row_of), most[row_of]
        messages, rate = self._sent_bytes * leaving.in_all, or_unlinked(self.cut.rate_g.sum())
        capacity = self._capacity_per_byte(fewest) if num_groups == 1 and jointly else 1.0
        split = SplitRanks(np.maximum(columns.pp - retained, 0), self.link, messages / rate, capacity)
        exchanges_s = self.exchanges.usual.least_s(split, columns.vpp, retained)
        messages_s = np.maximum(self._sent_bytes * leaving.by_rate, self._queue_s) + self.beside_s
        parts = [
            np.where(split.num_ranks > 0, exchanges_s, messages / rate),
            np.where(leaving.by_rate > 0, messages_s, 0.0),
        ]
        if self.unknown is not None and self.within_s is not None and num_groups == 2 == len(self.cut.rate_g):
            parts.append(self._queued_s(self.unknown, self.within_s, messages))
        if self.unknown is not None and self.unknown.longest_others:
            parts.append(self._least_bytes(self.unknown, num_groups, fewest, retained, messages) / rate)
        if self.cut.of_places:
            parts.append(self.inside.work_s + self.inside.exposed_s)
        hops = leaving.crossing * max(num_groups - 1, 1) + leaving.outside.astype(np.int64)
        delay = CrossingDelay(leaving.crossing, self.leaving.looped[row_of], hops, max(num_groups, 2), self.messages)
        possible = (possible & self._are_held)[row_of]
        return CutCase(possible, np.maximum.reduce(parts), delay, split if split.num_ranks.all() else None)

    def _capacity_per_byte(self, whole: IntArray) -> FloatArray | float:
        """Of exchanges between two groups, one of which has so many ranks whole: little room there is left for others,
        so their rings have few connections.
        """
        limits = self.cut.limits
        if self.leaving.held.shape[1] > 2 or limits.shared is None:
            return 1.0
        held, ranks = self.leaving.held[self.row_of].max(axis=1), whole[self.row_of]
        factors = least_fill(limits, self.columns, held - ranks * self.columns.dp, self.columns.pp - ranks)
        return np.maximum(factors * limits.most_share(self.exchanges.senders(self.link.num_places)), 1.0)

    def _least_bytes(
        self, share: UnknownShares, num_groups: int, fewest: IntArray, retained: IntArray, messages: FloatArray
    ) -> FloatArray:
        """Bytes that leave groups where shares are free: ranks that span groups have some usual layers, u.

        Of these each exchanges, and the fewer they are, the more runs of other layers there are between whole ranks. In
        u that is least at one of two points.
        """
        columns = self.columns
        start, each = (self._sent_bytes * one[self.row_of] for one in self.leaving.around(num_groups, fewest))
        num_stages = np.maximum(columns.pp - fewest[self.row_of], 0) * columns.vpp
        most_around = start + each * num_stages / share.longest_others
        less_around = each * share.per_usual / share.longest_others
        per_usual = self.num_groups_r * self.exchanges.usual.usual
        fewest_usual = np.maximum(share.num_usual - share.most_usual(retained), 0.0)
        equal = np.maximum((most_around - messages) / less_around, fewest_usual)
        with_fewest = per_usual * fewest_usual + np.maximum(messages, most_around - less_around * fewest_usual)
        found: FloatArray = np.minimum(with_fewest, per_usual * equal + messages)
        return found

    def _queued_s(self, share: UnknownShares, within_s: FloatArray, messages: FloatArray) -> FloatArray:
        """Messages of all replicas between two groups that have whole ranks, and the ways before and behind them.

        What `messages` leave of the links within a time limits the usual layers of ranks that span both.
        """
        left = np.maximum(within_s * self.cut.rate_g.sum() * (1.0 + ROUNDING) - messages, 0.0)
        per_usual = self.num_groups_r * self.exchanges.usual.usual
        usual = np.floor(np.divide(left, per_usual, out=np.full_like(left, np.inf), where=per_usual > 0))
        usual = np.where(self.columns.dp > 1, np.minimum(usual, share.num_usual), 0.0)
        in_row = np.where(self.columns.dp > 1, share.longest_others + share.per_usual * usual, 0.0)
        whole = self.leaving.whole.max(axis=1)[self.row_of]
        ways_s = share.ways_s(whole, SplitLayers(usual, in_row, share.longest_others))
        each_way = self._sent_bytes * self.columns.vpp * self.columns.dp
        queued_s = each_way * (1.0 / or_unlinked(self.cut.rate_g[0]) + 1.0 / or_unlinked(self.cut.rate_g[1])) / 2.0
        return np.where(ways_s > 0, queued_s + self.cut.nearest_s + ways_s, 0.0)

    def _fewest_whole(self, most: IntArray) -> IntArray:
        """The least number of whole ranks, no more than `most`, that leaves exchanges for which there is time; or 1."""
        fewest = np.ones_like(most)
        if self.within_s is None:
            return fewest
        most = np.maximum(most, 1)
        for _ in range(int(most.max()).bit_length()):
            middle = (fewest + most) // 2
            split, all_whole = SplitRanks(np.maximum(self.columns.pp - middle, 0), self.link), middle >= self.columns.pp
            exchanges_s = self.exchanges.usual.least_s(split, self.columns.vpp, middle)
            enough = all_whole | (exchanges_s <= self.within_s)
            fewest, most = np.where(enough, fewest, np.minimum(middle + 1, most)), np.where(enough, middle, most)
        return fewest


def _parts_of(fewest: IntArray, most: IntArray, parts: int) -> Iterator[tuple[IntArray, IntArray]]:
    """The whole numbers from `fewest` to `most` in so many parts one after another, which may have none.

    >>> list(_parts_of(np.array([1]), np.array([9]), 2))
    [(array([1]), array([4])), (array([5]), array([9]))]
    """
    count = np.maximum(most - fewest + 1, 0)
    for part in range(parts):
        yield fewest + count * part // parts, fewest + count * (part + 1) // parts - 1


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
