"""DeepFool, JSMA and AutoAttack as the adversarial-robustness-toolbox has them, run like our own attacks."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest import rng
from neurotest.checks import eps_share, fraction, setting
from neurotest.errors import BadInput
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.engine import NOT_FINITE, Engine
from neurotest.mutate.unit import from_unit
from neurotest.registry import register

MISSING = (
    "{name} needs the adversarial-robustness-toolbox, which is not installed: pip install 'neurotest[attacks]' "
    "(or use an attack that needs nothing, such as pgd)."
)
TAKES = "100, 1 and 1000; the toolbox takes 100, 5 and 5000"
THROUGH = (
    "Run by the adversarial-robustness-toolbox. Seeds, rounding to 8 bits, the second test and the control are as for our own."
)


class _CountedTarget(nn.Module):
    """The target as the toolbox wants it, inputs in [0, 1]; passes are counted, and gradients that are not finite refused.

    The toolbox works on the host, and would take the network's weights there: they are not part of this module.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    def forward(self, x: Tensor) -> Tensor:
        engine = self.engine
        engine.forwards += len(x)
        if x.requires_grad:
            x.register_hook(self._check)
        return engine.target.logits(from_unit(x.to(engine.target.device), engine.target.bounds)).to(x.device)

    def _check(self, gradient: Tensor) -> None:
        self.engine.backwards += len(gradient)
        if not bool(gradient.isfinite().all()):
            raise BadInput("not-finite", "gradient", NOT_FINITE)


@contextmanager
def _own_randomness(random: int, positions: Sequence[int]) -> Iterator[None]:
    """The toolbox draws from numpy's global stream: it gets one of its own, and the global one back as it was."""
    before = np.random.get_state()
    np.random.seed(int(rng.stream("attack.toolbox", random, *positions[:1]).integers(2**32)))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random)
            yield
    finally:
        np.random.set_state(before)


@dataclass(frozen=True, kw_only=True)
class _Toolbox(Attack):
    """Base: wrap the target, and let the toolbox attack it."""

    regularised: ClassVar[bool] = False

    @abstractmethod
    def build(self, attacks: Any, classifier: Any, n: int) -> Any:
        """The toolbox's attack for `n` inputs."""

    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor:
        if y.is_floating_point():
            raise BadInput(
                "unsuitable",
                "outputs",
                f"{self.name} needs classes, and the target predicts a regression value: use pgd, bim, fgsm or cw.",
            )
        estimators, evasion = _modules(self.name)
        engine.gradient(seed, y, first=True)  # one of our own, so that a target with zero gradients is refused
        with torch.no_grad():
            classes = int(engine.predict(seed[:1]).shape[1])
        # The box is [0, 1]; the wrapper knows the target's own bounds and preprocessing.
        model, loss, shape = _CountedTarget(engine), nn.CrossEntropyLoss(), tuple(seed.shape[1:])
        about = {"input_shape": shape, "nb_classes": classes, "clip_values": (0.0, 1.0), "device_type": "cpu"}
        classifier = estimators.PyTorchClassifier(model=model, loss=loss, **about)
        with _own_randomness(random, positions), torch.enable_grad():
            try:
                moved = self.build(evasion, classifier, len(seed)).generate(seed.cpu().numpy(), y=self._labels(y, classes))
            except ImportError as error:  # AutoAttack wants a package that the toolbox does not ask for
                raise BadInput("not-installed", self.name, MISSING.format(name=f"{self.name} ({error.name})")) from error
        result = torch.from_numpy(np.asarray(moved, dtype=np.float32)).to(seed)
        return torch.where(result.isfinite(), result, seed).clamp(0, 1)

    def _labels(self, y: Tensor, classes: int) -> Any:
        return _one_hot(y.cpu().numpy(), classes)


def _one_hot(numbers: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
    rows = np.zeros((len(numbers), classes), dtype=np.float32)
    rows[np.arange(len(numbers)), numbers] = 1
    return rows


def _modules(name: str) -> tuple[Any, Any]:
    try:
        import art.attacks.evasion as evasion
        import art.estimators.classification as estimators
    except ImportError as error:
        raise BadInput("not-installed", name, MISSING.format(name=name)) from error
    return estimators, evasion


def installed() -> bool:
    """Whether the toolbox is here, without importing it."""
    import importlib.util

    return "art" in sys.modules or importlib.util.find_spec("art") is not None


@register(
    "attack",
    "deepfool",
    paper="Moosavi-Dezfooli et al., DeepFool, CVPR 2016",
    cost="one forward pass and one backward pass per candidate class and step",
    differs=THROUGH
    + " Changes are often below half a step of 8-bit data and vanish when they are rounded: `unstable` counts them; "
    "a larger `overshoot` keeps more of them.",
    main="overshoot",
)
class DeepFool(_Toolbox):
    """Small steps to the nearest border of the classes, as if they were planes; then `overshoot` farther."""

    name: ClassVar[str] = "deepfool"
    steps: int = setting(50, "50 in the paper")
    overshoot: float = setting(0.02, "0.02 in the paper", least=0)
    candidates: int = setting(10, "10 in the paper")

    def build(self, attacks: Any, classifier: Any, n: int) -> Any:
        return attacks.DeepFool(
            classifier, max_iter=self.steps, epsilon=self.overshoot, nb_grads=self.candidates, batch_size=n, verbose=False
        )


@register(
    "attack",
    "jsma",
    paper="Papernot et al., EuroS&P 2016",
    cost="one forward pass and one backward pass per class and step; the slowest attack here",
    differs=THROUGH + " The aimed class is drawn anew for every input, as the toolbox does where none is given.",
    main="theta",
)
class JSMA(_Toolbox):
    """Change few values a lot: those that raise the aimed class most, by `theta` each, up to a share `gamma` of them."""

    name: ClassVar[str] = "jsma"
    theta: float = setting(1.0, "1 is usual", read=eps_share, above=0)
    gamma: float = setting(0.1, read=lambda name, value: fraction(name, value, 0, 1, "a share of the values, 0.1 is usual"))

    def build(self, attacks: Any, classifier: Any, n: int) -> Any:
        return attacks.SaliencyMapMethod(classifier, theta=self.theta, gamma=self.gamma, batch_size=n, verbose=False)

    def _labels(self, y: Tensor, classes: int) -> Any:
        """It takes the class to reach: any other than the own one."""
        step = np.random.randint(1, classes, size=len(y))  # inside our own randomness
        return _one_hot((y.cpu().numpy() + step) % classes, classes)


@register(
    "attack",
    "autoattack",
    paper="Croce and Hein, ICML 2020",
    cost="several hundred forward and backward passes per seed that holds out",
    differs=THROUGH + " Its four parts are the toolbox's: APGD on cross-entropy and on the difference of logits, DeepFool, and "
    "the square attack (the paper has FAB where the toolbox has DeepFool), with one start instead of five and 1,000 queries "
    "instead of 5,000: hours become minutes.",
    main="eps",
)
class AutoAttack(_Toolbox):
    """Four attacks one after the other, each on what the ones before it did not break, within eps.

    steps: of the climbing ones, restarts: how often each begins, queries: of the square attack.
    """

    name: ClassVar[str] = "autoattack"
    eps: float = setting(0.1, read=eps_share)
    step: float = setting(0.02, "0.02 is usual", read=eps_share, above=0)
    steps: int = setting(100, TAKES)
    restarts: int = setting(1, TAKES)
    queries: int = setting(1000, TAKES)

    @property
    def radius(self) -> float | None:
        return self.eps

    def build(self, attacks: Any, classifier: Any, n: int) -> Any:
        bounded: dict[str, Any] = {"norm": np.inf, "eps": self.eps}
        steps = {"eps_step": self.step, "max_iter": self.steps, "nb_random_init": self.restarts, "batch_size": n}
        climbing = [
            attacks.AutoProjectedGradientDescent(classifier, **bounded, **steps, loss_type=loss, verbose=False)
            for loss in ("cross_entropy", "difference_logits_ratio")
        ]
        rest = [
            attacks.DeepFool(classifier, max_iter=self.steps, epsilon=1e-3, nb_grads=10, batch_size=n, verbose=False),
            attacks.SquareAttack(
                classifier, **bounded, max_iter=self.queries, p_init=0.8, nb_restarts=self.restarts, batch_size=n, verbose=False
            ),
        ]
        return attacks.AutoAttack(classifier, **bounded, eps_step=self.step, batch_size=n, attacks=[*climbing, *rest])
