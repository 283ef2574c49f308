"""What a network returns, read as logits (n, classes): logits, probabilities, a sigmoid, or a regression value in bins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.checks import shown
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.target.survey import last_operator

Outputs = Literal["logits", "probs", "sigmoid", "regression"]
KINDS: tuple[str, ...] = get_args(Outputs)
_LEAST = 1e-30  # below any float32 softmax value that matters; keeps log finite
BINS = 25  # of the coverage study
MOST_BINS = 10_000


@dataclass(frozen=True)
class Bins:
    """A regression value cut into `count` parts of equal width from `low` to `high`; what lies outside belongs to the outermost.

    They are the classes of a network that predicts a regression value. Its answer v becomes one logit per bin with the middle c,
    (v c - c^2 / 2) / width^2: the largest is that of the nearest middle, all are linear in v, so gradients are those of the
    network, and v can be read back from them. tolerance: how far from the truth, or from the answer for a seed, is no fault yet.
    """

    low: float
    high: float
    count: int = BINS
    tolerance: float = field(default=0.0, repr=False)  # 0: a bin's width. It changes no answer, so that fingerprints leave it out

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 2 <= self.count <= MOST_BINS:
            message = f"bins={shown(self.count)}: expected an integer from 2 to {MOST_BINS:,} (the coverage study uses {BINS})."
            raise BadInput("out-of-range", "bins", message)

        if not self.tolerance:
            object.__setattr__(self, "tolerance", self.width)

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.count

    @property
    def names(self) -> tuple[str, ...]:
        """
        >>> Bins(-1.0, 1.0, 4).names
        ('-1 .. -0.5', '-0.5 .. 0', '0 .. 0.5', '0.5 .. 1')
        """
        edges = [f"{edge:.4g}" for edge in np.linspace(self.low, self.high, self.count + 1)]
        return tuple(f"{left} .. {right}" for left, right in itertools.pairwise(edges))

    def logits(self, values: Tensor) -> Tensor:  # (n,) -> (n, count)
        middles = self._middles(values)
        return (values.unsqueeze(1) * middles - middles.square() / 2) / self.width**2

    def values(self, logits: Tensor) -> Tensor:  # (n, count) -> (n,)
        """The regression values behind logits."""
        middles = self._middles(logits)
        first, last = middles[0], middles[-1]
        rise = (logits[:, -1] - logits[:, 0]) * self.width**2
        return (rise + (last.square() - first.square()) / 2) / (last - first)

    def counted(self, logits: Tensor, expected: Tensor, truth: Tensor, tolerance: float | None = None) -> Tensor:
        """(n,) the classes that answers count as: the expected one as long as they are within the tolerance of a value, the truth
        or the answer for a seed. Then the bin they lie in or, if that is the expected one, the next on that side; at the
        ends of the span, where there is none, the one before. -1 where a logit is no number."""
        away = self.values(exact(logits))
        away = away - exact(truth).to(away.device)
        limit = self.tolerance if tolerance is None else tolerance
        above, near = (away > 0).to(logits.device), (away.abs() <= limit).to(logits.device)
        aside = torch.where(above, expected + 1, expected - 1)
        aside = torch.where((aside < 0) | (aside >= self.count), 2 * expected - aside, aside)
        bins = logits.argmax(1)
        classes = torch.where(near, expected, torch.where(bins == expected, aside, bins))
        return torch.where(logits.isfinite().all(1), classes, -1)

    def of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """(n,) the bin of each regression value."""
        bins = self.logits(torch.from_numpy(np.asarray(values, dtype=np.float64))).argmax(1)
        return np.asarray(bins.numpy(), dtype=np.int64)

    def middles(self) -> NDArray[np.float64]:
        """(count,) of the bins."""
        return np.asarray(self.low + (np.arange(self.count) + 0.5) * self.width)

    def _middles(self, like: Tensor) -> Tensor:
        places = torch.arange(self.count, device=like.device, dtype=like.dtype) + 0.5
        return places * self.width + self.low


def bins_of(outputs: str, span: Sequence[float] | None, bins: int | None, tolerance: float | str | None = None) -> Bins | None:
    """The bins of a description; None for a classifier, which has no use for them."""
    if outputs not in KINDS:
        raise BadInput("out-of-range", "outputs", f"outputs={shown(outputs)}: expected {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    if outputs != "regression":
        if span is not None or bins is not None or tolerance is not None:
            message = f"span, bins and tolerance do not go with outputs={outputs!r}: leave them out or pass --outputs regression."
            raise BadInput("conflict", "span", message)
        return None
    if span is None:
        message = (
            "outputs='regression' needs the range of the value, which is cut into bins: pass --span LOW HIGH, for "
            "example --span -0.4 0.4 for a steering angle."
        )
        raise BadInput("missing", "span", message)
    try:
        low, high = (float(end) for end in span)
    except (TypeError, ValueError, OverflowError):
        low = high = float("nan")
    if not (low < high and np.isfinite([low, high]).all()):
        message = f"span={shown(span)}: expected two finite numbers, the lower first, for example -0.4 0.4."
        raise BadInput("out-of-range", "span", message)
    result = Bins(low, high, BINS if bins is None else bins)
    if tolerance is None:
        return result
    return Bins(low, high, result.count, read_tolerance("tolerance", tolerance, result))


def read_tolerance(name: str, text: float | str, bins: Bins) -> float:
    """How far a regression value may be off: a number in its own unit, or a share of the span such as 5%.

    >>> read_tolerance("tolerance", "5%", Bins(-1.0, 1.0))
    0.1
    """
    words = str(text).strip()
    try:
        value = float(words.removesuffix("%")) * ((bins.high - bins.low) / 100 if words.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if isinstance(text, bool) or not (0 < value < float("inf")):
        message = f"{name}={shown(text)}: expected a number above 0 in the unit of the value, or a share of its span like 5%."
        raise BadInput("out-of-range", name, message)
    return value


def as_logits(out: Any, n: int, outputs: str, bins: Bins | None) -> Tensor:
    """What the module returned for n inputs as (n, classes), whatever its outputs are."""
    # The usual case first: the checks below cost a tenth of a small network's pass at batch 1.
    if type(out) is Tensor and outputs == "logits" and out.ndim == 2 and out.is_floating_point():
        rows, width = out.shape
        if rows == n and width > 1:
            return out
    if not isinstance(out, Tensor):
        message = (
            f"the network returns a {type(out).__name__}, not one tensor of class scores: detection, multi-output and "
            "text models are not supported; wrap it in a module that returns logits (n, classes)."
        )
        raise BadInput("unsupported", "outputs", message)
    if not out.is_floating_point():
        kind = str(out.dtype).removeprefix("torch.")
        message = (
            f"the network returns {kind} values, not scores: leave out its argmax or rounding, or wrap it "
            "in a module that returns logits (n, classes) as floating-point numbers."
        )
        raise BadInput("wrong-type", "outputs", message)
    if out.ndim == 1 and len(out) == n:
        out = out.unsqueeze(1)
    if out.ndim != 2 or len(out) != n:
        message = (
            f"the network returns shape {tuple(out.shape)} for {n} inputs: expected (n, classes). "
            "Segmentation, detection and text models are not supported; wrap it in a module that returns logits."
        )
        raise BadInput("wrong-shape", "outputs", message)
    if bins is not None:
        return bins.logits(_regression_value(out))
    if outputs == "logits":
        return out if out.shape[1] > 1 else torch.cat([torch.zeros_like(out), out], dim=1)
    if outputs == "sigmoid":
        return _from_sigmoid(out)
    return torch.log(out.clamp_min(_LEAST))


def _regression_value(out: Tensor) -> Tensor:
    if out.shape[1] != 1:
        message = (
            f"outputs='regression' means one value per input, but the network returns {out.shape[1]}: test one at a time, "
            "wrapped in a module that returns (n, 1)."
        )
        raise BadInput("wrong-count", "outputs", message)
    return out[:, 0]


def _from_sigmoid(out: Tensor) -> Tensor:
    if out.shape[1] != 1:
        message = (
            f"outputs='sigmoid' means one probability per input, but the network returns {out.shape[1]}: "
            "multi-label networks are not supported; test one label at a time."
        )
        raise BadInput("wrong-count", "outputs", message)
    return torch.cat([1 - out, out], dim=1).clamp_min(_LEAST).log()


def check_values(raw: Tensor, outputs: str) -> None:
    """Refuse values that are not what the description says."""
    if outputs == "regression":
        return
    raw = exact(raw)
    summed = raw.sum(dim=-1) if raw.ndim == 2 else raw
    like_probs = bool((raw >= 0).all() and ((summed - 1).abs() < 1e-3).all()) and raw.ndim == 2 and raw.shape[1] > 1
    in_unit = bool(((raw >= 0) & (raw <= 1)).all())
    if outputs == "logits" and like_probs:
        message = "the network's outputs are probabilities (rows sum to 1), not logits: pass --outputs probs."
        raise BadInput("conflict", "probs", message)
    if outputs == "probs" and in_unit and raw[0].numel() == 1:
        message = "outputs='probs', but the network returns one value per input: pass --outputs sigmoid."
        raise BadInput("conflict", "sigmoid", message)
    if outputs == "probs" and not like_probs:
        kind = "many sigmoids: multi-label networks are not supported" if in_unit else "logits: pass --outputs logits"
        least, most = (float(v) for v in torch.aminmax(summed))
        message = f"outputs='probs', but rows sum to {least:.4g} .. {most:.4g}: they look like {kind}."
        raise BadInput("conflict", "outputs", message)
    if outputs == "sigmoid" and not in_unit:
        message = "outputs='sigmoid', but values leave 0 .. 1; for one logit per input pass --outputs logits."
        raise BadInput("conflict", "outputs", message)


def check_end(run: Callable[[], Any], width: int) -> None:
    """Values between 0 and 1 may be logits by accident; what ran last tells."""
    if last_operator(run) != "sigmoid":
        return
    if width == 1:
        message = "the network ends in a sigmoid, so its output is a probability and no logit: pass --outputs sigmoid."
        raise BadInput("conflict", "sigmoid", message)
    message = (
        f"the network ends in {width} sigmoids: multi-label networks are not supported. Test one label at a time, or, if an "
        "input has exactly one class, return the values before the sigmoid."
    )
    raise BadInput("unsupported", "sigmoid", message)
