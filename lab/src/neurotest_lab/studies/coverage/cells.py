"""Suites of the coverage study: each made by one attack on one layer with one lambda, and measured."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.coverage.threshold import NC
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.evaluate.bias import THRESHOLDS as RANK_THRESHOLDS
from neurotest.evaluate.bias import ClassBias, Sums, class_bias_report
from neurotest.evaluate.features import Extractor, Features
from neurotest.evaluate.metrics import distances, fid, inception_score, kid, ssim
from neurotest.generate.gradient import CW, PGD, AttackResult, Diversity, attack
from neurotest.generate.gradient.attacks import Attack
from neurotest.measure.context import Context
from neurotest.mutate.unit import to_unit
from neurotest.scan import batches, predictions, scan
from neurotest.stats.diversity import evenness
from neurotest.target import Target
from neurotest.target.load import load
from neurotest_lab.studies import material
from neurotest_lab.studies.coverage import published as paper
from neurotest_lab.studies.frame import Row, odd, split_of
from neurotest_lab.studies.pictures import strip, unit_picture

CLASSES = 10
# Features for FID, KID and IS come from a network that was not attacked; CIFAR-10 has none but the target.
EXTRACTORS = {"mnist": "zoo:mnist-lenet5", "cifar10": "target", "driving": "target"}
EXISTS = 0.75  # at .2 some input of any suite drives every unit
BASELINE, IMPARTIAL = 100, 30  # inputs per class for table 7 and figure 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One suite: what is attacked, how, and how hard the regulariser pulls. strength: eps of PGD, kappa of CW."""

    subject: str
    attack: str
    layer: str | None  # None: no regulariser
    weight: float
    strength: float
    draw: int
    images: int
    scale: str

    @property
    def key(self) -> str:
        place = "none" if self.layer is None else self.layer
        return f"suite/{self.subject}/{self.draw}/{self.attack}/{self.strength:g}/{place}/{self.weight:g}"

    def method(self) -> Attack:
        quick, mnist = self.scale == "quick", self.subject.startswith("mnist")
        if self.attack == "cw":
            # One search cannot find the weight itself: 1 spreads the success rate on images that are not reported (even index).
            return CW(kappa=self.strength, searches=1, weight=1.0, on_failure="last") if quick else CW(
                kappa=self.strength, rate=5e-4 if mnist else 1e-2, steps=1000, on_failure="last"
            )  # fmt: skip
        return PGD(eps=self.strength, steps=40 if quick else 10 if mnist else 1000)

    def diversity(self) -> Diversity | float:
        """Units summed over the suite, as its coverage counts them; regularising after success makes sense input by input."""
        if self.layer is None:
            return 0.0
        first = self.attack == "pgd-first"
        return Diversity(weight=self.weight, layers=self.layer, reduce="instance" if first else "suite", attack_first=first)


@dataclass(frozen=True, eq=False)
class Subject:
    """A target with its test images of odd index and what is measured on the clean ones."""

    target: Target
    test: Source
    extractor: Extractor


@functools.lru_cache(maxsize=4)
def subject_of(name: str, features: str | None = None) -> Subject:
    target = material.network(name)
    if target.bins is not None:  # a fault is another one of 25 parts, as in the study: a part's width, wherever its edges are
        target = load(target, tolerance=target.bins.width)
    extractor = Extractor.of(features or EXTRACTORS[zoo.find(name).dataset], target)
    return Subject(target, odd(split_of(name, "test")), extractor)


@functools.lru_cache(maxsize=8)
def correct(name: str) -> NDArray[np.int64]:
    """Which of the subject's test images it gets right."""
    subject = subject_of(name)
    bins, truth = subject.target.bins, subject.test.quantities
    if bins is not None and truth is not None:
        values = quantities(subject.target, subject.test)
        return np.flatnonzero(np.abs(values - truth) <= bins.tolerance)
    return np.flatnonzero(predictions(subject.target, subject.test) == subject.test.labels)


def here(name: str) -> bool:
    """Whether a network and its data are on this machine."""
    if not material.available(name):
        return False
    try:
        split_of(name, "test")
    except BadInput:
        return False
    return True


def quantities(target: Target, source: Source) -> NDArray[np.float64]:
    """(n,) what a target that predicts a quantity says of a source."""
    assert target.bins is not None
    with torch.inference_mode():
        logits = torch.cat([target.logits(part.x) for part in batches(target, source)])
    return np.asarray(target.bins.values(logits.double()).cpu().numpy())


def chosen(*names: str, draw: int, per_class: int, purpose: str = "study.coverage", right: bool = True) -> ArraySource:
    """Equally many test images of each class, of those the targets get right: impartial before anything is done."""
    subject = subject_of(names[0])
    if subject.test.quantities is not None:
        return _some(subject, correct(names[0]), per_class * CLASSES, draw, purpose)
    labels = subject.test.labels
    assert labels is not None
    pool = functools.reduce(np.intersect1d, [correct(name) for name in names]) if right else np.arange(len(labels))
    order = rng.stream(purpose, draw).permutation(pool)
    rows = np.concatenate([order[labels[order] == c][:per_class] for c in range(CLASSES)])
    if len(rows) < per_class * CLASSES:
        raise BadInput("too-few", "inputs", f"{', '.join(names)}: fewer than {per_class} usable test images of some class.")
    return ArraySource(subject.test.read(rows), labels[rows], spec=f"{names[0]}, draw {draw}", classes=subject.target.classes)


def _some(subject: Subject, pool: NDArray[np.int64], count: int, draw: int, purpose: str) -> ArraySource:
    """Of a quantity so many inputs at random: there are no classes to be even about."""
    rows = np.sort(rng.stream(purpose, draw).permutation(pool)[:count])
    assert subject.test.quantities is not None
    return ArraySource(subject.test.read(rows), subject.test.quantities[rows], spec=f"{subject.test.spec}, draw {draw}")


@dataclass(frozen=True, eq=False)
class Clean:
    images: ArraySource
    features: Features


@functools.lru_cache(maxsize=4)
def clean(name: str, draw: int, images: int) -> Clean:
    seeds = chosen(name, draw=draw, per_class=images // CLASSES)
    subject = subject_of(name)
    return Clean(seeds, subject.extractor(subject.target, seeds))


def coverage(target: Target, source: Source) -> tuple[list[float], float]:
    """The study's coverage (average activation) at its thresholds, and DeepXplore's (some input) at EXISTS, of all units."""
    sums = Sums("pre_activation")
    exists = NC(threshold=EXISTS, neuron="unit").start(Context(target=target))
    scan(target, source, [sums, exists], batch=100)
    return sums.value(paper.THRESHOLDS).tolist(), float(exists.value().value)


def original(name: str, draw: int, images: int) -> Row:
    """The numbers of the clean suite."""
    suite, subject = clean(name, draw, images), subject_of(name)
    nc, exists = coverage(subject.target, suite.images)
    probs = suite.features.probs
    return {
        "subject": name, "draw": draw, "nc": nc, "exists": exists, "is": None if probs is None else inception_score(probs).value,
        "extractor": subject.extractor.name, "png": strip(suite.images.read(np.arange(len(suite.images))), suite.images.labels),
    }  # fmt: skip


def _attacked(target: Target, images: Source, method: Attack, diversity: Diversity | float, seed: int = 0) -> AttackResult:
    """All of the images at once, those the target gets wrong too."""
    return attack(target, images, method, diversity, keep_wrong=True, batch=len(images), seed=seed, out=False)


def suite(plan: Plan) -> Row:
    """Make one suite and measure it."""
    before, subject = clean(plan.subject, plan.draw, plan.images), subject_of(plan.subject)
    result = _attacked(subject.target, before.images, plan.method(), plan.diversity(), plan.draw)
    row = measure(subject, before, ArraySource(result.x, result.expected), result.predicted, result.fault)
    noise, _ = coverage(subject.target, ArraySource(result.control.x))
    return {
        **asdict(plan), **row, "forwards": result.forwards, "backwards": result.backwards,
        "random asr": float(result.control.fault.mean()), "random nc": noise, "families": len(result.families),
        "png": strip(result.x, result.expected),
    }  # fmt: skip


def measure(subject: Subject, clean: Clean, after: Source, predicted: NDArray[np.int64], fault: NDArray[np.bool_]) -> Row:
    """All the numbers of one suite whose input i was made from clean image i."""
    target, features = subject.target, subject.extractor(subject.target, after)
    nc, exists = coverage(target, after)
    x, before = (to_unit(target.prepare(s.read(np.arange(len(s)))), target.bounds) for s in (after, clean.images))
    finite = predicted >= 0
    classes = CLASSES if target.bins is None else target.bins.count
    return {
        "nc": nc, "exists": exists, "asr": float(fault.mean()),
        "is": None if features.probs is None else inception_score(features.probs).value,
        "fid": fid(features.values, clean.features.values, covariance="shrunk").value,
        "kid": kid(features.values, clean.features.values).value,
        "oi": evenness(predicted[finite], classes), "oi faults": evenness(predicted[finite & fault], classes),
        "ssim": float(ssim(x, before).mean()), "l2": float(distances(x, before)["l2"].mean()),
    }  # fmt: skip


def class_bias(name: str, weights: Sequence[float], eps: float, steps: int) -> Row:
    """Table 7 and figure 8: classes ranked by the coverage of their own inputs, and where a regularised attack takes inputs."""
    target = subject_of(name).target
    baseline = chosen(name, draw=0, per_class=BASELINE, purpose="study.coverage.baseline", right=False)
    seeds = chosen(name, draw=0, per_class=IMPARTIAL, purpose="study.coverage.impartial")
    before, _ = coverage(target, seeds)
    attacks = []
    for weight in weights:
        diversity = Diversity(weight=weight, reduce="suite") if weight else 0.0
        attacks.append(_favoured(target, baseline, _attacked(target, seeds, PGD(eps=eps, steps=steps), diversity), weight))
    ranks = _bias(target, baseline)
    return {
        "subject": name, "ranks": ranks.rank.tolist(), "coverage": ranks.coverage.mean(1).tolist(),
        "nc before": before[1], "attacks": attacks,
    }  # fmt: skip


def _bias(target: Target, baseline: Source, predicted: NDArray[np.int64] | None = None) -> ClassBias:
    return class_bias_report(target, baseline, per_class=BASELINE, thresholds=RANK_THRESHOLDS, predicted=predicted)


def _favoured(target: Target, baseline: Source, result: AttackResult, weight: float) -> Row:
    nc, _ = coverage(target, ArraySource(result.x, result.expected))
    heat = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    np.add.at(heat, (result.expected, result.predicted), 1)
    wrong = result.predicted[result.fault]
    every, faults = _bias(target, baseline, result.predicted), _bias(target, baseline, wrong) if len(wrong) else None
    return {
        "lambda": weight, "asr": float(result.fault.mean()), "nc": nc[1], "oi": evenness(result.predicted, CLASSES),
        "oi faults": evenness(wrong, CLASSES), "heat": heat.tolist(),
        "spearman": _defined(every.correlation), "p": _defined(every.p),
        "spearman faults": faults and _defined(faults.correlation), "p faults": faults and _defined(faults.p),
    }  # fmt: skip


def _defined(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def activations(name: str, layer: str, weight: float, images: int, eps: float, steps: int) -> Row:
    """Figure 2: a layer's activations, summed over a suite and scaled, before and after, as two pictures of all its units."""
    target, before = subject_of(name).target, clean(name, 0, images).images
    result = _attacked(target, before, PGD(eps=eps, steps=steps), Diversity(weight=weight, layers=layer, reduce="suite"))
    shape = target.survey().find(layer)[0].shape
    row: Row = {"subject": name, "layer": layer, "lambda": weight}
    for word, source in (("before", before), ("after", ArraySource(result.x))):
        sums = Sums(layer)
        scan(target, source, [sums], batch=100)
        (values,) = sums.sums.values()
        scaled = ((values - values.min()) / (values.max() - values.min()).clamp_min(1e-12)).cpu().numpy()
        row |= {f"nc {word}": float((scaled > 0.2).mean()), f"{word} png": unit_picture(scaled, shape)}
    return row
