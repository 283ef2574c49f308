"""`neurotest.explain`: why a fault of a campaign came about, and what faults of a campaign have in common."""

from __future__ import annotations

import dataclasses
import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import rng, zoo
from neurotest.campaign.replay import FaultReader
from neurotest.campaign.result import class_name
from neurotest.campaign.store import FAULTS, StoredMutant
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import write_json
from neurotest.jobs.opening import AnyTarget, open_data
from neurotest.mutate.chain import words
from neurotest.runs.store import Run
from neurotest.semantics.descriptions import DEFAULT
from neurotest.semantics.explain import PathPair, Substitution, compare, substitutions
from neurotest.semantics.guidance import Guidance, Semantics

LIMIT = 500  # faults, and as many others, whose paths are read for a whole campaign
READ = 64


@dataclass(frozen=True, eq=False)
class Explanation:
    """A fault beside its seed."""

    run: Path
    fault: int
    true: str
    change: str
    pair: PathPair
    images: tuple[NDArray[Any], NDArray[Any]] = field(repr=False)  # seed and fault as they are stored

    def to_dict(self) -> dict[str, Any]:
        about = {"run": str(self.run), "fault": self.fault, "true": self.true, "change": self.change}
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

    def save(self, path: str | Path) -> Path:
        write_json(Path(path), self.to_dict())
        return Path(path)

    def _repr_html_(self) -> str:
        return _as_table(f"fault {self.fault}: {self.true} taken for {self.pair.predicted[1]} after {self.change}", self.table())


@dataclass(frozen=True, eq=False)
class Patterns:
    """What faults of a campaign have in common: substitutions on their paths, beside those of mutants that are no faults."""

    run: Path
    faults: int
    others: int
    parts: dict[str, dict[str, float]]  # layer -> share of faults and of others whose path first differs there
    found: tuple[Substitution, ...]

    def to_dict(self) -> dict[str, Any]:
        rest = {"faults": self.faults, "others": self.others, "parts": self.parts}
        return {"run": str(self.run), **rest, "substitutions": [s.to_dict() for s in self.found]}

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
            for s in self.found
        ]

    def save(self, path: str | Path) -> Path:
        write_json(Path(path), self.to_dict())
        return Path(path)

    def _repr_html_(self) -> str:
        return _as_table(f"{self.faults} faults beside {self.others} mutants that are none", self.table()[:30])


def _as_table(title: str, rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in (rows[0] if rows else ()))
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<p>{html.escape(title)}</p><table><tr>{head}</tr>{body}</table>"


def explain(
    run: Run | Path | str,
    fault: int | str | None = None,
    *,
    target: AnyTarget | None = None,
    train: Source | str | None = None,
    limit: int = LIMIT,
    **settings: Any,
) -> Explanation | Patterns:
    """Explain a fault of a campaign (its number, or the name of its image) beside its seed; without one, the whole campaign.

    target: the network, where the run may not load it itself. train: data to describe neurons with (default: the run's own, or a
    zoo network's training data). limit: faults, and as many others, that are read for a campaign. settings: fields of Guidance
    (encoder, depth, describe, ...), over those of the campaign's guide if that was nsgen.
    """
    if not isinstance(limit, int) or limit < 1:
        raise BadInput(f"limit={limit!r}: expected how many faults are read, an integer >= 1.")
    opened = Run.open(run.path if isinstance(run, Run) else run)
    with opened:
        reader = FaultReader(opened, target)
        number = None if fault is None else _number(fault)
        if number is not None and not reader.store.mutants("number = ? AND oracle IS NOT NULL", number):
            raise BadInput(f"{opened.path} has no fault {fault}: `neurotest families {opened.path}` lists some.")
        ready = semantics_of(reader, train, settings)
        classes = _classes(reader)
        if number is None:
            return _patterns(reader, ready, limit)
        return _one(reader, ready, reader.store.mutants("number = ?", number)[0], classes)


def _number(fault: int | str) -> int:
    text = Path(str(fault)).name.partition(".")[0].removeprefix("fault-")
    if not text.isdigit():
        raise BadInput(f"fault {fault!r}: expected its number, or the name of its image such as {FAULTS}/fault-000123.png.")
    return int(text)


def _classes(reader: FaultReader) -> list[str]:
    """The names the campaign was told, if there is one for each output."""
    outputs = reader.target.check_outputs(reader.target.prepare(np.array(reader.x[:1])))
    known = next((names for names in (reader.classes, reader.target.classes) if names and len(names) == outputs), None)
    return list(known or map(str, range(outputs)))


def semantics_of(reader: FaultReader, train: Source | str | None, said: dict[str, Any]) -> Semantics:
    """Paths as the campaign's guide read them, or as usual; a run from elsewhere may not choose files to read."""
    known = {f.name for f in dataclasses.fields(Guidance)}
    if unknown := sorted(said.keys() - known):
        raise BadInput(f"explain has no setting {unknown[0]!r}: expected some of {', '.join(sorted(known))}.")
    guide = reader.plan.read_guide() if _is_nsgen(reader) else None
    own: dict[str, Any] = {name: getattr(guide, name) for name in known} if isinstance(guide, Guidance) else {}
    if own and not reader.run.made_here:
        own["describe"] = DEFAULT
    if own.get("critical") == "all":
        own.pop("critical")
    if own.get("mode") == "label-only":
        own.pop("mode")
    if "tau" not in said and (not own or own["tau"] is None):
        own["tau"] = _stored_tau(reader.run) if own else 1.0  # a campaign under another guide had none
    settings = Guidance(**{**own, **{key: value for key, value in said.items() if value is not None}})
    return settings.start(reader.target, open_data(reader.target, _train(reader, train)))


def _stored_tau(run: Run) -> float | None:
    """The threshold the campaign went by; what cannot be one is taken from the training data again."""
    if "summary" not in run:
        return None
    details = run["summary"].get("guide_details")
    found = details.get("tau") if isinstance(details, dict) else None
    return float(found) if isinstance(found, (int, float)) and -1 <= found <= 1 else None


def _is_nsgen(reader: FaultReader) -> bool:
    guide = reader.config["guide"]
    return isinstance(guide, str) and guide.partition(":")[0].partition("(")[0].strip().lower() == "nsgen"


def _train(reader: FaultReader, given: Source | str | None) -> Source | str:
    if given is not None:
        return given
    if isinstance(said := reader.config.get("train"), str) and said:
        return said
    spec = str(reader.config.get("target"))
    if spec.startswith("zoo:") and spec[4:] in zoo.names():
        return f"zoo:{zoo.find(spec[4:]).dataset}/train"
    raise BadInput(
        f"{reader.run.path} names no training data, and neurons are described by what excites them: give --train DATA."
    )


def _one(reader: FaultReader, ready: Semantics, fault: StoredMutant, classes: list[str]) -> Explanation:
    seed = reader.root(fault.root)[None]
    made = reader.again([fault])
    pair = compare(ready, reader.target.prepare(np.ascontiguousarray(seed)), reader.target.prepare(made), classes)
    if not _is_nsgen(reader):
        pair = dataclasses.replace(pair, tau=None)
    return Explanation(
        reader.run.path, fault.number, class_name(fault.expected, tuple(classes)), words(fault.chain), pair, (seed[0], made[0])
    )


def _patterns(reader: FaultReader, ready: Semantics, limit: int) -> Patterns:
    every = reader.store.mutants("predicted >= 0")
    faults, others = (
        _some([m for m in every if m.oracle is not None], limit),
        _some([m for m in every if m.oracle is None], limit),
    )
    if not faults or not others:
        lacking = "faults" if not faults else "mutants that are no faults"
        raise BadInput(
            f"{reader.run.path} has no {lacking}, so nothing can be compared: explain one fault with `explain RUN FAULT`."
        )
    before, after = _neurons(reader, ready, [*faults, *others])
    wrong = np.arange(len(before)) < len(faults)
    found = substitutions(ready, before, after, wrong)
    return Patterns(reader.run.path, len(faults), len(others), _parting(ready, before != after, wrong), tuple(found))


def _some(mutants: list[StoredMutant], limit: int) -> list[StoredMutant]:
    if len(mutants) <= limit:
        return mutants
    chosen = np.sort(rng.stream("explain.sample", 0).permutation(len(mutants))[:limit])
    return [mutants[i] for i in chosen]


def _neurons(reader: FaultReader, ready: Semantics, mutants: list[StoredMutant]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n, layers) the deciding neurons of seeds and of mutants."""
    before, after = [], []
    for start in range(0, len(mutants), READ):
        some = mutants[start : start + READ]
        roots = np.stack([reader.root(m.root) for m in some])
        made = reader.again(some)
        distinct, where = np.unique([m.root for m in some], return_index=True)
        references = ready.reader.references(reader.target.prepare(roots[where]))
        references = references[np.searchsorted(distinct, [m.root for m in some])]
        before.append(references.units[:, :, 0])
        after.append(ready.reader.mutants(reader.target.prepare(made), references).units[:, :, 0])
    return np.concatenate(before), np.concatenate(after)


def _parting(ready: Semantics, moved: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, dict[str, float]]:
    """Where paths first differ, among faults and among others."""
    first = np.where(moved.any(1), moved.argmax(1), moved.shape[1])
    names = [*(layer.name for layer in ready.layers), "nowhere"]
    return {
        name: {"faults": float((first[wrong] == i).mean()), "others": float((first[~wrong] == i).mean())}
        for i, name in enumerate(names)
    }
