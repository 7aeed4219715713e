"""Stage messages that leave the groups of a cut where some ranks lie whole: of which replicas, and over which links.

Proofs, a line per term: docs/bounds.md, "Messages that leave groups".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.visited_groups import least_crossing_s
from solver.cost.columns import Columns
from solver.cost.data_parallel import replicas_together

UNLINKED = 1e30  # bytes per second of a group that nothing leaves: what would have to is not counted


class Leaving(NamedTuple):
    """Messages of a micro-batch that leave groups, over the rate of the links that they take, and of all groups
    together; the fewest replicas that leave one, and those with a stage outside of all groups with whole ranks.
    """

    by_rate: FloatArray
    in_all: FloatArray
    crossing: IntArray
    outside: FloatArray

    def at(self, rows: IntArray) -> Leaving:
        """The messages of these rows alone."""
        return Leaving(self.by_rate[rows], self.in_all[rows], self.crossing[rows], self.outside[rows])


@dataclass(frozen=True)
class LeavingMessages:
    """Rows that differ in their messages, what each group of a cut holds of their stage groups, and its rate outwards.

    `held` is rows x groups, `rate_g` and `rate_of_set` are those of the cut in bytes per second.
    """

    columns: Columns
    looped: BoolArray
    held: IntArray
    rate_g: FloatArray
    rate_of_set: FloatArray

    def least(self, num_groups: int, whole: IntArray) -> Leaving:
        """The least of all ways in which `whole` ranks or more lie in so many groups, at least one in each of these."""
        return self._of_one(whole) if num_groups == 1 else self._of_several(num_groups, whole)

    def around(self, num_groups: int, whole: IntArray) -> tuple[FloatArray, FloatArray]:
        """Messages of a micro-batch that leave groups: k, and for each run of stages between whole ranks as many again.

        A run has a stage outside of the groups with whole ranks but where there is room inside. A replica that leaves
        them for it comes back, but for those at either end.
        """
        columns = self.columns
        capacity = self._most_held[:, num_groups - 1] - whole * columns.dp
        start = np.asarray(-4.0 * (columns.vpp * capacity + columns.dp), dtype=np.float64)
        return start, 4.0 * columns.dp.astype(np.float64)

    @cached_property
    def whole(self) -> IntArray:
        """Ranks that each group holds with all their replicas."""
        return np.asarray(np.minimum(self.held // self.columns.dp[:, None], self.columns.pp[:, None]))

    @cached_property
    def most_whole(self) -> IntArray:
        """Most ranks that lie whole in one group, and none in another one.

        Of two groups each of the other ranks has those replicas that share every place there, too: W d + (p - W) e.
        """
        pp, dp, together = (one[:, None] for one in (self.columns.pp, self.columns.dp, self._together))
        whole = self.whole
        if len(self.rate_g) == 2:
            beside = (self.held - pp * together) // np.maximum(dp - together, 1)
            whole = np.where(self.held >= pp * dp, whole, np.clip(beside, 0, np.where(dp > together, whole, 0)))
        return np.asarray(whole.max(axis=1))

    @cached_property
    def inside(self) -> IntArray:
        """Most replicas that each group holds with all their ranks: those that share every place are all inside."""
        together = self._together[:, None]
        return self.held // (self.columns.pp[:, None] * together) * together

    @cached_property
    def most_inside(self) -> IntArray:
        """Most replicas that are inside one of 1, 2, 3 ... groups each."""
        return np.cumsum(-np.sort(-self.inside, axis=1), axis=1)

    @cached_property
    def groups_for_all(self) -> IntArray:
        """Groups that replicas need if none crosses; one more than there are where they cannot."""
        needed: IntArray = (self.most_inside < self.columns.dp[:, None]).sum(axis=1) + 1
        return needed

    @cached_property
    def _together(self) -> IntArray:
        return replicas_together(self.columns)

    @cached_property
    def _most_held(self) -> IntArray:
        """What 1, 2, 3 ... groups hold at most."""
        return np.cumsum(-np.sort(-self.held, axis=1), axis=1)

    def _leaving(self, held: IntArray, whole: IntArray) -> FloatArray:
        """Replicas that do not stay in a group that holds so much, all that share every place or none of them."""
        together = self._together
        bundles = held // together[:, None], self.columns.dp // together
        return leaving_replicas(*bundles, self.columns.pp, whole) * together[:, None]

    def _of_one(self, whole: IntArray) -> Leaving:
        """Replicas that do not stay inside leave the group once on every pass, the least of all groups for these ranks.

        Each crosses twice, with the activation and with the gradient.
        """
        leaving = self._leaving(self.held, whole)
        once, rates = times_left(self.columns.vpp, self.looped, 1), np.where(self.rate_g > 0, self.rate_g, UNLINKED)
        by_rate, replicas = once * (leaving / rates).min(axis=1), leaving.min(axis=1)
        possible = np.isfinite(replicas)
        by_rate, replicas = np.where(possible, by_rate, 0.0), np.where(possible, replicas, 0.0)
        in_all = np.asarray(2.0 * once * replicas, dtype=np.float64)
        return Leaving(by_rate, in_all, replicas.astype(np.int64), np.zeros_like(replicas))

    def _of_several(self, num_groups: int, whole: IntArray) -> Leaving:
        """All replicas visit h groups, over the h largest rates, and some another one, over all but the h smallest.

        All but the first and the last of the h on a pass are left forwards and backwards.
        """
        vpp, dp, widest = self.columns.vpp, self.columns.dp, -np.sort(-self.rate_g)
        capacity = self._most_held[:, num_groups - 1 : num_groups]
        outside = self._leaving(capacity, np.maximum(whole, num_groups))[:, 0]
        outside = np.where(np.isfinite(outside), outside, 0.0)
        visits = dp * times_left(vpp, self.looped, num_groups).astype(np.float64)
        by_rate = np.maximum(
            visits / or_unlinked(widest[:num_groups].sum()), vpp * outside / or_unlinked(widest[:-num_groups].sum())
        )
        if num_groups > 2:
            by_rate = np.maximum(by_rate, 2.0 * vpp * dp / or_unlinked(widest[num_groups - 3]))
        if num_groups > 2 and len(self.rate_of_set):
            sets_s = least_crossing_s(self.rate_of_set, num_groups, vpp, self.looped, len(self.rate_g))
            by_rate = np.maximum(by_rate, dp * sets_s)
        everywhere = np.asarray(visits + 2.0 * vpp * outside, dtype=np.float64)
        return Leaving(by_rate, everywhere, dp, outside)


def or_unlinked(rate: float) -> float:
    """Bytes per second, or more than matter where there is no link."""
    return float(rate) or UNLINKED


def times_left(vpp: IntArray, looped: BoolArray, num_groups: int) -> IntArray:
    """How often every micro-batch leaves a group, its gradients included, where each pass visits so many, at least 2.

    A pass crosses h - 1 times, and its gradients as often; of the crossings of one group half are the gradients'. Each
    cycle of a loop crosses h times, but for the last, which does not come home.
    """
    both_ways = 1 if num_groups == 1 else 2
    h = max(num_groups, 2)
    return both_ways * np.where(looped, vpp * h - 1, vpp * (h - 1))


def leaving_replicas(held: IntArray, dp: IntArray, pp: IntArray, whole: IntArray) -> FloatArray:
    """Replicas that do not stay in a group which holds r ranks whole: dp - floor((g - r dp) / (pp - r)).

    Infinite where a group cannot hold these ranks.

    >>> leaving_replicas(np.array([[64, 12, 7]]), np.array([8]), np.array([8]), np.array([1]))
    array([[ 0.,  8., inf]])
    """
    dp, pp, whole = dp[:, None], pp[:, None], whole[:, None]
    inside = (held - whole * dp) // np.maximum(pp - whole, 1)
    leaving = np.where(pp > whole, np.clip(dp - inside, 0, dp).astype(np.float64), 0.0)
    return np.where(held >= whole * dp, leaving, np.inf)
