"""One input as a file that a person can open and that reads back exactly as it was tested.

uint8 with 1 or 3 channels is a PNG. Everything else is a `.npy` with a picture beside it, `STEM.view.png`, which is for
eyes only and never read back.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from neurotest import files
from neurotest.arrays import DEFLATE
from neurotest.errors import BadInput

if TYPE_CHECKING:
    from PIL import Image

Input = NDArray[np.uint8] | NDArray[np.float32]

VIEW = ".view.png"
MAX_PIXELS = 64_000_000
MAX_BYTES = 1 << 30
MAX_TILES = 16
# At most 32 sides, as numpy has it, of at most 10 digits: the product is checked against the file before anything is read.
SIDE = r"[1-9][0-9]{0,9}"
SHAPE = rf"{SIDE},|{SIDE}(?:, {SIDE}){{1,31}}"
HEADER = re.compile(rf"\{{'descr': '(?P<type>\|u1|<f4)', 'fortran_order': False, 'shape': \((?P<shape>{SHAPE})\), \}} *\n")


def encode(x: np.ndarray, stem: Path, bounds: tuple[float, float] = (0.0, 1.0)) -> Path:
    """Write one input to `stem` plus the ending that fits, and return that path. `bounds` are black and white of the view."""
    if x.dtype not in (np.uint8, np.float32) or x.ndim == 0 or x.size == 0:
        raise BadInput(f"cannot store an input of {x.dtype} and shape {x.shape}: expected uint8 or float32, not empty.")
    if x.nbytes > MAX_BYTES or (x.ndim == 3 and x.shape[1] * x.shape[2] > MAX_PIXELS):
        raise BadInput(f"cannot store an input of shape {x.shape}: more than {MAX_PIXELS:,} pixels or {MAX_BYTES:,} bytes.")
    if x.dtype == np.uint8 and x.ndim == 3 and x.shape[0] in (1, 3):
        return _write_png(x, stem.with_name(stem.name + ".png"))
    path = stem.with_name(stem.name + ".npy")
    if x.ndim == 3:
        _write_png(_view(x, bounds), stem.with_name(stem.name + VIEW))
    with files.whole(path) as part, open(part, "wb") as out:
        np.lib.format.write_array(out, np.ascontiguousarray(x), version=(1, 0), allow_pickle=False)
    return path


def decode(path: Path) -> Input:
    """Exactly the array that `encode` wrote to this path. Sizes are checked before anything is unpacked."""
    if path.name.endswith(VIEW):
        raise BadInput(f"{path} is only a view: the input itself is {path.name.removesuffix(VIEW)}.npy beside it.")
    if path.suffix not in (".png", ".npy"):
        raise BadInput(f"{path}: expected a .png or .npy that neurotest wrote.")
    try:
        return _read_png(path) if path.suffix == ".png" else _read_npy(path)
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: the run has lost this input.") from None
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error) as error:
        _damaged(path, str(error) or type(error).__name__)


def picture(path: Path) -> Path | None:
    """The file beside (or equal to) an encoded input that a browser can show; None for what is no image."""
    shown = path if path.suffix == ".png" else path.with_name(path.name.removesuffix(".npy") + VIEW)
    return shown if shown.is_file() else None


def remove_orphans(folder: Path, names: set[str], ours: re.Pattern[str]) -> None:
    """Remove files of ours in a run's folder that no row names (as FOLDER/NAME): a crash came between file and row."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for file in folder.iterdir():
        owner = file.name.removesuffix(VIEW) + ".npy" if file.name.endswith(VIEW) else file.name
        if ours.fullmatch(file.name) and f"{folder.name}/{owner}" not in names:
            with suppress(OSError):
                file.unlink()


def _damaged(path: Path, why: str) -> NoReturn:
    raise BadInput(f"{path} cannot be read back: {why}. It is damaged or was not written by neurotest.")


def _write_png(x: np.ndarray, path: Path) -> Path:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(x[0] if x.shape[0] == 1 else x.transpose(1, 2, 0)))
    with files.whole(path) as part:
        image.save(part, format="PNG")
    return path


def _read_png(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(path.read_bytes()), formats=("PNG",)) as image:  # of a promised length only what is there
            _check_png(path, image)
            pixels = np.asarray(image)  # (H, W) or (H, W, 3) uint8
    except Image.DecompressionBombError as error:
        _damaged(path, str(error))
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _check_png(path: Path, image: Image.Image) -> None:
    if image.mode not in ("L", "RGB"):
        _damaged(path, f"its colour mode is {image.mode}, expected L or RGB")
    if image.width * image.height > MAX_PIXELS:
        _damaged(path, f"{image.width} x {image.height} pixels are more than {MAX_PIXELS:,}")
    if image.width * image.height > 8 * DEFLATE * path.stat().st_size:
        _damaged(path, f"{image.width} x {image.height} pixels cannot be packed into so small a file")


def _read_npy(path: Path) -> Input:
    with open(path, "rb") as stream:
        shape, dtype = _npy_header(path, stream)
        expected = math.prod(shape) * dtype.itemsize
        rest = path.stat().st_size - stream.tell()
        if expected > MAX_BYTES or expected != rest:
            _damaged(path, f"its header promises {expected:,} bytes, {rest:,} are there and {MAX_BYTES:,} are allowed")
        stored: Input = np.frombuffer(bytearray(stream.read(expected)), dtype=dtype).reshape(shape)
        return stored


def _npy_header(path: Path, stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Only the header that `encode` writes; numpy's own reader evaluates more than that and fails in more ways."""
    start = stream.read(10)
    if not start.startswith(b"\x93NUMPY\x01\x00") or len(start) < 10:
        _damaged(path, "it does not start as a .npy of version 1.0 does")
    text = stream.read(int.from_bytes(start[8:], "little")).decode("latin-1")
    if not (header := HEADER.fullmatch(text)):
        _damaged(path, "its header is not that of a uint8 or float32 array in C order")
    return tuple(int(side) for side in header["shape"].split(",") if side), np.dtype(header["type"])


def _view(x: np.ndarray, bounds: tuple[float, float]) -> NDArray[np.uint8]:
    """A picture of x: channels that are neither grey nor RGB stand side by side, the first 16 of them."""
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
