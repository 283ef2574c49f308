"""How well an order finds faults: FDR, relative FDR, APFD, fault types and their coverage.

An order is given by what stands at each of its places, most valuable first: whether the input is a fault
(`faults_in_order`) or which type of fault it is (`types_in_order`, -1 for none).
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest.errors import BadInput

NO_FAULT = -1


def as_faults(faults_in_order: ArrayLike) -> NDArray[np.bool_]:
    """The order's faults as a bool array, refused unless it is one row of yes and no."""
    faults = np.asarray(faults_in_order)
    if faults.ndim != 1 or faults.size == 0:
        raise BadInput(
            "wrong-shape",
            "faults_in_order",
            f"faults_in_order has shape {faults.shape}: expected one row with at least one input.",
        )
    if faults.dtype != np.bool_ and not np.isin(faults, (0, 1)).all():
        raise BadInput(
            "wrong-type",
            "faults_in_order",
            "faults_in_order holds values other than 0 and 1: give whether each input is a fault, in order.",
        )
    return faults.astype(np.bool_)


def check_count(m: int, n: int) -> int:
    """`m` as a number of inputs out of `n`."""
    if isinstance(m, bool) or int(m) != m or not 1 <= m <= n:
        raise BadInput("out-of-range", "m", f"m={m}: expected an integer from 1 to {n} (budget() reads '5%').")
    return int(m)


def fdr(faults_in_order: ArrayLike, m: int) -> float:
    """Fault detection rate: the share of faults among the first m."""
    faults = as_faults(faults_in_order)
    m = check_count(m, faults.size)
    return int(faults[:m].sum()) / m


def relative_fdr(faults_in_order: ArrayLike, m: int) -> float:
    """Faults among the first m over the most that m labels could find; NaN when there is no fault at all."""
    faults = as_faults(faults_in_order)
    m = check_count(m, faults.size)
    total = int(faults.sum())
    return int(faults[:m].sum()) / min(m, total) if total else math.nan


def apfd(faults_in_order: ArrayLike) -> float:
    """Average percentage of faults detected, 1 - sum(ranks) / (F n) + 1 / (2 n); NaN when there is no fault."""
    faults = as_faults(faults_in_order)
    ranks = np.flatnonzero(faults) + 1
    if ranks.size == 0:
        return math.nan
    return 1 - int(ranks.sum()) / (ranks.size * faults.size) + 1 / (2 * faults.size)


def fault_types(true: ArrayLike, pred: ArrayLike, classes: int | None = None) -> NDArray[np.int64]:
    """The type (true class -> predicted class) of each input as one number, -1 where the prediction is right.

    The number is `true * classes + pred`; without `classes` it is comparable within this call only.
    """
    true, pred = np.asarray(true), np.asarray(pred)
    if true.shape != pred.shape or true.ndim != 1:
        raise BadInput(
            "wrong-shape", "true", f"true has shape {true.shape} and pred {pred.shape}: expected two rows of the same length."
        )
    if true.size == 0:
        return np.zeros(0, dtype=np.int64)
    both = np.concatenate([true, pred])
    if not np.issubdtype(both.dtype, np.integer) or both.min() < 0:
        raise BadInput(
            "wrong-type", "true", "true and pred must be class numbers, integers from 0: leave inputs without a label out."
        )
    top = int(both.max()) + 1
    if classes is not None and classes < top:
        raise BadInput("out-of-range", "classes", f"classes={classes}: class {top - 1} occurs, so expected at least {top}.")
    ids = true.astype(np.int64) * (classes or top) + pred.astype(np.int64)
    return np.where(true == pred, NO_FAULT, ids)


def _as_types(types_in_order: ArrayLike) -> NDArray[np.int64]:
    types = np.asarray(types_in_order)
    if types.ndim != 1 or types.size == 0 or not np.issubdtype(types.dtype, np.integer):
        raise BadInput(
            "wrong-shape",
            "types_in_order",
            f"types_in_order is {types.dtype} of shape {types.shape}: expected one row, as fault_types gives.",
        )
    return types.astype(np.int64)


def _ftcr_curve(types_in_order: ArrayLike) -> NDArray[np.float64]:
    """Fault type coverage after 1, 2, ... n labels: distinct types found over those in the whole pool; NaN without faults."""
    types = _as_types(types_in_order)
    kinds, first = np.unique(types, return_index=True)
    first = first[kinds != NO_FAULT]
    if first.size == 0:
        return np.full(types.size, np.nan)
    new = np.zeros(types.size)
    new[first] = 1
    covered: NDArray[np.float64] = np.cumsum(new) / first.size
    return covered


def ftcr(types_in_order: ArrayLike, m: int) -> float:
    """Fault type coverage of the first m."""
    curve = _ftcr_curve(types_in_order)
    return float(curve[check_count(m, curve.size) - 1])


def ftcr_auc(
    types_in_order: ArrayLike, *, to: float = 0.2, step: float = 0.01, normalise: Literal["mean", "ideal"] = "mean"
) -> float:
    """Area under the fault type coverage curve, from `step` to `to` of the pool in steps of `step`.

    "mean" is the mean of the curve at those budgets (a curve that is 1 everywhere gives 1); "ideal" divides that by
    what an order gives that shows one input of every type first. The paper does not say which it prints.
    """
    if not 0 < step <= to <= 1:
        raise BadInput("out-of-range", "step", f"to={to}, step={step}: expected 0 < step <= to <= 1 (shares of the pool).")
    if normalise not in ("mean", "ideal"):
        raise BadInput("out-of-range", "normalise", f"normalise={normalise!r}: expected 'mean' or 'ideal'.")
    curve = _ftcr_curve(types_in_order)
    steps = int(Decimal(repr(to)) / Decimal(repr(step)))
    budgets = np.array([_share(Decimal(repr(step)) * (i + 1), curve.size) for i in range(steps)])
    area = float(curve[budgets - 1].mean())
    if normalise == "mean" or math.isnan(area):
        return area
    kinds = len(set(_as_types(types_in_order).tolist()) - {NO_FAULT})
    return area / float(np.minimum(budgets / kinds, 1).mean())


def _share(share: Decimal, n: int) -> int:
    """That share of n inputs: nearest integer, halves up, at least 1."""
    return max(1, int(share * n + Decimal("0.5")))


def budget(text_or_number: Any, n: int) -> int:
    """How many of n inputs a budget stands for: "5%" or 0.05 is a share, 100 or "100" a number of inputs.

    Shares are rounded to the nearest integer, halves up, at least 1.

    >>> budget("5%", 10_000), budget(0.05, 10_000), budget(100, 10_000)
    (500, 500, 100)
    """
    allowed = f"expected a share such as 5% or 0.05, or a number of inputs from 1 to {n}"
    if n < 1:
        raise BadInput("empty", "pool", f"budget={text_or_number}: the pool is empty; give a pool with at least one input.")
    text = str(text_or_number).strip()
    percent = text.endswith("%")
    try:
        value = Decimal(text.removesuffix("%").strip())
    except InvalidOperation:
        raise BadInput("wrong-type", "budget", f"budget={text_or_number!r}: {allowed}.") from None
    if not value.is_finite() or value <= 0:
        raise BadInput("syntax", "budget", f"budget={text}: {allowed}.")
    if percent or value < 1:
        if value > 100:
            raise BadInput("too-large", "budget", f"budget={text}: more than the whole pool; {allowed}.")
        return _share(value / 100 if percent else value, n)
    if value > n:
        raise BadInput("too-large", "budget", f"budget={text}: the pool has only {n} inputs; {allowed}.")
    if value == 1 and "." in text:
        raise BadInput("ambiguous", "budget", f"budget={text}: is that one input or the whole pool? Write 1 or 100%.")
    if value != int(value):
        raise BadInput("out-of-range", "budget", f"budget={text}: {allowed}.")
    return int(value)
