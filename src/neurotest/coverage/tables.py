"""Chi-square tests of many contingency tables at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
FIVE = 5.0  # expected count below which the test is not trusted
FEW = 8  # inputs
ROWS = 1 << 15  # cells counted at once
CELLS = 1 << 21  # handled at once: 16 MB per array


@dataclass(frozen=True)
class Rule:
    """sections: rows and columns. expected: `textbook` or `dl_cc` (row mean * column mean). rule: `all` or `cochran`."""

    sections: int
    p: float
    expected: str
    rule: str

    @cached_property
    def critical(self) -> NDArray[np.float64]:
        """The least chi-square that counts, by degrees of freedom."""
        from scipy.stats import chi2

        freedom = np.arange((self.sections - 1) ** 2 + 1)
        return np.asarray(chi2.ppf(1 - self.p, np.maximum(freedom, 1)), dtype=np.float64)


def count(flat: NDArray[np.int32], cells: NDArray[np.int16], size: int) -> None:
    """Count one more in each of the cells (a, n, b) of the tables (a, b, size), given flattened.

    A few inputs are written where they belong; with more it is quicker to count row by row, within the processor's cache.
    """
    a, n, b = cells.shape
    first = np.arange(b, dtype=np.int64) * size
    if n < FEW:
        start = (np.arange(a, dtype=np.int64) * (b * size))[:, None] + first
        for i in range(n):
            flat[(start + cells[:, i]).ravel()] += 1  # an input counts once per table, so no cell comes twice
        return
    rows = flat.reshape(a, b * size)
    step = max(1, ROWS // (b * size))
    for begin in range(0, a, step):
        part = cells[begin : begin + step]
        offset = (np.arange(len(part), dtype=np.int64) * (b * size))[:, None, None]
        added = np.bincount((part + first + offset).ravel(), minlength=len(part) * b * size)
        rows[begin : begin + step] += added.reshape(len(part), -1).astype(np.int32)


def dependent(counts: NDArray[np.int32], rule: Rule) -> Bits:
    """Which tables (a, b, sections^2) show a dependence: (a, b)."""
    a, b, cells = counts.shape
    result = np.empty((a, b), dtype=bool)
    step = max(1, CELLS // max(1, b * cells))
    for start in range(0, a, step):
        part = counts[start : start + step].reshape(-1, b, rule.sections, rule.sections)
        result[start : start + step] = _test(part.astype(np.float64), rule)
    return result


def _test(table: NDArray[np.float64], rule: Rule) -> Bits:
    rows, columns = table.sum(axis=-1), table.sum(axis=-2)  # (a, b, k)
    total = rows.sum(axis=-1)[..., None, None]
    divisor = np.maximum(total, 1) if rule.expected == "textbook" else float(rule.sections**2)
    expected = rows[..., :, None] * columns[..., None, :]
    expected /= divisor
    table -= expected
    np.square(table, out=table)
    table /= np.maximum(expected, 1e-300)
    statistic = table.sum(axis=(-1, -2))
    if rule.rule == "all":
        enough = expected.min(axis=(-1, -2)) >= FIVE
        return np.asarray(enough & (statistic >= rule.critical[-1]), dtype=bool)
    # Cochran: of the rows and columns that occur, four fifths of the cells with five or more expected and none below one.
    high, wide = np.count_nonzero(rows, axis=-1), np.count_nonzero(columns, axis=-1)
    occupied = high * wide
    five = np.count_nonzero(expected >= FIVE, axis=(-1, -2))
    one = np.count_nonzero(expected >= 1, axis=(-1, -2))
    freedom = np.maximum(high - 1, 0) * np.maximum(wide - 1, 0)
    enough = (freedom > 0) & (five >= 0.8 * occupied) & (one == occupied)
    return np.asarray(enough & (statistic >= rule.critical[freedom]), dtype=bool)
