"""Faults kept for later: of a campaign's run, or of a small file that holds recipes and no images; run again on any target.

A faults file names each seed by its place in the data and the hash of its content, and what was done to it. With the same data
the same inputs come out, so that a fault found once is tested for ever, as Hypothesis does with its examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import registry
from neurotest.campaign.differences import restored
from neurotest.campaign.result import class_name
from neurotest.campaign.stored_faults import PER_FAMILY, Kept, refuse_code, stored_faults
from neurotest.checks import count
from neurotest.data.objects import AnyData
from neurotest.data.source import content_ids
from neurotest.errors import BadInput
from neurotest.files import write_text
from neurotest.generate.fuzz.mutants import Key
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.jobs.opening import open_data
from neurotest.mutate import chain as chains
from neurotest.mutate.base import Mutations
from neurotest.mutate.chain import Chain
from neurotest.oracles import Roots, far, predicted
from neurotest.reading import read_json, reading, user_path
from neurotest.runs.store import Run
from neurotest.target import Target

FORMAT, VERSION = "neurotest faults", 2
MOST_FAULTS = 100_000  # faults of a file
AT_ONCE = 250


@dataclass(frozen=True, eq=False)
class FaultSet:
    """Faults as inputs that any target of the same shape and classes can be run on: x (n, *shape), as they would be saved."""

    x: NDArray[np.generic]
    kept: tuple[Kept, ...]
    classes: tuple[str, ...] | None
    changed: int = 0  # how many came out otherwise than they were stored: another processor or version

    def __len__(self) -> int:
        return len(self.kept)

    @cached_property
    def expected(self) -> NDArray[np.int64]:
        return np.array([one.family[0] for one in self.kept], dtype=np.int64)

    @cached_property
    def families(self) -> dict[Key, list[int]]:
        """Rows of each family, in the order of the set."""
        rows: dict[Key, list[int]] = {}
        for row, one in enumerate(self.kept):
            rows.setdefault(one.family, []).append(row)
        return rows

    def name(self, family: Key) -> str:
        """`7 taken for 1 after rotation`."""
        return f"{class_name(family[0], self.classes)} taken for {class_name(family[1], self.classes)} after {family[2]}"

    def predictions(self, target: Target, rows: Sequence[int] | None = None) -> NDArray[np.int64]:
        """(n,) what a target says now."""
        x = self.x if rows is None else self.x[list(rows)]
        with torch.inference_mode():
            parts = [
                predicted(target.logits(target.prepare(np.ascontiguousarray(x[i : i + AT_ONCE]))))
                for i in range(0, len(x), AT_ONCE)
            ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def fails(self, target: Target, rows: Sequence[int] | None = None) -> NDArray[np.bool_]:
        """(n,) which of them a target still gets wrong. Of a quantity: whose answer is in no bin that the tolerance reaches
        from the middle of the expected one; a fault knows the bin of its seed's answer, and no more."""
        if target.bins is not None:
            return self._far(target, rows)
        expected = self.expected if rows is None else self.expected[list(rows)]
        return np.asarray(self.predictions(target, rows) != expected)

    def _far(self, target: Target, rows: Sequence[int] | None) -> NDArray[np.bool_]:
        bins = target.bins
        assert bins is not None
        x, expected = (all_ if rows is None else all_[list(rows)] for all_ in (self.x, self.expected))
        with torch.inference_mode():
            parts = [target.logits(target.prepare(np.ascontiguousarray(x[i : i + AT_ONCE]))) for i in range(0, len(x), AT_ONCE)]
        if not parts:
            return np.empty(0, dtype=bool)
        return far(bins, torch.cat(parts), bins.middles()[expected], bins.tolerance + bins.width / 2)


def first(faults: Sequence[Kept], budget: int | None) -> list[Kept]:
    """At most `budget` of them, one of each family in turn, so that a small budget still meets every family it can."""
    if budget is None or len(faults) <= budget:
        return list(faults)
    count("budget", budget, "one forward pass for each fault")
    turns: dict[Key, int] = {}
    order = []
    for place, one in enumerate(faults):
        turns[one.family] = turns.get(one.family, -1) + 1
        order.append((turns[one.family], place))
    return [faults[place] for _, place in sorted(order)[:budget]]


def load_faults(
    path: str | Path, target: Target, data: AnyData | None = None, *, budget: int | None = None, per_family: int = PER_FAMILY
) -> FaultSet:
    """The faults of a run of fuzz, merge, swarm, attack, diff or illuminate, or of a file that `neurotest export --format faults`
    wrote.

    data: the seeds of a faults file; what it names itself is used only if it is of the zoo. budget: forward passes at most.
    """
    place = user_path(path)
    if place.is_dir():
        return _of_run(place, target, budget, per_family)
    return _of_file(place, target, data, budget)


def _of_run(path: Path, target: Target, budget: int | None, per_family: int) -> FaultSet:
    with Run.open(path) as run:
        stored = stored_faults(run, per_family)
        classes = tuple(run["classes"]) if "classes" in run else ()
        chosen = first(stored.faults, budget)
        images = {i: stored.images[one.content] for i, one in enumerate(chosen) if one.content in stored.images}
        ruled = [i for i in range(len(chosen)) if i not in images]
        roots = np.stack([stored.seed(chosen[i]) for i in ruled]) if ruled else np.empty(0)
        _classes_fit(str(path), target, classes, chosen)
        if ruled:
            assert stored.mutations is not None
            images |= dict(zip(ruled, _made(stored.mutations, roots, [chosen[i].chain for i in ruled], target), strict=True))
    return _set([images[i] for i in range(len(chosen))], chosen, classes, str(path))


def export_faults(path: str | Path, out: str | Path, *, per_family: int = PER_FAMILY) -> dict[str, Any]:
    """Write the faults of a run as a small file without images, to be committed and run again."""
    with Run.open(path) as run:
        stored = stored_faults(run, per_family)
        if not stored.faults:
            raise BadInput("empty", "faults", f"{run.path} has no faults to keep.")
        config = run["config"]
        kept = [one for fault in stored.faults if (one := stored.portable(fault)) is not None]
        content = {
            "format": FORMAT, "version": VERSION, "target": _shown(config.get("target")),
            "fingerprint": config.get("fingerprint"),
            "data": config.get("seeds") if str(config.get("seeds")).startswith("zoo:") else None,
            "mutations": None if stored.mutations is None else registry.text(stored.mutations),
            "classes": list(run["classes"] or ()) if "classes" in run else [],
            "faults": [_plain(one) for one in kept],
        }  # fmt: skip
    target = user_path(out)
    if target.is_dir():
        raise BadInput("not-a-file", "out", f"--out {out}: a faults file is a file, and this is a folder.")
    rows = content.pop("faults")
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)  # one line each: a change of the file can be read
    write_text(target, f'{json.dumps(content, indent=1)[:-2]},\n "faults": [\n{lines}\n ]\n}}\n')
    families = len({one.family for one in kept})
    return {"exported": len(kept), "families": families, "left_out": len(stored.faults) - len(kept), "out": str(target)}


def _plain(one: Kept) -> dict[str, Any]:
    """As JSON takes it: with its chain or, where there is none to follow, with what was added to the seed."""
    way: dict[str, Any] = {"difference": one.difference} if one.difference else {"chain": chains.plain(one.chain)}
    return {"position": one.position, "seed": one.seed, "content": one.content, "family": list(one.family), **way}


def _shown(spec: Any) -> str:
    """The target of a run for people: without the folders of somebody's machine."""
    source, _, rest = str(spec).partition(":")
    return f"{source}:{rest.rpartition('/')[2]}"


def _of_file(path: Path, target: Target, data: AnyData | None, budget: int | None) -> FaultSet:
    content = read_json(path, "a faults file", hint="`neurotest export RUN --format faults --out FILE` writes one.")
    with reading(path, "a faults file", untyped=True, hint="`neurotest export RUN --format faults --out FILE` writes one."):
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise ValueError("it does not say that it is one")
        if content["version"] not in (1, VERSION):
            raise ValueError(f"version {content['version']!r:.20}, this neurotest reads 1 and {VERSION}")
        faults = [_read(one) for one in content["faults"][:MOST_FAULTS]]
        classes = tuple(str(name) for name in content["classes"])
        recipe, named = content["mutations"], content.get("data")
        if recipe is None and not all(one.difference for one in faults):
            raise ValueError("faults without the mutations that made them")
    if not faults:
        raise BadInput("empty", "faults", f"{path} holds no faults.")
    if data is None:
        if not isinstance(named, str) or not named.startswith("zoo:"):
            raise BadInput(
                "missing",
                "data",
                f"{path} holds recipes, not images: name the data its seeds come from (--neurotest-data, or data=).",
            )
        data = named
    chosen = first(faults, budget)
    _classes_fit(str(path), target, classes, chosen)
    roots = _seeds(path, target, data, chosen)
    ruled = [i for i, one in enumerate(chosen) if not one.difference]
    images: dict[int, NDArray[np.generic]] = {}
    if ruled:
        refuse_code(str(path), str(recipe))
        mutations: Mutations = registry.build("mutation", str(recipe))
        images = dict(zip(ruled, _made(mutations, roots[ruled], [chosen[i].chain for i in ruled], target), strict=True))
    with reading(path, "a faults file", hint="`neurotest export RUN --format faults --out FILE` writes one."):
        images |= {i: restored(roots[i], one.difference) for i, one in enumerate(chosen) if one.difference}
    return _set([images[i] for i in range(len(chosen))], chosen, classes, str(path))


def _read(one: Any) -> Kept:
    true, wrong, operator = one["family"]
    position = one["position"]
    if not all(type(number) is int and abs(number) < 2**31 for number in (true, wrong, position)) or position < 0:
        raise ValueError("a fault whose numbers do not fit")
    family, added = (true, wrong, str(operator)), str(one.get("difference", ""))
    chain = () if added else chains.read(one["chain"])
    return Kept(position, str(one["seed"]), str(one["content"]), family, chain, added)


def _classes_fit(path: str, target: Target, classes: tuple[str, ...], faults: Sequence[Kept]) -> None:
    if classes and target.classes and classes != target.classes:
        raise BadInput(
            "changed",
            "classes",
            f"{path} numbers classes as {', '.join(classes[:4])}, ...; the target as {', '.join(target.classes[:4])}, ...",
        )


def _seeds(path: Path, target: Target, data: AnyData, faults: Sequence[Kept]) -> NDArray[np.generic]:
    """The seeds of the faults: at the places the file names or, where the data have moved, wherever their content is."""
    source = open_data(target, data)
    places = np.array([one.position for one in faults])
    wanted = np.array([one.seed for one in faults])
    there = places < len(source)
    same = np.zeros(len(faults), dtype=bool)
    if there.any():
        same[there] = content_ids(source.read(places[there])) == wanted[there]
    if not same.all():
        where = {str(content): number for number, content in enumerate(source.ids())}
        missing = [one for one, ok in zip(faults, same, strict=True) if not ok and one.seed not in where]
        if missing:
            raise BadInput(
                "changed",
                "data",
                f"{path}: the seed {missing[0].seed} (input {missing[0].position}) and {len(missing) - 1} more are not in "
                f"{source.what}: name the data the faults were found with.",
            )
        places = np.array([place if ok else where[one.seed] for one, place, ok in zip(faults, places, same, strict=True)])
    return source.read(places)


def _made(mutations: Mutations, roots: NDArray[np.generic], recipe: list[Chain], target: Target) -> NDArray[np.generic]:
    """Mutants as they would be saved."""
    empty = np.empty(0, dtype=np.int64)
    about = Roots(empty, empty, np.empty((0, 0), np.float32))
    seeds = Seeds(roots, empty, empty.astype(str), about, 0, target.bounds, 0)  # only its conversions are used
    if not len(roots):
        return roots
    with torch.inference_mode():
        return seeds.stored(chains.replay(mutations, seeds.unit(roots), recipe, levels=seeds.levels))


def _set(images: list[NDArray[np.generic]], kept: Sequence[Kept], classes: tuple[str, ...], path: str) -> FaultSet:
    if not images:
        raise BadInput("empty", "faults", f"{path} has no faults to run again.")
    x = np.stack(images)
    changed = int((content_ids(x) != np.array([one.content for one in kept])).sum())
    return FaultSet(x, tuple(kept), classes or None, changed)
