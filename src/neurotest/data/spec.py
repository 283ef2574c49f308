"""From what is typed to a source: `SOURCE:WHERE`, with an optional slice `[:1000]` or `@0:1000` at the end."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import numpy as np

from neurotest import registry
from neurotest.audio import is_audio
from neurotest.data.objects import AnyData, from_object
from neurotest.data.source import ArraySource, Origin, Source, Wanted, check_shape
from neurotest.errors import BadInput, near
from neurotest.images import Preprocess
from neurotest.public import public
from neurotest.reading import user_path

SPELLINGS = (
    "npz:FILE#x,y, dir:FOLDER, dir:FOLDER#LABELS.csv, parquet:FILE#image,label, webdataset:FILES.tar, wav:FOLDER, "
    "idx:FOLDER/PREFIX or zoo:NAME/SPLIT"
)
FILES = ("npz", "dir", "idx", "parquet", "webdataset", "wav")  # sources whose spec begins with a path
READERS = {".npz": "npz", ".parquet": "parquet", ".tar": "webdataset"}  # of single files
_BRACKETS = re.compile(r"(.*)\[([^\[\]]*)\]")
_AT = re.compile(r"(.*)@([^@]*:[^@]*)")


@public()
def data(
    spec: AnyData,
    *,
    shape: tuple[int, ...] | None = None,
    preprocess: Preprocess | None = None,
    strict: bool = False,
    limit: int | None = None,
) -> Source:
    """The inputs that a spec or an object of Python stands for, at most `limit` of them.

    spec: text such as `dir:photos` or `npz:pool.npz#x,y`, an array or tensor, a pair (inputs, labels), a torch Dataset or
    DataLoader, a Dataset of Hugging Face, or a column of paths. shape: of one input, as the target has it; others are refused.
    preprocess: how images of another size, or audio of another rate, are fitted. strict: fail on a damaged file instead of
    leaving it out.
    """
    if limit is not None and limit < 1:
        raise BadInput("out-of-range", "limit", f"limit={limit}: expected an integer of at least 1.")
    if isinstance(spec, Source):
        source, part = spec, slice(None)
    elif isinstance(spec, (str, os.PathLike)):
        text = os.fspath(spec).strip()
        where, part = split_slice(text)
        wanted = _wanted(shape, preprocess, strict, _first(part, limit))
        source = _open_source(where, wanted)
        if isinstance(source, ArraySource):  # others travel as what they know of their files
            source._origin = Origin(absolute(where), wanted, np.arange(len(source)))
    else:
        source, part = from_object(spec, _wanted(shape, preprocess, strict, limit)), slice(None)
    _check_rate(source, preprocess)
    if shape is not None:
        check_shape(source, shape)
    source = _cut(source, part, limit)
    if isinstance(spec, (str, os.PathLike)):
        source.spec = text
    return source


def split_names(rest: str, prefix: str) -> tuple[str, list[str]]:
    """The path and the names of `WHERE#a,b`; the name of a file may itself hold a #."""
    where, mark, names = rest.rpartition("#")
    if not mark or user_path(rest, f"{prefix}:{rest}").exists():
        return rest, []
    return where, [name.strip() for name in names.split(",") if name.strip()]


def _check_rate(source: Source, preprocess: Preprocess | None) -> None:
    """Let audio whose rate nobody knows have the target's, and refuse one that has another."""
    if not is_audio(source.dtype, source.shape):
        return
    rate = None if preprocess is None else preprocess.rate
    if source.rate is None and rate is None:
        message = f"{source.what} holds 16-bit samples, that is audio: say how many there are a second, --rate 16000."
        raise BadInput("missing", "rate", message)
    if source.rate is not None and rate is not None and source.rate != rate:
        message = (
            f"{source.what} has {source.rate} samples a second, the target takes {rate}: bring it at that rate, or as files "
            "(wav:FOLDER), which are resampled."
        )
        raise BadInput("conflict", "rate", message)
    source.rate = source.rate or rate


def _wanted(shape: tuple[int, ...] | None, preprocess: Preprocess | None, strict: bool, first: int | None) -> Wanted:
    return Wanted(shape=shape, preprocess=preprocess or Preprocess(), strict=strict, first=first)


def split_slice(spec: str) -> tuple[str, slice]:
    """Separate a slice from the end of a spec.

    >>> split_slice("npz:pool.npz#x,y[10:20]")
    ('npz:pool.npz#x,y', slice(10, 20, None))
    """
    match = _BRACKETS.fullmatch(spec) or _AT.fullmatch(spec)
    if match is None or _exists(spec):  # a file may be called photos[1]
        return spec, slice(None)
    where, inner = match.groups()
    pieces = [piece.strip() for piece in inner.split(":")]
    numbers = all(re.fullmatch(r"(-?\d{1,18})?", piece) for piece in pieces)
    if not numbers or len(pieces) not in (2, 3) or (pieces[2:] and pieces[2] and int(pieces[2]) == 0):
        message = f"{spec}: {inner!r} is no slice; write [START:STOP], [START:STOP:STEP] or @START:STOP, such as [:1000]."
        raise BadInput("syntax", "slice", message)
    second = _BRACKETS.fullmatch(where) or (_AT.fullmatch(where) and ":" in where)
    if second and not _exists(where):
        raise BadInput("duplicate", "slice", f"{spec}: two slices; write one.")
    return where, slice(*(int(piece) if piece else None for piece in pieces))


def absolute(spec: str) -> str:
    """The spec with absolute paths, so that it means the same from anywhere."""
    prefix, colon, rest = spec.partition(":")
    if not colon or prefix not in FILES:
        return spec
    where, mark, table = rest.rpartition("#")
    if prefix in ("dir", "wav") and mark and os.path.isfile(split_slice(f"dir:{table}")[0][4:]):  # or it lies in the folder
        rest = f"{where}#{_absolute(table)}"
    return f"{prefix}:{_absolute(rest)}"


def _absolute(path: str) -> str:
    return path if path.startswith(("~", os.sep)) else os.path.join(os.getcwd(), path)


def _exists(spec: str) -> bool:
    return user_path(spec.partition(":")[2], spec).exists()


def _first(part: slice, limit: int | None) -> int | None:
    """How many inputs from the start are enough for this slice; None: all."""
    start, stop, step = part.start or 0, part.stop, part.step or 1
    if start < 0 or step < 0 or (stop is not None and stop < 0):
        return None
    by_limit = None if limit is None else start + (limit - 1) * step + 1
    ends = [end for end in (stop, by_limit) if end is not None]
    return max(1, min(ends)) if ends else None


def _cut(source: Source, part: slice, limit: int | None) -> Source:
    if not len(source):
        raise BadInput("empty", "data", f"{source.what} is empty; there is nothing to test.")
    index = np.arange(len(source))[part][:limit]
    if not len(index):
        shown = ":".join("" if end is None else str(end) for end in (part.start, part.stop, part.step)).removesuffix(":")
        raise BadInput("empty", "slice", f"{source.what}: the slice [{shown}] leaves nothing of it; start below its end.")
    return source if len(index) == len(source) and part.step in (None, 1) else source.take(index)


def _open_source(where: str, wanted: Wanted) -> Source:
    """What a spec without a slice stands for."""
    prefix, colon, rest = where.partition(":")
    if colon and prefix in registry.names("data source"):
        if not rest:
            raise BadInput("missing", "data", f"{where} names nothing after the colon: write {SPELLINGS}.")
        source: Source = registry.find("data source", prefix).make(rest, wanted)
        return source
    if colon and re.fullmatch(r"[a-z]\w+", prefix) and not user_path(where).exists():
        raise BadInput(
            "unknown-name",
            "source",
            f"{where}: there is no data source {prefix!r}. {near(prefix, registry.entries('data source'))} Write {SPELLINGS}.",
        )
    raise BadInput("missing", "source", f"{where or 'the empty text'} has no source. {_suggestion(where)}")


def _suggestion(where: str) -> str:
    """The spellings that would work for a spec without a source, most likely first."""
    from neurotest.data import fetch, idx
    from neurotest.zoo import embedded

    path = user_path(where.partition("#")[0])
    likely: list[str] = []
    if where and path.is_dir():
        likely += [f"idx:{where.rstrip('/')}/{prefix}" for prefix in idx.prefixes(path)] or [f"dir:{where}"]
    elif where and (path.suffix in READERS or path.is_file()):
        likely += [f"{READERS[path.suffix]}:{where}"] if path.suffix in READERS else []
    elif where and idx.find_file(path, idx.IMAGES):
        likely.append(f"idx:{where}")
    name, _, split = where.partition("/")
    if name.removesuffix(fetch.FULL) in embedded.PARTS:
        likely.append(f"zoo:{name}/{split or 'test'}")
    return f"Did you mean {' or '.join(likely)} ?" if likely else f"Write {SPELLINGS}."


# -- sources in a worker: opened by their spec, once, however many pieces of them arrive


def reopened(origin: Origin, about: dict[str, Any]) -> Source:
    """The inputs of an origin with what else is known `about` them."""
    source = _opened(origin.where, origin.wanted)
    if len(origin.places) and int(origin.places.max()) >= len(source):
        message = f"{origin.where} has fewer inputs in a worker than where the work was begun: leave it alone meanwhile."
        raise BadInput("changed", "data", message)
    part = ArraySource.__new__(ArraySource)
    vars(part).update(about, _ids=None, _origin=origin, _x=source.read(origin.places))
    return part


_opened = functools.lru_cache(maxsize=4)(_open_source)
