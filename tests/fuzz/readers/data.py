"""Inputs as files: numpy archives, idx files, images, labels."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import struct
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.harness import Read
from tests.fuzz.mutators import WORDS, Rng, dump, encode, mutate_bytes, mutate_json, mutate_text, nasty, pick

from neurotest.data.labels import Inputs, placed, read_labels
from neurotest.data.spec import data

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def npy(x: np.ndarray, header: str | None = None, version: bytes = b"\x01\x00") -> bytes:
    """An array as .npy, with its own header or another text in its place."""
    text = header if header is not None else f"{{'descr': '{x.dtype.str}', 'fortran_order': False, 'shape': {x.shape}, }}"
    content = text.encode("latin-1", "replace") + b"\n"
    size = struct.pack("<H", len(content) % 65536) if version == b"\x01\x00" else struct.pack("<I", len(content))
    return b"\x93NUMPY" + version + size + content + x.tobytes()


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return out.getvalue()


X = np.arange(4 * 36, dtype=np.uint8).reshape(4, 1, 6, 6)
Y = np.array([0, 1, 2, 1], np.int64)


def odd_archive(rng: Rng, arrays: dict[str, np.ndarray]) -> bytes:
    """An archive in which one array's header, name or packing is another."""
    members = {f"{name}.npy": npy(x) for name, x in arrays.items()}
    name = pick(rng, list(members))
    x = arrays[name.removesuffix(".npy")]
    plain = f"{{'descr': '{x.dtype.str}', 'fortran_order': False, 'shape': {x.shape}, }}"
    match int(rng.integers(5)):
        case 0:
            members[name] = npy(x, mutate_text(rng, plain), pick(rng, (b"\x01\x00", b"\x02\x00", b"\x03\x00")))
        case 1:
            kind = pick(rng, ("|O", "<U4", "V8", "<f2", "<f8", "<i8", "|b1", "<c16", "<M8[ns]", ">u4", "[('a','<i4')]", "|u1"))
            shape = tuple(int(n) for n in rng.integers(-1, 5, int(rng.integers(5))))
            members[name] = npy(x, f"{{'descr': '{kind}', 'fortran_order': {bool(rng.integers(2))}, 'shape': {shape}, }}")
        case 2:
            shape = tuple(pick(rng, (1, 2, 2**20, 2**31, 2**62, 2**64)) for _ in range(int(rng.integers(1, 5))))
            members[name] = npy(x, f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}")
        case 3:
            members[mutate_text(rng, name).replace("\ud800", "?").split("\0")[0][:60_000] or "x"] = members.pop(name)
        case _:
            members[name] = mutate_bytes(rng, members[name])
    packed = archive(members, pick(rng, METHODS))
    return mutate_bytes(rng, packed) if rng.random() < 0.2 else packed


class Npz:
    name, outside = "npz", False

    def prepare(self, folder: Path) -> None:
        self.seeds = [archive({"x.npy": npy(X), "y.npy": npy(Y)}, method) for method in METHODS]
        self.seeds.append(archive({"x.npy": npy(X.astype(np.float32))}))

    def case(self, rng: Rng, folder: Path) -> Read:
        content = (
            mutate_bytes(rng, pick(rng, self.seeds), self.seeds) if rng.random() < 0.5 else odd_archive(rng, {"x": X, "y": Y})
        )
        file = folder / "a.npz"
        file.write_bytes(content)
        self.last = content
        names = pick(rng, ("", "#x", "#x,y", "#x,y,nhwc", "#y", "[:2]", "#x[-1:]"))
        return lambda: data(f"npz:{file}{names}").read([0])


class Idx:
    name, outside = "idx", False

    def prepare(self, folder: Path) -> None:
        images = struct.pack(">IIII", 0x803, 4, 6, 6) + X.tobytes()
        labels = struct.pack(">II", 0x801, 4) + Y.astype(np.uint8).tobytes()
        self.parts = {"-images-idx3-ubyte": images, "-labels-idx1-ubyte": labels}

    def case(self, rng: Rng, folder: Path) -> Read:
        for file in folder.iterdir():
            file.unlink()
        changed = pick(rng, list(self.parts))
        for ending, content in self.parts.items():
            content = mutate_bytes(rng, content) if ending == changed else content
            packed = rng.random() < 0.3
            if packed:
                content = gzip.compress(content, 1, mtime=0)
                content = mutate_bytes(rng, content) if rng.random() < 0.5 else content
            (folder / f"t{ending}{'.gz' if packed else ''}").write_bytes(content)
        limit = pick(rng, (None, 1, 3))
        return lambda: data(f"idx:{folder}/t", limit=limit).read([0])


class Images:
    name, outside = "images", False

    def prepare(self, folder: Path) -> None:
        from PIL import Image

        self.seeds: list[tuple[str, bytes]] = []
        for form, modes in (
            ("PNG", ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
            ("JPEG", ("L", "RGB", "CMYK")),
            ("WEBP", ("RGB", "RGBA")),
        ):
            for mode in modes:
                out = io.BytesIO()
                Image.new(
                    mode, (6, 6), 1 if mode in ("1", "L", "P", "I;16") else tuple([120] * len(Image.new(mode, (1, 1)).getbands()))
                ).save(out, form)
                self.seeds.append((form.lower(), out.getvalue()))

    def case(self, rng: Rng, folder: Path) -> Read:
        for file in folder.iterdir():
            file.unlink()
        form, content = pick(rng, self.seeds)
        content = mutate_bytes(rng, content, [one for _, one in self.seeds])
        ending = pick(rng, (form, "png", "jpg", "webp", "JPEG"))
        (folder / f"a.{ending}").write_bytes(content)
        (folder / "b.png").write_bytes(self.seeds[1][1])
        self.last = content
        strict = bool(rng.integers(2))
        return lambda: data(f"dir:{folder}", strict=strict).read([0])


class Sounds:
    name, outside = "sounds", False

    def prepare(self, folder: Path) -> None:
        import soundfile

        samples = 0.3 * np.sin(np.arange(400) / 5)
        self.seeds: list[tuple[str, bytes]] = []
        for form, subtypes in (
            ("WAV", ("PCM_16", "PCM_24", "FLOAT", "ULAW")),
            ("FLAC", ("PCM_16", "PCM_24")),
            ("OGG", ("VORBIS",)),
        ):
            for subtype in subtypes:
                out = io.BytesIO()
                soundfile.write(out, samples, 8000, format=form, subtype=subtype)
                self.seeds.append((form.lower(), out.getvalue()))

    def case(self, rng: Rng, folder: Path) -> Read:
        for file in folder.iterdir():
            file.unlink()
        form, content = pick(rng, self.seeds)
        content = mutate_bytes(rng, content, [one for _, one in self.seeds])
        (folder / f"a.{pick(rng, (form, 'wav', 'flac', 'ogg'))}").write_bytes(content)
        (folder / "b.wav").write_bytes(self.seeds[0][1])
        self.last = content
        strict = bool(rng.integers(2))
        return lambda: data(f"wav:{folder}", strict=strict).read([0])


SOUNDS = (Sounds,) if importlib.util.find_spec("soundfile") else ()
ROWS = [["rank", "position", "content", "score", "predicted", "label", "file"]]
ROWS += [[str(i), str(i), f"{i:016x}", "0.5", "shirt", pick, ""] for i, pick in enumerate(("coat", "3", "", "'=a"))]


class LabelsCsv:
    name, outside = "labels-csv", False

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> Read:
        rows = [list(row) for row in ROWS]
        for _ in range(int(rng.integers(1, 4))):
            row = pick(rng, rows)
            if row:
                row[int(rng.integers(len(row)))] = pick(rng, (*WORDS, "9" * 140_000, "-1", "1.5", "label", "position"))
        out = io.StringIO()
        csv.writer(out, delimiter=pick(rng, (",", ",", ";", "\t"))).writerows(rows)
        text = mutate_text(rng, out.getvalue()) if rng.random() < 0.5 else out.getvalue()
        (folder / "labels.csv").write_bytes(encode(rng, text))
        self.last = text
        return lambda: read_labels(folder / "labels.csv")


TASK: dict[str, Any] = {
    "id": 1,
    "data": {"image": "data:image/png;base64,AA==", "position": 3, "content": "00000000000000ff", "rank": 1},
    "annotations": [{"was_cancelled": False, "result": [{"type": "choices", "value": {"choices": ["coat"]}}]}],
    "predictions": [{"score": 0.5, "result": []}],
}
SHORT = {"position": 3, "content": "00000000000000ff", "label": "coat"}


class LabelStudio:
    """Tasks as Label Studio exports them."""

    name, outside, task = "label-studio", False, TASK

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> Read:
        value = mutate_json(rng, [self.task, self.task])
        text = dump(value if isinstance(value, list | dict) else [value])
        text = mutate_text(rng, text) if rng.random() < 0.2 else text
        (folder / "labels.json").write_bytes(encode(rng, text))
        self.last = text
        return lambda: read_labels(folder / "labels.json")


class LabelsJson(LabelStudio):
    """Its short form, and JSON of any other kind."""

    name, task = "labels-json", SHORT


LINE = {"file": "IMG_1.png", "label": "coat"}


class LabelsLines(LabelStudio):
    """JSON lines, some of them broken or of another kind; then the names are looked for in a pool."""

    name, task = "labels-lines", LINE

    def case(self, rng: Rng, folder: Path) -> Read:
        rows = [mutate_json(rng, self.task) if rng.random() < 0.5 else self.task for _ in range(4)]
        text = pick(rng, ("\n", "\n", "\r\n", "\n\n", "\x85", " ")).join(map(dump, rows))
        text = mutate_text(rng, text) if rng.random() < 0.3 else text
        (folder / "labels.jsonl").write_bytes(encode(rng, text))
        self.last = text
        pool = Inputs(["ff" * 8, "0" * 16, "1" * 16], ["IMG_1.png", "a/IMG_2.png", "b/IMG_2.png"])

        def read() -> None:
            placed(read_labels(folder / "labels.jsonl"), pool, 3, ("coat", "shirt", "a/b"))

        return read


NAMES = ("a.png", "b.png", "sub/a.png", "../a.png", "/a.png", "sub\\a.png", "/data/local-files/?d=sub/a.png", "[::1]/data/")


class LabelledFolder:
    """Pictures with a table of labels: `dir:FOLDER#labels.csv`."""

    name, outside = "dir-labels", False

    def prepare(self, folder: Path) -> None:
        from PIL import Image

        out = io.BytesIO()
        Image.new("L", (6, 6), 120).save(out, "PNG")
        for name in ("a.png", "b.png", "sub/a.png"):
            (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "photos" / name).write_bytes(out.getvalue())

    def case(self, rng: Rng, folder: Path) -> Read:
        rows = [["file", "label"], *([name, label] for name, label in zip(NAMES[:3], ("coat", "3", "shirt"), strict=True))]
        for _ in range(int(rng.integers(1, 4))):
            row = pick(rng, rows)
            row[int(rng.integers(2))] = pick(rng, (*NAMES, *WORDS, "9" * 9, "unclear", "image", "'=a"))
        out = io.StringIO()
        csv.writer(out, delimiter=pick(rng, (",", ",", ";", "\t"))).writerows(rows)
        text = mutate_text(rng, out.getvalue()) if rng.random() < 0.3 else out.getvalue()
        (folder / "labels.csv").write_bytes(encode(rng, text))
        self.last = text
        ending = pick(rng, ("", "", "[:1]", "#", "#labels.csv"))
        strict = bool(rng.integers(2))
        return lambda: data(f"dir:{folder / 'photos'}#{folder / 'labels.csv'}{ending}", strict=strict).read([0])


class LabelsFolder:
    name, outside = "labels-folder", False

    def prepare(self, folder: Path) -> None: ...

    def case(self, rng: Rng, folder: Path) -> Read:
        import shutil

        root = folder / "labelled"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        for _ in range(int(rng.integers(1, 4))):
            word = pick(rng, ("coat", "3", " ", *WORDS)).replace("/", "_").replace("\0", "_")[:60]
            name = mutate_text(rng, "00001-3-00000000000000ff.png").replace("/", "_").replace("\0", "_")[:60]
            try:
                place = (
                    root / (word if word.strip(".") else "_") / (name if rng.random() < 0.5 else "00001-3-00000000000000ff.png")
                )
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(b"x")
            except (OSError, UnicodeError):
                continue
        if rng.random() < 0.5:
            table = "rank,picture\n1,coat/00001-3-00000000000000ff.png\n2,3/00001-3-00000000000000ff.png\n"
            (root / "exported.csv").write_bytes(encode(rng, mutate_text(rng, table) if rng.random() < 0.5 else table))
        return lambda: read_labels(root)


class Descriptions:
    """Tables of neuron descriptions."""

    name, outside = "descriptions", False

    def prepare(self, folder: Path) -> None:
        from neurotest.semantics.descriptions import Descriptions as Table
        from neurotest.target.load import load

        self.target, self.read = load("zoo:mnist-lenet1"), Table.from_csv
        self.layer = next(layer.name for layer in self.target.survey().layers if layer.name)

    def case(self, rng: Rng, folder: Path) -> Read:
        mark = self.target.fingerprint
        rows = [
            ["layer", "neuron", "description", "score", "method", "fingerprint"],
            *([self.layer, str(n), "an edge", "0.5", "a", mark] for n in range(2)),
        ]
        for _ in range(int(rng.integers(1, 4))):
            row = pick(rng, rows)
            row[int(rng.integers(len(row)))] = pick(rng, (*WORDS, "9" * 140_000, dump(nasty(rng))[:100]))
        out = io.StringIO()
        csv.writer(out).writerows(rows)
        text = mutate_text(rng, out.getvalue()) if rng.random() < 0.5 else out.getvalue()
        (folder / "descriptions.csv").write_bytes(encode(rng, text))
        return lambda: self.read(folder / "descriptions.csv", self.target)


def _png(x: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(x[0]).save(out, "PNG")
    return out.getvalue()


class Tar:
    """Samples as WebDataset writes them."""

    name, outside = "webdataset", False

    def prepare(self, folder: Path) -> None:
        self.parts = {f"{i}.png": _png(x) for i, x in enumerate(X)} | {f"{i}.cls": str(y).encode() for i, y in enumerate(Y)}
        self.parts |= {"4.npy": npy(X[0]), "4.json": b'{"label": 2}'}

    def case(self, rng: Rng, folder: Path) -> Read:
        parts = dict(sorted(self.parts.items()))
        name = pick(rng, list(parts))
        if rng.random() < 0.5:
            parts[name] = mutate_bytes(rng, parts[name])
        else:
            other = mutate_text(rng, name).replace("\ud800", "?").replace("\0", "")[:80]
            parts = {(other if key == name else key): content for key, content in parts.items()}
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=pick(rng, (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT))) as packed:
            for key, content in parts.items():
                info = tarfile.TarInfo(key)
                info.size = len(content)
                with suppress(ValueError, UnicodeError):
                    packed.addfile(info, io.BytesIO(content))
        content = out.getvalue()
        file = folder / "a.tar"
        file.write_bytes(mutate_bytes(rng, content) if rng.random() < 0.6 else content)
        words = pick(rng, ("", "#png", "#png,cls", "#npy,json", "[:2]"))

        def read() -> None:
            source = data(f"webdataset:{file}{words}")
            source.read(np.arange(len(source)))

        return read


class Parquet:
    """Rows of a Parquet file."""

    name, outside = "parquet", False

    def prepare(self, folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.seeds: list[bytes] = []
        for image in ([_png(x) for x in X], X.tolist(), [{"bytes": _png(x), "path": "a"} for x in X]):
            for packing in ("none", "snappy"):
                out = io.BytesIO()
                pq.write_table(pa.table({"image": image, "label": Y, "id": list("abcd")}), out, compression=packing)
                self.seeds.append(out.getvalue())

    def case(self, rng: Rng, folder: Path) -> Read:
        file = folder / "a.parquet"
        file.write_bytes(mutate_bytes(rng, pick(rng, self.seeds), self.seeds))
        words = pick(rng, ("", "#image", "#image,label", "#label", "#image,id,label", "[:2]"))

        def read() -> None:
            source = data(f"parquet:{file}{words}")
            source.read(np.arange(len(source)))

        return read


RECORDS = (Tar, *((Parquet,) if importlib.util.find_spec("pyarrow") else ()))
LABELS = (LabelsCsv, LabelStudio, LabelsJson, LabelsLines, LabelsFolder, LabelledFolder)
KINDS = (Npz, Idx, Images, *SOUNDS, *RECORDS, *LABELS, Descriptions)
