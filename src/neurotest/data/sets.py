"""The data sets that come along or can be fetched: `zoo:NAME/SPLIT`, `zoo:NAME-full/SPLIT`, `zoo:NAME/nss-pool@SEED`."""

from __future__ import annotations

import re
from typing import Any

from neurotest import files, registry
from neurotest.data import cifar, driving, idx, speakers
from neurotest.data.fetch import COMPLETE, NAMES
from neurotest.data.source import ArraySource, Source, Wanted
from neurotest.errors import BadInput, near
from neurotest.zoo import embedded, lanes, speech
from neurotest.zoo.speakers import NAME as SPEAKERS

FULL = "-full"


@registry.register("data source", "zoo", paper="", cost="the images are held in memory; unpacking 10,000 takes about 0.3 s")
def open_zoo(rest: str, wanted: Wanted) -> Source:
    """Data sets by name: `zoo:NAME/SPLIT` (embedded), `zoo:NAME-full/SPLIT` (complete), `zoo:NAME/nss-pool@SEED` (generated)."""
    name, _, split = rest.partition("/")
    sets = [*embedded.PARTS, speech.NAME, lanes.NAME, driving.NAME, *(complete + FULL for complete in NAMES)]
    if name not in sets:
        raise BadInput(f"zoo:{rest}: there is no data set {name!r}. {near(name, sets)} Write zoo:NAME/SPLIT, like zoo:mnist/test")
    if not split:
        raise BadInput(f"zoo:{name} names no split: write zoo:{name}/test or zoo:{name}/train")
    split, at, seed = split.partition("@")
    if split in ("train", "test"):
        if at:
            raise BadInput(f"zoo:{rest}: {split} has no seed; a slice is zoo:{name}/{split}[:1000] or zoo:{name}/{split}@0:1000")
        return _plain(name, split, wanted)
    generated = registry.entries("split")
    if split not in generated:
        raise BadInput(f"zoo:{rest}: {name} has no split {split!r}. {near(split, ['train', 'test', *generated])}")
    if not re.fullmatch(r"\d{1,18}", seed):
        raise BadInput(f"zoo:{rest}: seed {seed!r}; expected an integer of at least 0, such as zoo:{name}/{split}@0")
    source: Source = generated[split].make(source=_plain(name, "test", Wanted()), seed=int(seed))
    source.spec = f"zoo:{rest}"
    return source


def _plain(name: str, split: str, wanted: Wanted) -> Source:
    spec = f"zoo:{name}/{split}"
    if name == speech.NAME:
        source = ArraySource(*speech.load(split, wanted.first), spec=spec, classes=speech.CLASSES)
        source.rate = speech.RATE
        return source
    if name == lanes.NAME:
        return ArraySource(*lanes.load(split, wanted.first), spec=spec)
    if name == driving.NAME:
        return driving.read(split, wanted, spec=spec)
    if not name.endswith(FULL):
        x, y, classes = embedded.load(name, split)
        return ArraySource(x[: wanted.first], y[: wanted.first], spec=spec, classes=classes)
    plain = name.removesuffix(FULL)
    if plain == cifar.NAME:
        return cifar.read(split, wanted, spec=spec)
    if plain == SPEAKERS:
        return speakers.read(split, wanted, spec=spec)
    prefix = files.data_dir() / plain / COMPLETE[plain].splits[split]
    if idx.find_file(prefix, idx.IMAGES) is None or idx.find_file(prefix, idx.LABELS) is None:
        raise BadInput(f"{spec}: the complete set is not in {prefix.parent}: run `neurotest data get {plain}` (or --from DIR).")
    return idx.read_pair(prefix, wanted, spec=spec, classes=embedded.classes(plain))


def listed() -> list[dict[str, Any]]:
    """Every data set: how it is written, whether its test split is here, and the command that brings it."""
    from neurotest import zoo

    generated = (speech.NAME, lanes.NAME)
    rows = [{"name": name, "spec": f"zoo:{name}/test", "here": True, "get": ""} for name in generated]
    for name, parts in embedded.PARTS.items():
        here = all(zoo.packaged(f"data/{file}") for file in parts["test"].files)
        rows.append({"name": name, "spec": f"zoo:{name}/test", "here": here, "get": "" if here else zoo.LAB})
    for name in (*NAMES, driving.NAME):
        spec = f"zoo:{name}/test" if name == driving.NAME else f"zoo:{name}{FULL}/test"
        rows.append({"name": spec[4:-5], "spec": spec, "here": _complete(spec), "get": f"neurotest data get {name}"})
    return rows


def _complete(spec: str) -> bool:
    try:
        return bool(len(open_zoo(spec.removeprefix("zoo:"), Wanted(first=1))))
    except BadInput:
        return False
