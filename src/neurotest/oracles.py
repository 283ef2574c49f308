"""Oracles: what is a fault. Each rejects mutants by their logits and by the seed they were made from.

Several may be joined; the first that rejects a mutant names the fault. Logits that are not finite are always a fault.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry
from neurotest.checks import Settings
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.target import Target
from neurotest.target.outputs import Bins, read_tolerance

Wrong = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Roots:
    """The seeds behind a batch of mutants, row by row."""

    labels: NDArray[np.int64]  # (n,) -1 where unknown
    predicted: NDArray[np.int64]  # (n,) by the target
    logits: NDArray[np.float32]  # (n, classes)
    quantities: NDArray[np.float64] | None = None  # (n,) the truth, where the target predicts a regression value and it is known

    def __getitem__(self, index: Any) -> Roots:
        quantities = None if self.quantities is None else self.quantities[index]
        return Roots(self.labels[index], self.predicted[index], self.logits[index], quantities)

    def values(self, bins: Bins) -> NDArray[np.float64]:
        """(n,) the regression values that the target gives."""
        return np.asarray(bins.values(torch.from_numpy(self.logits).double()).numpy())


@dataclass(eq=False)
class Check:
    """An oracle ready for one target. `test` says which mutants (n, *shape) are faults by their logits and their seeds."""

    name: str
    test: Callable[[Tensor, Tensor, Roots], Wrong]
    labels: bool = False  # whether the seeds must be labelled
    passes: int = 0  # further forward passes that each mutant costs
    tolerance: float | None = None  # of a regression value

    def __call__(self, x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
        return np.asarray(self.test(x, logits, roots))


class Oracle(Protocol):
    """Settings; `begin` makes it ready for a target."""

    def begin(self, target: Target) -> Check: ...


def far(bins: Bins, logits: Tensor, truth: NDArray[np.floating[Any]] | Tensor, tolerance: float) -> Wrong:
    """(n,) which answers are farther than the tolerance from a regression value; those that are not finite, too."""
    values = bins.values(exact(logits))
    return np.asarray((~((values - torch.as_tensor(truth).to(values)).abs() <= tolerance)).cpu().numpy())


def _check_limit(name: str, value: float | str | None) -> None:
    """Refuse what is neither a number above 0 nor a share of a span that is not known yet."""
    if isinstance(value, str) and value.strip().endswith("%"):
        read_tolerance(name, value, Bins(0.0, 1.0))
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and value > 0):  # type: ignore[operator]
        raise BadInput("out-of-range", name, f"{name}={value!r}: expected a number above 0, or a share of the span such as 5%.")


def predicted(logits: Tensor) -> NDArray[np.int64]:
    """(n,) class numbers; -1 where a logit is not finite."""
    return np.asarray(torch.where(logits.isfinite().all(1), logits.argmax(1), -1).cpu().numpy(), dtype=np.int64)


def _moved(name: str, option: str, value: float | str | None, bins: Bins) -> Check:
    """Regression values may move by so much from the answer to the seed; the target's tolerance by default."""
    limit = bins.tolerance if value is None else read_tolerance(option, value, bins)
    return Check(name, lambda x, logits, roots: far(bins, logits, roots.values(bins), limit), tolerance=limit)


@registry.register("oracle", "label", paper="", cost="nothing")
class Label:
    """The prediction is not the label of the seed: assumes that mutations preserve the class. Needs labelled seeds. A regression
    value may be off by the target's tolerance."""

    def begin(self, target: Target) -> Check:
        bins = target.bins

        def off(x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
            if bins is None or roots.quantities is None:
                return np.asarray(predicted(logits) != roots.labels)
            return far(bins, logits, roots.quantities, bins.tolerance)

        return Check("label", off, labels=True, tolerance=None if bins is None else bins.tolerance)


@registry.register(
    "oracle",
    "metamorphic",
    paper="Tian et al., DeepTest, ICSE 2018",
    cost="nothing",
    main="bound",
    differs="DeepTest allows a changed image lambda times the mean squared error of the unchanged ones, which says nothing "
    "where labels are missing or wrong; here the answer for the seed is what it must stay near.",
)
class Metamorphic:
    """The prediction is not that of the seed: needs no label, but cannot see where the target was wrong to begin with.

    bound: of a regression value, how far it may move from the answer for the seed, in its unit or in percent of its span
    (`metamorphic:5%`); the target's tolerance by default.
    """

    bound: float | str | None = None

    def __post_init__(self) -> None:
        _check_limit("bound", self.bound)

    def begin(self, target: Target) -> Check:
        if target.bins is not None:
            return _moved("metamorphic", "bound", self.bound, target.bins)
        if self.bound is not None:
            raise BadInput(
                "unsuitable",
                "bound",
                f"metamorphic:{self.bound}: a bound is for regression values, and the target predicts a class; leave it out.",
            )
        return Check("metamorphic", lambda x, logits, roots: predicted(logits) != roots.predicted)


@registry.register("oracle", "nonfinite", paper="TensorFuzz, ICML 2019", cost="nothing")
class NonFinite:
    """A logit is NaN or infinite. Always in force; named alone, nothing else is a fault."""

    def begin(self, target: Target) -> Check:
        return Check("nonfinite", lambda x, logits, roots: predicted(logits) < 0)


@registry.register("oracle", "regression", paper="", cost="nothing", main="tolerance")
class Regression(Settings):
    """Some output is farther than `tolerance` from what the target gives for the seed: the regression value, where it predicts
    one (in its unit or in percent of its span; by default the target's tolerance), otherwise probabilities or logits (by default
    1)."""

    tolerance: float | str | None = None
    outputs: Literal["logits", "probs"] = "probs"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_limit("tolerance", self.tolerance)

    def begin(self, target: Target) -> Check:
        if target.bins is not None:
            return _moved("regression", "tolerance", self.tolerance, target.bins)
        if isinstance(self.tolerance, str):
            raise BadInput(
                "unsuitable",
                "tolerance",
                f"tolerance={self.tolerance}: a share of a span is for regression values, and the target predicts a class.",
            )
        tolerance = 1.0 if self.tolerance is None else self.tolerance

        def moved(x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
            logits = exact(logits)
            before = torch.from_numpy(roots.logits).to(logits)
            if self.outputs == "probs":
                logits, before = logits.softmax(1), before.softmax(1)
            return np.asarray(((logits - before).abs().amax(1) > tolerance).cpu().numpy())

        return Check("regression", moved, tolerance=tolerance)


def _disagreement(name: str, others: Sequence[Target], bins: Bins | None) -> Check:
    """Compare with other networks on the same input. bins: of the target, where it predicts a regression value."""
    if any((other.bins is None) != (bins is None) for other in others):
        raise BadInput(
            "conflict",
            "outputs",
            f"{name}: one network predicts a regression value and the other a class: they cannot be compared.",
        )

    def differ(x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
        ours = predicted(logits)
        wrong = np.zeros(len(ours), dtype=bool)
        with torch.inference_mode():
            for other in others:
                theirs = other.logits(x)
                if bins is not None and other.bins is not None:
                    wrong |= far(bins, logits, other.bins.values(exact(theirs)), bins.tolerance)
                else:
                    wrong |= predicted(theirs) != ours
        return wrong

    return Check(name, differ, passes=len(others))


def _opened(oracle: str, others: Sequence[str | Target], example: str) -> list[Target]:
    """The other networks of an oracle."""
    from neurotest.target.load import load

    if not all(others):
        raise BadInput(
            "missing", "oracle", f"{oracle} needs another network: write {oracle}:TARGET, for example {oracle}:{example}."
        )
    return [load(other) if isinstance(other, str) else other for other in others]


@registry.register(
    "oracle",
    "differential",
    paper="DeepXplore, SOSP 2017",
    cost="one forward pass of each other network per mutant",
    main="other",
)
class Differential:
    """Another network (`other`, a target spec; several are separated by +) disagrees; which one is wrong stays open."""

    opens: ClassVar[tuple[str, ...]] = ("other",)

    other: str | Target = ""

    def begin(self, target: Target) -> Check:
        others = self.other.split("+") if isinstance(self.other, str) else [self.other]
        return _disagreement("differential", _opened("differential", others, "zoo:mnist-lenet1"), target.bins)


@registry.register("oracle", "recognised", paper="", cost="one forward pass of the other network per mutant", main="other")
class Recognised:
    """The prediction is not the label of the seed, but another network (`other`, a target spec) still gives it: a mutant that
    nobody could recognise does not count. The better the other network, the fewer true faults are missed. Needs labelled
    seeds."""

    opens: ClassVar[tuple[str, ...]] = ("other",)

    other: str | Target = ""

    def begin(self, target: Target) -> Check:
        (other,) = _opened("recognised", [self.other], "zoo:mnist-conv2d")
        if target.bins is not None:
            raise BadInput(
                "unsuitable",
                "outputs",
                "recognised: it compares classes, and the target predicts a regression value: use differential:TARGET.",
            )
        if other.fingerprint == target.fingerprint:
            raise BadInput(
                "conflict",
                "target",
                "recognised: the other network is the one under test, so nothing would ever be a fault: name another.",
            )

        def wrong(x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
            with torch.inference_mode():
                recognised = predicted(other.logits(x)) == roots.labels
            return np.asarray((predicted(logits) != roots.labels) & recognised)

        return Check("recognised", wrong, labels=True, passes=1)


@registry.register(
    "oracle",
    "quantised",
    paper="TensorFuzz, ICML 2019; DiffChaser, IJCAI 2019",
    cost="one more forward pass per mutant",
    main="to",
)
class Quantised(Settings):
    """The target with its weights rounded to `int8` (and back) or `bf16` predicts another class."""

    to: Literal["int8", "bf16"] = "int8"

    def begin(self, target: Target) -> Check:
        module = copy.deepcopy(target.module)
        with torch.no_grad():
            for weight in module.parameters():
                weight.copy_(_rounded(weight, self.to))
        same = ("bounds", "mean", "std", "shape", "outputs", "device", "span", "tolerance")
        other = Target(module, spec=f"{target.spec} in {self.to}", **{name: getattr(target, name) for name in same})
        return _disagreement(f"quantised-{self.to}", [other], target.bins)


def _rounded(weight: Tensor, to: str) -> Tensor:
    """A weight after a round trip: bfloat16, or 255 even steps over its range with 0 among them."""
    if not weight.is_floating_point():
        return weight
    if to == "bf16":
        return weight.bfloat16().to(weight.dtype)
    step = weight.abs().max() / 127
    return weight if float(step) == 0 else (weight / step).round() * step


@dataclass(eq=False)
class Oracles:
    """Several checks; the first that rejects gives the fault its name. made_from: target and settings, for workers."""

    checks: list[Check]
    made_from: tuple[Target, Sequence[str | Oracle]] | None = None

    def __reduce_for_worker__(self) -> tuple[Any, ...]:
        if self.made_from is None:
            return (Oracles, (self.checks,))
        return (build_oracles, self.made_from)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks)

    @property
    def needs_labels(self) -> bool:
        return any(check.labels for check in self.checks)

    @property
    def passes(self) -> int:
        return sum(check.passes for check in self.checks)

    @property
    def tolerance(self) -> float | None:
        """How far from the truth an answer may be, where an oracle says so."""
        return next((one for check in self.checks if (one := getattr(check, "tolerance", None)) is not None), None)

    def __call__(self, x: Tensor, logits: Tensor, roots: Roots) -> NDArray[np.int64]:
        """(n,) number of the first oracle that rejects, -1 for none."""
        first = np.full(len(logits), -1, dtype=np.int64)
        for number, check in enumerate(self.checks):
            first[(first < 0) & check(x, logits, roots)] = number
        return first


def default_oracle(target: Target, labelled: bool = True) -> str:
    """What a fault is unless somebody says otherwise: another class than the label or, of a regression value, one that is far
    off."""
    return "regression" if target.bins is not None else "label" if labelled else "metamorphic"


def build_oracles(target: Target, oracles: str | Oracle | Sequence[str | Oracle]) -> Oracles:
    """The oracles ready for a target, NaN and infinity before all others."""
    settings = [oracles] if isinstance(oracles, str) or hasattr(oracles, "begin") else list(oracles)
    if not settings:
        raise BadInput(
            "missing", "oracle", "oracle: none was given. Name at least one (`neurotest list oracle`), for example label."
        )
    built = [registry.build("oracle", oracle) for oracle in settings]
    checks = [NonFinite().begin(target), *(oracle.begin(target) for oracle in built if not isinstance(oracle, NonFinite))]
    return Oracles(checks, (target, settings))
