"""What adaptive methods share in one selection: the scan of the pool, and what is learned before the first label."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from neurotest.errors import BadInput
from neurotest.select.adaptive import bank as banks
from neurotest.select.adaptive import prior as priors
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import Facts, Gather
from neurotest.select.adaptive.learning import Loop
from neurotest.select.adaptive.prior import Prior
from neurotest.select.scorer import Pool
from neurotest.target.probe import NO_PROBABILITIES

SHOWN = 0.03  # shares below are not named in a sentence
FEW = 500  # training images below which shares and promise are rough: fourteen changes are told apart by them


class Scanned:
    """Takes the batches of a pool; the bank of training images is made before, that of pool inputs after them."""

    def __init__(self, pool: Pool, wanted: str | None, ridge: float) -> None:
        self.pool, self.ridge = pool, ridge
        self.mode, self.reason = _mode(pool, wanted)
        self.bank: banks.Bank | None = None
        basis = None
        if self.mode == "train":
            assert pool.train is not None
            self.bank, basis = banks.of_training(
                pool.target, pool.train, copies=banks.copies_of(pool.source) or banks.COPIES, progress=pool.progress
            )
        self.gather = Gather(len(pool), basis)

    @classmethod
    def of(cls, pool: Pool, wanted: str | None, ridge: float) -> Scanned:
        """One for all methods of a selection that want the same."""
        if pool.target.bins is not None:
            raise BadInput("unsuitable", "outputs", NO_PROBABILITIES)
        key = ("adaptive", _mode(pool, wanted)[0], ridge)
        if key not in pool.shared:
            pool.shared[key] = cls(pool, wanted, ridge)
        scanned = pool.shared[key]
        assert isinstance(scanned, cls)
        return scanned

    @cached_property
    def facts(self) -> Facts:
        return self.gather.value()

    @cached_property
    def prior(self) -> Prior | None:
        if self.mode == "none":
            return None
        if self.bank is not None:
            return priors.learn(self.bank, self.facts, ridge=self.ridge)
        assert self.gather.basis is not None
        pool, copies = self.pool, banks.copies_of(self.pool.source) or banks.COPIES
        bank = banks.of_pool(pool.target, pool.source, self.facts, self.gather.basis, copies=copies, progress=pool.progress)
        return priors.from_pool(bank, ridge=self.ridge)

    def loop(self, *, ridge: float, seed: int, audit: float) -> Loop:
        if self.prior is None:
            return Loop(self.facts, ridge=ridge, seed=seed, audit=audit)
        return PriorLoop(self.facts, ridge=ridge, seed=seed, audit=audit, prior=self.prior)

    def details(self) -> dict[str, Any]:
        """As JSON takes it."""
        about: dict[str, Any] = {"from": self.mode}
        if self.bank is not None and self.prior is not None:
            about |= {
                "training_images": self.images, "rough": self.images < FEW, "expected_gain": self.prior.promise / 100,
                "looks_natural": self.prior.guarded, "shares": self.prior.shares,
            }  # fmt: skip
        return about

    def notes(self) -> list[str]:
        """Sentences: why there is no prior, or what it found and promises."""
        if self.reason:
            return [self.reason]
        if self.bank is None or self.prior is None:
            return []
        return [looks(self.prior), promise(self.prior), *rough(self.images)]

    @property
    def images(self) -> int:
        """Training images in the bank."""
        return 0 if self.bank is None else int(self.bank.images.max() + 1)


def looks(prior: Prior) -> str:
    """What EM found in the unlabelled pool."""
    shares = sorted(prior.shares.items(), key=lambda item: -item[1])
    named = ", ".join(f"{100 * share:.0f} % {name}" for name, share in shares if share >= SHOWN)
    return f"by its looks the pool is {named} (no label was needed for that; a change that is not simulated looks like another)."


def rough(images: int) -> list[str]:
    """A warning where few training images stand behind what was found."""
    if images >= FEW:
        return []
    return [f"only {images} training images (--train): what the pool looks like and the expected gain are rough; 5,000 are used."]


def promise(prior: Prior) -> str:
    """The expected gain before the first label."""
    if prior.guarded:
        return "the pool looks natural and changed training images promise no gain over DeepGini: its order is the start."
    return (
        f"expected before the first label: {prior.promise:+.1f} points over DeepGini (mean of the FDR at 2, 5 and 10 %), "
        "as on training images changed in these shares."
    )


def _mode(pool: Pool, wanted: str | None) -> tuple[str, str]:
    """train, self or none, and why it is not what was wanted."""
    shape = pool.source.shape
    if wanted is None:
        return "none", ""
    if banks.copies_of(pool.source) is None:
        return (
            "none",
            f"no prior: inputs of shape {'x'.join(map(str, shape))} are no pictures and no sound: no change can be simulated.",
        )
    if len(pool) < 2:
        return "none", "no prior: a pool of one input."
    if wanted == "self" or (pool.train is not None and pool.train.labels is not None):
        return wanted, ""
    if pool.train is None:
        return (
            "self",
            "no training data (--train): learned from changed copies of the pool's surest half; true labels would gain more.",
        )
    return "self", "the training data has no labels: the prior is learned from changed copies of the pool's surest half."
