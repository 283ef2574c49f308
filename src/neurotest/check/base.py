"""What checks are made of: the network and its data, the time that is left, findings with evidence, and the result."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.checks import Settings
from neurotest.data.source import Source
from neurotest.doctor.context import CaptionedImage, Finding
from neurotest.errors import BadInput
from neurotest.generate.outcome import Outcome, class_name
from neurotest.jobs.parts import Arrays
from neurotest.measure.answers import Answers, answers
from neurotest.runs.rows import plain
from neurotest.stats.bootstrap import Interval
from neurotest.target import Target

MAX_IMAGES = 8  # of a finding
PACE_INPUTS = 32  # by which the speed of the network is measured
LEAST_INPUTS = 200  # that are looked at however slow it is
PASS_SHARE = 0.12  # of the time, that one pass over the inputs may take


@dataclass(frozen=True)
class Clock:
    """The time of one check."""

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
class CheckContext:
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
    def answers(self) -> Answers:
        """One pass over the data, made when it is first needed."""
        result = answers(self.target, self.source, batch=self.batch, progress=lambda done, total: self.tick())
        labels = self.source.labels
        if labels is not None and int(labels.max()) >= result.classes:
            raise BadInput(
                "out-of-range",
                "labels",
                f"{self.source.what} has label {int(labels.max())}, but the target has {result.classes} classes: labels are the "
                f"numbers 0 to {result.classes - 1}.",
            )
        return result

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """(n,) where the prediction is not the label."""
        return np.asarray(self.answers.predicted != self.labels)

    def class_name(self, number: Any) -> str:
        return class_name(int(number), self.target.classes or self.source.classes)

    def name(self, position: int) -> str:
        """How an input is called: by its file, or by its number."""
        return f"input {self.index[position]}" if self.source.names is None else str(self.source.names[position])

    def some(self, purpose: str, count: int) -> NDArray[np.int64]:
        """Positions drawn at random, sorted."""
        return np.sort(rng.stream(f"check.{purpose}", self.seed).permutation(len(self.source))[:count])

    def pictures(self, positions: Sequence[int] | NDArray[np.int64], captions: Sequence[str]) -> tuple[CaptionedImage, ...]:
        positions = np.asarray(positions, dtype=np.int64)
        return tuple(CaptionedImage(x, caption) for x, caption in zip(self.source.read(positions), captions, strict=True))

    def predicted_as(self, positions: NDArray[np.int64]) -> tuple[CaptionedImage, ...]:
        """Inputs with their label and what the network takes them for."""
        labels, predicted = self.labels, self.answers.predicted
        captions = [
            f"{self.name(i)}: {self.class_name(labels[i])}, "
            + ("correct" if labels[i] == predicted[i] else f"taken for {self.class_name(predicted[i])}")
            for i in positions.tolist()
        ]
        return self.pictures(positions, captions)


def evidence_row(what: str, interval: Interval) -> tuple[str, float, tuple[float, float]]:
    return what, float(interval.value), (float(interval.low), float(interval.high))


def percent(interval: Interval) -> str:
    """Such as `12.0 % (10.1 .. 14.0)`."""
    value, low, high = (100 * number for number in interval)
    return f"{value:.1f} % ({low:.1f} .. {high:.1f})"


def with_interval(name: str, interval: Interval) -> dict[str, Any]:
    """A number of a check's JSON, and its interval."""
    return {name: interval.value, f"{name}_interval": [interval.low, interval.high]}


@dataclass(frozen=True, eq=False)
class CheckItem:
    """What one check gave. numbers: for the JSON. summary: one line on the page. ran_out: whether its time ended it."""

    name: str
    summary: str
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    ran_out: bool = False
    skipped: bool = False  # it does not fit this target or these data; the summary says why

    def to_dict(self) -> dict[str, Any]:
        about = {"summary": self.summary, "seconds": round(self.seconds, 3), "ran_out": self.ran_out, "skipped": self.skipped}
        return dict(plain({**about, **self.numbers}))

    def arrays(self) -> Arrays:
        """As a part of a run."""
        about = {**vars(self), "findings": [finding.to_dict() for finding in self.findings]}
        images = [image.x for finding in self.findings for image in finding.images]
        return {"about": np.array(json.dumps(plain(about))), **{f"picture{i}": x for i, x in enumerate(images)}}

    @classmethod
    def read(cls, arrays: Arrays) -> CheckItem:
        """The inverse of `arrays`."""
        about = json.loads(str(arrays["about"]))
        images = (np.asarray(arrays[f"picture{i}"]) for i in range(len(arrays) - 1))
        findings = []
        for row in about.pop("findings"):
            captioned = tuple(CaptionedImage(next(images), caption) for caption in row.pop("captions"))
            evidence = tuple((e["what"], e["value"], e["interval"] and tuple(e["interval"])) for e in row.pop("evidence"))
            check, level = row.pop("examination"), row.pop("severity")
            findings.append(Finding(check, level, **row, evidence=evidence, images=captioned))
        return cls(**about, findings=tuple(findings))


class Check(Settings, ABC):
    """Settings of a check. A file in this package that registers one is all that a new one needs.

    order: its place, smallest first. share: of the time, in proportion to those of the others. labels: whether it needs labels.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    share: ClassVar[float] = 1.0
    labels: ClassVar[bool] = True
    fills: ClassVar[bool] = False  # it goes on until its time is over

    @abstractmethod
    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        """What there is to say. What does not fit raises BadInput; what takes too long stops when the clock is over."""


UNFINISHED = {
    "trigger": "the search for learned patches (trigger)",
    "attacks": "the attacks",
    "campaign": "the campaign of changed inputs",
}


@dataclass(frozen=True, eq=False)
class CheckResult(Outcome):
    """findings: alarms first. examined: what each check gave, in their order."""

    target: str
    data: str
    inputs: int
    of: int  # inputs the data have; those beyond `inputs` were left out for want of time
    examined: tuple[CheckItem, ...] = field(repr=False)
    seconds: float
    notes: tuple[str, ...] = ()
    run: Path | None = None

    @property
    def findings(self) -> list[Finding]:
        """Alarms first, then by strength; of equal ones in the order of the checks."""
        findings = [finding for one in self.examined for finding in one.findings]
        return sorted(findings, key=lambda finding: (finding.level != "alarm", -finding.strength))

    @property
    def alarms(self) -> int:
        return sum(finding.level == "alarm" for finding in self.findings)

    @property
    def verdict(self) -> str:
        if count := self.alarms:
            more = "" if count == 1 else f" (and {count - 1} more)"
            return f"{count} alarm{'s' if count > 1 else ''}: {self.findings[0].sentence}{more}"
        skipped = [one.name for one in self.examined if one.skipped]
        short = [UNFINISHED.get(one.name, one.name) for one in self.examined if one.ran_out and not one.skipped]
        text = f"no alarm in {len(self.examined) - len(skipped)} checks"
        text += f"; not checked: {', '.join(skipped)}" if skipped else ""
        return text + (f"; the time was too short to finish {' and '.join(short)}: no alarm there says little" if short else "")

    def headline(self) -> str:
        return self.verdict

    def table(self) -> list[dict[str, Any]]:
        """One row per finding."""
        return [{"severity": f.level, "examination": f.check, "finding": f.sentence, "deeper": f.deeper} for f in self.findings]

    def to_dict(self) -> dict[str, Any]:
        examinations = {one.name: one.to_dict() for one in self.examined}
        return {
            "verdict": self.verdict, "alarms": self.alarms, "target": self.target, "data": self.data, "inputs": self.inputs,
            "of": self.of, "accuracy": examinations.get("accuracy", {}).get("accuracy"),
            "findings": [finding.to_dict() for finding in self.findings], "examinations": examinations,
            "seconds": round(self.seconds, 3), "notes": list(self.notes), "run": str(self.run) if self.run else None,
        }  # fmt: skip


def measured_pace(target: Target, source: Source, batch: int) -> float:
    """Seconds that the network takes for an input."""
    x = target.prepare(source.read(np.arange(min(PACE_INPUTS, batch, len(source)))))
    with torch.inference_mode():
        target.logits(x)  # the first pass is slower
        began = time.perf_counter()
        target.logits(x)
        return max(1e-9, (time.perf_counter() - began) / len(x))


def inputs_in_time(pace: float, seconds: float) -> int:
    """How many inputs one pass can take in its share of the time."""
    return int(max(LEAST_INPUTS, PASS_SHARE * seconds / pace))
