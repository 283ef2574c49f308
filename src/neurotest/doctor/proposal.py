"""What a `neurotest.toml` should say, found by looking at the network and its data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput, command
from neurotest.levels import levels_of
from neurotest.public import public
from neurotest.scan import fit, read
from neurotest.settings import TargetSettings, declared
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.target.spec import target_settings

LOOKED_AT = 64  # inputs
# Comments on data in the file, and usual names of their folders.
DATA = {
    "train": ("training data, for every command with --train", ("train", "training")),
    "holdout": ("labelled inputs nothing was trained on or made from, to judge repairs by", ("holdout", "val", "validation")),
}


@dataclass(frozen=True)
class Proposal:
    """The settings that were seen, where each comes from, and the number of classes (None: no data was there to run it on).

    others: training data and holdout, as they were typed.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    classes: int | None
    others: Mapping[str, str] = field(default_factory=dict)

    def toml(self, spec: str, data: str | None) -> str:
        """The file: what has to be said, and as comments what the network says itself or nobody needs."""
        example = re.sub(r"[^\x20-\x7e]", "?", command("check", spec, data or "DATA"))[:500]
        lines = [
            "# Written by `neurotest init`, for commands that are started in this folder; options typed with them go over it.",
            "# A network to load cannot stand here: a file found by chance must not run code. So commands are",
            f"#     {example}",
            "",
            "[target]",
        ]
        for key, about in _keys().items():
            origin = self.origins.get(key)
            needed = origin is not None and origin != "the network"
            value = self.values.get(key)
            text = f"{key} = {_value(value)}" if value is not None else f"{key} ="
            lines.append(f"{'' if needed else '# '}{text}  # {about}{f' (from {origin})' if origin else ''}")
        return "\n".join([*lines, "", "[data]", *self._data()]) + "\n"

    def _data(self) -> Iterator[str]:
        """What was typed; a folder of that name is a guess, and stays a comment."""
        for key, (about, folders) in DATA.items():
            nearby = next((f"dir:{name}" for name in folders if os.path.isdir(name)), None)
            spec = self.others.get(key) or nearby
            text = f"{key} =" if spec is None else f"{key} = {_value(spec)}"
            origin = " (from your options)" if key in self.others else " (a folder of that name is here)" if nearby else ""
            yield f"{'' if key in self.others else '# '}{text}  # {about}{origin}"


def _value(value: Any) -> str:
    """As TOML has it; JSON's texts, numbers and lists are TOML too, but for letters written as pairs of surrogates."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False).replace("\x7f", "\\u007f")


@public(load)
def propose(target: str, data: AnyData | None = None, *, others: Mapping[str, str] | None = None, **description: Any) -> Proposal:
    """Look at a network and some of its data: what the description of the target should say.

    others: specs of further data, `train` and `holdout`, that have to be such inputs, too.
    """
    options = {key: value for key, value in description.items() if value is not None and key in _keys()}
    loaded = load(target, **description)
    for spec in (others or {}).values():
        read(loaded, spec, limit=1)
    values, origins = _own(loaded), {}
    for key in values:
        origins[key] = "your options" if key in options else "the network"
    if "weights" in options:
        values["weights"], origins["weights"] = str(options["weights"]), "your options"
    if data is None:
        return Proposal(values, origins, None, others or {})
    source = read(loaded, data, limit=LOOKED_AT)
    if loaded.shape is None:
        values["size"], origins["size"] = "x".join(map(str, source.shape)), "the data"
    if "bounds" not in options and (bounds := _bounds(loaded, source)) is not None:
        values["bounds"], origins["bounds"] = bounds, "the data"
        description["bounds"] = bounds
    outputs, classes = _outputs(target, source, description)
    if outputs is not None:
        values["outputs"], origins["outputs"] = outputs, "what it returns"
    if loaded.classes is None and source.classes is not None and len(source.classes) == classes:
        values["classes"], origins["classes"] = list(source.classes), "the data: check that the order is the network's"
    return Proposal(values, origins, classes, others or {})


def _own(target: Target) -> dict[str, Any]:
    """What a target knows of itself that is not as usual."""
    settings = declared(TargetSettings)
    values = {name: value for name, value in target_settings(target).items() if settings[name].words(value)}
    if "size" in values:
        values["size"] = "x".join(map(str, values["size"]))
    return values


def _keys() -> dict[str, str]:
    """The keys of the file, each with its comment."""
    return {name: one.toml for name, one in declared(TargetSettings).items() if one.toml}


def _bounds(target: Target, source: Source) -> tuple[float, float] | None:
    """The range of the data, where they leave the target's bounds: 0 to 255, or what is there, rounded outwards."""
    x = source.read(np.arange(len(source)))
    if levels_of(x.dtype) or (x.min() >= target.bounds[0] and x.max() <= target.bounds[1]):
        return None
    if x.min() >= 0 and 1 < x.max() <= 255:
        return 0.0, 255.0
    return float(np.floor(x.min())), float(np.ceil(x.max()))


def _outputs(spec: str, source: Source, description: dict[str, Any]) -> tuple[Any, int]:
    """What the network returns, if that is not what was described, and how many classes it has."""
    refusal: BadInput | None = None
    for outputs in (None, "probs", "sigmoid"):
        options = {**description, "outputs": outputs} if outputs is not None else description
        try:
            return outputs, fit(load(spec, **options), source)
        except BadInput as error:
            if "outputs" not in str(error):
                raise
            refusal = refusal or error
    assert refusal is not None
    raise refusal
