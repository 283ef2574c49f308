"""The data sets that come along or can be fetched: `zoo:NAME/SPLIT`, `zoo:NAME-full/SPLIT`, `zoo:NAME/nss-pool@SEED`."""

from __future__ import annotations

import re
from typing import Any

from neurotest import registry
from neurotest.data.source import ArraySource, Source, Wanted
from neurotest.errors import BadInput, near
from neurotest.zoo import embedded, lanes, speech

HERE = (*embedded.PARTS, speech.NAME, lanes.NAME)  # embedded or generated


@registry.register("data source", "zoo", paper="", cost="the images are held in memory; unpacking 10,000 takes about 0.3 s")
def _open_zoo(rest: str, wanted: Wanted) -> Source:
    """Data sets by name: `zoo:NAME/SPLIT` (embedded), `zoo:NAME-full/SPLIT` (complete), `zoo:NAME/nss-pool@SEED` (generated)."""
    name, _, split = rest.partition("/")
    if name not in HERE:
        from neurotest.data import fetch  # archives and their readers

        if name not in fetch.SETS:
            nearest = near(name, [*HERE, *fetch.SETS])
            message = f"zoo:{rest}: there is no data set {name!r}. {nearest} Write zoo:NAME/SPLIT, like zoo:mnist/test"
            raise BadInput("unknown-name", "data", message)
    if not split:
        raise BadInput("missing", "split", f"zoo:{name} names no split: write zoo:{name}/test or zoo:{name}/train")
    split, at, seed = split.partition("@")
    if split in ("train", "test"):
        if at:
            message = f"zoo:{rest}: {split} has no seed; a slice is zoo:{name}/{split}[:1000] or zoo:{name}/{split}@0:1000"
            raise BadInput("syntax", "split", message)
        return _plain(name, split, wanted)
    if split not in registry.names("split"):
        message = f"zoo:{rest}: {name} has no split {split!r}. {near(split, ['train', 'test', *registry.entries('split')])}"
        raise BadInput("unknown-name", "split", message)
    if not re.fullmatch(r"\d{1,18}", seed):
        message = f"zoo:{rest}: seed {seed!r}; expected an integer of at least 0, such as zoo:{name}/{split}@0"
        raise BadInput("out-of-range", "seed", message)
    source: Source = registry.find("split", split).make(source=_plain(name, "test", Wanted()), seed=int(seed))
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
    if name in embedded.PARTS:
        x, y, classes = embedded.load(name, split)
        return ArraySource(x[: wanted.first], y[: wanted.first], spec=spec, classes=classes)
    from neurotest.data import fetch

    return fetch.read(name, split, wanted, spec=spec)


def listed() -> list[dict[str, Any]]:
    """Every data set: how it is written, whether its test split is here, and the command that brings it."""
    from neurotest import zoo
    from neurotest.data import fetch

    generated = (speech.NAME, lanes.NAME)
    rows = [{"name": name, "spec": f"zoo:{name}/test", "here": True, "get": ""} for name in generated]
    for name, parts in embedded.PARTS.items():
        here = all(zoo.packaged(f"data/{file}") for file in parts["test"].files)
        rows.append({"name": name, "spec": f"zoo:{name}/test", "here": here, "get": "" if here else zoo.LAB})
    for name in fetch.SETS:
        spec, get = f"zoo:{name}/test", f"neurotest data get {name.removesuffix(fetch.FULL)}"
        rows.append({"name": name, "spec": spec, "here": _complete(spec), "get": get})
    return rows


def _complete(spec: str) -> bool:
    try:
        return bool(len(_open_zoo(spec.removeprefix("zoo:"), Wanted(first=1))))
    except BadInput:
        return False
