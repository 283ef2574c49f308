"""`neurotest.gate`: may a new network replace the old one? Faults fixed and new, by class and by family, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.campaign.faults import FaultSet, load_faults
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.generate.outcome import Outcome, class_name
from neurotest.jobs.life import atomic_run, finish
from neurotest.jobs.opening import AnyTarget, digests, open_data, open_target, stored_spec
from neurotest.jobs.stored import target_config
from neurotest.public import public
from neurotest.scan import Progress, batches, check_labels, fit
from neurotest.settings.analyse import GateSettings
from neurotest.stats.bootstrap import Interval, wilson
from neurotest.stats.comparison import holm, mcnemar, paired_difference
from neurotest.target import Target

CHOSEN = (
    "the kept faults are inputs on which the old network fails, chosen for that: a new one that is no better gets some of them "
    "right, too."
)
LISTED = 100  # inputs named in the result


@dataclass(frozen=True)
class AccuracyChange:
    """Of some inputs: how many each network gets right, and how many only one of them does."""

    name: str
    inputs: int
    old_right: int
    new_right: int
    fixed: int
    broken: int

    @classmethod
    def of(cls, name: str, old: NDArray[np.bool_], new: NDArray[np.bool_]) -> AccuracyChange:
        """From what each gets right, (n,)."""
        counts = (old.sum(), new.sum(), (new & ~old).sum(), (old & ~new).sum())
        return cls(name, len(old), *(int(n) for n in counts))

    @property
    def p(self) -> float:
        return mcnemar(self.fixed, self.broken)

    @property
    def difference(self) -> Interval:
        return paired_difference(self.fixed, self.broken, self.inputs)

    def to_dict(self) -> dict[str, Any]:
        apart = self.difference
        return {
            "name": self.name, "inputs": self.inputs, "old": self.old_right / self.inputs, "new": self.new_right / self.inputs,
            "fixed": self.fixed, "broken": self.broken, "p": self.p, "difference": apart.value,
            "difference_interval": [apart.low, apart.high],
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class GateResult(Outcome):
    """Whether the new network may replace the old one, why not, and what changed."""

    old: str
    new: str
    data: AccuracyChange
    by_class: tuple[AccuracyChange, ...]
    faults: AccuracyChange | None
    by_family: tuple[AccuracyChange, ...]
    reasons: tuple[str, ...]  # why it may not
    fixed: tuple[int, ...] = field(repr=False, default=())  # positions in the data
    broken: tuple[int, ...] = field(repr=False, default=())
    run: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def may_replace(self) -> bool:
        return not self.reasons

    def headline(self) -> str:
        one, apart = self.data, self.data.difference
        words = (
            f"{one.fixed} faults fixed, {one.broken} new on {one.inputs:,} inputs; accuracy {_points(apart.value)} points "
            f"({_points(apart.low)} .. {_points(apart.high)}, p {one.p:.2g})"
        )
        if self.may_replace:
            return f"The new network may replace the old one: {words}."
        return f"The new network may NOT replace the old one: {'; '.join(self.reasons)} ({words})."

    def table(self) -> list[dict[str, Any]]:
        rows = [("all", self.data), *(("class", one) for one in self.by_class)]
        rows += [("faults", self.faults)] if self.faults is not None else []
        rows += [("family", one) for one in self.by_family]
        return [{"part": part, **one.to_dict()} for part, one in rows]

    def to_dict(self) -> dict[str, Any]:
        whole_set = self.data.to_dict()
        return {
            "verdict": self.headline(), "may_replace": self.may_replace, "reasons": list(self.reasons),
            "old": self.old, "new": self.new, "inputs": self.data.inputs,
            "accuracy": {"old": whole_set["old"], "new": whole_set["new"]},
            **{name: whole_set[name] for name in ("fixed", "broken", "p", "difference", "difference_interval")},
            "by_class": [one.to_dict() for one in self.by_class],
            "kept": None if self.faults is None else self.faults.to_dict(),
            "by_family": [one.to_dict() for one in self.by_family],
            "fixed_inputs": list(self.fixed), "broken_inputs": list(self.broken),
            "run": None if self.run is None else str(self.run), "notes": list(self.notes),
        }  # fmt: skip


def _points(share: float) -> str:
    return f"{100 * share:+.2f}"


@public(GateSettings)
def gate(
    old: AnyTarget,
    new: AnyTarget,
    data: AnyData,
    *,
    out: str | Path | bool | None = False,
    progress: Progress | None = None,
    **settings: Any,
) -> GateResult:
    """May the new network replace the old one? Compared input by input on labelled data neither was trained on.

    It may not if accuracy falls by more than `max_loss`, or falls beyond chance (McNemar's exact test at `alpha`); if that of a
    class falls by more than `class_loss` and beyond chance (Holm's correction over classes); or if, of kept faults, it fails on
    more than the old one or leaves more than 1 - `min_fixed`. certain: a fall by more than max_loss must be ruled out by the
    interval, which takes more data. faults: a run of `fuzz` or a faults file (faults_data: where its seeds are; the data by
    default).
    """
    chosen = GateSettings.of(settings)
    before, after = open_target(old), open_target(new)
    source = open_data(before, data, limit=chosen.limit)
    right = [_right(target, source, chosen.batch, progress, step) for step, target in enumerate((before, after))]
    labels = np.asarray(source.labels)
    classes = tuple(before.classes or source.classes or ())
    parts = [AccuracyChange.of(class_name(int(c), classes), *(one[labels == c] for one in right)) for c in np.unique(labels)]
    kept, families, notes = _kept(before, after, chosen.faults, data if chosen.faults_data is None else chosen.faults_data)
    every = AccuracyChange.of("all", *right)
    reasons = [*_reasons(every, parts, chosen), *_fault_reasons(kept, chosen.min_fixed)]
    if before.fingerprint == after.fingerprint:
        notes += ("both networks are the same: nothing can differ.",)
    result = GateResult(
        before.spec, after.spec, every, tuple(parts), kept, families, tuple(reasons),
        fixed=_first(right[1] & ~right[0]), broken=_first(right[0] & ~right[1]), notes=notes,
    )  # fmt: skip
    return _recorded(result, before, after, source, out)


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(mask)[:LISTED].tolist())


def _right(target: Target, source: Source, batch: int, progress: Progress | None, step: int) -> NDArray[np.bool_]:
    """(n,) which inputs a target gets right."""
    import torch

    classes = fit(target, source)
    if source.labels is None:
        raise BadInput(
            "no-labels",
            "data",
            f"{source.what} has no labels, and without them nobody knows which network is right: give labelled data.",
        )
    check_labels(source, classes)
    parts = []
    with torch.inference_mode():
        for part in batches(target, source, batch=batch):
            logits = target.logits(part.x)
            truth = None if source.quantities is None else torch.from_numpy(np.asarray(source.quantities)[part.index])
            labels = torch.from_numpy(source.labels[part.index])
            parts.append(np.asarray((target.counted(logits.cpu(), labels, truth) == labels).numpy()))
            if progress is not None:
                progress(step * len(source) + int(part.index[-1]) + 1, 2 * len(source))
    return np.concatenate(parts)


def _reasons(every: AccuracyChange, parts: Sequence[AccuracyChange], settings: GateSettings) -> list[str]:
    reasons = []
    apart, max_loss, alpha = every.difference, settings.max_loss, settings.alpha
    if apart.value < -max_loss:
        reasons.append(f"accuracy falls by {-100 * apart.value:.2f} points, {100 * max_loss:g} are allowed")
    elif every.broken > every.fixed and every.p < alpha:
        reasons.append(f"it breaks more than it fixes, beyond chance (p {every.p:.2g})")
    elif settings.certain and apart.low < -max_loss:
        reasons.append(f"a fall by {-100 * apart.low:.2f} points cannot be ruled out, {100 * max_loss:g} are allowed")
    corrected = holm([one.p for one in parts])
    for one, p in zip(parts, corrected, strict=True):
        if one.difference.value < -settings.class_loss and p < alpha:
            reasons.append(f"class {one.name} falls by {-100 * one.difference.value:.1f} points (p {p:.2g})")
    return reasons


def _kept(
    old: Target, new: Target, faults: str | Path | FaultSet | None, data: AnyData
) -> tuple[AccuracyChange | None, tuple[AccuracyChange, ...], tuple[str, ...]]:
    """What both networks make of kept faults, all together and by family."""
    if faults is None:
        return None, (), ()
    chosen = faults if isinstance(faults, FaultSet) else load_faults(faults, old, data)
    right = [~chosen.fails(target) for target in (old, new)]
    families = [AccuracyChange.of(chosen.name(family), *(one[rows] for one in right)) for family, rows in chosen.families.items()]
    families.sort(key=lambda one: (one.fixed - one.broken, one.name))
    notes: tuple[str, ...] = (f"{chosen.changed} faults came out otherwise than they were stored.",) if chosen.changed else ()
    if not right[0].any():
        notes += (CHOSEN,)
    return AccuracyChange.of("kept faults", *right), tuple(families), notes


def _fault_reasons(kept: AccuracyChange | None, min_fixed: float | None) -> list[str]:
    if kept is None:
        return ["min_fixed needs kept faults (--faults)"] if min_fixed else []
    reasons = []
    if kept.new_right < kept.old_right:
        failing = (kept.inputs - kept.new_right, kept.inputs - kept.old_right)
        reasons.append(f"of {kept.inputs} kept faults it fails on {failing[0]}, the old one on {failing[1]}")
    if min_fixed is not None and kept.new_right < min_fixed * kept.inputs:
        share = wilson(kept.new_right, kept.inputs)
        reasons.append(f"{100 * share.value:.0f} % of the kept faults are right, {100 * min_fixed:g} % are asked for")
    return reasons


def _recorded(result: GateResult, old: Target, new: Target, source: Source, out: str | Path | bool | None) -> GateResult:
    import dataclasses

    config = {**target_config(old, new), "data": stored_spec(source), "digests": digests(data=source)}
    with atomic_run("gate", out, config) as run:
        if run is None:
            return result
        result = dataclasses.replace(result, run=run.path)
        finish(run, result)
    return result
