"""Suites of the coverage study: each made by one attack on one layer with one lambda, and measured."""

from __future__ import annotations

import base64
import functools
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.coverage.threshold import NC
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.evaluate import pixels
from neurotest.evaluate.bias import THRESHOLDS as RANK_THRESHOLDS
from neurotest.evaluate.bias import Sums, class_bias_report
from neurotest.evaluate.features import Extractor, Features
from neurotest.evaluate.frechet import fid, inception_score, kid
from neurotest.generate.gradient import CW, PGD, AttackResult, Diversity, attack
from neurotest.generate.gradient.attacks import Attack
from neurotest.measure.context import Context
from neurotest.mutate.space import to_unit
from neurotest.scan import batches, scan
from neurotest.stats.evenness import evenness
from neurotest.studies import coverage_published as paper
from neurotest.target import Target
from neurotest.target.load import load

Row = dict[str, Any]
CLASSES = 10
# Features for FID, KID and IS come from a network that was not attacked; CIFAR-10 has none but the target.
EXTRACTORS = {"mnist": "zoo:mnist-lenet5", "cifar10": "target"}
EXISTS = 0.75  # at .2 some input of any suite drives every unit
TILES = 10  # pictures per suite, one of each class
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
        """Coupled over the suite as in the study's code; regularising after success only makes sense input by input."""
        if self.layer is None:
            return 0.0
        first = self.attack == "pgd-first"
        return Diversity(weight=self.weight, layers=self.layer, reduce="instance" if first else "batch", attack_first=first)


@dataclass(frozen=True, eq=False)
class Subject:
    """A target with its test images of odd index and what is measured on the clean ones."""

    target: Target
    test: Source
    extractor: Extractor


@functools.lru_cache(maxsize=4)
def subject_of(name: str, features: str | None = None) -> Subject:
    target = load(f"zoo:{name}")
    dataset = zoo.find(name).dataset
    test = data(f"zoo:{dataset}/test")
    return Subject(target, test.take(np.arange(1, len(test), 2)), Extractor.of(features or EXTRACTORS[dataset], target))


def predictions(target: Target, source: Source) -> NDArray[np.int64]:
    with torch.inference_mode():
        return np.concatenate([target.logits(part.x).argmax(1).cpu().numpy() for part in batches(target, source, batch=250)])


@functools.lru_cache(maxsize=8)
def correct(name: str) -> NDArray[np.int64]:
    """Which of the subject's test images it gets right."""
    subject = subject_of(name)
    return np.flatnonzero(predictions(subject.target, subject.test) == subject.test.labels)


def chosen(*names: str, draw: int, per_class: int, purpose: str = "study.coverage", right: bool = True) -> ArraySource:
    """Equally many test images of each class, of those the targets get right: impartial before anything is done."""
    subject = subject_of(names[0])
    labels = subject.test.labels
    assert labels is not None
    pool = functools.reduce(np.intersect1d, [correct(name) for name in names]) if right else np.arange(len(labels))
    order = rng.stream(purpose, draw).permutation(pool)
    rows = np.concatenate([order[labels[order] == c][:per_class] for c in range(CLASSES)])
    if len(rows) < per_class * CLASSES:
        raise BadInput(f"{', '.join(names)}: fewer than {per_class} usable test images of some class.")
    return ArraySource(subject.test.read(rows), labels[rows], spec=f"{names[0]}, draw {draw}", classes=subject.target.classes)


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
    """What the clean suite gives."""
    held, subject = clean(name, draw, images), subject_of(name)
    nc, exists = coverage(subject.target, held.images)
    probs = held.features.probs
    return {
        "subject": name, "draw": draw, "nc": nc, "exists": exists, "is": None if probs is None else inception_score(probs).value,
        "extractor": subject.extractor.name, "png": strip(held.images.read(np.arange(len(held.images))), held.images.labels),
    }  # fmt: skip


def suite(plan: Plan) -> Row:
    """Make one suite and measure it."""
    held, subject = clean(plan.subject, plan.draw, plan.images), subject_of(plan.subject)
    found = attack(
        subject.target,
        held.images,
        plan.method(),
        plan.diversity(),
        keep_wrong=True,
        batch=plan.images,
        seed=plan.draw,
        out=False,
    )
    row = measure(subject, held, ArraySource(found.x, found.expected), found.predicted, found.fault)
    noise, _ = coverage(subject.target, ArraySource(found.control.x))
    return {
        **asdict(plan), **row, "forwards": found.forwards, "backwards": found.backwards,
        "random asr": float(found.control.fault.mean()), "random nc": noise, "families": len(found.families),
        "png": strip(found.x, found.expected),
    }  # fmt: skip


def measure(subject: Subject, held: Clean, made: Source, predicted: NDArray[np.int64], fault: NDArray[np.bool_]) -> Row:
    """All the numbers of one suite whose input i was made from clean image i."""
    features = subject.extractor(subject.target, made)
    nc, exists = coverage(subject.target, made)
    x, before = (to_unit(subject.target.prepare(s.read(np.arange(len(s)))), subject.target.bounds) for s in (made, held.images))
    finite = predicted >= 0
    return {
        "nc": nc, "exists": exists, "asr": float(fault.mean()),
        "is": None if features.probs is None else inception_score(features.probs).value,
        "fid": fid(features.values, held.features.values, covariance="shrunk").value,
        "kid": kid(features.values, held.features.values).value,
        "oi": evenness(predicted[finite], CLASSES), "oi faults": evenness(predicted[finite & fault], CLASSES),
        "ssim": float(pixels.ssim(x, before).mean()), "l2": float(pixels.distances(x, before)["l2"].mean()),
    }  # fmt: skip


def class_bias(name: str, weights: Sequence[float], eps: float, steps: int) -> Row:
    """Table 7 and figure 8: classes ranked by the coverage of their own inputs, and where a regularised attack takes inputs."""
    subject = subject_of(name)
    baseline = chosen(name, draw=0, per_class=BASELINE, purpose="study.coverage.baseline", right=False)
    seeds = chosen(name, draw=0, per_class=IMPARTIAL, purpose="study.coverage.impartial")
    before, _ = coverage(subject.target, seeds)
    found = []
    for weight in weights:
        made = attack(
            subject.target, seeds, PGD(eps=eps, steps=steps), Diversity(weight=weight, reduce="batch") if weight else 0.0,
            batch=len(seeds), keep_wrong=True, out=False,
        )  # fmt: skip
        found.append(_favoured(subject, baseline, made, weight))
    ranks = class_bias_report(subject.target, baseline, per_class=BASELINE, thresholds=RANK_THRESHOLDS)
    return {
        "subject": name, "ranks": ranks.rank.tolist(), "coverage": ranks.coverage.mean(1).tolist(),
        "nc before": before[1], "attacks": found,
    }  # fmt: skip


def _favoured(subject: Subject, baseline: Source, made: AttackResult, weight: float) -> Row:
    nc, _ = coverage(subject.target, ArraySource(made.x, made.expected))
    heat = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    np.add.at(heat, (made.expected, made.predicted), 1)
    told = class_bias_report(subject.target, baseline, per_class=BASELINE, thresholds=RANK_THRESHOLDS, predicted=made.predicted)
    wrong = made.predicted[made.fault]
    faults = (
        class_bias_report(subject.target, baseline, per_class=BASELINE, thresholds=RANK_THRESHOLDS, predicted=wrong)
        if len(wrong) else None
    )  # fmt: skip
    return {
        "lambda": weight, "asr": float(made.fault.mean()), "nc": nc[1], "oi": evenness(made.predicted, CLASSES),
        "oi faults": evenness(wrong, CLASSES), "heat": heat.tolist(),
        "spearman": _known(told.correlation), "p": _known(told.p),
        "spearman faults": faults and _known(faults.correlation), "p faults": faults and _known(faults.p),
    }  # fmt: skip


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def activations(name: str, layer: str, weight: float, images: int, eps: float, steps: int) -> Row:
    """Figure 2: a layer's activations, summed over a suite and scaled, before and after, as two pictures of all its units."""
    held, subject = clean(name, 0, images), subject_of(name)
    made = attack(
        subject.target, held.images, PGD(eps=eps, steps=steps), Diversity(weight=weight, layers=layer, reduce="batch"),
        batch=images, keep_wrong=True, out=False,
    )  # fmt: skip
    shape = subject.target.survey().find(layer)[0].shape
    told: Row = {"subject": name, "layer": layer, "lambda": weight}
    for word, source in (("before", held.images), ("after", ArraySource(made.x))):
        sums = Sums(layer)
        scan(subject.target, source, [sums], batch=100)
        (values,) = sums.sums.values()
        scaled = ((values - values.min()) / (values.max() - values.min()).clamp_min(1e-12)).cpu().numpy()
        told |= {f"nc {word}": float((scaled > 0.2).mean()), f"{word} png": unit_picture(scaled, shape)}
    return told


# -- pictures


def png(values: NDArray[np.uint8]) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(values).save(out, format="PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def strip(x: NDArray[np.generic], labels: NDArray[np.int64] | None) -> str:
    """The first image of each class, side by side."""
    rows = np.arange(min(TILES, len(x))) if labels is None else np.unique(labels, return_index=True)[1][:TILES]
    tiles = np.concatenate([np.asarray(x[i], dtype=np.uint8).transpose(1, 2, 0) for i in rows], axis=1)
    return png(tiles[..., 0] if tiles.shape[2] == 1 else tiles)


def unit_picture(scaled: NDArray[np.float64], shape: tuple[int, ...]) -> str:
    """Units of a layer as grey values: maps side by side in a near square, other layers as one near square."""
    maps = scaled.reshape(shape) if len(shape) == 3 else scaled.reshape(-1, 1, 1)
    count, height, width = maps.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * columns, height, width))
    sheet[:count] = maps
    grid = sheet.reshape(rows, columns, height, width).transpose(0, 2, 1, 3).reshape(rows * height, columns * width)
    times = max(1, 200 // max(grid.shape))
    return png((grid * 255).astype(np.uint8).repeat(times, axis=0).repeat(times, axis=1))
