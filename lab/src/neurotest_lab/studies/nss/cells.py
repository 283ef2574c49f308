"""The measurements of the NSS study, each a function that gives plain data."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import registry, rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.mutate.nss import NssMutations, nss_pool
from neurotest.mutate.operators import BoxBlur, Brightness, Contrast, RangeOperator, Rotation, Scale, Shear, Shift
from neurotest.scan import batches
from neurotest.select import compare
from neurotest.select.selection import Selection
from neurotest.stats import faults as metrics
from neurotest.stats.bootstrap import fdr_interval, mean_interval
from neurotest.target import Probe, Target, Want
from neurotest.target.load import load
from neurotest.train import accuracy, train
from neurotest.zoo.recipes import Recipe
from neurotest_lab.studies.frame import Row, split_of
from neurotest_lab.studies.nss.published import BUDGETS, SHARES

# The paper's word -> ours, as typed. `reference` says what NSS compares with: never two of them in one column.
METHODS = {
    "nss": "nss:reference=original", "nss, cosine": "nss:reference=original,distance=cosine",
    "nss, unpaired": "nss:reference=remutate", "nss+": "nss+",
    "nac": "cam:nac:0.5", "kmnc": "cam:kmnc:1000", "npc": "cam:criterion=npc:share=0.7",
    "dsa": "dsa:inputs=1000", "dsa, all": "dsa", "deepgini": "deepgini", "ats": "ats", "adaptive": "adaptive", "random": "random",
}  # fmt: skip
TIMED = tuple(word for word in METHODS if word != "nss, cosine")
CURVE = [p / 100 for p in range(1, 21)]
LENETS, STAGES = ("lenet1", "lenet4", "lenet5"), ("conv1", "pool1", "conv2", "pool2")
FIXED: dict[str, RangeOperator] = {
    "shift": Shift(low=0.15, high=0.15), "rotation": Rotation(low=10, high=10), "scale": Scale(low=0.8, high=0.8),
    "shear": Shear(low=20, high=20), "contrast": Contrast(low=1.5, high=1.5), "brightness": Brightness(low=1.5, high=1.5),
    "blur": BoxBlur(sizes=(2,)),
}  # fmt: skip
STRENGTHS = (1, 2, 3, 4, 5)
GROUP = 100  # inputs whose mean is one draw of figure 3's intervals
TIMES = 3  # each overhead is measured so often


def pool(subject: str, seed: int, limit: int | None) -> Source:
    return nss_pool(source=test_set(subject, limit), seed=seed)


def test_set(subject: str, limit: int | None) -> Source:
    """The complete test set where it is, else the embedded part."""
    dataset = zoo.find(subject).dataset
    try:
        return data(f"zoo:{dataset}-full/test", limit=limit)
    except BadInput:
        return data(f"zoo:{dataset}/test", limit=limit)


def method(word: str) -> str:
    """Our method for a word of the tables."""
    text = METHODS[word]
    name = registry.parse(text)[0]
    if name not in registry.entries("selector"):
        raise BadInput("not-installed", "selector", f"the selector {name} is not installed")
    return text


def _orders(
    subject: str, source: Source, methods: list[str], seed: int = 0, train: Source | None = None
) -> tuple[list[Selection], NDArray[np.bool_]]:
    """What each method picks first, and which inputs are faults."""
    results = list(compare(f"zoo:{subject}", source, methods, "20%", train=train, seed=seed).values())
    assert source.labels is not None
    return results, source.labels != results[0].predictions


def selection(subject: str, seed: int, word: str, limit: int | None) -> Row:
    """Tables V and VII, figure 4: one method on one pool."""
    text, source = method(word), pool(subject, seed, limit)
    (result,), wrong = _orders(subject, source, [text], seed, split_of(subject, "train"))
    assert source.labels is not None
    types = metrics.fault_types(source.labels, result.predictions)[result.order]
    n = len(source)
    return {
        "fdr": [100 * metrics.fdr(wrong[result.order], metrics.budget(f"{b}%", n)) for b in BUDGETS],
        "area": 100 * metrics.ftcr_auc(types),
        "curve": [100 * metrics.ftcr(types, metrics.budget(share, n)) for share in CURVE],
        "faults": 100 * float(wrong.mean()),
    }


def shares(subject: str, seed: int, limit: int | None) -> Row:
    """Table IX: FDR at 20 % for each share of sensitive neurons."""
    return _at_20(subject, seed, limit, [f"nss:reference=original,k={k}" for k in SHARES])


def layers(subject: str, seed: int, limit: int | None) -> Row:
    """Table X: FDR at 20 % for layers from the first to the last of the encoder."""
    names = stages(subject)
    rates = _at_20(subject, seed, limit, [f"nss:reference=original,k=0.2,layer={name}" for name in names])
    return {"layers": list(names), **rates}


def stages(subject: str) -> tuple[str, ...]:
    """The paper's Layer1, Layer2, Layer-2, Layer-1: for LeNets their four stages, otherwise spread over the convolutions, or
    over the dense layers before the last where there are none; fewer where there are fewer."""
    if zoo.find(subject).architecture in LENETS:
        return STAGES
    survey = load(f"zoo:{subject}").survey().find("pre_activation")
    names = [layer.name for layer in survey if layer.made_by == "convolution"] or [layer.name for layer in survey[:-1]]
    return tuple(dict.fromkeys(names[round(i * (len(names) - 1) / 3)] for i in range(4)))


def _at_20(subject: str, seed: int, limit: int | None, methods: list[str]) -> Row:
    source = pool(subject, seed, limit)
    results, wrong = _orders(subject, source, methods, seed)
    m = metrics.budget("20%", len(source))
    return {"fdr": [100 * metrics.fdr(wrong[one.order], m) for one in results], "random": 100 * float(wrong.mean())}


def fixed(subject: str, name: str, limit: int | None) -> Row:
    """Table VI: the same mutation with the same strength for every input (its direction is still drawn)."""
    source = mutated(test_set(subject, limit), NssMutations(rounding="pool", operators={name: FIXED[name]}), 0)
    (result,), wrong = _orders(subject, source, [METHODS["nss"]])
    rates = [fdr_interval(wrong[result.order], metrics.budget(f"{b}%", len(source))) for b in BUDGETS]
    return {"fdr": [[100 * v for v in rate] for rate in rates], "random": 100 * float(wrong.mean())}


def mutated(source: Source, mutations: NssMutations, seed: int) -> Source:
    draws = mutations.draw(rng.stream("study.nss", seed), len(source))
    return ArraySource(mutations.apply_to_source(source, draws, 500), source.labels, classes=source.classes, originals=source)


def strength(step: int) -> NssMutations:
    """The seven mutations at strength 1 .. 5: from the weak to the strong end of the paper's ranges (it does not say how)."""
    t = (step - 1) / 4
    ranges: dict[str, tuple[Callable[..., RangeOperator], float, float]] = {
        "shift": (Shift, 0.05, 0.1), "rotation": (Rotation, 5, 20), "scale": (Scale, 0.96, -0.16), "shear": (Shear, 15, 15),
        "contrast": (Contrast, 1.1, 0.4), "brightness": (Brightness, 1.1, 0.4),
    }  # fmt: skip
    operators = {name: kind(low=start + more * t, high=start + more * t) for name, (kind, start, more) in ranges.items()}
    return NssMutations(rounding="pool", operators={**operators, "blur": BoxBlur(sizes=((2, 3, 5, 7, 7)[step - 1],))})


def sensitivity(subject: str, limit: int | None) -> Row:
    """Figure 3: mean change of the top tenth of neurons and of a random tenth, per strength, at two accuracy stages.

    Model 1 is the same architecture after one short epoch on the embedded training images.
    """
    source, entry = test_set(subject, limit), zoo.find(subject)
    torch.manual_seed(0)
    early = train(entry.build(), split_of(subject, "train"), Recipe(epochs=1, images=5000, batch=16)).eval()
    rows: Row = {}
    for stage, target in (("model 1", Target(early.float(), shape=entry.shape)), ("model 2", load(f"zoo:{subject}"))):
        curves: dict[str, list[list[float]]] = {"sensitive": [], "random": [], "relative": []}
        for step in STRENGTHS:
            changes, size = _changes(target, source, mutated(source, strength(step), step))
            count = max(1, changes.shape[1] // 10)
            top = np.argsort(changes.mean(axis=0), kind="stable")[-count:]
            drawn = rng.stream("study.neurons", 0).permutation(changes.shape[1])[:count]
            for word, values in zip(curves, (changes[:, top], changes[:, drawn], changes[:, top] / size), strict=True):
                curves[word].append(list(mean_interval(values.mean(axis=1))))
        rows[stage] = {"accuracy": 100 * accuracy(target.module, source), **curves}
    return rows


def _changes(target: Target, clean: Source, changed: Source) -> tuple[np.ndarray, float]:
    """Mean absolute change per group of inputs and neuron of the last encoder layer, (groups, neurons), and the mean absolute
    value there: stages differ in scale."""
    want = Want(layers="features", neuron="unit", inputs=True)
    changes, sizes = [], []
    with Probe(target, want) as probe:
        for a, b in zip(batches(target, clean, batch=GROUP), batches(target, changed, batch=GROUP), strict=True):
            (here,), (there,) = (tuple(probe(x).values.values()) for x in (a.x, b.x))
            changes.append((there - here).abs().mean(dim=0, dtype=torch.float64).numpy())
            sizes.append(float(here.abs().mean(dtype=torch.float64)))
    return np.stack(changes), max(float(np.mean(sizes)), 1e-12)


def overhead(subject: str, word: str, limit: int | None) -> Row:
    """Figure 5: processor seconds of one method, and of the bare forward pass over the same inputs."""
    text, source, target = method(word), pool(subject, 0, limit), load(f"zoo:{subject}")
    train_set = split_of(subject, "train")
    unlabelled = ArraySource(source.read(np.arange(len(source))), originals=source.originals)
    candidates = source if word == "adaptive" else unlabelled  # nothing else takes labels
    times: Row = {"seconds": [], "forward": []}
    for _ in range(TIMES):
        began = time.process_time()
        with Probe(target) as probe:
            for part in batches(target, source):
                probe(part.x)
        times["forward"].append(time.process_time() - began)
        began = time.process_time()
        compare(target, candidates, [text], "20%", train=train_set)
        times["seconds"].append(time.process_time() - began)
    return times
