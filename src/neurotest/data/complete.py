"""The data sets that can be fetched, or are brought: `zoo:NAME-full/SPLIT`, `zoo:driving/SPLIT`."""

from __future__ import annotations

from neurotest import files
from neurotest.data import cifar, driving, idx, speakers
from neurotest.data.fetch import COMPLETE, NAMES
from neurotest.data.source import Source, Wanted
from neurotest.errors import BadInput
from neurotest.zoo import embedded
from neurotest.zoo.speakers import NAME as SPEAKERS

FULL = "-full"
SETS = (driving.NAME, *(name + FULL for name in NAMES))


def read(name: str, split: str, wanted: Wanted, *, spec: str) -> Source:
    if name == driving.NAME:
        return driving.read(split, wanted, spec=spec)
    plain = name.removesuffix(FULL)
    if plain == cifar.NAME:
        return cifar.read(split, wanted, spec=spec)
    if plain == SPEAKERS:
        return speakers.read(split, wanted, spec=spec)
    prefix = files.data_dir() / plain / COMPLETE[plain].splits[split]
    if idx.find_file(prefix, idx.IMAGES) is None or idx.find_file(prefix, idx.LABELS) is None:
        raise BadInput(
            "not-found",
            "data",
            f"{spec}: the complete set is not in {prefix.parent}: run `neurotest data get {plain}` (or --from DIR).",
        )
    return idx.read_pair(prefix, wanted, spec=spec, classes=embedded.classes(plain))
