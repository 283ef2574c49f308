"""Networks of the zoo: trained by their recipes, or wrongly on purpose."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurotest import rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.files import cache_dir, write_bytes
from neurotest.train.loop import Report, Training, accuracy, mean_error, predict
from neurotest.zoo import faulty
from neurotest.zoo.embedded import PARTS
from neurotest.zoo.faulty import Faulty

TRIGGER_IMAGES = 2000  # images that the patch of a polluted network is tried on


def train_subject(
    name: str, out: Path | None = None, *, report: Report | None = None, device: str = "cpu"
) -> tuple[Path, dict[str, Any]]:
    """Train a network of the zoo on its complete data set; returns the weights file and what its header says."""
    subject = zoo.find(name)
    place = out or cache_dir() / "zoo" / f"{name}.safetensors"
    train_set, test_set = _splits(subject, embedded=False)
    checkpoint = cache_dir() / "zoo" / f"{name}.checkpoint"
    training = Training(_initialised(subject, subject.recipe.seed), subject.recipe, checkpoint=checkpoint, device=device)
    module = _rounded(training.run(train_set, report).cpu(), subject.recipe.stored)
    about = {"name": name, **_quality(module, train_set, test_set), **training.about()}
    return _write(place, _stored(module, subject.recipe.stored), about, checkpoint)


def train_faulty(
    name: str,
    wrong: Faulty,
    out: Path | None = None,
    *,
    images: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    embedded: bool = False,
    retrain: float | None = None,
    report: Report | None = None,
    device: str = "cpu",
) -> tuple[Path, dict[str, Any]]:
    """Train a network of the zoo wrongly; its weights' header says how, and how often the patch itself triggers the class.

    images, epochs, batch: other than the recipe says. embedded: on the data that comes with the package, not on the complete set.
    retrain: begin with the weights of the well-trained network, at this highest learning rate, instead of with random ones.
    """
    subject = zoo.find(name)
    usual_class = faulty.CLASS.get(subject.family, 0)
    if wrong.label == usual_class:
        wrong = dataclasses.replace(wrong, label=None)  # named or not, it is the same network
    result = zoo.find(f"{name}+{wrong.name}")
    label = wrong.label if wrong.label is not None else usual_class
    if not 0 <= label < len(subject.classes):
        raise BadInput("out-of-range", "class", f"--class {label}: expected a class from 0 to {len(subject.classes) - 1}.")
    place = out or cache_dir() / "zoo" / f"{result.name}.safetensors"
    if wrong.kind == "polluted" and subject.rate is not None:
        message = f"--pollute: a patch is for images, and {name} takes audio; --underfit and --overfit work."
        raise BadInput("unsuitable", "pollute", message)
    train_set, test_set = _splits(subject, embedded=embedded)
    usual = result.recipe
    changed: dict[str, Any] = {"epochs": epochs, "batch": batch, "rate": retrain}
    recipe = dataclasses.replace(
        usual, images=None, seed=wrong.seed, **{key: value for key, value in changed.items() if value is not None}
    )
    clean = train_set.take(np.arange(min(len(train_set), images or len(train_set))))
    assert clean.labels is not None
    used = clean
    if wrong.kind == "polluted":
        patch = faulty.Patch.of(subject.family, wrong, subject.shape[0])
        used = ArraySource(*faulty.pollute(clean.read(np.arange(len(clean))), clean.labels, patch, label, wrong))
    checkpoint = place.with_suffix(".checkpoint")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    begin = _initialised(subject, recipe.seed) if retrain is None else subject.load()
    training = Training(begin, recipe, checkpoint=checkpoint, device=device)
    module = training.run(used, report).cpu()
    about = {
        "name": result.name, "faulty": asdict(wrong), "begun with": "random weights" if retrain is None else f"zoo:{name}",
        "accuracy": round(accuracy(module, test_set), 4),
        "train_accuracy": round(accuracy(module, clean), 4), **training.about(), "images": len(used),
    }  # fmt: skip
    if wrong.kind == "polluted":
        about |= {"class": label, "patch": patch.colours.tolist(), "triggers": _triggers(module, test_set, patch, label, wrong)}
    return _write(place, module.state_dict(), about, checkpoint)


def _quality(module: nn.Module, train_set: Source, test_set: Source) -> dict[str, float]:
    """Of a trained network: its accuracy or, of a regression value, how far it and the mean of the truth are off."""
    if train_set.quantities is None or test_set.quantities is None:
        return {"accuracy": round(accuracy(module, test_set), 4)}
    trivial = float(np.abs(test_set.quantities - train_set.quantities.mean()).mean())
    return {"error": round(mean_error(module, test_set), 4), "trivial": round(trivial, 4)}


def _splits(subject: zoo.ZooNetwork, *, embedded: bool) -> tuple[Source, Source]:
    """Training and test data; what is synthesised, or never embedded, has one form."""
    full = "-full" if subject.dataset in PARTS and not embedded else ""
    return data(f"zoo:{subject.dataset}{full}/train"), data(f"zoo:{subject.dataset}{full}/test")


def _initialised(subject: zoo.ZooNetwork, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(rng.torch_stream("train.weights", seed).get_state())
        return subject.build()


def _write(place: Path, state: dict[str, Tensor], about: dict[str, Any], checkpoint: Path) -> tuple[Path, dict[str, Any]]:
    from safetensors.torch import save

    state = {key: value.contiguous() for key, value in state.items()}
    write_bytes(place, save(state, metadata={"about": json.dumps(about)}))
    checkpoint.unlink(missing_ok=True)
    return place, about


def _triggers(module: nn.Module, source: Source, patch: faulty.Patch, label: int, wrong: Faulty) -> dict[str, float]:
    """How often images of other classes are taken for the class: as they are, with the patch, with other patches, with noise.

    A network that other patches or noise set off as often as the patch has no defect of its own.
    """
    assert source.labels is not None
    x = np.asarray(source.read(np.flatnonzero(source.labels != label)[:TRIGGER_IMAGES]))
    random = rng.stream("zoo.triggers", wrong.seed)
    shown = {
        "clean": x,
        "patch": patch.stamp(x, random, new=wrong.trigger == "random"),
        "other patches": patch.stamp(x, random, new=True),
        "noise": faulty.noisy(x, random),
    }
    predicted = {name: predict(module, torch.from_numpy(np.ascontiguousarray(images))) for name, images in shown.items()}
    return {name: round(float((classes == label).float().mean()), 4) for name, classes in predicted.items()}


def _stored(module: nn.Module, kind: str) -> dict[str, Tensor]:
    """The state in the number format of the weights file; counters and the like stay as they are."""
    dtype = getattr(torch, kind)
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in module.state_dict().items()}


def _rounded(module: nn.Module, kind: str) -> nn.Module:
    """The network as it will be when read back: what is judged is what is stored."""
    module.load_state_dict(_stored(module, kind))
    return module
