"""Rows that agree in some columns, computed once: one row per combination, and which of them every row has."""

from __future__ import annotations

import numpy as np

from solver.arrays import IntArray

MOST_COUNTED = 1 << 22  # a table of so many places is 32 MiB; beyond it values are sorted


def distinct_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """A row of every combination of values in the columns, and the place of every row's combination among them."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for values in columns:
        code = _places(code * (int(values.max(initial=0)) + 1) + values)
    first = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64)
    first[code] = np.arange(len(code))
    return first, code


def _places(values: IntArray) -> IntArray:
    """The place of every value among the distinct ones, without sorting where they are small.

    >>> _places(np.array([7, 3, 7, 9]))
    array([1, 0, 1, 2])
    """
    most = int(values.max(initial=0))
    if most > MOST_COUNTED:
        return np.unique(values, return_inverse=True)[1].ravel().astype(np.int64)
    there = np.zeros(most + 1, dtype=np.int64)
    there[values] = 1
    return (np.cumsum(there) - 1)[values]
