"""Groups of rows, their statistics and sums along trajectories, without a Python loop over rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: a table of this many entries per row is built rather than the rows sorted
_TABLE_PER_ROW = 8


@dataclass(frozen=True)
class Groups:
    """A partition of rows.

    Attributes:
        codes: group of each row, shape (n,), 0 .. count - 1, every number used.
        count: number of groups.
    """

    codes: IntArray
    count: int

    @cached_property
    def sizes(self) -> IntArray:
        """Rows in each group, shape (count,)."""
        return np.bincount(self.codes, minlength=self.count).astype(np.int64, copy=False)

    @cached_property
    def first(self) -> IntArray:
        """Lowest row of each group, shape (count,)."""
        rows = np.arange(self.codes.size)
        first = np.empty(self.count, dtype=np.int64)
        first[self.codes[::-1]] = rows[::-1]
        return first

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum of `values`, shape (n,), in each group, shape (count,)."""
        return np.bincount(self.codes, weights=values, minlength=self.count).astype(np.float64, copy=False)


def join(columns: Sequence[tuple[IntArray, int]], n: int) -> Groups:
    """Rows equal in every column, numbered in lexicographic order of the columns' codes.

    Args:
        columns: (codes, size) with 0 <= codes < size, codes of shape (n,).
    """
    codes = np.zeros(n, dtype=np.int64)
    size = 1
    for column, column_size in columns:
        if size * column_size >= 2**62:
            codes, size = _dense(codes, size)
        codes = codes * column_size + column
        size *= column_size
    return Groups(*_dense(codes, size))


def _dense(codes: IntArray, size: int) -> tuple[IntArray, int]:
    """Renumber so that every number below the new size is used, keeping the order."""
    if size > _TABLE_PER_ROW * codes.size + 1024:
        unique, inverse = np.unique(codes, return_inverse=True)
        return inverse.astype(np.int64, copy=False), unique.size
    present = np.zeros(size, dtype=np.bool_)
    present[codes] = True
    rank = np.cumsum(present, dtype=np.int64)
    return (rank - 1)[codes], int(rank[-1])


def occurrence(groups: Groups) -> IntArray:
    """How many earlier rows are in the same group, shape (n,)."""
    order = np.argsort(groups.codes, kind="stable")
    starts = np.cumsum(groups.sizes) - groups.sizes
    count = np.empty(groups.codes.size, dtype=np.int64)
    count[order] = np.arange(order.size) - starts[groups.codes[order]]
    return count


def deviations(values: FloatArray, groups: Groups) -> FloatArray:
    """values - mean of the group, shape (n,).

    Taken relative to one member of the group first: exactly 0 in a constant group, and no digits are lost to a large
    common offset.
    """
    relative = values - values[groups.first][groups.codes]
    return relative - (groups.sum(relative) / groups.sizes)[groups.codes]


def standardized(values: FloatArray, groups: Groups, *, ddof: int, eps: float) -> FloatArray:
    """(values - mean) / (std + eps) in each group, shape (n,); a group of `ddof` or fewer members gives zeros."""
    deviation = deviations(values, groups)
    variance = groups.sum(deviation**2) / np.maximum(groups.sizes - ddof, 1)
    return deviation / (np.sqrt(variance) + eps)[groups.codes]


def maxima(values: FloatArray, groups: Groups) -> FloatArray:
    """Largest value of each group, shape (count,)."""
    largest = np.full(groups.count, -np.inf)
    np.maximum.at(largest, groups.codes, values)
    return largest


def suffix_sums(values: FloatArray, segment: IntArray) -> FloatArray:
    """Sum from each entry to the last of its segment, shape (n,). Rows of a segment are consecutive.

    Adds by doubling distances: log2(longest segment) passes, and an error that grows as that logarithm, where the
    difference of two running totals over all rows would lose digits.
    """
    total = values.copy()
    longest = int(np.bincount(segment).max(initial=0))
    distance = 1
    while distance < longest:
        same = segment[:-distance] == segment[distance:]
        total[:-distance] += np.where(same, total[distance:], 0.0)
        distance *= 2
    return total
