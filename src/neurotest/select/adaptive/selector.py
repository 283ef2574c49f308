"""Adaptive selection: people label in rounds, and each round learns from the labels before it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from neurotest.checks import one_of, setting
from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.jobs.opening import known_training, open_data, open_target
from neurotest.registry import register
from neurotest.runs.store import Run
from neurotest.scan import BATCH, Batch, Progress, each_batch
from neurotest.select.adaptive import bank as banks
from neurotest.select.adaptive import prior as priors
from neurotest.select.adaptive.experts import PriorLoop
from neurotest.select.adaptive.features import SAMPLE, WANT, Facts, Gather
from neurotest.select.adaptive.learning import Loop
from neurotest.select.adaptive.prior import Prior
from neurotest.select.exchange import ROUNDS
from neurotest.select.scorer import Pool, Scorer, check_outputs, sample_first
from neurotest.stats.faults import budget as read_count
from neurotest.target import Probe, Target, Trace, Want
from neurotest.target.probe import NO_PROBABILITIES

NAMED_SHARE = 0.03  # shares below are not named in a sentence
FEW_IMAGES = 500  # training images below which shares and promise are rough: fourteen changes are told apart by them


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
                "training_images": self.images, "rough": self.images < FEW_IMAGES, "expected_gain": self.prior.promise / 100,
                "looks_natural": self.prior.guarded, "shares": self.prior.shares,
            }  # fmt: skip
        return about

    def notes(self) -> list[str]:
        """Sentences: why there is no prior, or what it found and promises."""
        if self.reason:
            return [self.reason]
        if self.bank is None or self.prior is None:
            return []
        return [_looks(self.prior), _promise(self.prior), *_rough(self.images)]

    @property
    def images(self) -> int:
        """Training images in the bank."""
        return 0 if self.bank is None else int(self.bank.images.max() + 1)


def _looks(prior: Prior) -> str:
    """What EM found in the unlabelled pool."""
    shares = sorted(prior.shares.items(), key=lambda item: -item[1])
    named = ", ".join(f"{100 * share:.0f} % {name}" for name, share in shares if share >= NAMED_SHARE)
    return f"by its looks the pool is {named} (no label was needed for that; a change that is not simulated looks like another)."


def _rough(images: int) -> list[str]:
    """A warning where few training images stand behind what was found."""
    if images >= FEW_IMAGES:
        return []
    return [f"only {images} training images (--train): what the pool looks like and the expected gain are rough; 5,000 are used."]


def _promise(prior: Prior) -> str:
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
            f"no prior: inputs of shape {'x'.join(map(str, shape))} are neither images nor audio: no change can be simulated.",
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


class PoolLearner(Scorer):
    """Base of the methods that learn from what the network does on all candidates."""

    pointwise: ClassVar[bool] = False

    @property
    def want(self) -> Want:
        return WANT

    @property
    def sample(self) -> int:
        return SAMPLE


@register(
    "selector",
    "adaptive",
    main="round",
    paper="ours; the corrected head builds on temperature and bias correction of trained classifiers, the shares of changes on "
    "EM for shifted classes (Saerens et al., 2002)",
    cost="one forward pass per input, five per training image (at most 5,000, once per network and training data), a convex fit "
    "per round (below 2 s for 100,000 inputs), 4 (100 + classes) bytes per input, of more than 64 classes 500",
    differs="A selector that gets labels while it works. Where the pool carries labels they are revealed round by round, as a "
    "person would give them; where it does not, the budget is the size of a batch, `neurotest labels RUN add FILE` brings labels "
    "and `neurotest select --resume RUN` proposes the next batch.",
)
class Adaptive(PoolLearner):
    """Learn beforehand from changed training images which inputs the network gets wrong, and let every label correct that.

    Copies of training images, changed in fourteen ways, show on which features the network errs; how much each way counts is
    estimated from the unlabelled pool. Then labels come: five experts (DeepGini, what was learned beforehand, that corrected by
    labels, a regression on "is it a fault?", a head learned from labels alone) are weighed by what each said before a label came.
    prior: `train`, as described, from the training data (without it `self`); `self`, from changed copies of the half of the pool
    of which the network is surest; `none`, DeepGini until labels have shown more. round: how many labels between two fits, a
    number or a share of the pool (at least 10). stop: say when the expected fault rate of the next batch falls below this. audit:
    share of every batch that is drawn at random, which costs faults and makes the number of faults left an estimate instead of a
    guess. ridge: how strongly the regressions are kept near zero.
    """

    round: str | float = "0.5%"
    stop: float | None = setting(None, "a fault rate, for example 0.05", above=0, below=1)
    audit: float = setting(0.0, "a share of every batch, for example 0.1", least=0, below=1)
    ridge: float = setting(30.0, "30 by default", above=0)
    prior: Literal["train", "self"] | None = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior is not None:
            one_of("prior", self.prior, ("train", "self", "none"))
        read_count(self.round, 10**9)

    def labels_per_round(self, n: int) -> int:
        """How many labels one round asks for in a pool of n."""
        share = str(self.round).endswith("%") or float(self.round) < 1
        return min(n, max(10, read_count(self.round, n)) if share else int(self.round))

    def start(self, pool: Pool) -> AdaptiveState:
        return AdaptiveState(self, pool)


class AdaptiveState:
    """Gathers the facts as batches stream by; then runs the loop as far as there are labels."""

    def __init__(self, method: Adaptive, pool: Pool) -> None:
        self.method, self.pool = method, pool
        self.scanned = Scanned.of(pool, method.prior, method.ridge)
        self.rounds: list[dict[str, Any]] = []  # what each promised and held
        self.stopped: int | None = None  # labels there were when the stop rule first applied

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.scanned.gather.update(index, trace)

    def keep(self, run: Run, name: str) -> None:
        """Let a selection from an unlabelled pool go on when labels come."""
        from neurotest.select.adaptive.stored import keep  # which reads states like this one

        if self.pool.source.labels is None and ROUNDS not in run:
            keep(run, name, self)

    @cached_property
    def loop(self) -> Loop:
        return self.scanned.loop(ridge=self.method.ridge, seed=self.pool.seed, audit=self.method.audit)

    def value(self) -> np.ndarray:
        """Fault probabilities; where labels are revealed, or picks random, a pick's whole part counts the picks still to come.

        So the picks lie before the rest, in the order in which they were proposed. Inputs labelled beforehand come last.
        """
        revealed, labels = self.pool.source.labels, self.pool.labels
        if labels is not None:
            self._replay(labels)
        if revealed is None:
            picks = self.loop.propose(self.pool.picked)
            chances = self.loop.chances[picks]
        else:
            picks, chances = self._reveal(revealed)
        scores: np.ndarray = self.loop.chances.copy()
        if revealed is not None or set(picks.tolist()) != set(self._first(len(picks)).tolist()):
            scores = np.clip(scores, 0.0, 0.999999)
            scores[picks] = np.arange(len(picks), 0, -1) + np.clip(chances, 0.0, 0.999999)
        if labels is not None:
            scores[labels >= 0] -= 2
        return scores

    def _first(self, n: int) -> np.ndarray:
        """The n most probable faults among those without a label."""
        left = self.loop.left
        return left[np.argsort(-self.loop.chances[left], kind="stable")[:n]]

    def _reveal(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rounds until the budget is spent; a label is looked at when its input has been proposed, not before."""
        size, stop = self.method.labels_per_round(len(self.pool)), self.method.stop
        picks: list[np.ndarray] = []
        chances: list[np.ndarray] = []
        wanted = min(self.pool.picked, len(self.loop.left))
        while (missing := wanted - sum(map(len, picks))) > 0:
            if stop is not None and self.stopped is None and self.loop.labels and self.loop.expected_rate(size) < stop:
                self.stopped = len(self.loop.labels)
            expected = self.loop.expected_rate(min(size, missing))
            batch = self.loop.propose(min(size, missing))
            picks.append(batch)
            chances.append(self.loop.chances[batch])
            self.loop.tell(batch, labels[batch])
            self.rounds.append({"size": len(batch), "expected": expected, **self.loop.compared()._asdict()})
        return np.concatenate(picks), np.concatenate(chances)

    def _replay(self, labels: np.ndarray) -> None:
        """Labels that came in one file, in rounds: how well each round was predicted is how far the learner is trusted."""
        size = max(self.method.labels_per_round(len(self.pool)), int(np.ceil((labels >= 0).sum() / 20)))
        while len(waiting := np.flatnonzero((labels >= 0) & np.isin(np.arange(len(labels)), self.loop.left))):
            odds = self.loop.chances[waiting]
            batch = waiting[np.argsort(-odds, kind="stable")[:size]]
            self.loop.record_odds(batch)
            self.loop.tell(batch, labels[batch])

    def details(self) -> dict[str, Any]:
        """For the JSON and the report: what was learned beforehand, and what each round promised and held."""
        return {"prior": self.scanned.details(), **({"rounds": self.rounds} if self.rounds else {})}

    def notes(self) -> tuple[str, ...]:
        loop, notes = self.loop, list(self.scanned.notes())
        if loop.labels:
            notes.append(summary(loop, self.method.labels_per_round(len(self.pool))))
        if self.stopped is not None:
            notes.append(f"stop={self.method.stop:g} applied after {self.stopped} labels: the next batch promised fewer faults.")
        if len(odd := loop.suspects()):
            names = self.pool.source.names
            words = [str(p) if names is None else f"{p} {names[p]}" for p in odd[:10].tolist()]
            shown = ", ".join(words) + (", ..." if len(odd) > 10 else "")
            notes.append(f"{len(odd)} labels look wrong (a sure network, and inputs alike agree with it): {shown}.")
        return tuple(notes)


def loop(
    target: Target | str,
    pool: AnyData,
    *,
    train: AnyData | None = None,
    prior: Literal["train", "self"] | None = "train",
    ridge: float = 30.0,
    seed: int = 0,
    audit: float = 0.0,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> Loop:
    """Scan a pool once and begin: `propose(n)` says what to label next, `tell(indices, labels)` takes the labels.

    train: training data with labels; that of a network of the zoo is known.
    """
    target = open_target(target)
    source = open_data(target, pool)
    trained = known_training(target) if train is None else open_data(target, train)
    candidates = Pool(target, source, seed, train=trained, batch=batch)
    state = AdaptiveState(Adaptive(ridge=ridge, audit=audit, prior=prior), candidates)

    def step(part: Batch, trace: Trace, probe: Probe) -> None:
        check_outputs(trace, part)
        state.update(part.index, trace, ())

    each_batch(target, source, step, wants=[WANT], order=sample_first(candidates, {SAMPLE}), batch=batch, progress=progress)
    return state.loop


def summary(loop: Loop, size: int) -> str:
    """Where the loop stands, in one sentence."""
    rest = loop.remaining()
    basis = f"by {rest.random} random labels" if rest.random else "the model's guess; audit=0.1 would measure it"
    return (
        f"adaptive: {len(loop.labels)} labels, {loop.faults} faults; "
        f"about {rest.value:.0f} faults left ({rest.low:.0f} .. {rest.high:.0f}, {basis}); "
        f"the next {size} are expected to hold {100 * loop.expected_rate(size):.0f} %; "
        f"the learner counts {100 * loop.posterior.trust:.0f} %, DeepGini the rest."
        + (f" {_compared_words(loop)}" if loop.labels else "")
    )


def _compared_words(loop: Loop) -> str:
    """The measured gain so far: faults found, beside what DeepGini's first picks hold as far as that is known."""
    c = loop.compared()
    gain = 100 * (c.faults - c.deepgini) / max(c.labels, 1)
    return (
        f"DeepGini's first {c.labels} would hold about {c.deepgini:.0f} faults ({c.shared} of them have labels): "
        f"{gain:+.1f} points so far."
    )
