"""Images in a folder: `dir:FOLDER`, with one sub-folder per class or unlabelled, and `dir:FOLDER#LABELS.csv`."""

from __future__ import annotations

import io
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neurotest import registry
from neurotest.data.listing import File, Kind, decode_all, find, refuse
from neurotest.data.source import Skipped, Source, Wanted, shape_text
from neurotest.errors import BadInput
from neurotest.images import Pixels, Preprocess, Unusable, is_grey, pixels, upright_size
from neurotest.reading import reason

if TYPE_CHECKING:
    from PIL import Image

KIND = Kind(
    prefix="dir", things="images", formats="PNG, JPEG and WebP", suffixes=(".png", ".jpg", ".jpeg", ".webp"),
    others=(".bmp", ".gif", ".tif", ".tiff", ".avif", ".jp2", ".ppm", ".pgm"),
)  # fmt: skip
MAX_PIXELS = 64_000_000
MAX_FILE = 128 << 20
MAX_SCANNED = 640_000_000  # pixels of a JPEG times its scans, each of which goes through all of them
LARGE_IMAGE = 8_000_000  # pixels of an image that is decoded alone: threads would need its memory several times
_alone = threading.Lock()


@dataclass(frozen=True)
class ImageFile(File):
    """An image on disk, or one that a program holds."""

    size: tuple[int, int] = (0, 0)  # (height, width)
    grey: bool = False
    image: Callable[[], Image.Image] | None = None  # gives the image, where there is none on disk


@registry.register(
    "data source", "dir", paper="", cost="every image is decoded once to check it; up to 1 GiB of pixels stay in memory"
)
def _open_folder(rest: str, wanted: Wanted) -> Source:
    """PNG, JPEG and WebP files: `dir:FOLDER`, one sub-folder per class in the order of their names, or flat and unlabelled;
    `dir:FOLDER#LABELS.csv` with labels from a table of file names."""
    skipped: list[Skipped] = []
    files, about = find(KIND, rest, skipped)
    return open_images([ImageFile(**vars(file)) for file in files], wanted, skipped, about)


def open_images(listed: Sequence[ImageFile], wanted: Wanted, skipped: list[Skipped], about: dict[str, Any]) -> Source:
    """Images as inputs of one size; `about` is what the source is called and knows beside them."""
    files = list(_with_headers(listed, skipped))
    shape = _shape(files, wanted, str(about["spec"]))
    if not wanted.preprocess.fits_any_size:
        files = _of_size(files, shape, skipped, about["notes"])
    if wanted.strict:
        refuse(skipped)
    return decode_all(files, _Decoder(files, shape, wanted.preprocess), wanted, skipped, about)


def _of_size(
    files: Sequence[ImageFile], shape: tuple[int, ...], skipped: list[Skipped], notes: dict[str, Any]
) -> list[ImageFile]:
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


def _with_headers(files: Sequence[ImageFile], skipped: list[Skipped]) -> Iterator[ImageFile]:
    """The files with what their headers say; nothing is decoded, so a decompression bomb does no harm."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # we refuse it ourselves, in one sentence
        for file in files:
            try:
                with _open(file) as image:
                    yield replace(file, size=upright_size(image), grey=is_grey(image))
            except Unusable as error:
                skipped.append(Skipped(file.name, str(error)))


def _open(file: ImageFile) -> Image.Image:
    from PIL import Image

    try:
        image = open_image(_read_image(file.path)) if file.image is None else file.image()
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


def _read_image(path: Path) -> bytes:
    if path.stat().st_size > MAX_FILE:
        raise Unusable(f"larger than {MAX_FILE >> 20} MiB")
    return path.read_bytes()


def open_image(content: bytes) -> Image.Image:
    """The header of an encoded image. From memory: of a length that a damaged file promises no more is read than there is."""
    from PIL import Image

    image = Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP"))
    if image.format in ("JPEG", "MPO") and content.count(b"\xff\xda") * image.width * image.height > MAX_SCANNED:
        raise Unusable(f"a JPEG of {content.count(bytes((255, 218)))} scans: save it again, not progressive")
    return image


def _reason(error: Exception) -> str:
    """The decoder's words without the address of the file object, which changes from run to run."""
    return "damaged or not an image" if "cannot identify" in str(error) else reason(error)


def _bomb(file: ImageFile, size: str) -> BadInput:
    limit = MAX_PIXELS // 1_000_000
    return BadInput(
        "too-large",
        "pixels",
        f"{file.path}: {size}; more than {limit} megapixels are not decoded (a bomb?). Remove or shrink it.",
    )


def _shape(files: Sequence[ImageFile], wanted: Wanted, what: str) -> tuple[int, ...]:
    """What the target expects; without one, the size images are fitted to or the most common; grey only if every file is."""
    shape, preprocess = wanted.shape, wanted.preprocess
    if shape is not None and (len(shape) != 3 or shape[0] not in (1, 3)):
        message = f"{what} gives images with 1 or 3 channels, the target expects {shape}; use npz: instead."
        raise BadInput("unsuitable", "channels", message)
    if shape is not None and preprocess.grey and shape[0] != 1:
        raise BadInput("conflict", "grey", f"grey: the target expects {shape_text(shape)}, three channels: leave out --grey.")
    size: tuple[int, ...] | None = None if shape is None else shape[1:]
    if preprocess.fits_any_size:
        size = preprocess.output(size)  # type: ignore[arg-type]
    elif size is None:
        sizes = Counter(file.size for file in files).most_common(1)
        size = sizes[0][0] if sizes else (0, 0)
    if shape is not None:
        return (shape[0], *size)
    return (1 if preprocess.grey or all(file.grey for file in files) else 3, *size)


def decode_image(file: ImageFile, shape: tuple[int, ...], preprocess: Preprocess) -> Pixels:
    """One file as (channels, height, width) uint8."""
    with _open(file) as image, _alone if image.width * image.height > LARGE_IMAGE else nullcontext():
        try:
            decoded = pixels(image, shape[0], (shape[1], shape[2]), preprocess)
        except Unusable:
            raise
        except Exception as error:
            raise Unusable(f"damaged or cut off: {_reason(error)}") from error
    if decoded.x.shape != shape:
        raise Unusable(f"decodes to {decoded.x.shape}, expected {shape}")
    return decoded


class _Decoder:
    """Images of one size; what an object of the user hands out is asked for one by one."""

    dtype, things = np.dtype(np.uint8), "images"

    def __init__(self, files: Sequence[ImageFile], shape: tuple[int, ...], preprocess: Preprocess) -> None:
        self.shape, self._preprocess = shape, preprocess
        large = int(np.prod(shape)) > LARGE_IMAGE  # what waits for its turn counts, too
        self.threads = 1 if large or any(file.image is not None for file in files) else None

    def decode(self, file: ImageFile) -> Pixels:
        return decode_image(file, self.shape, self._preprocess)
