"""The network that is checked, in eval mode meanwhile, with inputs to run it on; and what a check reports."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest import rng
from neurotest.data.source import Source, check_shape
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.files import write_json
from neurotest.notebook import view
from neurotest.target import Probe, Survey, Target, Want
from neurotest.target.failures import ForwardError
from neurotest.target.survey import survey

Level = Literal["alarm", "problem", "warning", "note", "ok"]
ORDER: tuple[Level, ...] = ("alarm", "problem", "warning", "note", "ok")
OLD_NAMES = {"says": "sentence", "do": "advice", "examination": "check", "severity": "level", "pictures": "images"}  # of 0.1


def first_line(error: BaseException) -> str:
    """What an exception says first: a stranger's code may raise anything."""
    if isinstance(error, ForwardError) and error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@dataclass(frozen=True, eq=False)
class CaptionedImage:
    """An input as it lies in a source, or a changed one, and what is said below it."""

    x: NDArray[Any]
    caption: str


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing to know about a network and, unless all is well, what to do.

    alarm: do not rely on the network, or on the numbers, before it is dealt with. problem: numbers measured on this target would
    be wrong. warning: look at it first. note: good to know. strength: from 0 to 1, ranks findings of equal level. evidence: rows
    (what, number, interval or None). deeper: the command that looks closer.
    """

    check: str
    level: Level
    sentence: str
    advice: str = ""
    strength: float = 0.0
    evidence: tuple[tuple[str, float, tuple[float, float] | None], ...] = ()
    images: tuple[CaptionedImage, ...] = ()
    deeper: str = ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in OLD_NAMES:
                return getattr(self, OLD_NAMES[name])
            raise AttributeError(f"a finding has no {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Under the names that a check's JSON has always had."""
        rows = [{"what": what, "value": value, "interval": limits} for what, value, limits in self.evidence]
        about = {"sentence": self.sentence, "advice": self.advice, "evidence": rows, "deeper": self.deeper}
        captions = [image.caption for image in self.images]
        return {
            "examination": self.check,
            "severity": self.level,
            "strength": float(self.strength),
            **about,
            "captions": captions,
        }


@dataclass(frozen=True)
class Diagnosis:
    """All findings of one doctor run, worst first, and the facts they rest on."""

    target: str
    data: str | None
    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def healthy(self) -> bool:
        return not self.count("problem")

    def __getitem__(self, check: str) -> Finding:
        """The worst finding of a check."""
        return next(finding for finding in self.findings if finding.check == check)

    def table(self) -> str:
        """The findings as lines of text."""
        lines = [f"{f.level:8}{f.check:14}{f.sentence}" + (f"\n{'':22}-> {f.advice}" if f.advice else "") for f in self.findings]
        return "\n".join(lines)

    def headline(self) -> str:
        on = "noise" if self.data is None else self.data or "data in memory"
        return f"{self.target} on {on}: {self.count('problem')} problems, {self.count('warning')} warnings"

    def save(self, path: str | Path) -> Path:
        """Write everything `to_dict` gives as JSON."""
        write_json(Path(path), self.to_dict())
        return Path(path)

    def _repr_html_(self) -> str:
        rows = [{"level": f.level, "check": f.check, "what was seen": f.sentence, "what to do": f.advice} for f in self.findings]
        return view([self.headline()], (), rows)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target, "data": self.data, "problems": self.count("problem"), "warnings": self.count("warning"),
            "findings": [{"check": f.check, "level": f.level, "says": f.sentence, "do": f.advice} for f in self.findings],
            **self.facts,
        }  # fmt: skip


NOISE = 64  # inputs when there are no data
TRIED, LEAST_TRIED = 1_000_000_000, 96  # values of all layers that a reading of the inputs may cost; inputs it needs


class DoctorContext:
    """A target, inputs in its bounds, and where they come from: data or, without any, noise."""

    def __init__(self, target: Target, source: Source | None, limit: int, batch: int) -> None:
        self.target = copy.copy(target)  # what is found out about it changes only the copy
        self.target._surveys = {}
        self.batch = batch
        self.source = source
        self.index = np.zeros(0, dtype=np.int64)
        self.training: list[nn.Module] = []
        self.outside = ""
        self.facts: dict[str, Any] = {}  # what the checks found out; later ones rely on those of earlier ones
        if self.target.shape is None:
            if source is None:
                raise BadInput(
                    "missing",
                    "size",
                    "the size of the network's inputs is unknown: give the doctor data, or pass --size 3x32x32.",
                )
            self.target.shape = source.shape
        self.labels = None
        if source is None:
            self.x = self._noise(NOISE)
        else:
            check_shape(source, self.target.shape)
            self.index = np.unique(np.linspace(0, len(source) - 1, min(limit, len(source))).astype(np.int64))
            self.x = self._prepare(source)
            self.labels = None if source.labels is None else torch.from_numpy(source.labels[self.index])

    def _prepare(self, source: Source) -> Tensor:
        x = source.read(self.index)
        try:
            return self.target.prepare(x)
        except BadInput as error:  # outside the bounds: a finding, and the network may still be looked at
            self.outside = str(error)
            return torch.from_numpy(x).to(self.target.device).float()

    def _noise(self, count: int) -> Tensor:
        low, high = self.target.bounds
        assert self.target.shape is not None
        noise = torch.rand((count, *self.target.shape), generator=rng.torch_stream("doctor.noise", 0))
        return (noise * (high - low) + low).to(self.target.device)

    def __enter__(self) -> DoctorContext:
        self.training = [module for module in self.target.module.modules() if module.training]
        for module in self.training:
            module.training = False
        return self

    @cached_property
    def survey(self) -> Survey:
        """The layers that run, even where the target's description is wrong; probes use it from then on."""
        assert self.target.shape is not None
        result = self.target._surveys[self.target.shape] = survey(self.target.module, lambda: self.target.raw(self.x[:2]))
        return result

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for module in self.training:
            module.training = True

    @property
    def extremes(self) -> Tensor:
        """All dark, all bright, and noise: what inputs at the edge of the bounds look like."""
        low, high = self.target.bounds
        return torch.stack([torch.full_like(self.x[0], low), torch.full_like(self.x[0], high), self._noise(1)[0]])

    @cached_property
    def answers(self) -> Tensor:
        """The module's own answer to all inputs, run once for every check that looks at it."""
        return self.raw(self.x)

    def some(self) -> Tensor:
        """Which inputs are run once more per reading that is tried: all, unless the network is large."""
        values = sum(math.prod(layer.shape) for layer in self.survey.everything)
        count = min(len(self.x), max(LEAST_TRIED, TRIED // max(1, values)))
        return torch.linspace(0, len(self.x) - 1, count).long()

    def raw(self, x: Tensor) -> Tensor:
        """The module's own answer, in batches: (n, ...)."""
        with torch.inference_mode():
            return torch.cat([self.target.raw(part) for part in x.split(self.batch)])

    def logits(self, x: Tensor, target: Target | None = None) -> Tensor:
        """Of the target, or of one that reads its inputs otherwise."""
        if x is self.x and target is None:
            return self.target._as_logits(self.answers, len(x))
        with torch.inference_mode():
            return torch.cat([(target or self.target).logits(part) for part in x.split(self.batch)])

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        """What every layer gives for `x`, in the order in which they run."""
        assert self.survey.layers
        with Probe(self.target, Want(layers="*", neuron="unit")) as probe:
            return dict(probe(x).values)

    def first_layer(self, one: dict[str, Tensor], other: dict[str, Tensor] | None = None) -> str:
        """Name the first layer that differs between two passes or, given one, is not finite: the place to look at."""
        for name in one:
            wrong = not torch.isfinite(one[name]).all() if other is None else distance(one[name], other[name]) > ROUNDING
            if wrong:
                return f"it begins in layer {name!r}" if name else "it begins in the network's own forward()"
        return "it begins after the last layer"


ROUNDING = 1e-4  # sums in another order differ by less, relative to the largest value


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest value; infinite where only one is finite."""
    one, other = exact(one), exact(other)
    if not torch.equal(torch.isfinite(one), torch.isfinite(other)):
        return float("inf")
    one, other = (torch.nan_to_num(t, 0.0, 0.0, 0.0) for t in (one, other))
    return float((one - other).abs().max() / max(1e-6, float(other.abs().max()))) if one.numel() else 0.0
