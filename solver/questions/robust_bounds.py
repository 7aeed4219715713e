"""What no plan beats over several worlds: one configuration has to do in all of them.

value >= min over configurations of max (or weighted sum) over worlds of the bound there: at least as much as the max
(or sum) of the worlds' own bounds, since a plan has one configuration. A configuration that a world does not list
claims nothing there. Where the even split goes by other GPUs in some world, a plan has the layers of one world: what is
shared out differently is bounded by what holds for any layers.
"""

from collections.abc import Callable, Sequence

import numpy as np

from models.plan import Configuration
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.questions.own_rows import layer_split_of, reference_of
from solver.questions.row_bounds import PRICED, RowBounds, row_numbers


class RobustBounds:
    """`bound_s` and `guess_s` of every configuration over all worlds."""

    def __init__(self, worlds: Sequence[RowBounds], combine: Callable[[FloatArray], FloatArray]) -> None:
        self.worlds, self._combine = worlds, combine
        self._number = row_numbers([one.space for one in worlds])
        self.size = max((int(one.max(initial=-1)) for one in self._number), default=-1) + 1
        self._apart = _shared_out_apart(worlds, self._number, self.size)
        self.bound_s: FloatArray = np.zeros(self.size)
        self.guess_s: FloatArray = np.zeros(self.size)
        self.combine()

    def combine(self) -> None:
        """Take over what the worlds know by now."""
        if self.size:
            self.bound_s = self._combine(self._spread([one.seconds for one in self.worlds]))
            self.guess_s = self._combine(self._spread([one.guess_s for one in self.worlds]))

    def _spread(self, columns: Sequence[FloatArray]) -> FloatArray:
        """One row per world, one column per configuration; 0 where the world does not list it."""
        found = np.zeros((len(columns), self.size))
        for row, (numbers, column) in enumerate(zip(self._number, columns, strict=True)):
            found[row, numbers] = column
        return found

    def price(self, cutoff_s: float, stopped: Callable[[], bool]) -> None:
        """Price what may still be better, world by world."""
        for numbers, world in zip(self._number, self.worlds, strict=True):
            wanted = (self.bound_s[numbers] < cutoff_s) & ~self._apart[numbers]
            world.price(wanted, float("inf"), stopped)
            self.combine()

    def configuration(self, number: int) -> Configuration:
        """The configuration, as the first world that lists it has it."""
        for numbers, world in zip(self._number, self.worlds, strict=True):
            found = np.flatnonzero(numbers == number)
            if len(found):
                return world.configuration(int(found[0]))
        raise IndexError(number)

    def refine(self, number: int, cutoff_s: float) -> float:
        """The bound of one configuration after its own pipeline was looked at in every world."""
        for numbers, world in zip(self._number, self.worlds, strict=True):
            wanted = numbers == number
            if wanted.any() and world.state[wanted][0] == PRICED:
                world.refine(wanted, cutoff_s, lambda: False)
        values = [float(world.seconds[numbers == number].max(initial=0.0))
                  for numbers, world in zip(self._number, self.worlds, strict=True)]  # fmt: skip
        self.bound_s[number] = max(self.bound_s[number], float(self._combine(np.array(values)[:, None])[0]))
        return float(self.bound_s[number])

    @property
    def least_s(self) -> float:
        """No plan of any configuration has less over all worlds."""
        return float(self.bound_s.min(initial=float("inf")))


def _shared_out_apart(worlds: Sequence[RowBounds], numbers: Sequence[IntArray], size: int) -> BoolArray:
    """Which configurations do not have the same layers on every stage in all worlds that list them."""
    apart: BoolArray = np.zeros(size, dtype=np.bool_)
    listing = [(world, own) for world, own in zip(worlds, numbers, strict=True) if len(own)]
    if len({reference_of(world.context) for world, _ in listing}) < 2:
        return apart
    splits = [(own, layer_split_of(world.context, world.space)) for world, own in listing]
    for part in range(4):
        most, least = np.full(size, -1), np.full(size, np.iinfo(np.int64).max)
        for own, split in splits:
            most[own], least[own] = np.maximum(most[own], split[part]), np.minimum(least[own], split[part])
        apart |= most > least
    return apart
