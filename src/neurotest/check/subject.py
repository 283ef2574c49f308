"""What examinations look at: the target, the data, what the network says of them, and how much time is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.check.finding import Picture
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.generate.outcome import class_name
from neurotest.measure.answers import Answers, answers
from neurotest.target import Target

SPEED = 32  # inputs by which the speed of the network is measured
LEAST = 200  # inputs that are looked at however slow it is
PASSES = 0.12  # share of the time that one pass over the inputs may take


@dataclass(frozen=True)
class Clock:
    """The time of one examination."""

    seconds: float
    began: float

    @classmethod
    def start(cls, seconds: float) -> Clock:
        return cls(seconds, time.monotonic())

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)

    @property
    def over(self) -> bool:
        return self.left <= 0


@dataclass(eq=False)
class Subject:
    """One target with its data. words: how target and data are written on a command line, for the commands that go deeper."""

    target: Target
    source: Source
    train: Source | None
    seed: int
    batch: int
    words: str
    pace: float  # seconds that the network takes for an input
    index: NDArray[np.int64]  # where the inputs stand in the data, of which some may have been left out
    tick: Callable[[], None] = lambda: None  # called now and then

    @property
    def labels(self) -> NDArray[np.int64]:
        if self.source.labels is None:
            raise BadInput("no-labels", "data", "the data have no labels")
        return self.source.labels

    @cached_property
    def said(self) -> Answers:
        """One pass over the data, made when it is first needed."""
        said = answers(self.target, self.source, batch=self.batch, progress=lambda done, total: self.tick())
        labels = self.source.labels
        if labels is not None and int(labels.max()) >= said.classes:
            raise BadInput(
                "out-of-range",
                "labels",
                f"{self.source.what} has label {int(labels.max())}, but the target has {said.classes} classes: labels are the "
                f"numbers 0 to {said.classes - 1}.",
            )
        return said

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """(n,) where the prediction is not the label."""
        result: NDArray[np.bool_] = self.said.predicted != self.labels
        return result

    def class_name(self, number: Any) -> str:
        return class_name(int(number), self.target.classes or self.source.classes)

    def name(self, position: int) -> str:
        """How an input is called: by its file, or by its number."""
        return f"input {self.index[position]}" if self.source.names is None else str(self.source.names[position])

    def some(self, purpose: str, count: int) -> NDArray[np.int64]:
        """Positions drawn at random, sorted."""
        return np.sort(rng.stream(f"check.{purpose}", self.seed).permutation(len(self.source))[:count])

    def pictures(self, positions: Sequence[int] | NDArray[np.int64], captions: Sequence[str]) -> tuple[Picture, ...]:
        positions = np.asarray(positions, dtype=np.int64)
        return tuple(Picture(x, caption) for x, caption in zip(self.source.read(positions), captions, strict=True))

    def predicted_as(self, positions: NDArray[np.int64]) -> tuple[Picture, ...]:
        """Inputs with their label and what the network takes them for."""
        labels, predicted = self.labels, self.said.predicted
        captions = [
            f"{self.name(i)}: {self.class_name(labels[i])}, "
            + ("rightly" if labels[i] == predicted[i] else f"taken for {self.class_name(predicted[i])}")
            for i in positions.tolist()
        ]
        return self.pictures(positions, captions)


def measured_pace(target: Target, source: Source, batch: int) -> float:
    """Seconds that the network takes for an input."""
    x = target.prepare(source.read(np.arange(min(SPEED, batch, len(source)))))
    with torch.inference_mode():
        target.logits(x)  # the first pass is slower
        began = time.perf_counter()
        target.logits(x)
        return max(1e-9, (time.perf_counter() - began) / len(x))


def inputs_in_time(pace: float, seconds: float) -> int:
    """How many inputs one pass can take in its share of the time."""
    return int(max(LEAST, PASSES * seconds / pace))
