"""Images in a folder: `dir:FOLDER`, with one sub-folder per class or unlabelled, and `dir:FOLDER#LABELS.csv`."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neurotest import pictures, registry
from neurotest.data.ahead import ahead
from neurotest.data.labels import INVALID_WORDS, UNCLEAR_WORDS, Inputs, Key, Label, read_labels
from neurotest.data.source import Array, ArraySource, Skipped, Source, Wanted, content_ids, shape_text
from neurotest.errors import BadInput
from neurotest.pictures import Pixels, Preprocess, Unusable
from neurotest.reading import reason, user_path

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
OTHER_IMAGES = (".bmp", ".gif", ".tif", ".tiff", ".avif", ".jp2", ".ppm", ".pgm")
MAX_PIXELS = 64_000_000
MAX_FILE = 512 << 20
MOST_CLASSES = 100_000
IN_MEMORY = 1 << 30  # up to so many bytes of pixels are kept; beyond that files are decoded each time they are read


@dataclass(frozen=True)
class File:
    """A picture on disk, or one that a program holds; `name` is what people are shown."""

    path: Path
    name: str
    label: int | None
    size: tuple[int, int] = (0, 0)  # (height, width)
    grey: bool = False
    image: Callable[[], Image.Image] | None = None  # gives the picture, where it is no file


@registry.register(
    "data source", "dir", paper="", cost="every image is decoded once to check it; up to 1 GiB of pixels stay in memory"
)
def open_folder(rest: str, wanted: Wanted) -> Source:
    """PNG, JPEG and WebP files: `dir:FOLDER`, one sub-folder per class in the order of their names, or flat and unlabelled;
    `dir:FOLDER#LABELS.csv` with labels from a table of file names."""
    folder, table = _split(rest)
    skipped: list[Skipped] = []
    listed, classes, warned = _list(folder, skipped) if table is None else _labelled(folder, table, skipped)
    about: dict[str, Any] = {"spec": f"dir:{rest}", "classes": classes, "notes": {"warnings": warned} if warned else {}}
    return open_files(listed, wanted, skipped, about)


def open_files(listed: Sequence[File], wanted: Wanted, skipped: list[Skipped], about: dict[str, Any]) -> Source:
    """Pictures as inputs of one size; `about` is what the source is called and knows beside them."""
    files = list(_with_headers(listed, skipped))
    shape = _shape(files, wanted, str(about["spec"]))
    if not wanted.preprocess.fits_any_size:
        files = _of_size(files, shape, skipped, about["notes"])
    if wanted.strict:
        _refuse(skipped)
    return _decode_all(files, shape, wanted, skipped, about)


def _of_size(files: Sequence[File], shape: tuple[int, ...], skipped: list[Skipped], notes: dict[str, Any]) -> list[File]:
    """Those of the right size. Others are counted and named, with the way to use them."""
    others = [file for file in files if file.size != shape[1:]]
    (high, wide) = shape[1:]
    for file in others:
        height, width = file.size
        skipped.append(Skipped(file.name, f"{width}x{height} pixels, expected {wide}x{high}", named=True))
    if others:
        (height, width), resize = others[0].size, str(high) if high == wide else f"{high}x{wide}"
        counted = (
            f"{len(others)} of {len(files)} files are not {shape_text(shape)} (first: {others[0].name}, {width}x{height} pixels)"
        )
        notes["warnings"] = [f"{counted} and are left out: --resize {resize} uses them.", *notes.get("warnings", ())]
    return [file for file in files if file.size == shape[1:]]


def _list(folder: Path, skipped: list[Skipped]) -> tuple[list[File], tuple[str, ...] | None, list[str]]:
    """The image files in the order of their names, the classes, and what the user should hear about them."""
    _check_folder(folder)
    subfolders = [entry for entry in _entries(folder) if entry.is_dir()]
    flat = _images(folder, folder, None, skipped)
    if not subfolders:
        if not flat and not skipped:
            raise BadInput(f"dir:{folder} holds no images and no folders of images; PNG, JPEG and WebP files are read.")
        return flat, None, []
    if flat:
        raise BadInput(f"dir:{folder} holds both images ({flat[0].name}) and folders ({subfolders[0].name}): move one away.")
    files = [file for label, sub in enumerate(subfolders) for file in _images(sub, folder, label, skipped)]
    if not files and not skipped:
        raise BadInput(f"dir:{folder}: no images in its {len(subfolders)} folders; PNG, JPEG and WebP files are read.")
    names = tuple(sub.name for sub in subfolders)
    if all(name.isdecimal() for name in names) and sorted(names, key=int) != list(names):
        order = f"class folders are numbered in the order of their names as text ({', '.join(names[:4])}, ...)"
        return files, names, [f"{order}: pad the numbers if that is not meant"]
    return files, names, []


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        state = "is a file, dir: reads a folder" if folder.exists() else f"does not exist (it is relative to {Path.cwd()})"
        raise BadInput(f"dir:{folder} {state}; check the path.")


def _split(rest: str) -> tuple[Path, Path | None]:
    """The folder and the file of labels, which may lie in the folder; the name of a folder may itself hold a #."""
    whole = user_path(rest, f"dir:{rest}")
    where, mark, file = rest.rpartition("#")
    if not mark or whole.is_dir():
        return whole, None
    folder = user_path(where, f"dir:{where}")
    table = user_path(file, f"dir:{rest}: {file or 'no file after #'}")
    if not file.strip():
        raise BadInput(f"dir:{rest}: no file after #: write dir:FOLDER#LABELS.csv, or dir:FOLDER.")
    for place in (table, folder / table):
        if place.is_file():
            return folder, place
    inside = f"neither in {Path.cwd()} nor in {folder}"
    raise BadInput(f"dir:{rest}: there is no file {table} ({inside}); it holds the columns file and label.")


def _labelled(folder: Path, table: Path, skipped: list[Skipped]) -> tuple[list[File], tuple[str, ...] | None, list[str]]:
    """The images that the table labels, in the order of their names. Names of classes are numbered in their order as text."""
    _check_folder(folder)
    files = list(_tree(folder, folder, skipped))
    if not files:
        raise BadInput(f"dir:{folder} holds no images; PNG, JPEG and WebP files are read.")
    inputs = Inputs(("" for _ in files), (file.name for file in files))
    words: dict[int, Label] = {}
    missing: list[Key] = []
    for key, label in read_labels(table).items():
        if isinstance(key, int):
            raise BadInput(
                f"{table} labels positions: for dir: it names files, in a column file (or name, filename, path, image)."
            )
        if not (places := inputs.find(key)):
            missing.append(key)
        for place in places:
            if words.setdefault(place, label) != label:
                raise BadInput(f"{table} labels {files[place].name} twice, as {words[place]!r} and {label!r}: keep one.")
    if not words:
        raise BadInput(f"{table}: none of its {len(missing)} files is in {folder} (first: {missing[0]}); check both.")
    numbers, classes = _class_numbers(words, table)
    without = [file.name for place, file in enumerate(files) if place not in numbers]
    skipped += [Skipped(name, f"no label in {table.name}", named=True) for name in without]
    warned = (
        [f"{len(without)} of {len(files)} files have no label in {table.name} and are left out (first: {without[0]})."]
        if without
        else []
    )
    unread = {one.file for one in skipped}
    if missing := [key for key in missing if key not in unread]:
        warned.append(f"{len(missing)} labels of {table.name} are for files that are not in the folder (first: {missing[0]}).")
    return [replace(files[place], label=number) for place, number in sorted(numbers.items())], classes, warned


def _class_numbers(words: dict[int, Label], table: Path) -> tuple[dict[int, int], tuple[str, ...]]:
    """Class numbers as they are, if all labels are numbers; otherwise names, numbered in their order as text."""
    clear = {place: word for place, word in words.items() if str(word).lower() not in (*UNCLEAR_WORDS, *INVALID_WORDS)}
    if not clear:
        raise BadInput(f"{table}: no label says a class; write class names or numbers.")
    if all(isinstance(word, int) for word in clear.values()):
        most = max(int(word) for word in clear.values())
        if most >= MOST_CLASSES:
            raise BadInput(f"{table}: label {most}: class numbers are below {MOST_CLASSES:,}, 0 for the first class.")
        return {place: int(word) for place, word in clear.items()}, tuple(map(str, range(most + 1)))
    names = sorted({str(word) for word in clear.values()})
    numbers = {name: number for number, name in enumerate(names)}
    return {place: numbers[str(word)] for place, word in clear.items()}, tuple(names)


def _tree(folder: Path, root: Path, skipped: list[Skipped]) -> Iterator[File]:
    """All images below a folder, in the order of their names; links to folders are not followed."""
    yield from _images(folder, root, None, skipped)
    for entry in _entries(folder):
        if entry.is_dir() and not entry.is_symlink():
            yield from _tree(entry, root, skipped)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise BadInput(f"dir:{folder} cannot be read: {error.strerror}; check its permissions.") from error


def _images(folder: Path, root: Path, label: int | None, skipped: list[Skipped]) -> list[File]:
    files = []
    for entry in _entries(folder):
        name, suffix = entry.relative_to(root).as_posix(), entry.suffix.lower()
        if entry.is_dir() and label is not None:
            raise BadInput(f"dir:{root} has folders inside class folders ({name}); name the one that holds classes, dir:{folder}")
        if suffix in OTHER_IMAGES:
            skipped.append(Skipped(name, "not PNG, JPEG or WebP"))
        elif suffix in SUFFIXES and entry.is_file():
            files.append(File(entry, name, label))
    return files


def _with_headers(files: Sequence[File], skipped: list[Skipped]) -> Iterator[File]:
    """The files with what their headers say; nothing is decoded, so a decompression bomb does no harm."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # we refuse it ourselves, in one sentence
        for file in files:
            try:
                with _open(file) as image:
                    yield replace(file, size=pictures.upright_size(image), grey=pictures.is_grey(image))
            except Unusable as error:
                skipped.append(Skipped(file.name, str(error)))


def _open(file: File) -> Image.Image:
    from PIL import Image

    try:
        if file.image is not None:
            return file.image()
        if file.path.stat().st_size > MAX_FILE:
            raise Unusable(f"larger than {MAX_FILE >> 20} MiB")
        # From memory: of a length that a damaged file promises no more is read than there is.
        image = Image.open(io.BytesIO(file.path.read_bytes()), formats=("PNG", "JPEG", "WEBP"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _bomb(file, "too many pixels") from error
    except Unusable:
        raise
    except Exception as error:  # decoders raise nearly anything on a damaged file
        raise Unusable(f"no readable image: {_reason(error)}") from error
    if image.width * image.height > MAX_PIXELS:
        size = f"{image.width}x{image.height} pixels"
        image.close()
        raise _bomb(file, size)
    return image


def _reason(error: Exception) -> str:
    """The decoder's words without the address of the file object, which changes from run to run."""
    return "damaged or not an image" if "cannot identify" in str(error) else reason(error)


def _bomb(file: File, size: str) -> BadInput:
    limit = MAX_PIXELS // 1_000_000
    return BadInput(f"{file.path}: {size}; more than {limit} megapixels are not decoded (a bomb?). Remove or shrink it.")


def _shape(files: Sequence[File], wanted: Wanted, what: str) -> tuple[int, ...]:
    """What the target expects; without one, the size pictures are fitted to or the most common; grey only if every file is."""
    shape, preprocess = wanted.shape, wanted.preprocess
    if shape is not None and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise BadInput(f"{what} gives images with 1 or 3 channels, the target expects {shape}; use npz: instead.")
    if shape is not None and preprocess.grey and shape[0] != 1:
        raise BadInput(f"grey: the target expects {shape_text(shape)}, three channels: leave out --grey.")
    size: tuple[int, ...] | None = None if shape is None else shape[1:]
    if preprocess.fits_any_size:
        size = preprocess.output(size)  # type: ignore[arg-type]
    elif size is None:
        sizes = Counter(file.size for file in files).most_common(1)
        size = sizes[0][0] if sizes else (0, 0)
    if shape is not None:
        return (shape[0], *size)
    return (1 if preprocess.grey or all(file.grey for file in files) else 3, *size)


def _refuse(skipped: Sequence[Skipped]) -> None:
    if skipped:
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        raise BadInput(f"{skipped[0].file}: {skipped[0].reason}{more}; repair or remove it, or leave out --strict.")


def _decode_all(
    files: Sequence[File], shape: tuple[int, ...], wanted: Wanted, skipped: list[Skipped], about: dict[str, Any]
) -> Source:
    """Decode each file once: it shows which are damaged and gives the ids; the pixels are kept if there are not too many."""
    enough = len(files) if wanted.first is None else min(wanted.first, len(files))
    keep = enough * int(np.prod(shape)) <= IN_MEMORY
    pixels = np.empty((enough if keep else 1, *shape), np.uint8)
    good: list[File] = []
    changed: dict[str, list[str]] = {}  # what was changed to get 8 bits, and in which files
    ids: list[npt.NDArray[np.str_]] = []
    for file, decoded in _decoded(files, shape, wanted.preprocess):
        if len(good) == enough:
            break
        row = pixels[len(good) if keep else 0]
        try:
            row[...], changes = decoded()
        except Unusable as error:
            skipped.append(Skipped(file.name, str(error)))
            if wanted.strict:
                _refuse(skipped)
            continue
        for change in changes:
            changed.setdefault(change, []).append(file.name)
        good.append(file)
        ids.append(content_ids(row[None]))
    skipped.sort(key=lambda one: one.file)
    if not good:
        first = skipped[0]
        hint = "".join(f" {sentence}" for sentence in about["notes"].get("warnings", ())[:1] if "--resize" in sentence)
        raise BadInput(
            f"{about['spec']}: none of its {len(skipped)} images can be used; first {first.file}: {first.reason}.{hint}"
        )
    sentences = [
        f"{len(names)} file{'s have' if len(names) > 1 else ' has'} {change} (first: {names[0]})."
        for change, names in changed.items()
    ]
    if sentences:
        about["notes"]["warnings"] = [*about["notes"].get("warnings", ()), *sentences]
    labels = None if about["classes"] is None else np.array([file.label for file in good], np.int64)
    about |= {"skipped": skipped, "names": [file.name for file in good]}
    if keep:
        source: Source = ArraySource(pixels[: len(good)], labels, **about)
    else:
        source = FolderSource(good, shape, wanted.preprocess, labels, **about)
    source._ids = np.concatenate(ids)
    return source


def _decode(file: File, shape: tuple[int, ...], preprocess: Preprocess) -> Pixels:
    """One file as (channels, height, width) uint8."""
    with _open(file) as image:
        try:
            decoded = pictures.pixels(image, shape[0], (shape[1], shape[2]), preprocess)
        except Unusable:
            raise
        except Exception as error:
            raise Unusable(f"damaged or cut off: {_reason(error)}") from error
    if decoded.x.shape != shape:
        raise Unusable(f"decodes to {decoded.x.shape}, expected {shape}")
    return decoded


def _decoded(
    files: Sequence[File], shape: tuple[int, ...], preprocess: Preprocess
) -> Iterator[tuple[File, Callable[[], Pixels]]]:
    """Each file and its pixels, decoded ahead in threads; what an object of the user hands out is asked for one by one."""
    threads = 1 if any(file.image is not None for file in files) else None
    return ahead(lambda file: _decode(file, shape, preprocess), files, threads=threads)


class FolderSource(Source):
    """Images too many for memory: decoded again whenever they are read, and compared with what was checked at first."""

    def __init__(
        self,
        files: Sequence[File],
        shape: tuple[int, ...],
        preprocess: Preprocess,
        labels: npt.ArrayLike | None = None,
        **about: Any,
    ) -> None:
        super().__init__(len(files), shape, np.uint8, labels, **about)
        self._files, self._preprocess = list(files), preprocess

    def _rows(self, index: npt.NDArray[np.int64]) -> Array:
        rows = np.empty((len(index), *self.shape), np.uint8)
        files = _decoded([self._files[i] for i in index], self.shape, self._preprocess)
        for row, i, (file, decoded) in zip(rows, index, files, strict=True):
            try:
                row[...] = decoded().x
            except Unusable as error:
                raise BadInput(f"{file.path} can no longer be read ({error}); leave the folder alone during a run.") from error
            if self._ids is not None and content_ids(row[None])[0] != self._ids[i]:
                raise BadInput(f"{file.path} has changed since the folder was opened; leave the folder alone during a run.")
        return rows

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        self._files = [self._files[i] for i in index]
