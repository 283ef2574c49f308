"""Bombs in files of inputs: images, sound, archives of arrays, tar files, labels."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from tests.fuzz.bombs.registry import bomb, fine, rows, zeros

MB = 1 << 20
GREY, RGBA = 0, 6  # colour types of PNG


def png(width: int, height: int, *, colour: int = GREY, depth: int = 8, level: int = 1) -> bytes:
    """An image of zeros."""
    each = {GREY: 1, RGBA: 4}[colour] * depth // 8
    packer, packed = zlib.compressobj(level), []
    row = bytes(1 + width * each)
    packed += [packer.compress(row) for _ in range(height)]
    packed.append(packer.flush())
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", b"".join(packed)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def pour(out: IO[bytes], size: int) -> None:
    """Zeros, a piece at a time."""
    for _ in range(size // MB):
        out.write(bytes(MB))
    out.write(bytes(size % MB))


def header(kind: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


# -- images


@bomb("image of 169 megapixels", "dir:{}")
def image(folder: Path) -> None:
    (folder / "a.png").write_bytes(png(13_000, 13_000))


@bomb("20 images of 60 megapixels and 16 bits", rows("dir:{}", resize=8), refused=None)
def deep(folder: Path) -> None:
    content = png(8_000, 7_500, depth=16)
    for number in range(20):
        (folder / f"{number}.png").write_bytes(content)


@bomb("image of 60 megapixels that are transparent", "dir:{}", refused=None)
def transparent(folder: Path) -> None:
    (folder / "a.png").write_bytes(png(8_000, 7_500, colour=RGBA))


@bomb("image of a few bytes in a file of 500 MB", "dir:{}")
def padded(folder: Path) -> None:
    zeros(folder / "a.png", 500 * MB, png(4, 4))


@bomb("JPEG of 49 megapixels and 800 scans", "dir:{}")
def scans(folder: Path) -> None:
    from PIL import Image

    out = io.BytesIO()
    Image.new("L", (7_000, 7_000)).save(out, "JPEG", progressive=True)
    content = out.getvalue()
    last = content.rindex(b"\xff\xda")
    (folder / "a.jpg").write_bytes(content[:last] + content[last:-2] * 800 + b"\xff\xd9")


@bomb("WebP of 268 megapixels", "dir:{}")
def webp(folder: Path) -> None:
    extended = struct.pack("<B3s3s3s", 2, b"\0\0\0", *[(16_382).to_bytes(3, "little")] * 2)
    frame = b"\0" * 6 + (16_382).to_bytes(3, "little") * 2 + b"\0\0\0\0" + b"VP8L" + struct.pack("<I", 10) + b"\x2f" + b"\xff" * 9
    chunks = [(b"VP8X", extended), (b"ANIM", bytes(6)), (b"ANMF", frame)]
    content = b"".join(name + struct.pack("<I", len(one)) + one + b"\0" * (len(one) % 2) for name, one in chunks)
    (folder / "a.webp").write_bytes(b"RIFF" + struct.pack("<I", len(content) + 4) + b"WEBP" + content)


@fine("image of 24 megapixels", "dir:{}")
def camera(folder: Path) -> None:
    from PIL import Image

    Image.linear_gradient("L").resize((6_000, 4_000)).convert("RGB").save(folder / "a.jpg")


# -- sound


@bomb("5 FLAC files of 60 seconds, 8 channels, 192 kHz", "wav:{}", refused=None, needs=("soundfile",))
def flac(folder: Path) -> None:
    import numpy as np
    import soundfile

    with soundfile.SoundFile(folder / "0.flac", "w", 192_000, 8) as out:
        for _ in range(60):
            out.write(np.full((192_000, 8), 0.5))
    for number in range(1, 5):
        (folder / f"{number}.flac").write_bytes((folder / "0.flac").read_bytes())


@bomb("FLAC of an hour", "wav:{}", needs=("soundfile",))
def hour(folder: Path) -> None:
    import numpy as np
    import soundfile

    with soundfile.SoundFile(folder / "a.flac", "w", 48_000, 1) as out:
        for _ in range(360):
            out.write(np.zeros(480_000))


# -- arrays


@bomb("npz of 1.5 GB, deflated", "npz:{}/bomb.npz")
def npz(folder: Path) -> None:
    with (
        zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as out,
    ):
        out.write(header("|u1", (1500, MB)))
        pour(out, 1500 * MB)


@bomb("npz of 1.5 GB of labels, deflated", "npz:{}/bomb.npz")
def npz_labels(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("x.npy", header("|u1", (1500 * MB // 8, 1)) + bytes(1500 * MB // 8))
        with archive.open("y.npy", "w") as out:
            out.write(header("<i8", (1500 * MB // 8,)))
            pour(out, 1500 * MB)


@bomb("npz of 2 GB, a file with holes", "npz:{}/bomb.npz")
def npz_holes(folder: Path) -> None:
    head = header("|u1", (1000, 2 * MB))
    with zipfile.ZipFile(folder / "bomb.npz", "w") as archive:
        archive.writestr("x.npy", head)
    content, size = (folder / "bomb.npz").read_bytes(), len(head) + 2000 * MB
    crc = zlib.crc32(head)  # of what is there: it is compared at the end
    at = content.index(b"PK\x01\x02")
    local = content[:18] + struct.pack("<II", size, size) + content[26:at]
    central = content[at : at + 16] + struct.pack("<III", crc, size, size) + content[at + 28 : -22]
    end = content[-22:-6] + struct.pack("<IH", len(local) + 2000 * MB, 0)
    with open(folder / "bomb.npz", "wb") as out:
        out.write(local)
        out.seek(len(local) + 2000 * MB)
        out.write(central + end)


@bomb("idx of 1.5 GB, gzipped", "idx:{}/train")
def idx(folder: Path) -> None:
    with gzip.open(folder / "train-images-idx3-ubyte.gz", "wb", compresslevel=1) as out:
        out.write(struct.pack(">4I", 0x803, 1500, 1024, 1024))
        pour(out, 1500 * MB)


@bomb("idx of 2 GB, a file with holes", "idx:{}/train")
def idx_holes(folder: Path) -> None:
    zeros(folder / "train-images-idx3-ubyte", 2000 * MB + 16, struct.pack(">4I", 0x803, 2000, 1024, 1024))


@fine("npz of 180 MB, deflated", "npz:{}/bomb.npz")
def npz_fine(folder: Path) -> None:
    with (
        zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as out,
    ):
        out.write(header("|u1", (180, MB)))
        pour(out, 180 * MB)


@fine("idx of 47 MB, gzipped", "idx:{}/train")
def idx_fine(folder: Path) -> None:
    with gzip.open(folder / "train-images-idx3-ubyte.gz", "wb", compresslevel=1) as out:
        out.write(struct.pack(">4I", 0x803, 60_000, 28, 28))
        pour(out, 60_000 * 784)


# -- tar files


def tar(folder: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(folder / "bomb.tar", "w") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return folder / "bomb.tar"


@bomb("tar, an image of 169 megapixels", "webdataset:{}/bomb.tar")
def tar_image(folder: Path) -> None:
    tar(folder, {"a.png": png(13_000, 13_000), "a.cls": b"0"})


@bomb("tar, an array of 500 MB in a file with holes", "webdataset:{}/bomb.tar")
def tar_holes(folder: Path) -> None:
    head = header("|u1", (500, MB))
    about = tarfile.TarInfo("a.npy")
    about.size = len(head) + 500 * MB
    zeros(folder / "bomb.tar", 512 + (about.size + 1023 & ~511) + 10240, about.tobuf() + head)


@bomb("tar, a header of 1.2 GB in a file with holes", "webdataset:{}/bomb.tar")
def tar_header(folder: Path) -> None:
    about = tarfile.TarInfo("a")
    about.type, about.size = tarfile.XHDTYPE, 1200 * MB
    zeros(folder / "bomb.tar", about.size + 10240, about.tobuf(tarfile.USTAR_FORMAT))


@bomb("tar, a label of 1 MB among 2,000", "webdataset:{}/bomb.tar")
def tar_label(folder: Path) -> None:
    members = {f"{n:04}.{end}": one for n in range(2000) for end, one in (("png", png(4, 4)), ("cls", b"cat"))}
    tar(folder, {**members, "1999.cls": b"a" * (MB - 1)})


@bomb("tar, 24 arrays of 120 MB in a file with holes", "webdataset:{}/bomb.tar")
def tar_arrays(folder: Path) -> None:
    with open(folder / "bomb.tar", "wb") as out:
        for number in range(24):
            size = 120 * MB if number else MB
            about, head = tarfile.TarInfo(f"{number}.npy"), header("|u1", (size,))
            about.size = len(head) + size
            out.write(about.tobuf() + head)
            out.seek(-(-(out.tell() + size) // 512) * 512)
        out.truncate(out.tell() + 10240)


@bomb("tar, gzipped", "webdataset:{}/bomb.tar")
def tar_gz(folder: Path) -> None:
    with gzip.open(folder / "bomb.tar", "wb", compresslevel=1) as out:
        pour(out, 1500 * MB)


# -- text


def labels(folder: Path) -> object:
    from neurotest.data.labels import read_labels

    return read_labels(folder / "labels.csv")


def settings(folder: Path) -> object:
    from neurotest.cli.settings_file import read_toml

    return read_toml(folder / "neurotest.toml")


@bomb("labels of 250 MB, a file with holes", labels)
def labels_holes(folder: Path) -> None:
    zeros(folder / "labels.csv", 250 * MB, b"file,label\n")


@bomb("neurotest.toml of 60 MB", settings)
def toml(folder: Path) -> None:
    (folder / "neurotest.toml").write_text("[target]\nmean = [" + "0.5, " * (12 * MB) + "]\n")
