"""One input as a file that a person can open and that reads back exactly as it was tested.

uint8 with 1 or 3 channels is a PNG, sound a WAV of 16 bits. Everything else is a `.npy`. Beside what is no picture itself lies
one, `STEM.view.png` (of sound its spectrogram), which is for eyes only and never read back.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from neurotest import audio
from neurotest.arrays import DEFLATE
from neurotest.errors import BadInput
from neurotest.runs.folder import Folder, RunFile

if TYPE_CHECKING:
    from PIL import Image

Input = NDArray[np.uint8] | NDArray[np.int16] | NDArray[np.float32]
Array = TypeVar("Array", bound=np.ndarray)
Place = TypeVar("Place", Path, RunFile)  # a file of a run or, in a program of one's own, any file

VIEW = ".view.png"
VIEWED = (".npy", ".wav")  # what may have one
MAX_PIXELS = 64_000_000
MAX_BYTES = 1 << 28
MAX_TILES = 16
# At most 32 sides, as numpy has it, of at most 10 digits: the product is checked against the file before anything is read.
SIDE = r"[1-9][0-9]{0,9}"
SHAPE = rf"{SIDE},|{SIDE}(?:, {SIDE}){{1,31}}"
HEADER = re.compile(rf"\{{'descr': '(?P<type>\|u1|<f4)', 'fortran_order': False, 'shape': \((?P<shape>{SHAPE})\), \}} *\n")


def encode(x: np.ndarray, stem: Place, bounds: tuple[float, float] = (0.0, 1.0), rate: int | None = None) -> Place:
    """Write one input to `stem` plus the ending that fits, and return that file. `bounds` are black and white of the view.

    rate: samples a second, of sound.
    """
    if audio.is_audio(x.dtype, x.shape):
        return _encode_sound(x, stem, rate)
    if x.dtype not in (np.uint8, np.float32) or x.ndim == 0 or x.size == 0:
        raise BadInput(
            "wrong-type",
            "input",
            f"cannot store an input of {x.dtype} and shape {x.shape}: expected uint8 or float32, not empty.",
        )
    if x.nbytes > MAX_BYTES or (x.ndim == 3 and x.shape[1] * x.shape[2] > MAX_PIXELS):
        raise BadInput(
            "too-large",
            "input",
            f"cannot store an input of shape {x.shape}: more than {MAX_PIXELS:,} pixels or {MAX_BYTES:,} bytes.",
        )
    if x.dtype == np.uint8 and x.ndim == 3 and x.shape[0] in (1, 3):
        file = _named(stem, ".png")
        _write_png(x, _opened(file))
        return file
    if x.ndim == 3:
        _write_png(view(x, bounds), _opened(_named(stem, VIEW)))
    file = _named(stem, ".npy")
    with _opened(file).writing() as out:
        np.lib.format.write_array(out, np.ascontiguousarray(x), version=(1, 0), allow_pickle=False)
    return file


def _encode_sound(x: np.ndarray, stem: Place, rate: int | None) -> Place:
    if rate is None or x.nbytes > MAX_BYTES:
        raise BadInput(
            "missing",
            "rate",
            f"cannot store audio of {x.size:,} samples, {rate or 'nobody knows how many'} a second: say --rate 16000.",
        )
    _write_png(audio.spectrogram(x, rate), _opened(_named(stem, VIEW)))
    file = _named(stem, ".wav")
    _opened(file).write(audio.wav(x, rate))
    return file


def _named(place: Place, ending: str, without: str = "") -> Place:
    """The file with another ending."""
    if isinstance(place, RunFile):
        return place.beside(place.base.removesuffix(without) + ending)
    return place.with_name(place.name.removesuffix(without) + ending)


def _opened(place: Path | RunFile) -> RunFile:
    return place if isinstance(place, RunFile) else Folder(place.parent, anything=True).file(place.name)


def decode(place: Path | RunFile) -> Input:
    """Exactly the array that `encode` wrote to this file. Sizes are checked before anything is unpacked."""
    file = _opened(place)
    if file.base.endswith(VIEW):
        raise BadInput(
            "wrong-type",
            "view",
            f"{file} is only a view: the input itself is {file.base.removesuffix(VIEW)}.npy or .wav beside it.",
        )
    reader = READERS.get(file.base[-4:])
    if reader is None:
        raise BadInput("wrong-type", "file", f"{file}: expected a .png, .wav or .npy that neurotest wrote.")
    return _read(file, reader)


def rate(place: Path | RunFile) -> int | None:
    """Samples a second of a stored sound; None for what is none."""
    file = _opened(place)
    return _read(file, lambda sound: np.array(audio.read_wav(sound.read(MAX_BYTES))[1])).item() if is_wav(file) else None


def is_wav(file: RunFile) -> bool:
    """Whether it is a stored sound."""
    return file.base.endswith(".wav")


def _read_wav(file: RunFile) -> NDArray[np.int16]:
    return audio.read_wav(file.read(MAX_BYTES))[0]


def decode_picture(file: RunFile) -> NDArray[np.uint8]:
    """(C, H, W) of a picture of a run, also of a view, for eyes only."""
    return _read(file, _read_png)


def _read(file: RunFile, reader: Callable[[RunFile], Array]) -> Array:
    try:
        return reader(file)
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error) as error:
        unknown = type(error).__name__ == "UnidentifiedImageError"  # its text names our handle of the file
        _damaged(file, "it is no PNG" if unknown else str(error) or type(error).__name__)


def picture(place: Place) -> Place | None:
    """The file beside (or equal to) an encoded input that a browser can show; None for what is no image."""
    shown = _named(place, "") if str(place).endswith(".png") else _named(place, VIEW, str(place)[-4:])
    return shown if _opened(shown).exists() else None


def _damaged(path: Path | RunFile, why: str) -> NoReturn:
    raise BadInput("damaged", "", f"{path} cannot be read back: {why}. It is damaged or was not written by neurotest.")


def pil_image(x: np.ndarray) -> Image.Image:
    """An image (1 or 3, H, W) of uint8 as PIL has it."""
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(x[0] if x.shape[0] == 1 else x.transpose(1, 2, 0)))


def _write_png(x: np.ndarray, file: RunFile) -> None:
    with file.writing() as out:
        pil_image(x).save(out, format="PNG")


def _read_png(file: RunFile) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        # From memory: of a length that a damaged file promises no more is read than there is.
        content = file.read(MAX_BYTES)
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            _check_png(file, image, len(content))
            pixels = np.asarray(image)  # (H, W) or (H, W, 3) uint8
    except Image.DecompressionBombError as error:
        _damaged(file, str(error))
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _check_png(path: RunFile, image: Image.Image, size: int) -> None:
    if image.mode not in ("L", "RGB"):
        _damaged(path, f"its colour mode is {image.mode}, expected L or RGB")
    if image.width * image.height > MAX_PIXELS:
        _damaged(path, f"{image.width} x {image.height} pixels are more than {MAX_PIXELS:,}")
    if image.width * image.height > 8 * DEFLATE * size:
        _damaged(path, f"{image.width} x {image.height} pixels cannot be packed into so small a file")


def _read_npy(file: RunFile) -> Input:
    with file.open(MAX_BYTES + (1 << 16)) as stream:
        shape, dtype = _npy_header(file, stream)
        expected = math.prod(shape) * dtype.itemsize
        rest = os.fstat(stream.fileno()).st_size - stream.tell()
        if expected > MAX_BYTES or expected != rest:
            _damaged(file, f"its header promises {expected:,} bytes, {rest:,} are there and {MAX_BYTES:,} are allowed")
        content = bytearray(expected)  # read into, because one copy of it is enough
        if stream.readinto(content) != expected:  # type: ignore[attr-defined]
            _damaged(file, "it has become shorter")
        stored: Input = np.frombuffer(content, dtype=dtype).reshape(shape)
        return stored


def _npy_header(path: RunFile, stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Only the header that `encode` writes; numpy's own reader evaluates more than that and fails in more ways."""
    start = stream.read(10)
    if not start.startswith(b"\x93NUMPY\x01\x00") or len(start) < 10:
        _damaged(path, "it does not start as a .npy of version 1.0 does")
    text = stream.read(int.from_bytes(start[8:], "little")).decode("latin-1")
    if not (header := HEADER.fullmatch(text)):
        _damaged(path, "its header is not that of a uint8 or float32 array in C order")
    return tuple(int(side) for side in header["shape"].split(",") if side), np.dtype(header["type"])


READERS: dict[str, Callable[[RunFile], Input]] = {".png": _read_png, ".npy": _read_npy, ".wav": _read_wav}


def viewable(x: np.ndarray) -> bool:
    """Whether `view` has a picture of it."""
    return bool(x.size) and (x.ndim == 3 or audio.is_audio(x.dtype, x.shape))


def view(x: np.ndarray, bounds: tuple[float, float]) -> NDArray[np.uint8]:
    """A picture of x: channels that are neither grey nor RGB stand side by side, the first 16 of them; of sound its
    spectrogram."""
    if audio.is_audio(x.dtype, x.shape):
        return audio.spectrogram(x)
    if x.dtype == np.uint8:
        grey = x
    else:
        low, high = bounds
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = (x.astype(np.float64) - low) / ((high - low) or 1.0) * 255
        grey = np.rint(np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255)).astype(np.uint8)
    if x.shape[0] in (1, 3):
        return grey
    return np.concatenate(list(grey[:MAX_TILES]), axis=1)[None]
