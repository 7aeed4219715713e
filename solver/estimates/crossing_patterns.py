"""The patterns in which a configuration may cross places, and what each byte and message then takes, roughly.

A pattern shares out the capacity groups in blocks (`solver/placement/distances.py`): replicas whole in capacity groups,
ranks whole in them, or both between groups of capacity groups. Proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.context import Context
from solver.cost.columns import Columns
from solver.estimates.params import ESTIMATES
from solver.placement.capacity_groups import groups_by_row, peaks_flops_per_s
from solver.placement.distances import ALL, EACH, BlockPaths, Blocks


@dataclass(frozen=True)
class CrossingPattern:
    """Columns of n configurations under one crossing pattern; `possible` where capacity groups can hold it.

    Exchanges: over how many places, seconds per byte that a place sends, of one alone and of the links for all of
    them, delays of one exchange, and the part of the ranks that exchange; `replicas` of a rank are in one place.
    Messages: seconds per byte of one, without and with the way back of loops, delays of all hops of one pass, and the
    losses and the wait for each. `slower`: how many times as long the slowest GPUs in use take as the slowest
    that are needed where the fastest are used first.
    """

    kind: str
    possible: BoolArray
    slower: FloatArray
    num_places: FloatArray
    exchange_s_per_byte: FloatArray
    links_s_per_byte: FloatArray
    exchange_delay_s: FloatArray
    exchanging: FloatArray
    replicas: FloatArray
    message_s_per_byte: FloatArray
    loop_s_per_byte: FloatArray
    delay_s: FloatArray
    wait_s_per_byte: FloatArray
    longest_wait_s: FloatArray


def crossing_patterns(context: Context, columns: Columns) -> Iterator[CrossingPattern]:
    """Every crossing pattern of these configurations."""
    capacity = _Capacity(context, columns)
    for blocks in context.partitions:
        yield capacity.whole_replicas(blocks) if blocks.kind == ALL else capacity.whole_ranks(blocks)
        if blocks.kind == EACH and len(blocks.groups_b) > 1:
            yield capacity.in_order(blocks)


class _Capacity:
    """Stage groups that every capacity group has room for, by configuration."""

    def __init__(self, context: Context, columns: Columns) -> None:
        self.context, self.columns = context, columns
        self.group = (columns.tp * columns.cp).astype(np.float64)
        self.held_u = groups_by_row(context.pools, context.group_of_pool, columns.tp, columns.cp)
        nic = min(pool.nic_bytes_per_s_per_gpu for pool in context.pools)
        self.exchange_card = nic * context.stack.scale_out_efficiency.value
        self.message_card = nic * context.stack.point_to_point_efficiency.value
        self.peak_u = peaks_flops_per_s(context.pools, context.capacity_groups)

    def whole_replicas(self, blocks: Blocks) -> CrossingPattern:
        """One capacity group after another; replicas that none holds whole lie over the capacity that is left."""
        columns, order = self.columns, list(blocks.groups_b[0])
        held = self.held_u[:, order]
        fit = held // columns.pp[:, None]
        upto = np.cumsum(fit, axis=1)
        used = np.minimum((upto < columns.dp[:, None]).sum(axis=1), len(order) - 1) + 1
        missing = np.maximum(columns.dp - upto[:, -1], 0)
        left = held.sum(axis=1) - columns.pp * upto[:, -1]
        way = np.where((used > 1) | (blocks.rings[0].num_places[used] > 1), used, 0)
        fewest = self._fewest(blocks.groups_b[0], columns.pp)
        spanned = np.ceil(columns.pp * len(order) / np.maximum(left, 1))
        chain = np.where(missing > 0, np.clip(spanned, 2, len(order)), 0).astype(np.int64)
        groups = next((one for one in self.context.partitions if one.kind == EACH), blocks)
        return self._pattern(
            blocks,
            possible=missing * columns.pp <= left,
            slower=self._slower([[u] for u in order], np.where(missing > 0, len(order), used)),
            ring=way,
            fewest=fewest,
            exchanging=np.ones(len(columns)),
            chain=np.where(chain < len(groups.chains[0].load), chain, 0),
            through=groups,
            crossing=missing.astype(np.float64),
        )

    def whole_ranks(self, blocks: Blocks) -> CrossingPattern:
        """Ranks block by block, their replicas whole in it; those held whole nowhere are spread."""
        columns = self.columns
        held_b = np.stack([self.held_u[:, list(own)].sum(axis=1) for own in blocks.groups_b], axis=1)
        ranks = held_b // columns.dp[:, None]
        upto = np.cumsum(ranks, axis=1)
        used = np.minimum((upto < columns.pp[:, None]).sum(axis=1), held_b.shape[1] - 1) + 1
        spread = np.maximum(columns.pp - upto[:, -1], 0).astype(np.float64)
        ring = _slowest_rings(blocks)[used - 1]
        within = blocks.rings[0].num_places[ring]
        pattern = self._pattern(
            blocks,
            possible=spread == 0,
            slower=self._slower(blocks.groups_b, used),
            ring=np.where(within > 1, ring, 0),
            fewest=self._fewest_of_blocks(blocks, ranks, used),
            exchanging=np.where(within > 1, 1.0, 0.0),
            chain=np.where(used > 1, used, 0),
            through=blocks,
            crossing=columns.dp.astype(np.float64),
        )
        if not (spread > 0).any() or blocks.kind != EACH:
            return pattern
        whole = next(one for one in self.context.partitions if one.kind == ALL)
        over = self._pattern(
            whole,
            possible=(held_b.sum(axis=1) >= columns.pp * columns.dp) & (upto[:, -1] > 0),
            slower=self._slower(blocks.groups_b, np.full(len(columns), len(blocks.groups_b))),
            ring=np.full(len(columns), len(self.context.capacity_groups)),
            fewest=np.maximum(columns.dp / whole.rings[0].num_places[-1], 1.0),
            exchanging=spread / columns.pp,
            chain=np.full(len(columns), len(blocks.groups_b)),
            through=blocks,
            crossing=columns.dp.astype(np.float64),
        )
        return _either(spread > 0, over, pattern)

    def in_order(self, blocks: Blocks) -> CrossingPattern:
        """Rank after rank, capacity group after capacity group: a rank spans two where one is full, half in each."""
        columns = self.columns
        whole = next(one for one in self.context.partitions if one.kind == ALL)
        held = np.stack([self.held_u[:, list(own)].sum(axis=1) for own in blocks.groups_b], axis=1)
        upto, need = np.cumsum(held, axis=1), columns.pp * columns.dp
        used = np.minimum((upto < need[:, None]).sum(axis=1), held.shape[1] - 1) + 1
        are_whole = (held // columns.dp[:, None]).sum(axis=1) >= columns.pp
        found = self._pattern(
            whole,
            possible=(upto[:, -1] >= need) & ~are_whole,
            slower=self._slower(blocks.groups_b, used),
            ring=np.where(used > 1, used, 0),
            fewest=np.maximum(columns.dp / 2.0, 1.0),
            exchanging=1.0 / columns.pp,
            chain=np.where(used > 1, used, 0),
            through=blocks,
            crossing=columns.dp.astype(np.float64),
        )
        return replace(
            found,
            num_places=np.minimum(found.num_places, 2.0),
            exchange_delay_s=found.exchange_delay_s / np.maximum(found.num_places - 1.0, 1.0),
            replicas=np.ceil(columns.dp / np.minimum(found.num_places, 2.0)),
        )

    @cached_property
    def _needed_peak(self) -> FloatArray:
        """Peak of the slowest GPUs that are needed where the fastest are used first, by configuration."""
        order = np.argsort(-self.peak_u, kind="stable")
        need = self.columns.pp * self.columns.dp
        before = (np.cumsum(self.held_u[:, order], axis=1) < need[:, None]).sum(axis=1)
        return np.asarray(self.peak_u[order][np.minimum(before, len(order) - 1)])

    def _slower(self, groups_b: Sequence[Sequence[int]], used: IntArray) -> FloatArray:
        """How many times as long the slowest of the first so many blocks takes as the slowest that is needed."""
        slowest = np.minimum.accumulate([self.peak_u[list(own)].min() for own in groups_b])
        return np.asarray(self._needed_peak / np.minimum(slowest[used - 1], self._needed_peak))

    def _fewest_of_blocks(self, blocks: Blocks, ranks_b: IntArray, used: IntArray) -> FloatArray:
        """The fewest replicas that some place in use has of a rank."""
        least = np.full(len(used), np.inf)
        for number, own in enumerate(blocks.groups_b):
            fewest = self._fewest(own, np.clip(ranks_b[:, number], 1, self.columns.pp))
            least = np.where((number < used) & (ranks_b[:, number] > 0), np.minimum(least, fewest), least)
        return np.where(np.isfinite(least), least, self.columns.dp)

    def _fewest(self, groups: Sequence[int], num_ranks: IntArray) -> FloatArray:
        """The fewest replicas of so many ranks in a place where groups are filled one after another, zone by zone."""
        fit = self.held_u[:, list(groups)] // num_ranks[:, None]
        dp = self.columns.dp[:, None]
        before = np.minimum(np.cumsum(fit, axis=1) - fit, dp)
        here = np.minimum(fit, dp - before).astype(np.float64)
        zones = np.array(
            [len({self.context.pools[pool].place for pool in self.context.capacity_groups[u].pools}) for u in groups]
        )
        in_last = here - np.floor((here - 1.0) * zones / np.maximum(fit, 1)) * fit / zones
        least = np.where(here > 0, in_last, np.inf).min(axis=1)
        even = self.columns.dp / np.maximum((here > 0).sum(axis=1), 1)
        fewest = np.where(np.isfinite(least), np.maximum(np.floor(least), 1.0), 1.0)
        trust = ESTIMATES.trust_in_fewest
        trusted: FloatArray = fewest**trust * np.maximum(even, 1.0) ** (1.0 - trust)
        return trusted

    def _pattern(
        self,
        blocks: Blocks,
        *,
        possible: BoolArray,
        slower: FloatArray,
        ring: IntArray,
        fewest: FloatArray,
        exchanging: FloatArray,
        chain: IntArray,
        through: Blocks,
        crossing: FloatArray,
    ) -> CrossingPattern:
        beside = ESTIMATES.beside if blocks.shared or through is not blocks else 1.0
        both = np.where((ring > 0) & (chain > 0) & (crossing > 0), beside, 1.0)
        plain, hops = blocks.rings[0], through.chains[0]
        alone, links = self._exchange_s(blocks, ring, fewest, both)
        return CrossingPattern(
            kind=blocks.kind,
            possible=possible,
            slower=slower,
            num_places=plain.num_places[ring],
            exchange_s_per_byte=alone,
            links_s_per_byte=links,
            exchange_delay_s=2.0 * (plain.num_places[ring] - 1.0) * plain.farthest_s[ring],
            exchanging=exchanging,
            replicas=np.ceil(self.columns.dp / plain.num_places[ring]),
            message_s_per_byte=self._message_s(through.chains, chain, crossing, both),
            loop_s_per_byte=self._message_s(through.loops, chain, crossing, both),
            delay_s=hops.latency_s[chain],
            wait_s_per_byte=hops.lost_per_byte[chain] * crossing * hops.load[chain],
            longest_wait_s=hops.round_trip_s[chain],
        )

    def _exchange_s(
        self, blocks: Blocks, ring: IntArray, fewest: FloatArray, both: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds per byte of an exchange, and of the links, which carry several at once where cards set its pace.

        It is split over several paths only where links do.
        """
        flows = fewest * self.group
        cards = flows * self.exchange_card
        seconds = []
        for ways in blocks.rings:
            able = ways.rate_bytes_per_s(ring, flows, self.exchange_card)
            reached = np.minimum(1.0, able / np.minimum(cards, ways.capacity_bytes_per_s[ring]))
            seconds.append(1.0 / (np.minimum(cards, both * ways.free_bytes_per_s[ring]) * reached))
        free = both * blocks.rings[0].free_bytes_per_s[ring]
        alone = np.where(ring > 0, np.where(free < cards, np.minimum.reduce(seconds), seconds[0]), 0.0)
        return alone, np.where(free < cards, alone, np.where(ring > 0, 1.0 / free, 0.0))

    def _message_s(
        self, found: tuple[BlockPaths, ...], chain: IntArray, crossing: FloatArray, both: FloatArray
    ) -> FloatArray:
        """Seconds per byte of a message where so many replicas send at once; it is split only where links set its pace.

        What is split shares the near links with as many others.
        """
        seconds = []
        for ways, beside in zip(found, (1.0, ESTIMATES.crowded), strict=False):
            sharers = np.maximum(beside * crossing * ways.load[chain], 1.0)
            rate = ways.rate_bytes_per_s(chain, sharers * self.group, self.message_card) / sharers
            capacity = both * ways.free_bytes_per_s[chain] / np.maximum(beside * crossing, 1.0)
            seconds.append(1.0 / np.minimum(rate, capacity))
        waits = both * found[0].free_bytes_per_s[chain] <= np.maximum(crossing, 1.0) * self.group * self.message_card
        gain = ESTIMATES.split_gain
        split = seconds[0] ** (1.0 - gain) * np.minimum.reduce(seconds) ** gain
        best: FloatArray = np.where(waits, split, seconds[0])
        return np.where((chain > 0) & (crossing > 0), best, 0.0)


def _slowest_rings(blocks: Blocks) -> IntArray:
    """Of the rings of the first n blocks the slowest, by its places and rate, for every n from one on."""
    rings = blocks.rings[0]
    slow_s = (1.0 - 1.0 / rings.num_places[1:]) / rings.free_bytes_per_s[1:]
    slowest = [int(np.argmax(slow_s[: number + 1])) + 1 for number in range(len(slow_s))]
    return np.array(slowest, dtype=np.int64)


def _either(rows: BoolArray, these: CrossingPattern, others: CrossingPattern) -> CrossingPattern:
    """`these` for the marked rows, `others` for the rest."""
    values = {
        name: np.where(rows, getattr(these, name), getattr(others, name))
        for name in CrossingPattern.__dataclass_fields__
        if name != "kind"
    }
    return CrossingPattern(kind=others.kind, **values)
