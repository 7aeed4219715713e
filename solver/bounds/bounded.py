"""What bounding a column of configurations yields."""

from dataclasses import dataclass, fields

import numpy as np

from solver.arrays import BoolArray, FloatArray

ROUNDING = 1e-9  # relative: sums of the same numbers in another order; no row is ruled out by less


@dataclass(frozen=True)
class Bounds:
    """Per configuration: the bound, whether it can fit, and the least memory that its fullest rank needs.

    `guess_s` is what usual schedules take; it orders the search and proves nothing. `lightest_s` is the work of the
    lightest rank over the iteration.
    """

    iteration_s: FloatArray
    guess_s: FloatArray
    lightest_s: FloatArray
    fits: BoolArray
    least_memory_bytes: FloatArray


def merged(rows: BoolArray, these: Bounds, others: Bounds) -> Bounds:
    """`these` for the marked rows, `others` for the rest."""
    values = {}
    for one in fields(Bounds):
        column = np.empty(len(rows), dtype=getattr(these, one.name).dtype)
        column[rows], column[~rows] = getattr(these, one.name), getattr(others, one.name)
        values[one.name] = column
    return Bounds(**values)
