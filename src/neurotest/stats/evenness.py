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
    held = np.asarray(counts, dtype=np.float64)
    if held.ndim != 1 or (held.size and (not np.isfinite(held).all() or held.min() < 0)):
        raise BadInput(f"counts of shape {held.shape}: expected one row of numbers >= 0.")
    held = held[held > 0]
    total = held.sum()
    if not total:
        return math.nan
    shares = held / total
    plain = max(0.0, float(-(shares * np.log(shares)).sum()))
    return plain + (len(held) - 1) / (2 * float(total)) if corrected else plain


def evenness(numbers: ArrayLike, classes: int, *, corrected: bool = False) -> float | None:
    """Entropy of class numbers over log(classes): 1 when all classes are met equally, 0 when one is. None without inputs.

    `classes` is the number the network knows, not how many are met. The corrected value is cut at 1.
    """
    if classes < 2:
        raise BadInput(f"classes={classes}: evenness needs at least 2 classes.")
    given = np.asarray(numbers)
    if given.size == 0:
        return None
    if given.ndim != 1 or given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= classes:
        raise BadInput(f"class numbers of shape {given.shape}: expected one row of integers from 0 to {classes - 1}.")
    return min(1.0, entropy(np.bincount(given, minlength=classes), corrected=corrected) / math.log(classes))
