"""Bombs in runs that somebody sent."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.fuzz.bombs.inputs import header, png, pour
from tests.fuzz.bombs.registry import bomb, zeros

MB = 1 << 20


def decode(folder: Path) -> object:
    from neurotest.runs import codec

    return codec.decode(next(folder.glob("a.*")))


@bomb("image of a run, 169 megapixels", decode)
def image(folder: Path) -> None:
    (folder / "a.png").write_bytes(png(13_000, 13_000))


@bomb("image of a run in a file of 1 GB with holes", decode)
def image_holes(folder: Path) -> None:
    zeros(folder / "a.png", 1000 * MB, png(4, 4))


@bomb("array of a run, 1 GB with holes", decode)
def array_holes(folder: Path) -> None:
    head = b"\x93NUMPY\x01\x00" + (len(text := header("|u1", (1000, MB))[10:])).to_bytes(2, "little") + text
    zeros(folder / "a.npy", len(head) + 1000 * MB, head)


def parts(folder: Path) -> object:
    from neurotest.jobs.parts import Parts
    from neurotest.runs.store import Run

    with Run.open(folder / "run", write=True) as run:
        return list(Parts(run))


@bomb("part of a run, 1.5 GB deflated", parts, refused=None)
def part(folder: Path) -> None:
    import numpy as np

    from neurotest.jobs.parts import DIGESTS, Parts
    from neurotest.runs.store import Run

    with Run.create(folder / "run", "attack", {}) as run:
        Parts(run).add({"x": np.zeros(3)})
        del run[DIGESTS]
    file = folder / "run" / "parts" / "000000.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("x.npy", "w") as out:
        out.write(header("|u1", (1500, MB)))
        pour(out, 1500 * MB)


def snapshot(folder: Path) -> object:
    from neurotest.campaign.store import unpack

    return unpack((folder / "row").read_bytes())


@bomb("snapshot of a campaign, 1.5 GB", lambda folder: snapshot(folder))
def packed(folder: Path) -> None:
    import zlib

    packer = zlib.compressobj(1)
    with open(folder / "row", "wb") as out:
        for _ in range(1500):
            out.write(packer.compress(bytes(MB)))
        out.write(packer.flush())
