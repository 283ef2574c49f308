"""`neurotest.explain`: why a fault of a campaign came about, and what faults of a campaign have in common."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from neurotest import registry, rng, zoo
from neurotest.campaign.replay import FaultReader
from neurotest.campaign.result import class_name
from neurotest.campaign.store import FAULTS, StoredMutant
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.generate.outcome import Outcome
from neurotest.jobs.opening import AnyTarget, open_data, stored_source
from neurotest.mutate.chain import words
from neurotest.public import public
from neurotest.runs.store import Run
from neurotest.scan import scan
from neurotest.semantics.descriptions import DEFAULT
from neurotest.semantics.exemplars import Exemplars
from neurotest.semantics.explain import PathPair, Substitution, compare, substitutions
from neurotest.semantics.guidance import Guidance, GuidanceOptions, Semantics

LIMIT = 500  # faults, and as many others, whose paths are read for a whole campaign
READ = 64
EXEMPLARS = 5  # inputs that excite a deciding neuron most
READ_FOR_EXEMPLARS = 1000  # training inputs they are chosen from


@dataclass(frozen=True, eq=False)
class Explanation(Outcome):
    """A fault beside its seed."""

    shown = 1000  # every layer

    run: Path
    fault: int
    true: str
    change: str
    pair: PathPair
    images: tuple[NDArray[Any], NDArray[Any]] = field(repr=False)  # seed and fault as they are stored
    seed: str = ""  # where it stands in the data, and the name of its file
    exemplars: dict[tuple[str, int], NDArray[Any]] = field(default_factory=dict, repr=False)  # of (layer, neuron), best first
    rate: int | None = None  # samples a second, of sound

    def to_dict(self) -> dict[str, Any]:
        about = {"run": str(self.run), "fault": self.fault, "seed": self.seed, "true": self.true, "change": self.change}
        return {**about, **self.pair.to_dict()}

    def table(self) -> list[dict[str, Any]]:
        """One row per layer."""
        return [
            {
                "layer": p.layer,
                "seed's neuron": p.seed.neuron,
                "looks for": p.seed.description,
                "conductance": round(p.seed.score, 4),
                "fault's neuron": p.fault.neuron,
                "looks for ": p.fault.description,
                "conductance ": round(p.fault.score, 4),
                "rank for the seed": p.fault.ranks[0],
            }
            for p in self.pair.layers
        ]

    def headline(self) -> str:
        seed = f" (seed {self.seed})" if self.seed else ""
        return f"fault {self.fault}{seed}: {self.true} taken for {self.pair.predicted[1]} after {self.change}"


@dataclass(frozen=True, eq=False)
class Patterns(Outcome):
    """What faults of a campaign have in common: substitutions on their paths, beside those of mutants that are no faults."""

    shown = 30

    run: Path
    faults: int
    others: int
    parts: dict[str, dict[str, float]]  # layer -> share of faults and of others whose path first differs there
    substitutions: tuple[Substitution, ...]

    def to_dict(self) -> dict[str, Any]:
        rest = {"faults": self.faults, "others": self.others, "parts": self.parts}
        return {"run": str(self.run), **rest, "substitutions": [s.to_dict() for s in self.substitutions]}

    def table(self) -> list[dict[str, Any]]:
        return [
            {
                "layer": s.layer,
                "instead of": f"{s.before} {s.words[0]}",
                "decides": f"{s.after} {s.words[1]}",
                "faults": f"{s.faults} of {self.faults}",
                "others": f"{s.others} of {self.others}",
                "lift": f"{s.lift:.1f} ({s.low:.1f} to {s.high:.1f})",
                "sure": "yes" if s.sure else "",
            }
            for s in self.substitutions
        ]

    def headline(self) -> str:
        return f"{self.faults} faults beside {self.others} mutants that are none"


@public(Guidance)
def explain(
    run: Run | Path | str,
    fault: int | str | None = None,
    *,
    target: AnyTarget | None = None,
    train: AnyData | None = None,
    limit: int = LIMIT,
    **settings: Unpack[GuidanceOptions],
) -> Explanation | Patterns:
    """Explain a fault of a campaign (its number, or the name of its image) beside its seed; without one, the whole campaign.

    target: the network, where the run may not load it itself. train: data to describe neurons with (default: the run's own, or a
    zoo network's training data). limit: faults, and as many others, that are read for a campaign. settings: fields of Guidance
    (encoder, depth, describe, ...), over those of the campaign's guide if that goes by paths.
    """
    if not isinstance(limit, int) or limit < 1:
        raise BadInput("out-of-range", "limit", f"limit={limit!r}: expected how many faults are read, an integer >= 1.")
    with Run.open(run.path if isinstance(run, Run) else run) as opened:
        reader = FaultReader(opened, target)
        mutant = None if fault is None else reader.fault(_number(fault))
        semantics = _semantics_of(reader, train, dict(settings))
        if mutant is None:
            return _patterns(reader, semantics, limit)
        return _one(reader, semantics, mutant, open_data(reader.target, _train(reader, train)))


def _number(fault: int | str) -> int:
    text = Path(str(fault)).name.partition(".")[0].removeprefix("fault-")
    if not text.isdigit():
        raise BadInput(
            "syntax",
            "fault",
            f"fault {fault!r}: expected its number, or the name of its image such as {FAULTS}/fault-000123.png.",
        )
    return int(text)


def _classes(reader: FaultReader) -> list[str]:
    """The campaign's class names, if there is one for each output."""
    outputs = reader.target.check_outputs(reader.target.prepare(np.array(reader.x[:1])))
    names = next((names for names in (reader.classes, reader.target.classes) if names and len(names) == outputs), None)
    return list(names or map(str, range(outputs)))


def _semantics_of(reader: FaultReader, train: AnyData | None, options: dict[str, Any]) -> Semantics:
    """Paths as the campaign's guide read them, or as usual; a run from elsewhere may not choose files to read."""
    fields = {f.name for f in dataclasses.fields(Guidance)}
    if unknown := sorted(options.keys() - fields):
        raise BadInput(
            "unknown-option", unknown[0], f"explain has no setting {unknown[0]!r}: expected some of {', '.join(sorted(fields))}."
        )
    guide = reader.plan.read_guide() if _led_by_paths(reader) else None
    own: dict[str, Any] = {name: getattr(guide, name) for name in fields} if guide is not None else {}
    if own and not reader.run.made_here:
        own["describe"] = DEFAULT
    if own.get("critical") == "all":
        own.pop("critical")
    if own.get("mode") == "label-only":
        own.pop("mode")
    if "tau" not in options and (not own or own["tau"] is None):
        own["tau"] = _stored_tau(reader.run) if own else 1.0  # a campaign under another guide had none
    settings = Guidance(**{**own, **{key: value for key, value in options.items() if value is not None}})
    return settings.start(reader.target, open_data(reader.target, _train(reader, train)))


def _stored_tau(run: Run) -> float | None:
    """The threshold the campaign went by; what cannot be one is taken from the training data again."""
    if "summary" not in run:
        return None
    details = run["summary"].get("guide_details")
    tau = details.get("tau") if isinstance(details, dict) else None
    return float(tau) if isinstance(tau, (int, float)) and -1 <= tau <= 1 else None


def _led_by_paths(reader: FaultReader) -> bool:
    """Whether the campaign's guide has settings of paths; older runs name its class. Swarms and merged runs have none."""
    guide = reader.config["guide"]
    classes = {entry.name: entry.make for entry in registry.entries("guide").values() if isinstance(entry.make, type)}
    names = {text for name, kind in classes.items() if issubclass(kind, Guidance) for text in (name, kind.__name__)}
    return isinstance(guide, str) and re.split(r"[\s,:(]", guide.strip(), maxsplit=1)[0] in names  # a swarm's is no method


def _train(reader: FaultReader, train: AnyData | None) -> AnyData:
    if train is not None:
        return train
    if isinstance(stored := reader.config.get("train"), str) and stored:
        return stored_source(reader.run, stored, None, "training data")
    spec = str(reader.config.get("target"))
    if spec.startswith("zoo:") and spec[4:] in zoo.names():
        return f"zoo:{zoo.find(spec[4:]).dataset}/train"
    raise BadInput(
        "missing",
        "train",
        f"{reader.run.path} names no training data, and neurons are described by what excites them: give --train DATA.",
    )


def _one(reader: FaultReader, semantics: Semantics, fault: StoredMutant, train: Source) -> Explanation:
    classes = _classes(reader)
    seed, x = reader.root(fault.root)[None], reader.again([fault])
    pair = compare(semantics, reader.target.prepare(np.ascontiguousarray(seed)), reader.target.prepare(x), classes)
    if not _led_by_paths(reader):
        pair = dataclasses.replace(pair, tau=None)
    place = next((row.words for row in reader.run.inputs() if row.position == fault.root), str(fault.root))
    return Explanation(
        reader.run.path,
        fault.number,
        class_name(fault.expected, tuple(classes)),
        words(fault.chain),
        pair,
        (seed[0], x[0]),
        place,
        exemplars_of(semantics, pair, train),
        reader.target.preprocess.rate,
    )


def exemplars_of(semantics: Semantics, pair: PathPair, train: Source) -> dict[tuple[str, int], NDArray[Any]]:
    """The training inputs that excite the deciding neurons most, of the first so many."""
    few = train.take(np.arange(min(READ_FOR_EXEMPLARS, len(train))))
    best = Exemplars(semantics.layers, min(EXEMPLARS, len(few)), samples=1)
    scan(semantics.target, few, [best])
    inputs = {}
    for layer in pair.layers:
        positions, _ = best.top(layer.layer)  # (neurons, k)
        for neuron in {layer.seed.neuron, layer.fault.neuron}:
            chosen = positions[neuron]
            inputs[layer.layer, neuron] = np.asarray(few.read(chosen[chosen >= 0]))
    return inputs


def _patterns(reader: FaultReader, semantics: Semantics, limit: int) -> Patterns:
    mutants = reader.store.mutants("predicted >= 0")
    faults, others = (_some([m for m in mutants if (m.oracle is not None) == fault], limit) for fault in (True, False))
    if not faults or not others:
        lacking = "faults" if not faults else "mutants that are no faults"
        raise BadInput(
            "empty",
            "pairs",
            f"{reader.run.path} has no {lacking}, so nothing can be compared: explain one fault with `explain RUN FAULT`.",
        )
    before, after = _neurons(reader, semantics, [*faults, *others])
    wrong = np.arange(len(before)) < len(faults)
    rows = tuple(substitutions(semantics, before, after, wrong))
    return Patterns(reader.run.path, len(faults), len(others), _first_changes(semantics, before != after, wrong), rows)


def _some(mutants: list[StoredMutant], limit: int) -> list[StoredMutant]:
    if len(mutants) <= limit:
        return mutants
    chosen = np.sort(rng.stream("explain.sample", 0).permutation(len(mutants))[:limit])
    return [mutants[i] for i in chosen]


def _neurons(
    reader: FaultReader, semantics: Semantics, mutants: list[StoredMutant]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n, layers) the deciding neurons of seeds and of mutants."""
    before, after = [], []
    for start in range(0, len(mutants), READ):
        some = mutants[start : start + READ]
        roots = np.stack([reader.root(m.root) for m in some])
        distinct, where = np.unique([m.root for m in some], return_index=True)
        references = semantics.reader.references(reader.target.prepare(roots[where]))
        references = references[np.searchsorted(distinct, [m.root for m in some])]
        before.append(references.units[:, :, 0])
        after.append(semantics.reader.mutants(reader.target.prepare(reader.again(some)), references).units[:, :, 0])
    return np.concatenate(before), np.concatenate(after)


def _first_changes(semantics: Semantics, changed: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, dict[str, float]]:
    """Where paths first differ, among faults and among others."""
    first = np.where(changed.any(1), changed.argmax(1), changed.shape[1])
    names = [*(layer.name for layer in semantics.layers), "nowhere"]
    return {
        name: {"faults": float((first[wrong] == i).mean()), "others": float((first[~wrong] == i).mean())}
        for i, name in enumerate(names)
    }
