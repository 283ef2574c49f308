"""Oracles: what is a fault. Each rejects mutants by their logits and by the seed they were made from.

Several may be joined; the first that rejects a mutant names the fault. Logits that are no numbers are always a fault.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.target import Target

NONFINITE = "nonfinite"
Wrong = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Roots:
    """The seeds behind a batch of mutants, row by row."""

    labels: NDArray[np.int64]  # (n,) -1 where unknown
    predicted: NDArray[np.int64]  # (n,) by the target
    logits: NDArray[np.float32]  # (n, classes)

    def __getitem__(self, index: Any) -> Roots:
        return Roots(self.labels[index], self.predicted[index], self.logits[index])


class Check(Protocol):
    """An oracle ready for one target. `passes` is how many further forward passes each mutant costs."""

    name: str
    passes: int
    labels: bool  # whether the seeds must be labelled

    def __call__(self, x: Tensor, logits: Tensor, roots: Roots) -> Wrong: ...


class Oracle(Protocol):
    """Settings; `begin` makes it ready for a target."""

    def begin(self, target: Target) -> Check: ...


def predicted(logits: Tensor) -> NDArray[np.int64]:
    """(n,) class numbers; -1 where a logit is no finite number."""
    return np.asarray(torch.where(logits.isfinite().all(1), logits.argmax(1), -1).cpu().numpy(), dtype=np.int64)


@dataclass(eq=False)
class _Simple:
    """A check that needs the logits only."""

    name: str
    test: Any
    labels: bool = False
    passes: int = 0
    tolerance: float | None = None  # of a quantity

    def __call__(self, x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
        return np.asarray(self.test(logits, roots))


@registry.register("oracle", "label", paper="", cost="nothing")
@dataclass(frozen=True, kw_only=True)
class Label:
    """The prediction is not the label of the seed: assumes that mutations preserve the class. Needs labelled seeds."""

    def begin(self, target: Target) -> Check:
        return _Simple("label", lambda logits, roots: predicted(logits) != roots.labels, labels=True)


@registry.register("oracle", "metamorphic", paper="DeepTest, ICSE 2018", cost="nothing")
@dataclass(frozen=True, kw_only=True)
class Metamorphic:
    """The prediction is not that of the seed: needs no label, but cannot see where the target was wrong to begin with."""

    def begin(self, target: Target) -> Check:
        return _Simple("metamorphic", lambda logits, roots: predicted(logits) != roots.predicted)


@registry.register("oracle", NONFINITE, paper="TensorFuzz, ICML 2019", cost="nothing")
@dataclass(frozen=True, kw_only=True)
class NonFinite:
    """A logit is NaN or infinite. Always in force; named alone, nothing else is a fault."""

    def begin(self, target: Target) -> Check:
        return _Simple(NONFINITE, lambda logits, roots: predicted(logits) < 0)


@registry.register("oracle", "regression", paper="", cost="nothing", main="tolerance")
@dataclass(frozen=True, kw_only=True)
class Regression:
    """Some output is farther than `tolerance` from what the target gives for the seed: the quantity, where it predicts one (by
    default farther than a bin is wide), otherwise probabilities or logits (by default 1)."""

    tolerance: float | None = None
    outputs: Literal["logits", "probs"] = "probs"

    def __post_init__(self) -> None:
        number = isinstance(self.tolerance, (int, float)) and not isinstance(self.tolerance, bool)
        if self.tolerance is not None and not (number and self.tolerance > 0):
            raise BadInput(f"tolerance={self.tolerance!r}: expected a number above 0.")
        if self.outputs not in ("logits", "probs"):
            raise BadInput(f"outputs={self.outputs!r}: expected logits or probs.")

    def begin(self, target: Target) -> Check:
        bins = target.bins
        tolerance = self.tolerance if self.tolerance is not None else 1.0 if bins is None else bins.width

        def far(logits: Tensor, roots: Roots) -> Wrong:
            before = torch.from_numpy(roots.logits).to(logits)
            if bins is not None:
                logits, before = (bins.values(side.double()).unsqueeze(1) for side in (logits, before))
            elif self.outputs == "probs":
                logits, before = logits.double().softmax(1), before.double().softmax(1)
            return np.asarray(((logits - before).abs().amax(1) > tolerance).cpu().numpy())

        return _Simple("regression", far, tolerance=tolerance)


@dataclass(eq=False)
class _Others:
    """Compares with other networks on the same input."""

    name: str
    others: Sequence[Target]
    labels: bool = False
    passes: int = 0

    def __post_init__(self) -> None:
        self.passes = len(self.others)

    def __call__(self, x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
        ours = predicted(logits)
        wrong = np.zeros(len(ours), dtype=bool)
        with torch.inference_mode():
            for other in self.others:
                wrong |= predicted(other.logits(x)) != ours
        return wrong


def _opened(oracle: str, others: Sequence[str | Target], example: str) -> list[Target]:
    """The other networks of an oracle."""
    from neurotest.target.load import load

    if not all(others):
        raise BadInput(f"{oracle} needs another network: write {oracle}:TARGET, for example {oracle}:{example}.")
    return [load(other) if isinstance(other, str) else other for other in others]


@registry.register(
    "oracle",
    "differential",
    paper="DeepXplore, SOSP 2017",
    cost="one forward pass of each other network per mutant",
    main="other",
)
@dataclass(frozen=True, kw_only=True)
class Differential:
    """Another network (`other`, a target spec; several are separated by +) disagrees; which one is wrong stays open."""

    opens: ClassVar[tuple[str, ...]] = ("other",)

    other: str | Target = ""

    def begin(self, target: Target) -> Check:
        others = self.other.split("+") if isinstance(self.other, str) else [self.other]
        return _Others("differential", _opened("differential", others, "zoo:mnist-lenet1"))


@dataclass(eq=False)
class _Recognised:
    """Wrong for the target, and still right for another network."""

    other: Target
    name: str = "recognised"
    labels: bool = True
    passes: int = 1

    def __call__(self, x: Tensor, logits: Tensor, roots: Roots) -> Wrong:
        with torch.inference_mode():
            recognised = predicted(self.other.logits(x)) == roots.labels
        return np.asarray((predicted(logits) != roots.labels) & recognised)


@registry.register(
    "oracle",
    "recognised",
    paper="",
    cost="one forward pass of the other network per mutant",
    main="other",
)
@dataclass(frozen=True, kw_only=True)
class Recognised:
    """The prediction is not the label of the seed, but another network (`other`, a target spec) still gives it: what nobody could
    recognise any more is no fault. The better the other network, the fewer true faults are missed. Needs labelled seeds."""

    opens: ClassVar[tuple[str, ...]] = ("other",)

    other: str | Target = ""

    def begin(self, target: Target) -> Check:
        (other,) = _opened("recognised", [self.other], "zoo:mnist-conv2d")
        if other.fingerprint == target.fingerprint:
            raise BadInput("recognised: the other network is the one under test, so nothing would ever be a fault: name another.")
        return _Recognised(other)


@registry.register(
    "oracle",
    "quantised",
    paper="TensorFuzz, ICML 2019; DiffChaser, IJCAI 2019",
    cost="one more forward pass per mutant",
    main="to",
)
@dataclass(frozen=True, kw_only=True)
class Quantised:
    """The target with its weights rounded to `int8` (and back) or `bf16` predicts another class."""

    to: Literal["int8", "bf16"] = "int8"

    def __post_init__(self) -> None:
        if self.to not in ("int8", "bf16"):
            raise BadInput(f"to={self.to!r}: expected int8 or bf16.")

    def begin(self, target: Target) -> Check:
        module = copy.deepcopy(target.module)
        with torch.no_grad():
            for weight in module.parameters():
                weight.copy_(rounded(weight, self.to))
        other = Target(
            module, bounds=target.bounds, mean=target.mean, std=target.std, shape=target.shape, outputs=target.outputs,
            spec=f"{target.spec} in {self.to}", device=target.device,
        )  # fmt: skip
        return _Others(f"quantised-{self.to}", [other])


def rounded(weight: Tensor, to: str) -> Tensor:
    """A weight after a round trip: bfloat16, or 255 even steps over its range with 0 among them."""
    if not weight.is_floating_point():
        return weight
    if to == "bf16":
        return weight.bfloat16().to(weight.dtype)
    step = weight.abs().max() / 127
    return weight if float(step) == 0 else (weight / step).round() * step


@dataclass(eq=False)
class Oracles:
    """Several checks; the first that rejects gives the fault its name."""

    checks: list[Check]

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
    """What a fault is unless somebody says otherwise: another class than the label or, of a quantity, one that is far off."""
    return "regression" if target.bins is not None else "label" if labelled else "metamorphic"


def build_oracles(target: Target, oracles: str | Oracle | Sequence[str | Oracle]) -> Oracles:
    """The oracles ready for a target, NaN and infinity before all others."""
    settings = [oracles] if isinstance(oracles, str) or hasattr(oracles, "begin") else list(oracles)
    if not settings:
        raise BadInput("oracle: none was given. Name at least one (`neurotest list oracle`), for example label.")
    built = [registry.build("oracle", oracle) for oracle in settings]
    return Oracles([NonFinite().begin(target), *(oracle.begin(target) for oracle in built if not isinstance(oracle, NonFinite))])
