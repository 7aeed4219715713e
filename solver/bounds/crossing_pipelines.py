"""A bound of even pipelines that have to cross a cut: of every way to lie over it, exchanges or delayed pipelines.

`network_cut.py` has all ways in which the ranks of a configuration may lie over the groups of a cut, what exchanges and
messages take at least in each, and how many groups the pipelines of how many replicas visit. A replica that crosses has
the delays of `least_hops.py` on its way, wherever it crosses; with these its own pipeline bound holds. So T >= min over
the ways of max(exchanges and messages, pipeline). Proof: docs/bounds.md, "Crossing pipelines".
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from models.plan import Configuration
from solver.arrays import FloatArray, IntArray
from solver.bounds.crossing_messages import CrossingMessages
from solver.bounds.cuts import cuts
from solver.bounds.gradient_exchange import ExchangeLink, SplitRanks
from solver.bounds.least_hops import MessageDelays, crossings_of
from solver.bounds.message_queues import MessageQueues
from solver.bounds.network_cut import CutCase
from solver.bounds.release_times import ReleaseTimes
from solver.bounds.work import even_cases
from solver.clock import Clock, charge_pipeline_bounds
from solver.configurations.enumerate import FAMILY_CODES, LAYER_SPLIT_CODES, Space
from solver.context import Context
from solver.cost.columns import Columns, columns_of_all
from solver.cost.stage import boundary_bytes
from solver.pipeline.bounds import SharedLinks, makespan_bound, shared_links_bound
from solver.pipeline.problem import NO_CHANNEL, PipelineShape

MOST_WAYS = 66  # to cross, of which each has a pipeline of its own; of more the least delays count
LAST_ENDS = 4  # pipelines that take as long as the last ends of one: measured on sixteen ranks, two chunks each
WORTH = 0.002  # of a bound: what all crossings of a micro-batch have to add to it, or the cases are not looked at


@dataclass(frozen=True)
class PipelineRelaxation:
    """The pipeline of configurations that are alike, with every cost at its least: none of their plans is faster.

    `shape` is None where memory holds no micro-batch; every message takes `hop_s` or more. `overlap_s` is the most of
    each stage's exchange that runs beside its last backward, `cards_s` what it takes on the cards of its rank.
    `exchanges_s` is another bound, and after all of it comes the update (seconds).
    """

    shape: PipelineShape | None
    hop_s: float
    overlap_s: FloatArray
    cards_s: FloatArray
    exchanges_s: float
    update_s: float

    def bound_s(self, shape: PipelineShape | None = None, enough_s: float = float("inf")) -> float:
        """The bound of this pipeline, or of the same with other delays; it need not go beyond `enough_s`."""
        shape = self.shape if shape is None else shape
        if shape is None:
            return float("inf")
        return max(makespan_bound(shape, enough_s - self.update_s), self.exchanges_s) + self.update_s

    @cached_property
    def releases(self) -> ReleaseTimes:
        """When exchanges can begin at the earliest."""
        assert self.shape is not None, "without memory for a micro-batch the bound is infinite, and nobody asks"
        return ReleaseTimes.of(self.shape, self.overlap_s)

    def on_cards_s(self, clock: Clock) -> float:
        """The bound of the exchanges of each rank, one after another on its cards."""
        if self.shape is None or not self.cards_s.any():
            return 0.0
        charge_pipeline_bounds(clock, self.shape.num_operations, LAST_ENDS)
        return self.releases.on_cards_s(self.shape, self.cards_s) + self.update_s


@dataclass(frozen=True)
class CrossingPipelines:
    """Pipelines of configurations that are alike, where they lie over the groups of a cut.

    `delayed_s` bounds one by its delays alone, for those that may cross in very many ways, `on_types_s` one with all
    ranks on some GPU types. Parameters are by configuration and stage. `clock` is charged for every pipeline.
    """

    context: Context
    configurations: Sequence[Configuration]
    relaxed: PipelineRelaxation
    parameters: FloatArray
    expert_parameters: FloatArray
    delayed_s: Callable[[MessageDelays], float]
    on_types_s: Callable[[frozenset[str]], float]
    clock: Clock
    known: dict[PipelineCrossing, float] = field(default_factory=dict)
    spanned: dict[ExchangeLink, float] = field(default_factory=dict)

    def crossing_s(self, crossing: PipelineCrossing, enough_s: float, low_s: float = 0.0) -> float:
        """The least bound of all ways in which a pipeline may cross, or no more than `low_s` where that is no more.

        What is known of crossings that take less is enough where it is `enough_s` or more.
        """
        known_s = max((bound_s for one, bound_s in self.known.items() if one.is_easier_than(crossing)), default=0.0)
        if known_s >= enough_s:
            return known_s
        if crossing not in self.known:
            queued_s = self._queued_s(crossing)
            if queued_s >= enough_s:
                return queued_s
            few = len(list(ways_to_cross(self.configurations[0]))) <= MOST_WAYS
            delayed_s = self._least_way_s(crossing, low_s) if few else self.delayed_s(crossing.delays)
            if delayed_s <= low_s:
                return max(delayed_s, queued_s)
            self.known[crossing] = max(delayed_s, queued_s)
        return self.known[crossing]

    def _queued_s(self, crossing: PipelineCrossing) -> float:
        """The bound of the replica with the slowest queue, whichever boundary that is at."""
        if self.queued is None:
            return 0.0
        return self.queued.least_s(crossing.queue_s, crossing.after_s) + self.relaxed.update_s

    @cached_property
    def queued(self) -> MessageQueues | None:
        """The pipeline with its queues; None where memory holds no micro-batch."""
        relaxed = self.relaxed
        if relaxed.shape is None:
            return None
        charge_pipeline_bounds(self.clock, relaxed.shape.num_operations)
        return MessageQueues(relaxed.shape, relaxed.cards_s, relaxed.overlap_s)

    def _least_way_s(self, crossing: PipelineCrossing, low_s: float) -> float:
        first, least_s, known = self.configurations[0], float("inf"), dict[tuple[int, ...], float]()
        shape = self.relaxed.shape
        if shape is None:
            return least_s

        def way_s(way: tuple[int, ...]) -> float:
            if way not in known:
                known[way] = self._way_s(shape, crossing, crossed_stages(first, way), least_s)
            return known[way]

        ways = list(ways_to_cross(first))
        allowed = [one for one in ways if crossing.most_ranks is None or _is_within(first, one, crossing.most_ranks)]
        for way in allowed:
            least_s = min(least_s, way_s(way))
            if least_s <= low_s:
                return least_s
        if len(allowed) < len(ways):  # or it crosses more often
            fewest, boundaries = len(ways[0]), sorted(set(itertools.chain(*ways)))
            for way in itertools.combinations(boundaries, fewest + 1):
                if max(way_s(way[:-1]), way_s(way[1:])) < least_s:
                    least_s = min(least_s, way_s(way))
                    if least_s <= low_s:
                        return least_s
        return least_s

    def _way_s(
        self, shape: PipelineShape, crossing: PipelineCrossing, crossed: Sequence[int], enough_s: float
    ) -> float:
        """The bound where it crosses after these stages."""
        latency_s = shape.latency_s.copy()
        latency_s[crossed] = crossing.crossing_s
        bound_s = self._bound_s(replace(shape, latency_s=latency_s), enough_s)
        if crossing.all_s and bound_s < enough_s:
            latency_s = latency_s.copy()
            latency_s[crossed] = crossing.plain_s
            plain = replace(shape, latency_s=latency_s)
            last_s = shared_links_bound(plain, crossing.shared_links(crossed, shape.num_stages))
            bound_s = max(bound_s, last_s + self.relaxed.update_s)
        return bound_s

    def spanning_s(self, spanning: SplitRanks, enough_s: float, low_s: float = 0.0) -> float:
        """The least bound where some ranks exchange between groups, all of them together or whichever one it is.

        It may be lower than the least where that is no more than `low_s`.
        """
        if self.relaxed.shape is None:
            return float("inf")
        all_s, link = self._exchanges_end_s(spanning), spanning.link
        if all_s < enough_s and link not in self.spanned:
            one_s = self._least_spanning_s(self.relaxed.shape, link, low_s)
            if one_s <= low_s:
                return all_s
            self.spanned[link] = one_s
        return max(all_s, self.spanned.get(link, 0.0))

    def inside_s(self, group_of_pool: Sequence[int], most_replicas: IntArray) -> float:
        """The least bound of the slowest replica where each is inside a group, which has room for so many.

        No more of them than there is room for are in the groups where a pipeline is fastest.
        """
        shape, names = self.relaxed.shape, [set[str]() for _ in most_replicas]
        for group, pool in zip(group_of_pool, self.context.pools, strict=True):
            names[group].add(pool.gpu.name)
        types = [frozenset(one) for one in names]
        if shape is None or len(set(types)) == 1:
            return 0.0
        charge_pipeline_bounds(self.clock, shape.num_operations, len(set(types)))
        bound_of = {one: self.on_types_s(one) for one in set(types)}
        bounds_s = np.array([bound_of[one] for one in types])
        order = np.argsort(bounds_s, kind="stable")
        last = int(np.searchsorted(np.cumsum(most_replicas[order]), self.configurations[0].degrees.dp))
        return float(bounds_s[order[last]]) if last < len(types) else float("inf")

    def _exchanges_end_s(self, spanning: SplitRanks) -> float:
        """End of the exchanges of so many ranks on all links, of which none begins before its gradients are ready."""
        columns, link, releases = columns_of_all(self.configurations), spanning.link, self.relaxed.releases
        sent = link.sent_bytes(self.parameters, self.expert_parameters, columns, self.context.job)
        num_ranks, ends_s = int(spanning.num_ranks.min()), np.zeros(len(columns))
        for last, capacity in ((releases.last_of_each, spanning.capacity_per_byte), (releases.last_of_any, 1.0)):
            begin_s, num_bytes = last(sent, num_ranks)
            end_s = link.end_s(num_bytes * capacity, spanning.messages_s, begin_s[:, None])
            ends_s = np.maximum(ends_s, end_s.max(axis=0))
        return float(ends_s.min()) + self.relaxed.update_s

    def _least_spanning_s(self, shape: PipelineShape, link: ExchangeLink, low_s: float) -> float:
        """The least bound over the ranks that may be the one, of which all stages exchange between groups."""
        least_s, parameters = float("inf"), (self.parameters, self.expert_parameters)
        exchange_s = link.stages_s(*parameters, columns_of_all(self.configurations), self.context.job)
        exposed_s = np.maximum(exchange_s - self.relaxed.overlap_s, shape.sync_s)
        for rank in range(shape.num_ranks):
            own = shape.rank_of_s == rank
            sync_s, links = np.where(own, exposed_s, shape.sync_s), np.where(own, 0, NO_CHANNEL)
            least_s = min(least_s, self._bound_s(replace(shape, sync_s=sync_s, sync_link_s=links), least_s))
            if least_s <= low_s:
                break
        return least_s

    def _bound_s(self, shape: PipelineShape, enough_s: float) -> float:
        charge_pipeline_bounds(self.clock, shape.num_operations)
        return self.relaxed.bound_s(shape, enough_s)


@dataclass(frozen=True)
class PipelineCrossing:
    """How replicas cross: what each of their crossings takes (seconds), which adds up to these delays.

    That is of some replica, with what is lost; of any replica it is `plain_s`, of which `after_s` is left when a
    message is off the links between the groups, where those of all replicas take `all_s`. `queue_s` is for how long
    each takes the slowest queue. `most_ranks` says of either of two groups how many ranks it holds, where all ranks are
    whole in one of them.
    """

    crossing_s: float
    delays: MessageDelays
    plain_s: float = 0.0
    after_s: float = 0.0
    all_s: float = 0.0
    queue_s: float = 0.0
    most_ranks: tuple[int, ...] | None = None

    def shared_links(self, crossed: Sequence[int], num_stages: int) -> SharedLinks:
        """The links of messages after these stages: between two groups there is one each way, taken in turn."""
        links, all_s, after_s = np.full((2, num_stages), NO_CHANNEL), np.zeros(num_stages), np.zeros(num_stages)
        links[0, crossed] = np.arange(len(crossed)) % 2
        links[1, crossed] = 1 - links[0, crossed]
        all_s[crossed], after_s[crossed] = self.all_s, self.after_s
        return SharedLinks(links[0], links[1], all_s, all_s, after_s)

    def is_easier_than(self, other: PipelineCrossing) -> bool:
        """Whether what bounds a pipeline that crosses so also bounds it where it crosses as the other says."""
        within = self.most_ranks is None or self.most_ranks == other.most_ranks
        return within and all(one <= more for one, more in zip(self._times_s, other._times_s, strict=True))

    @property
    def _times_s(self) -> tuple[float, ...]:
        return (self.crossing_s, self.plain_s, self.after_s, self.all_s, self.queue_s, *self.delays)


def crossing_bound_s(pipelines: CrossingPipelines, bound_s: float, high_s: float) -> float:
    """`bound_s` (seconds) of configurations that are alike, or more where every way over some cut takes longer.

    What goes beyond `high_s` does not matter.
    """
    context, first, hop_s = pipelines.context, pipelines.configurations[0], pipelines.relaxed.hop_s
    columns = columns_of_all(pipelines.configurations)
    if first.degrees.pp == 1 or not _may_matter(context, first, columns, bound_s, hop_s):
        return bound_s
    family, split = FAMILY_CODES.index(first.family), LAYER_SPLIT_CODES.index(first.layer_split)
    space = Space(columns, np.full(len(columns), family), np.full(len(columns), split))
    cases_by_cut, update_s = even_cases(context, space)
    for cut, cases in zip(cuts(context), cases_by_cut, strict=True):
        least_s = float("inf")
        for case in cases:
            alone_s = float(np.where(case.possible, case.least_s + update_s, np.inf).min())
            if alone_s >= min(least_s, high_s):
                least_s = min(least_s, alone_s)
                continue  # whatever its pipeline takes
            crossing = _crossing(first, case, hop_s)
            case_s = max(alone_s, bound_s if crossing is None else pipelines.crossing_s(crossing, least_s, bound_s))
            if case.spanning is not None and case_s < least_s:
                case_s = max(case_s, pipelines.spanning_s(case.spanning, least_s, bound_s))
            if case.most_replicas is not None and case_s < least_s:
                most_replicas = case.most_replicas[case.possible].max(axis=0)
                case_s = max(case_s, pipelines.inside_s(cut.group_of_pool, most_replicas))
            least_s = min(least_s, case_s)
            if least_s <= bound_s:
                break
        bound_s = max(bound_s, least_s)
    return bound_s


def _may_matter(context: Context, first: Configuration, columns: Columns, bound_s: float, hop_s: float) -> bool:
    """Some cut is so far apart that crossing it may be what a bound lacks."""
    size, number = boundary_bytes(context.job, columns), crossings_of(first)
    each_s = [CrossingMessages.of(cut, columns, size).each_s(columns.dp).max() for cut in cuts(context)]
    return max((number * (one - hop_s) for one in each_s), default=0.0) > WORTH * bound_s


def _crossing(first: Configuration, case: CutCase, hop_s: float) -> PipelineCrossing | None:
    """What each crossing takes of the replicas that cross, and all messages; None where none has to.

    Where every rank is whole all replicas cross after the same ranks, so they meet on the links.
    """
    delay, rows = case.delay, case.possible
    if delay.messages is None or not rows.any() or not delay.num_replicas[rows].all():
        return None
    messages, most = delay.messages, case.most_ranks
    all_bytes = delay.num_replicas * messages.message_bytes if case.spanning is None else np.zeros(len(rows))
    crossing_s = max(float(messages.each_s(delay.num_replicas)[rows].min()), hop_s)
    return PipelineCrossing(
        crossing_s,
        MessageDelays.along(first, hop_s, crossing_s, delay.num_groups),
        plain_s=max(messages.latency_s + float(messages.transfer_s[rows].min()), hop_s),
        after_s=messages.latency_s,
        all_s=float(all_bytes[rows].min()) / messages.link_bytes_per_s,
        queue_s=float(messages.queue_s(delay.num_hops, np.where(rows, 0.0, np.inf))[rows].min()),
        most_ranks=None if most is None else tuple(most[rows].max(axis=0).tolist()),
    )


def ways_to_cross(configuration: Configuration) -> Iterator[tuple[int, ...]]:
    """Where a pipeline in two groups may cross at least: after which ranks, the last one where a loop comes home.

    One boundary between neighbours at least is on the way; a loop goes over all ranks and home, so over two.
    """
    pp = configuration.degrees.pp
    both = itertools.combinations(range(pp), 2)
    return both if configuration.family == "loop" else ((rank,) for rank in range(pp - 1))


def _is_within(configuration: Configuration, way: tuple[int, ...], most_ranks: Sequence[int]) -> bool:
    """Whether either group has no more ranks than it holds, where a pipeline crosses there and nowhere else."""
    one = way[-1] - way[0] if len(way) == 2 else way[0] + 1
    parts = one, configuration.degrees.pp - one
    return any(all(map(operator.le, some, most_ranks)) for some in (parts, parts[::-1]))


def crossed_stages(configuration: Configuration, way: Sequence[int]) -> list[int]:
    """Stages whose message crosses, where a pipeline does so after these ranks."""
    last, looped, ranks = configuration.degrees.pp - 1, configuration.family == "loop", configuration.rank_of_stages
    return [
        stage
        for stage, (here, there) in enumerate(itertools.pairwise(ranks))
        if here != there and (last if looped and here == last else min(here, there)) in way
    ]
