"""Make the embedded data files (`zoo/data` of neurotest and of neurotest-lab) from the complete sets (`neurotest data get NAME`).

Prints the table of neurotest/zoo/embedded.py and, with --compare, what other ways of packing would have cost.
"""

from __future__ import annotations

import argparse
import io
import lzma
import time
from collections.abc import Callable

import numpy as np

from neurotest import files, zoo
from neurotest.data.spec import data
from neurotest.zoo import embedded

# The first so many images of a split; None: all of them.
TAKEN: dict[str, dict[str, int | None]] = {
    "mnist": {"test": None, "train": 5000},
    "fashion-mnist": {"test": None, "train": 5000},
    "cifar10": {"test": 1000, "train": 1000},
}
MOST = 2_900_000  # bytes of a file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(TAKEN), help="data sets to embed (all of them)")
    parser.add_argument("--compare", action="store_true", help="also measure other ways of packing the test sets")
    arguments = parser.parse_args()
    for name in arguments.names:
        for split, limit in TAKEN[name].items():
            source = data(f"zoo:{name}-full/{split}", limit=limit)
            assert source.labels is not None
            x, y = source.read(np.arange(len(source))), source.labels.astype(np.uint8)
            x = x[:, 0] if x.shape[1] == 1 else x
            embed(name, split, x, y)
            if arguments.compare and split == "test":
                compare_packings(name, x)


def embed(name: str, split: str, x: embedded.Uint8, y: embedded.Uint8) -> None:
    """Write a split into as few equal files as the limit on a file's size allows."""
    shares = 1
    while True:
        packed = [embedded.pack(*pair) for pair in zip(np.split(x, shares), np.split(y, shares), strict=True)]
        if max(map(len, packed)) <= MOST:
            break
        shares += 1
    names = [f"{name}-{split}.xz"] if shares == 1 else [f"{name}-{split}-{number}.xz" for number in range(1, shares + 1)]
    for file, content in zip(names, packed, strict=True):
        files.write_bytes(zoo.packaged(f"data/{file}") or zoo.folders()[-1] / "data" / file, content)
    sizes = ", ".join(f"{file} {len(content):,}" for file, content in zip(names, packed, strict=True))
    print(f"{name} {split}: {embedded.Split(len(x), tuple(names), embedded.digest(x, y))}\n  bytes: {sizes}", flush=True)


def compare_packings(name: str, x: embedded.Uint8) -> None:
    no_labels = np.empty(0, np.uint8)
    colour: dict[str, Callable[[], bytes]] = {
        "xz, differences, columns (chosen)": lambda: embedded.pack(x, no_labels),
        "xz, planes": lambda: xz(x),
        "WebP, lossless, 40 images per row": lambda: webp(x),
        "PNG, 40 images per row": lambda: picture(x, "PNG", optimize=True),
    }
    grey: dict[str, Callable[[], bytes]] = {
        "xz, columns (chosen)": lambda: embedded.pack(x, no_labels),
        "xz, rows": lambda: embedded.pack(x.transpose(0, 2, 1), no_labels),
        "xz, pixel by pixel over all images": lambda: xz(x.reshape(len(x), -1).T),
        "xz, difference to the left neighbour": lambda: xz(np.diff(x, axis=2, prepend=np.uint8(0))),
        "WebP, lossless, 100 images per row": lambda: webp(x),
        "PNG, 100 images per row": lambda: picture(x, "PNG", optimize=True),
    }
    for way, make in (colour if x.ndim == 4 else grey).items():
        content = make()
        start = time.process_time()
        unpack(content)
        print(f"  {name} test: {way}: {len(content):,} bytes, unpacked in {time.process_time() - start:.2f} s", flush=True)


def xz(x: embedded.Uint8) -> bytes:
    settings = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0, "dict_size": 1 << 24}
    return lzma.compress(np.ascontiguousarray(x).tobytes(), format=lzma.FORMAT_XZ, filters=[settings])


def webp(x: embedded.Uint8) -> bytes:
    return picture(x, "WEBP", lossless=True, quality=100, method=6, exact=True)


def picture(x: embedded.Uint8, format: str, **options: object) -> bytes:
    from PIL import Image

    sheet: embedded.Uint8
    if x.ndim == 4:
        sheet = x.reshape(-1, 40, 3, 32, 32).transpose(0, 3, 1, 4, 2).reshape(-1, 40 * 32, 3)
    else:
        sheet = x.reshape(-1, 100, 28, 28).transpose(0, 2, 1, 3).reshape(-1, 2800)
    out = io.BytesIO()
    Image.fromarray(sheet).save(out, format, **options)
    return out.getvalue()


def unpack(content: bytes) -> None:
    from PIL import Image

    if content[:6] == b"\xfd7zXZ\x00":
        lzma.decompress(content)
    else:
        np.asarray(Image.open(io.BytesIO(content)))


if __name__ == "__main__":
    main()
