"""The ends of a repeated V block: passes of fill and drain move to earlier idle units. Source: Qi et al. 2024.

Every pass takes one unit; W stands in the idle units after its B. In the fill (until rank 0 has its first last
backward) and in the drain (after the last forward of rank 0) each pass, in the order of time, goes to the first idle
unit of its rank after what it waits for, as long as the rank holds no more than the block does.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from solver.pipeline.problem import Ints

F_DOWN, F_UP, B_DOWN, B_UP, W = range(5)
CHANGE = (1, 1, 0, 0, -1)  # of activations held, by pass


def reordered(times: Ints, period: int, num_microbatches: int) -> Ints:
    """Unit of every pass by rank, pass and micro-batch, from the units of one block (rank, pass)."""
    ends = _Ends(times, period, num_microbatches)
    for unit, rank, kind, one in ends.movable():
        ends.move(unit, rank, kind, one)
    return ends.start


class _Ends:
    """Units of all passes, and by rank and unit what is taken and held."""

    def __init__(self, times: Ints, period: int, num_microbatches: int) -> None:
        self.start: Ints = times[:, :, None] + period * np.arange(num_microbatches)
        self._num_ranks = times.shape[0]
        length = int(self.start.max()) + 2 * num_microbatches + 2
        self._taken: npt.NDArray[np.bool_] = np.zeros((self._num_ranks, length), dtype=bool)
        self._held: Ints = np.zeros((self._num_ranks, length), dtype=np.int64)
        self._weights: Ints = np.zeros((self._num_ranks, 2 * num_microbatches), dtype=np.int64)
        for rank in range(self._num_ranks):
            self._fill(rank)
        self._most = int(self._held.max())

    def _fill(self, rank: int) -> None:
        taken, held = self._taken[rank], self._held[rank]
        taken[self.start[rank].ravel()] = True
        unit = 0
        for index, backward in enumerate(np.sort(self.start[rank, B_DOWN:].ravel()).tolist()):
            unit = max(unit, backward + 1)
            while taken[unit]:
                unit += 1
            self._weights[rank, index], taken[unit] = unit, True
        np.add.at(held, self.start[rank, :B_DOWN].ravel(), 1)
        np.add.at(held, self._weights[rank], -1)
        held[:] = np.cumsum(held)

    def movable(self) -> Iterator[tuple[int, int, int, int]]:
        """(unit, rank, pass, number) of fill and drain, in the order of time."""
        first, last = int(self.start[0, B_UP, 0]), int(self.start[0, F_DOWN, -1])
        rows = []
        for rank in range(self._num_ranks):
            for kind, units in enumerate((*self.start[rank], self._weights[rank])):
                ends = np.flatnonzero((units <= first) | (units > last))
                rows += [(int(units[one]), rank, kind, int(one)) for one in ends]
        yield from sorted(rows)

    def move(self, unit: int, rank: int, kind: int, one: int) -> None:
        """To the first idle unit before its own that memory allows."""
        held, change = self._held[rank], CHANGE[kind]
        ready = self._ready(rank, kind, one)
        for earlier in (np.flatnonzero(~self._taken[rank, ready:unit]) + ready).tolist():
            if change <= 0 or held[earlier:unit].max() < self._most:
                self._taken[rank, unit], self._taken[rank, earlier] = False, True
                held[earlier:unit] += change
                (self._weights[rank] if kind == W else self.start[rank, kind])[one] = earlier
                return

    def _ready(self, rank: int, kind: int, one: int) -> int:
        """The unit after all that a pass waits for: its like before it, its neighbour, its B or F."""
        if kind == W:
            backwards = np.sort(self.start[rank, B_DOWN:].ravel())
            return int(max(backwards[one], self._weights[rank, one - 1] if one else -1)) + 1
        waits = [int(self.start[rank, kind, one - 1])] if one else [-1]
        if kind != F_DOWN:
            waits.append(int(self.start[rank, kind - 1, one]))
        neighbour = rank - 1 if kind in (F_DOWN, B_DOWN) else rank + 1
        if 0 <= neighbour < self._num_ranks:
            waits.append(int(self.start[neighbour, kind, one]))
        return max(waits) + 1
