"""The measurements of the NSS study, each a function that gives plain data."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from neurotest import registry, rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.operators import BoxBlur, Brightness, Contrast, RangeOperator, Rotation, Scale, Shear, Shift
from neurotest.mutate.pools import nss_pool
from neurotest.scan import batches
from neurotest.select import compare
from neurotest.stats import faults as metrics
from neurotest.stats.bootstrap import fdr_interval, mean_interval
from neurotest.studies.nss_published import BUDGETS, SHARES
from neurotest.target import Probe, Target, Want
from neurotest.target.load import load
from neurotest.train import accuracy, train
from neurotest.zoo.recipes import Recipe

# The paper's word -> ours, as typed. `mode` says what NSS compares with: never two modes in one column.
METHODS = {
    "nss": "nss:reference=original",
    "nss, cosine": "nss:reference=original,distance=cosine",
    "nss, unpaired": "nss:reference=remutate",
    "nss+": "nss+",
    "nac": "cam:nac:0.5",
    "kmnc": "cam:kmnc:1000",
    "npc": "cam:criterion=npc:share=0.7",
    "dsa": "dsa",
    "deepgini": "deepgini",
    "ats": "ats",
    "adaptive": "adaptive",
    "random": "random",
}
CURVE = [p / 100 for p in range(1, 21)]
STAGES = {
    "lenet1": ("conv1", "pool1", "conv2", "pool2"),
    "lenet4": ("conv1", "pool1", "conv2", "pool2"),
    "lenet5": ("conv1", "pool1", "conv2", "pool2"),
}
FIXED: dict[str, RangeOperator] = {
    "shift": Shift(low=0.15, high=0.15),
    "rotation": Rotation(low=10, high=10),
    "scale": Scale(low=0.8, high=0.8),
    "shear": Shear(low=20, high=20),
    "contrast": Contrast(low=1.5, high=1.5),
    "brightness": Brightness(low=1.5, high=1.5),
    "blur": BoxBlur(sizes=(2,)),
}
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


def method(word: str) -> str | None:
    """Our method for a word of the tables, or None where it is not installed."""
    text = METHODS[word]
    return text if registry.parse(text)[0] in registry.entries("selector") else None


def selection(subject: str, seed: int, word: str, limit: int | None) -> dict[str, Any]:
    """Tables V and VII, figure 4: one method on one pool."""
    text = method(word)
    if text is None:
        return {"absent": f"the selector {METHODS[word].partition(':')[0]} is not installed"}
    source = pool(subject, seed, limit)
    train_set = data(f"zoo:{zoo.find(subject).dataset}/train")
    try:
        (found,) = compare(f"zoo:{subject}", source, [text], "20%", train=train_set, seed=seed).values()
    except BadInput as error:
        return {"absent": str(error)}
    assert source.labels is not None
    wrong = source.labels != found.predictions
    types = metrics.fault_types(source.labels, found.predictions)[found.order]
    n = len(source)
    return {
        "fdr": [100 * metrics.fdr(wrong[found.order], metrics.budget(f"{b}%", n)) for b in BUDGETS],
        "area": 100 * metrics.ftcr_auc(types),
        "curve": [100 * metrics.ftcr(types, metrics.budget(share, n)) for share in CURVE],
        "faults": 100 * float(wrong.mean()),
    }


def shares(subject: str, seed: int, limit: int | None) -> dict[str, Any]:
    """Table IX: FDR at 20 % for each share of sensitive neurons."""
    return _at_20(subject, seed, limit, [f"nss:reference=original,k={k}" for k in SHARES])


def layers(subject: str, seed: int, limit: int | None) -> dict[str, Any]:
    """Table X: FDR at 20 % for layers from the first to the last of the encoder."""
    names = stages(subject)
    found = _at_20(subject, seed, limit, [f"nss:reference=original,k=0.2,layer={name}" for name in names])
    return {"layers": list(names), **found}


def stages(subject: str) -> tuple[str, ...]:
    """The paper's Layer1, Layer2, Layer-2, Layer-1: for LeNets their four stages, otherwise spread over the convolutions, or
    over the dense layers before the last where there are none; fewer where there are fewer."""
    architecture = zoo.find(subject).architecture
    if architecture in STAGES:
        return STAGES[architecture]
    surveyed = load(f"zoo:{subject}").survey().find("pre_activation")
    found = [layer.name for layer in surveyed if layer.made_by == "convolution"] or [layer.name for layer in surveyed[:-1]]
    return tuple(dict.fromkeys(found[round(i * (len(found) - 1) / 3)] for i in range(4)))


def _at_20(subject: str, seed: int, limit: int | None, methods: list[str]) -> dict[str, Any]:
    source = pool(subject, seed, limit)
    assert source.labels is not None
    found = list(compare(f"zoo:{subject}", source, methods, "20%", seed=seed).values())
    m = metrics.budget("20%", len(source))
    wrong = source.labels != found[0].predictions
    return {"fdr": [100 * metrics.fdr(wrong[one.order], m) for one in found], "random": 100 * float(wrong.mean())}


def fixed(subject: str, name: str, limit: int | None) -> dict[str, Any]:
    """Table VI: the same mutation with the same strength for every input (its direction is still drawn)."""
    source = mutated(test_set(subject, limit), NssMutations(rounding="pool", operators={name: FIXED[name]}), 0)
    (found,) = compare(f"zoo:{subject}", source, [METHODS["nss"]], "20%").values()
    assert source.labels is not None
    wrong = source.labels != found.predictions
    rates = [fdr_interval(wrong[found.order], metrics.budget(f"{b}%", len(source))) for b in BUDGETS]
    return {"fdr": [[100 * v for v in (r.value, r.low, r.high)] for r in rates], "random": 100 * float(wrong.mean())}


def mutated(source: Source, mutations: NssMutations, seed: int) -> Source:
    draws = mutations.draw(rng.stream("study.nss", seed), len(source))
    made = np.empty((len(source), *source.shape), np.uint8)
    for start in range(0, len(source), 500):
        part = np.arange(start, min(start + 500, len(source)))
        x = torch.from_numpy(source.read(part)).float().div_(255)
        made[part] = mutations.apply(x, draws[part]).mul_(255).round_().to(torch.uint8).numpy()
    return ArraySource(made, source.labels, classes=source.classes, originals=source)


def strength(step: int) -> NssMutations:
    """The seven mutations at strength 1 .. 5: from the weak to the strong end of the paper's ranges (it does not say how)."""
    t = (step - 1) / 4
    return NssMutations(
        rounding="pool",
        operators={
            "shift": Shift(low=0.05 + 0.1 * t, high=0.05 + 0.1 * t),
            "rotation": Rotation(low=5 + 20 * t, high=5 + 20 * t),
            "scale": Scale(low=0.96 - 0.16 * t, high=0.96 - 0.16 * t),
            "shear": Shear(low=15 + 15 * t, high=15 + 15 * t),
            "contrast": Contrast(low=1.1 + 0.4 * t, high=1.1 + 0.4 * t),
            "brightness": Brightness(low=1.1 + 0.4 * t, high=1.1 + 0.4 * t),
            "blur": BoxBlur(sizes=((2, 3, 5, 7, 7)[step - 1],)),
        },
    )


def early_stage(subject: str) -> Target:
    """Model 1 of figure 3: the same architecture, one short epoch on the embedded training images."""
    animal = zoo.find(subject)
    source = data(f"zoo:{animal.dataset}/train")
    torch.manual_seed(0)
    module = train(animal.build(), source, Recipe(epochs=1, images=5000, batch=16)).eval()
    return Target(module.float(), shape=animal.shape)


def sensitivity(subject: str, limit: int | None) -> dict[str, Any]:
    """Figure 3: mean change of the top tenth of neurons and of a random tenth, per strength, at two accuracy stages."""
    source = test_set(subject, limit)
    found: dict[str, Any] = {}
    for stage, target in (("model 1", early_stage(subject)), ("model 2", load(f"zoo:{subject}"))):
        curves: dict[str, list[list[float]]] = {"sensitive": [], "random": [], "relative": []}
        for step in STRENGTHS:
            changes, size = _changes(target, source, mutated(source, strength(step), step))
            count = max(1, changes.shape[1] // 10)
            top = np.argsort(changes.mean(axis=0), kind="stable")[-count:]
            drawn = rng.stream("study.neurons", 0).permutation(changes.shape[1])[:count]
            for word, values in (
                ("sensitive", changes[:, top]),
                ("random", changes[:, drawn]),
                ("relative", changes[:, top] / size),
            ):
                curves[word].append(list(mean_interval(values.mean(axis=1))))
        found[stage] = {"accuracy": 100 * accuracy(target.module, source), **curves}
    return found


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


def overhead(subject: str, word: str, limit: int | None) -> dict[str, Any]:
    """Figure 5: processor seconds of one method, and of the bare forward pass over the same inputs."""
    text = method(word)
    if text is None:
        return {"absent": f"the selector {METHODS[word].partition(':')[0]} is not installed"}
    source = pool(subject, 0, limit)
    target = load(f"zoo:{subject}")
    train_set = data(f"zoo:{zoo.find(subject).dataset}/train")
    unlabelled = ArraySource(source.read(np.arange(len(source))), originals=source.originals)
    seen = unlabelled if word != "adaptive" else source
    found: dict[str, Any] = {"seconds": [], "forward": []}
    for _ in range(TIMES):
        began = time.process_time()
        with Probe(target) as probe:
            for part in batches(target, source):
                probe(part.x)
        found["forward"].append(time.process_time() - began)
        began = time.process_time()
        try:
            compare(target, seen, [text], "20%", train=train_set)
        except BadInput as error:
            return {"absent": str(error)}
        found["seconds"].append(time.process_time() - began)
    return found
