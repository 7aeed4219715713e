"""Ways of pipeline ranks to lie whole in groups of pools: between which of them a pipeline crosses, and in which groups
they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np

from solver.arrays import IntArray

MOST_ASSIGNMENTS = 64  # of ranks to groups that cross at the same boundaries: each takes a bound
Boundaries = frozenset[int]  # behind which of the ranks; behind the last one a loop comes home


@dataclass(frozen=True)
class WaysOverGroups:
    """Ranks on these GPU types, one after another, each whole in a group.

    Every group holds so many ranks of each type (`held_gt`, groups x types), and `alike` is the first group that could
    take the place of this or that one. A loop comes home from the last rank to the first. `known` are assignments.
    """

    gpu_r: Sequence[int]
    held_gt: IntArray
    alike: Sequence[int]
    looped: bool
    known: dict[Boundaries, list[tuple[int, ...]]] = field(default_factory=dict)

    @cached_property
    def fits_in_one(self) -> bool:
        """Whether one group holds all ranks."""
        return self._is_held(range(len(self.gpu_r)))

    @cached_property
    def forced(self) -> Boundaries:
        """Boundaries between types that no group has both of."""
        held = self.held_gt > 0
        return frozenset(
            number
            for number in self._boundaries()
            if not (held[:, self.gpu_r[number]] & held[:, self.gpu_r[(number + 1) % len(self.gpu_r)]]).any()
        )

    def assignments(self, crossed: Boundaries) -> list[tuple[int, ...]]:
        """The group of each rank, so that the way crosses at these boundaries and at no other: all, or the first
        `MOST_ASSIGNMENTS`. Of groups that are alike it does not matter which one it is.

        >>> four = WaysOverGroups([0, 0, 0, 0], np.array([[2], [2], [1]]), [0, 0, 2], looped=False)
        >>> four.assignments(frozenset([1])), four.assignments(frozenset([0, 2]))
        ([(0, 0, 1, 1)], [(0, 1, 1, 0), (0, 1, 1, 2), (2, 0, 0, 1)])
        """
        if crossed not in self.known:
            self.known[crossed] = [] if self.looped and len(crossed) == 1 else self._assignments(crossed)
        return self.known[crossed]

    def _assignments(self, crossed: Boundaries) -> list[tuple[int, ...]]:
        segments = self._segments(crossed)
        counts = [np.bincount([self.gpu_r[rank] for rank in own], minlength=self.held_gt.shape[1]) for own in segments]
        found = list[tuple[int, ...]]()
        for groups in islice(self._groups(counts, self.held_gt, (), set()), MOST_ASSIGNMENTS):
            by_rank = {rank: group for own, group in zip(segments, groups, strict=True) for rank in own}
            found.append(tuple(by_rank[rank] for rank in range(len(self.gpu_r))))
        return found

    def that_cross_more(self, crossed: Boundaries, decided: Boundaries) -> Iterator[tuple[Boundaries, Boundaries]]:
        """Ways that cross at these boundaries and one more of those that are not `decided`, each with what is then.

        Every way that crosses at all of these, and at no other that is decided, is one of them or crosses like one.
        """
        for number in self._must_cross(crossed):
            if number not in decided:
                decided |= {number}
                yield crossed | {number}, decided

    def _must_cross(self, crossed: Boundaries) -> Sequence[int]:
        """Boundaries of which one more has to be crossed: those in the first segment that no group holds, or all."""
        too_long = next((own for own in self._segments(crossed) if not self._is_held(own)), None)
        return self._boundaries() if too_long is None else self._inside(too_long)

    def _boundaries(self) -> range:
        return range(len(self.gpu_r) - (0 if self.looped and len(self.gpu_r) > 1 else 1))

    def _inside(self, segment: Sequence[int]) -> Sequence[int]:
        """The boundaries between the ranks of a segment."""
        is_all = self.looped and len(segment) == len(self.gpu_r)
        return segment if is_all else segment[:-1]

    def _is_held(self, segment: Sequence[int]) -> bool:
        need = np.bincount([self.gpu_r[rank] for rank in segment], minlength=self.held_gt.shape[1])
        return bool((self.held_gt >= need).all(axis=1).any())

    def _segments(self, crossed: Boundaries) -> list[list[int]]:
        """Ranks between boundaries, in the order of the way from the first rank, or of a loop from a boundary."""
        num_ranks, ends = len(self.gpu_r), sorted(crossed)
        first = ends[0] + 1 if self.looped and ends else 0
        segments = list[list[int]]([[]])
        for rank in (number % num_ranks for number in range(first, first + num_ranks)):
            segments[-1].append(rank)
            if rank in crossed:
                segments.append([])
        return [own for own in segments if own]

    def _groups(
        self, counts: Sequence[IntArray], left_gt: IntArray, before: tuple[int, ...], failed: set[tuple[object, ...]]
    ) -> Iterator[tuple[int, ...]]:
        """The groups of segments behind those `before`, with so much left; states in `failed` have none."""
        if len(before) == len(counts):
            if not (self.looped and len(before) > 1 and before[0] == before[-1]):
                yield before
            return
        state = before[:1], before[-1:], len(before), left_gt.tobytes()
        if state in failed:
            return
        found, tried = False, set[int]()
        for group in range(len(left_gt)):
            is_new = group not in before
            if (
                group in before[-1:]
                or (is_new and self.alike[group] in tried)
                or (left_gt[group] < counts[len(before)]).any()
            ):
                continue
            if is_new:
                tried.add(self.alike[group])
            less = left_gt.copy()
            less[group] -= counts[len(before)]
            for groups in self._groups(counts, less, (*before, group), failed):
                found = True
                yield groups
        if not found:
            failed.add(state)
