"""Pictures of the DeepSensor study: where test inputs lie among benign ones (t-SNE), and what was done to their seeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.evaluate.features import Extractor
from neurotest_lab.studies.deepsensor.cells import DEEP, NARROW, wide
from neurotest_lab.studies.deepsensor.generators import WAYS
from neurotest_lab.studies.deepsensor.subjects import subject
from neurotest_lab.studies.frame import Row
from neurotest_lab.studies.pictures import pixels, png
from neurotest_lab.studies.suites import PAPERS
from neurotest_lab.studies.swarms import Subject

FIRST = {"mnist": 9, "cifar10": 3}  # the class of the seeds: the nines of figure 1, cats
METHODS = ("deephunter", *PAPERS, "swarm, linf")
SHOWN = 5  # pictures per method
TIMES = 10  # changes are magnified so much, as in the papers


def among(name: str, scale: str, draw: int, n: int, particles: int) -> Row:
    """Figures 7 and 8 (t-SNE) and 8, 9 (pictures): test inputs made from seeds of one class, among benign inputs of that class
    and of the one they are most often taken for, in the last hidden layer."""
    first = FIRST[name.partition("-")[0]]
    on = subject(name, scale, draw, n, only=first)
    if len(on.x) < 3:
        raise BadInput("too-few", "inputs", f"{name} gets fewer than three of its test images of class {first} right.")
    suites = {method: _made(on, method, draw, particles) for method in METHODS}
    wrong = Counter(int(c) for x in suites.values() for c in _predicted(on, x) if c != first)
    second = wrong.most_common(1)[0][0] if wrong else (first + 1) % 10
    other = subject(name, scale, draw, n, only=second)
    kinds = {f"class {first}": on.x, f"class {second}": other.x}
    rows = {method: np.flatnonzero(np.isin(_predicted(on, x), (first, second))) for method, x in suites.items()}
    kinds |= {method: x[rows[method]] for method, x in suites.items()}
    features = {kind: _features(on, x) for kind, x in kinds.items() if len(x)}
    benign = np.concatenate([features[f"class {first}"], features[f"class {second}"]])
    home = len(features[f"class {first}"])
    counts = {
        method: {
            "inputs": len(kinds[method]), "seeds": len(on.x), "faults": int((_predicted(on, suites[method]) != first).sum()),
            "among the first": int((_nearest(features[method], benign, rows[method]) < home).sum()) if method in features else 0,
        }
        for method in METHODS
    }  # fmt: skip
    return {
        "first": first, "second": second, "counts": counts, "points": _map(features),
        "strips": [strip for method, x in suites.items() for strip in _strips(on, x, method)],
    }  # fmt: skip


def _made(on: Subject, method: str, draw: int, particles: int) -> Tensor:
    if method == "swarm, linf":
        return wide(on, method, draw, NARROW if on.name == DEEP else 0.1)
    return WAYS.generate(on, method, draw, particles, tries=3).x


def _predicted(on: Subject, x: Tensor) -> NDArray[np.int64]:
    with torch.inference_mode():
        classes: NDArray[np.int64] = on.target.logits(x).argmax(1).numpy()
    return classes


def _features(on: Subject, x: Tensor) -> NDArray[np.float64]:
    return Extractor.of("target", on.target)(on.target, ArraySource((x * 255).round().byte().numpy())).values


def _nearest(values: NDArray[np.float64], benign: NDArray[np.float64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row of the benign input nearest to each, by Euclidean distance; its own seed is none."""
    distances = np.linalg.norm(values[:, None] - benign[None], axis=2)
    distances[np.arange(len(values)), own] = np.inf
    rows: NDArray[np.int64] = distances.argmin(1)
    return rows


def _map(features: dict[str, NDArray[np.float64]]) -> list[Row]:
    from sklearn.manifold import TSNE

    values = np.concatenate(list(features.values())).astype(np.float32)
    near = min(30.0, (len(values) - 1) / 3)
    places = TSNE(perplexity=near, init="pca", random_state=0).fit_transform(values)
    kinds = [kind for kind, part in features.items() for _ in range(len(part))]
    return [{"kind": kind, "x": round(float(x), 2), "y": round(float(y), 2)} for kind, (x, y) in zip(kinds, places, strict=True)]


def _strips(on: Subject, x: Tensor, method: str) -> list[Row]:
    """Seed, change and result of the first faults; of the first inputs, where there is no fault."""
    predicted = _predicted(on, x)
    rows = np.flatnonzero(predicted != on.y.numpy())[:SHOWN]
    return [
        {"method": method, "label": int(on.y[i]), "predicted": int(predicted[i]),
         "l2": round(float((x[i] - on.x[i]).norm()), 2), "seed png": _picture(on.x[i]),
         "change png": _picture((0.5 + TIMES * (x[i] - on.x[i])).clamp(0, 1)), "result png": _picture(x[i])}
        for i in (rows.tolist() or range(min(2, len(x))))
    ]  # fmt: skip


def _picture(x: Tensor) -> str:
    return png(pixels((x * 255).round().byte().numpy()))
