"""Stage messages that leave the groups of a cut where some ranks lie whole: of which replicas, and over which links.

Proofs, a line per term: docs/bounds.md, "Messages".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.cost.columns import Columns

UNLINKED = 1e30  # bytes per second of a group that nothing leaves: what would have to is not counted


@dataclass(frozen=True)
class LeavingMessages:
    """Rows that differ in their messages, what each group of a cut holds of their stage groups, and its rate outwards.

    `held` is rows x groups, `rate_g` in bytes per second.
    """

    columns: Columns
    looped: BoolArray
    held: IntArray
    rate_g: FloatArray

    def by_rate(self, num_groups: int, whole: IntArray) -> FloatArray:
        """Messages of a micro-batch that leave groups over the rate of the links that they take, the least of all ways.

        `whole` ranks or more lie in so many groups, and in each of these at least one.
        """
        found = self._of_one(whole) if num_groups == 1 else self._of_several(num_groups, whole)
        return np.where(np.isfinite(found), found, 0.0)

    def num_crossing(self, num_groups: int, whole: IntArray) -> IntArray:
        """Fewest replicas that leave a group where so many ranks lie in so many: all where these are several."""
        if num_groups > 1:
            return self.columns.dp
        fewest = leaving_replicas(self.held, self.columns.dp, self.columns.pp, whole).min(axis=1)
        return np.where(np.isfinite(fewest), fewest, 0.0).astype(np.int64)

    def in_all(self, num_groups: int, whole: IntArray) -> FloatArray:
        """Messages of a micro-batch that leave groups, all groups together, where ranks lie as for `by_rate`."""
        vpp, dp = self.columns.vpp, self.columns.dp
        times = _times_left(vpp, self.looped, num_groups)
        if num_groups == 1:
            leaving = leaving_replicas(self.held, dp, self.columns.pp, whole).min(axis=1)
            crossing = times * np.where(np.isfinite(leaving), leaving, 0.0)
            return 2.0 * crossing.astype(np.float64)
        return dp * times.astype(np.float64) + 2.0 * vpp * self.outside(num_groups, whole)

    def around(self, num_groups: int, whole: IntArray) -> tuple[FloatArray, FloatArray]:
        """Messages of a micro-batch that leave groups: k, and for each run of stages between whole ranks as many again.

        A run has a stage outside of the groups with whole ranks but where there is room inside. A replica that leaves
        them for it comes back, but for those at either end.
        """
        columns = self.columns
        capacity = np.sort(self.held, axis=1)[:, -num_groups:].sum(axis=1) - whole * columns.dp
        start: FloatArray = -4.0 * (columns.vpp * capacity + columns.dp)
        return start, 4.0 * columns.dp.astype(np.float64)

    def _of_one(self, whole: IntArray) -> FloatArray:
        """Replicas that do not stay inside leave the group once on every pass, the least of all groups for these ranks.

        Each crosses twice, with the activation and with the gradient.
        """
        leaving = leaving_replicas(self.held, self.columns.dp, self.columns.pp, whole)
        once, rates = _times_left(self.columns.vpp, self.looped, 1), np.where(self.rate_g > 0, self.rate_g, UNLINKED)
        least: FloatArray = once * (leaving / rates).min(axis=1)
        return least

    def _of_several(self, num_groups: int, whole: IntArray) -> FloatArray:
        """All replicas visit h groups, over the h largest rates, and some another one, over all but the h smallest.

        All but the first and the last of the h on a pass are left forwards and backwards.
        """
        vpp, dp, widest = self.columns.vpp, self.columns.dp, -np.sort(-self.rate_g)
        parts = [
            dp * _times_left(vpp, self.looped, num_groups) / or_unlinked(widest[:num_groups].sum()),
            vpp * self.outside(num_groups, whole) / or_unlinked(widest[:-num_groups].sum()),
        ]
        if num_groups > 2:
            parts.append(2 * vpp * dp / or_unlinked(widest[num_groups - 3]))
        least: FloatArray = np.maximum.reduce(parts)
        return least

    def outside(self, num_groups: int, whole: IntArray) -> FloatArray:
        """Fewest replicas with a stage outside of so many groups, which have most room and at least one rank each."""
        capacity = np.sort(self.held, axis=1)[:, -num_groups:].sum(axis=1, keepdims=True)
        columns = self.columns
        outside: FloatArray = leaving_replicas(capacity, columns.dp, columns.pp, np.maximum(whole, num_groups))[:, 0]
        return np.where(np.isfinite(outside), outside, 0.0)


def or_unlinked(rate: float) -> float:
    """Bytes per second, or more than matter where there is no link."""
    return float(rate) or UNLINKED


def _times_left(vpp: IntArray, looped: BoolArray, num_groups: int) -> IntArray:
    """How often every micro-batch leaves a group, its gradients included, where each pass visits so many, at least 2.

    A pass crosses h - 1 times, and its gradients as often; of the crossings of one group half are the gradients'. Each
    cycle of a loop crosses h times, but for the last, which does not come home.
    """
    both_ways = 1 if num_groups == 1 else 2
    h = max(num_groups, 2)
    times: IntArray = both_ways * np.where(looped, vpp * h - 1, vpp * (h - 1))
    return times


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
