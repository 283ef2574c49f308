"""How evenly outcomes spread over classes: entropy over its largest possible value (Pielou)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from neurotest.errors import BadInput


def entropy(counts: ArrayLike, *, corrected: bool = False) -> float:
    """Of a histogram, in nats. `corrected` adds Miller and Madow's (seen classes - 1) / 2n: few draws look too uneven.

    >>> round(entropy([5, 5]), 6)
    0.693147
    """
    histogram = np.asarray(counts, dtype=np.float64)
    if histogram.ndim != 1 or (histogram.size and (not np.isfinite(histogram).all() or histogram.min() < 0)):
        raise BadInput("wrong-shape", "counts", f"counts of shape {histogram.shape}: expected one row of numbers >= 0.")
    seen = histogram[histogram > 0]
    total = seen.sum()
    if not total:
        return math.nan
    shares = seen / total
    plain = max(0.0, float(-(shares * np.log(shares)).sum()))
    return plain + (len(seen) - 1) / (2 * float(total)) if corrected else plain


def evenness(numbers: ArrayLike, classes: int, *, corrected: bool = False) -> float | None:
    """Entropy of class numbers over log(classes): 1: all classes occur equally often, 0: only one does. None without inputs.

    `classes` is how many the network has, not how many occur. The corrected value is cut at 1.
    """
    if classes < 2:
        raise BadInput("out-of-range", "classes", f"classes={classes}: evenness needs at least 2 classes.")
    row = np.asarray(numbers)
    if row.size == 0:
        return None
    if row.ndim != 1 or row.dtype.kind not in "iu" or row.min() < 0 or row.max() >= classes:
        raise BadInput(
            "wrong-shape", "numbers", f"class numbers of shape {row.shape}: expected one row of integers from 0 to {classes - 1}."
        )
    return min(1.0, entropy(np.bincount(row, minlength=classes), corrected=corrected) / math.log(classes))
