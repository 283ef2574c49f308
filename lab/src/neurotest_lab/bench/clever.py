"""CLEVER: ours over the bare backward passes it makes, and over it the adversarial-robustness-toolbox's, if it is here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from neurotest.evaluate.clever import AT_ONCE, Clever
from neurotest.evaluate.leads import Leads
from neurotest.generate.gradient.toolbox import installed
from neurotest.target import Target
from neurotest.target.speed import channels_last
from neurotest_lab.bench.ratio import Job, Pair, subject_of

SUBJECTS = ("mnist-lenet5",)
SETTINGS: dict[str, Any] = {"batches": 50, "samples": 32}


def clever_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """One input, all other classes, L2."""
    target, source = subject_of(name, 1)
    u = target.prepare(source.read([0]))[0]
    with torch.no_grad():
        own = int(target.logits(u[None]).argmax())
    ours, words = _estimate(target, u, own), ", ".join(f"{key} {n}" for key, n in SETTINGS.items())
    method = Clever(**SETTINGS)
    yield f"over bare backward passes, {words}", (ours, _bare(target, u, method.pool * method.samples))
    yield "all classes in one backward pass (vmap) over one pass each", (_estimate(target, u, own, vmap=True), ours)
    if installed():
        yield f"the toolbox's clever_u over ours, {words}", (_toolbox(target, u), ours)


def _estimate(target: Target, u: Tensor, own: int, **options: Any) -> Job:
    def job() -> None:
        with channels_last(target):
            Clever(**SETTINGS, **options).estimate(Leads(target), u, own)

    return job


def _bare(target: Target, u: Tensor, points: int) -> Job:
    """A forward pass over every point, and a backward pass for every other class."""

    def job() -> None:
        for start in range(0, points, AT_ONCE):
            x = u.expand(min(AT_ONCE, points - start), *u.shape).clone().requires_grad_()
            logits = target.module(x).sum(0)
            for number in range(1, len(logits)):
                torch.autograd.grad(logits[0] - logits[number], x, retain_graph=True)

    return job


def _toolbox(target: Target, u: Tensor) -> Job:
    from art.estimators.classification import PyTorchClassifier
    from art.metrics import clever_u

    with torch.no_grad():
        classes = target.logits(u[None]).shape[1]
    peer = PyTorchClassifier(
        target.module, loss=torch.nn.CrossEntropyLoss(), input_shape=tuple(u.shape), nb_classes=classes, clip_values=target.bounds
    )
    radius = Clever().reach

    def job() -> None:
        clever_u(peer, u.numpy(), SETTINGS["batches"], SETTINGS["samples"], radius, 2, verbose=False)

    return job
