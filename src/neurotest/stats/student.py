"""Student's distribution."""

from __future__ import annotations


def t_quantile(share: float, freedom: float) -> float:
    """The value below which `share` of Student's t with `freedom` degrees of freedom lies.

    >>> round(t_quantile(0.975, 9), 3)
    2.262
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))
