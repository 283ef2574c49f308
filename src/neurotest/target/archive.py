"""The members of a `.pt2` that somebody sent: sizes checked before they are unpacked, weights as plain tensors from raw bytes.

Nothing of torch's own loader is used: it unpickles, evaluates size expressions, looks operators up by dotted name and compiles
names into Python source, so that a tampered archive has several ways to run code.
"""

from __future__ import annotations

import json
import math
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurotest.arrays import DEFLATE
from neurotest.reading import check_unpacked, on_disk

GRAPH = "models/model.json"
WEIGHTS, CONSTANTS = "data/weights/", "data/constants/"
CONFIGS = {WEIGHTS: "model_weights_config.json", CONSTANTS: "model_constants_config.json"}
MOST_JSON = 32 << 20  # a graph of some 10,000 operators; Python makes 24 bytes of each
COMPILED = ("data/aotinductor/", "data/executorch/", "data/mtia")
LEGACY = {"serialized_exported_program.json", "data/weights/model.pt", "data/constants/model.pt"}
STRIDED = 7
DTYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
    8: torch.float64, 10: torch.complex64, 11: torch.complex128, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip

_PAYLOAD = re.compile(r"(weight|tensor)_[0-9]{1,9}")


class Refused(Exception):
    """What in the archive only torch's own loader could open."""


class Malformed(ValueError):
    """What in the archive no `torch.export.save` writes."""


class Archive:
    """An opened archive; content is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        try:
            self._infos = _members(self._zip)
            check_unpacked(f"pt2:{path}", sum(info.file_size for info in self._infos.values()), on_disk(path))
            if self.read("archive_format").strip() != b"pt2" or self.read("byteorder").strip() != sys.byteorder.encode():
                raise Malformed("it is no archive of torch.export.save, or of a machine with another byte order")
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        self._zip.close()

    def read(self, name: str) -> bytes:
        if name not in self._infos:
            raise Malformed(f"it has no {name}")
        return self._zip.read(self._infos[name])

    def json(self, name: str) -> Any:
        if name in self._infos and self._infos[name].file_size > MOST_JSON:
            raise Malformed(f"its {name} is larger than {MOST_JSON >> 20} MB")
        return json.loads(self.read(name))

    def tensors(self, folder: str) -> dict[str, Tensor]:
        """Weights or constants by name; those that were one tensor are one tensor again."""
        storages: dict[tuple[str, torch.dtype], Tensor] = {}
        views: dict[tuple[Any, ...], Tensor] = {}
        tensors: dict[str, Tensor] = {}
        for name, payload in field(self.json(folder + CONFIGS[folder]), "config", dict).items():
            file = field(payload, "path_name", str)
            if payload.get("use_pickle") is not False:
                raise Refused(f"{name!r} is pickled")
            if not _PAYLOAD.fullmatch(file) or payload.get("tensor_meta") is None:
                raise Refused(f"the constant {name!r} is no tensor")
            meta = field(payload, "tensor_meta", dict)
            dtype = dtype_of(field(meta, "dtype", int))
            if field(meta, "layout", int) != STRIDED:
                raise Refused(f"{name!r} is a sparse tensor")
            geometry = (_ints(meta, "sizes"), _ints(meta, "strides"), one_int(field(meta, "storage_offset", dict)))
            if (file, dtype) not in storages:
                storages[file, dtype] = _raw(self.read(folder + file), dtype)
            is_param, wants_grad = field(payload, "is_param", bool), field(meta, "requires_grad", bool)
            key = (file, dtype, *geometry, is_param, wants_grad)
            if key not in views:
                view = _view(storages[file, dtype], *geometry, name)
                grad = wants_grad and (dtype.is_floating_point or dtype.is_complex)
                views[key] = torch.nn.Parameter(view, requires_grad=grad) if is_param else view
            tensors[name] = views[key]
        return tensors


def field(owner: Any, key: str, kind: type) -> Any:
    """A member of a JSON object, of exactly this type."""
    if type(owner) is not dict or type(owner.get(key)) is not kind:
        raise Malformed(f"{key!r} is missing or no {kind.__name__}")
    return owner[key]


def one_int(value: Any) -> int:
    """A size that is a number."""
    number = field(value, "as_int", int)
    if len(value) != 1 or not 0 <= number < 2**62:
        raise Malformed(f"{str(number)[:40]} is no size")
    return int(number)


def dtype_of(number: int) -> torch.dtype:
    if number not in DTYPES:
        raise Refused(f"it has tensors of type number {str(number)[:20]}, which neurotest does not read")
    return DTYPES[number]


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Members by name below the archive's one root folder."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    names = [info.filename.partition("/")[2] or info.filename for info in infos]
    if len(set(names)) != len(names):
        raise Refused("it holds two members of one name")
    if any(name.startswith(COMPILED) for name in names):
        raise Refused("it holds compiled code")
    if LEGACY.intersection(names):
        raise Refused("it has the old layout with pickled weights")
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
        raise Malformed("it is compressed in a way that torch.export.save does not use")
    if any(info.file_size > DEFLATE * info.compress_size + 64 for info in infos):
        raise Malformed("a member unpacks to more than its bytes can hold")
    return dict(zip(names, infos, strict=True))


def _ints(meta: dict[str, Any], key: str) -> tuple[int, ...]:
    return tuple(one_int(value) for value in field(meta, key, list))


def _raw(content: bytes, dtype: torch.dtype) -> Tensor:
    if not content:
        return torch.empty(0, dtype=dtype)
    if dtype is torch.bool:  # a byte that is neither 0 nor 1 is no bool
        return torch.frombuffer(bytearray(content), dtype=torch.uint8) != 0
    if len(content) % dtype.itemsize:
        raise Malformed(f"{len(content)} bytes are no whole number of {dtype} values")
    return torch.frombuffer(bytearray(content), dtype=dtype)


def _view(storage: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int, name: str) -> Tensor:
    """The part of a storage that a tensor lies in: it must lie inside, and not be much larger than its bytes."""
    count = math.prod(sizes)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=False)) if count else offset
    if len(sizes) != len(strides) or len(sizes) > 16 or (count and last >= len(storage)) or count > max(len(storage), 1 << 20):
        raise Malformed(f"the size of {name[:80]!r} does not fit its bytes")
    return storage.as_strided(sizes, strides, offset) if count else storage.new_empty(sizes)
