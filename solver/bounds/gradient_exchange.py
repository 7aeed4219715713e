"""The fewest bytes that exchanges of gradients send out of every place: of stages, of ranks, of the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.bounds.lightest import last_stage
from solver.configurations.pricing import Shares, StageCosts, least_cost, moe_among
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import crossing_bytes, group_parameters
from solver.cost.job import Job
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class SplitLayers:
    """The most usual layers of ranks that span groups, and the most layers of such ranks that follow each other.

    Of the other kind no more than `longest_others` follow each other in the model.
    """

    usual: FloatArray
    in_row: FloatArray
    longest_others: int


@dataclass(frozen=True)
class UnknownShares:
    """Layers shared out in any way: so many ranks have no more usual ones than `most_usual` says.

    `usual` is what one of the `num_usual` costs. Stages with u of these that follow each other are no more than
    `longest_others` + u `per_usual`. `ways_s` are those before and behind messages between two groups that hold so many
    whole ranks at most.
    """

    usual: StageCost
    num_usual: int
    most_usual: Callable[[IntArray], FloatArray]
    longest_others: int
    per_usual: float
    ways_s: Callable[[IntArray, SplitLayers], FloatArray]

    @classmethod
    def of(
        cls,
        price: StageCosts,
        num_usual: int,
        most_usual: Callable[[IntArray], FloatArray],
        ways_s: Callable[[IntArray, SplitLayers], FloatArray],
    ) -> UnknownShares:
        """For every number of layers in a row, of which each stage has one or more."""
        context = price.context
        fewest, most = moe_among(context)
        lengths = np.arange(len(fewest))
        among = fewest if context.job.num_moe_layers else lengths - most
        longest = int(lengths[among == 0].max())
        beyond = (lengths - longest)[among > 0] / among[among > 0]
        per_usual = float(beyond.max(initial=1.0))
        return cls(price.usual_layer, num_usual, most_usual, longest, per_usual, ways_s)


@dataclass(frozen=True)
class GradientExchange:
    """Bytes that exchanges send out of a place: those of the smallest stage, of the lightest rank, of all ranks but so
    many (`beside`), and, where the shares of layers are not known, of a layer of the usual kind.
    """

    smallest: FloatArray
    lightest: FloatArray
    beside: Callable[[IntArray], FloatArray]
    usual: FloatArray

    @classmethod
    def of(
        cls, price: StageCosts, shares: Shares, num_places: IntArray, ranks: Sequence[StageCost] | UnknownShares
    ) -> GradientExchange:
        """`ranks` are the costs of the first and the last one, where it is known how layers are shared out."""
        job, columns = price.context.job, price.columns

        def sent(parameters: FloatArray, experts: FloatArray) -> FloatArray:
            everything = group_parameters(parameters, experts, columns)
            return crossing_bytes(everything, columns, num_places, job)

        model = price.whole
        whole = sent(model.parameters, model.expert_parameters)
        smallest = sent(*least_parameters(price, shares))
        if isinstance(ranks, UnknownShares):
            usual = sent(ranks.usual.parameters, ranks.usual.expert_parameters)

            def beside(retained: IntArray) -> FloatArray:
                usual_beside = np.maximum(ranks.num_usual - ranks.most_usual(retained), 0.0)
                return np.where(retained > 0, usual_beside * usual, whole)

            return cls(smallest, columns.vpp * smallest, beside, usual)
        between = [sent(one.parameters, one.expert_parameters) for one in _lightest_between(price, shares)]
        at_ends = [sent(one.parameters, one.expert_parameters) for one in ranks]
        lightest = np.minimum.reduce([*(np.where(columns.pp > 2, one, np.inf) for one in between), *at_ends])
        largest = sent(*_most_parameters(price, shares, ranks))
        return cls(smallest, lightest, lambda retained: whole - retained * largest, np.zeros_like(whole))

    def times(self, factor: FloatArray) -> GradientExchange:
        """The exchange where every parameter sends `factor` times as much, by row."""
        return GradientExchange(
            factor * self.smallest,
            factor * self.lightest,
            lambda retained: factor * self.beside(retained),
            factor * self.usual,
        )

    def of_others(
        self, ranks: IntArray, vpp: IntArray, retained: IntArray, capacity_per_byte: FloatArray | float = 1.0
    ) -> FloatArray:
        """Bytes of the exchanges of so many ranks, with so many ranks whole in a group.

        Each byte counts `capacity_per_byte` times where as many are sent by each of the ranks.
        """
        equal = ranks * np.maximum(vpp * self.smallest, self.lightest)
        return np.maximum(self.beside(retained), capacity_per_byte * equal)

    def least_s(self, split: SplitRanks, vpp: IntArray, retained: IntArray) -> FloatArray:
        """End of the exchanges of all stages of the ranks that are split, with so many ranks whole in a group.

        All of them come after the first backward of all micro-batches, the last one of each rank after all its work.
        What they send fits through the links; those of an average rank follow each other on its cards.
        """
        link, ranks = split.link, split.num_ranks
        others = self.of_others(ranks, vpp, retained)
        in_row_s = others / np.maximum(ranks, 1) / link.cards_rate + vpp * link.steps_s
        filling = self.of_others(ranks, vpp, retained, split.capacity_per_byte)
        all_s = np.maximum(link.stage_work_s + in_row_s, link.end_s(filling, split.messages_s, link.stage_work_s))
        last = split.capacity_per_byte * ranks * self.smallest
        last_s = np.maximum(last / link.rate, self.smallest / link.cards_rate + link.steps_s)
        return np.maximum(all_s, link.rank_work_s + last_s)


@dataclass(frozen=True, eq=False)
class ExchangeLink:
    """What exchanges between groups over so many places wait for, and how they go on: bytes per second, and seconds of
    steps of each.

    `stage_work_s` and `rank_work_s` are the least work of a rank before a stage exchanges and in all, less what
    overlaps; `rate` is that of the links for all exchanges at once, `cards_rate` that of one on the cards of its rank.
    `all_rate` is what `rate` would be if all links were as good for every group: what messages leave counts there.
    """

    stage_work_s: FloatArray
    rank_work_s: FloatArray
    rate: FloatArray
    all_rate: FloatArray
    cards_rate: FloatArray
    steps_s: FloatArray
    num_places: IntArray

    def end_s(self, num_bytes: FloatArray, messages_s: FloatArray | float, begin_s: FloatArray | float) -> FloatArray:
        """Earliest time (seconds) at which the bytes of exchanges that begin at `begin_s` have left links that are busy
        with messages for `messages_s` of the time.

        With messages the least T with (T - begin) (1 - messages / T) >= time without them, and T >= messages.

        >>> link = ExchangeLink(*np.ones((2, 1)), np.array([2.0]), np.array([2.0]), *np.ones((3, 1)))
        >>> [float(link.end_s(np.array([2.0]), np.array([s]), b).round(3)[0]) for b, s in ((0.0, 2.0), (2.0, 1.5))]
        [3.0, 3.686]
        """
        begin_s = np.where(num_bytes > 0, begin_s, 0.0)
        total_s = begin_s + num_bytes / self.all_rate + messages_s
        beside = (total_s + np.sqrt(np.maximum(total_s**2 - 4.0 * begin_s * messages_s, 0.0))) / 2.0
        return np.asarray(np.maximum(beside, begin_s + num_bytes / self.rate))

    def stages_s(self, dense: FloatArray, experts: FloatArray, columns: Columns, job: Job) -> FloatArray:
        """Least exchange of every stage of a rank (seconds), one after another: on the links, or on cards and in steps.

        Dense and expert parameters are by row and stage; of the rows the least counts.
        """
        sent = self.sent_bytes(dense, experts, columns, job)
        on_links, on_cards = sent / self.rate[:, None], sent / self.cards_rate[:, None] + self.steps_s[:, None]
        is_longer = on_cards.sum(axis=1) > on_links.sum(axis=1)
        least: FloatArray = np.where(is_longer[:, None], on_cards, on_links).min(axis=0)
        return least

    def sent_bytes(self, dense: FloatArray, experts: FloatArray, columns: Columns, job: Job) -> FloatArray:
        """What every stage sends out of a place, by row and stage as the parameters are."""
        return sent_bytes(dense, experts, columns, self.num_places, job)


@dataclass(frozen=True)
class SplitRanks:
    """Ranks whose replicas are split over groups: how many there are at least, and how they exchange, by configuration.

    Messages take all links for `messages_s` (seconds) of an iteration. Where each of these ranks sends as many bytes,
    one takes `capacity_per_byte` times what it takes at the rates of the link, on average.
    """

    num_ranks: IntArray
    link: ExchangeLink
    messages_s: FloatArray | float = 0.0
    capacity_per_byte: FloatArray | float = 1.0


def sent_bytes(
    dense: FloatArray, experts: FloatArray, columns: Columns, num_places: IntArray | int, job: Job
) -> FloatArray:
    """What every stage over so many places sends out of each, by row and stage as the parameters on a GPU are."""
    rows = np.repeat(np.arange(len(columns)), dense.shape[1])
    each, over = columns.take(rows), np.broadcast_to(num_places, len(columns))[rows]
    parameters = group_parameters(dense.ravel(), experts.ravel(), each)
    return np.asarray(crossing_bytes(parameters, each, over, job).reshape(dense.shape))


def smallest_stages(price: StageCosts, shares: Shares) -> tuple[StageCost, ...]:
    """The stage with the fewest layers, wherever they are, with the fewest MoE layers and with the most; and the last.

    The last has the logits, and may have nothing else.
    """
    split = shares.split
    inner = np.where(price.columns.pp * price.columns.vpp > 2, split.middle, split.first)
    layers = np.minimum(split.first, inner)
    fewest, most = (number[layers] for number in moe_among(price.context))
    return price.of(layers - fewest, fewest), price.of(layers - most, most), last_stage(price, shares)


def least_parameters(price: StageCosts, shares: Shares) -> tuple[FloatArray, FloatArray]:
    """Dense and expert parameters on one GPU of the stage with the fewest layers."""
    least = least_cost(smallest_stages(price, shares))
    return least.parameters, least.expert_parameters


def _lightest_between(price: StageCosts, shares: Shares) -> Iterator[StageCost]:
    """The lightest rank between the ends: with as many MoE layers as there may be, and with as many dense ones."""
    job, layers = price.context.job, shares.inner_ranks()[0]
    for moe in (np.minimum(layers, job.num_moe_layers), np.maximum(layers - job.num_dense_layers, 0)):
        yield price.of(layers - moe, moe)


def _most_parameters(price: StageCosts, shares: Shares, ends: Sequence[StageCost]) -> tuple[FloatArray, FloatArray]:
    """Dense and expert parameters on one GPU of the rank with the most: one of the ends, or the heaviest between."""
    layers = price.layer_of_each_kind()
    between = np.where(price.columns.pp > 2, shares.inner_ranks()[1], 0)
    dense = np.maximum.reduce([between * one.parameters for one in layers] + [one.parameters for one in ends])
    experts = [between * one.expert_parameters for one in layers] + [one.expert_parameters for one in ends]
    return dense, np.maximum.reduce(experts)
