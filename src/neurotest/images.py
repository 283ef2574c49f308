"""How an image of any size and colour mode becomes an 8-bit input: turned upright, resized, cropped, in grey or colour.

The same settings say at which rate and how cropped audio becomes 16-bit inputs; `data.audio` does it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from neurotest.audio import RATES
from neurotest.checks import one_of
from neurotest.errors import BadInput

if TYPE_CHECKING:
    from PIL import Image

Interpolation = Literal["bilinear", "bicubic", "nearest", "lanczos"]
GREY, COLOUR = ("1", "L", "LA", "La"), ("RGB", "RGBA", "RGBa", "P", "PA", "CMYK", "YCbCr", "RGBX", "HSV", "LAB")
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")
LARGEST_SIDE = 16_384  # pixels a side
STRIP = 256  # rows
ORIENTATION = 0x0112  # the tag in which a camera says how it was held
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


class Unusable(Exception):
    """Why one image or audio clip cannot be used; others still can."""


class Pixels(NamedTuple):
    """An image as (channels, height, width) uint8, and what had to be changed to get there."""

    x: NDArray[np.uint8]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """What is done to an image before it is an input, in this order; all of it ends in 8 bits, so what is tested can be saved.

    resize: `224` or `224x320` (height x width). With crop the shorter side becomes `resize` and the shape of the image is kept;
    without, the whole image is fitted into `resize` exactly. crop: `centre`, the middle of the image in the size the network
    takes (`resize`, where that is unknown). grey: one channel. interpolation: antialiased, as Pillow does it. Of audio,
    crop is the middle of those that are too long, and rate the samples a second they are resampled to.
    """

    resize: int | str | None = None
    crop: Literal["centre"] | None = None
    grey: bool = False
    interpolation: Interpolation = "bilinear"
    rate: int | None = None

    def __post_init__(self) -> None:
        if self.resize is not None:
            text = str(self.resize).lower()
            sides = [int(side) for side in text.split("x")] if re.fullmatch(r"\d{1,6}(x\d{1,6})?", text) else [0]
            if not all(1 <= side <= LARGEST_SIDE for side in sides):
                message = f"resize={self.resize!r}: expected 224 or 224x320 (height x width), at most {LARGEST_SIDE} a side."
                raise BadInput("out-of-range", "resize", message)
            object.__setattr__(self, "resize", sides[0] if len(set(sides)) == 1 else text)
        if self.crop in ("center", "centre"):
            object.__setattr__(self, "crop", "centre")
        elif self.crop is not None:
            raise BadInput("out-of-range", "crop", f"crop={self.crop!r}: expected centre.")
        one_of("interpolation", self.interpolation, get_args(Interpolation))
        if self.rate is not None:
            text = str(self.rate)
            if not re.fullmatch(r"\d{1,6}", text) or not RATES[0] <= int(text) <= RATES[1]:
                message = f"rate={self.rate!r}: expected samples a second, {RATES[0]} to {RATES[1]}, for example 16000."
                raise BadInput("out-of-range", "rate", message)
            object.__setattr__(self, "rate", int(text))

    @property
    def sides(self) -> tuple[int, int] | None:
        """Height and width of `resize`."""
        if self.resize is None:
            return None
        height, _, width = str(self.resize).partition("x")
        return int(height), int(width or height)

    @property
    def fits_any_size(self) -> bool:
        return self.resize is not None or self.crop is not None

    def output(self, size: tuple[int, int] | None) -> tuple[int, int]:
        """Height and width of the inputs for a network that takes `size` (None: unknown)."""
        if self.crop is not None:
            if size is None and self.sides is None:
                raise BadInput("missing", "size", "crop: how large is unknown; say --size 3x224x224, or --resize too.")
            return size or self.sides  # type: ignore[return-value]
        assert self.sides is not None
        if size is not None and size != self.sides:
            (high, wide), (height, width) = self.sides, size
            message = (
                f"resize={self.resize}: gives {wide}x{high} pixels (width x height), the network takes {width}x{height}: "
                f"write {_text(size)}, or crop to it with --crop centre."
            )
            raise BadInput("conflict", "resize", message)
        return self.sides

    def __call__(self, image: Image.Image, size: tuple[int, int]) -> Image.Image:
        """An image of `size`: (height, width)."""
        from PIL import Image as module

        filters = module.Resampling[self.interpolation.upper()]
        height, width = size
        if self.crop is None:
            return image if (image.height, image.width) == size else image.resize((width, height), filters)
        if self.sides is not None:
            image = image.resize(self._scaled(image), filters)
        if image.height < height or image.width < width:
            raise Unusable(f"{image.width}x{image.height} pixels, too small to crop {width}x{height} from: add --resize")
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        return image.crop((left, top, left + width, top + height))

    def _scaled(self, image: Image.Image) -> tuple[int, int]:
        """(width, height) with one side as in `resize` and the other at least as long."""
        assert self.sides is not None
        height, width = self.sides
        if height * image.width >= width * image.height:
            return max(width, height * image.width // image.height), height
        return width, max(height, width * image.height // image.width)

    def plain(self) -> dict[str, Any] | None:
        """As a run stores it; None for nothing."""
        return None if self == Preprocess() else vars(self)


def _text(size: tuple[int, int]) -> str:
    return str(size[0]) if size[0] == size[1] else f"{size[0]}x{size[1]}"


def _orientation(image: Image.Image) -> int:
    """1: upright, or nothing is said. Only what stands before the pixels is looked at, so nothing is decoded."""
    from PIL import Image as module

    content = image.info.get("exif")
    if not isinstance(content, bytes):
        return 1
    try:
        tags = module.Exif()
        tags.load(content)
        value = tags.get(ORIENTATION, 1)
    except Exception:  # a damaged tag says nothing; decoders raise nearly anything
        return 1
    return value if isinstance(value, int) and value in TURNS else 1


def upright_size(image: Image.Image) -> tuple[int, int]:
    """(height, width) once it stands upright."""
    return (image.width, image.height) if _orientation(image) >= 5 else (image.height, image.width)


def is_grey(image: Image.Image) -> bool:
    return image.mode in GREY or image.mode in DEEP


def pixels(image: Image.Image, channels: int, size: tuple[int, int], preprocess: Preprocess) -> Pixels:
    """An opened image as an input of `size` with one or three channels."""
    changes: list[str] = []
    turn = TURNS.get(_orientation(image))
    deep = any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()) if len(tile) > 3)
    if getattr(image, "is_animated", False) and image.format != "MPO":  # MPO: a photograph with its preview
        raise Unusable("is animated: save one frame")
    if image.mode not in (*GREY, *COLOUR, *DEEP):
        raise Unusable(f"mode {image.mode}: only images of 8 or 16 bits per channel are read")
    image.load()
    if deep or image.mode in DEEP:
        changes.append("16 bits per channel, rounded to 8")
    image = _eight_bit(image)
    if image.has_transparency_data:
        image, transparent = _flattened(image)
        changes += ["transparent pixels, put on white"] if transparent else []
    mode = "L" if channels == 1 else "RGB"
    image = image if image.mode == mode else image.convert(mode)
    if turn is not None:
        from PIL import Image as module

        image = image.transpose(module.Transpose[turn])
    if preprocess.fits_any_size:
        image = preprocess(image, size)
    array = np.array(image, np.uint8)
    return Pixels(array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1)), tuple(changes))


def _eight_bit(image: Image.Image) -> Image.Image:
    from PIL import Image as module

    if image.mode not in DEEP:
        return image
    values = np.asarray(image)
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise Unusable("values beyond 16 bits")
    return module.fromarray(np.rint(np.arange(65536) / 257).astype(np.uint8)[values])  # a table takes less memory


def _flattened(image: Image.Image) -> tuple[Image.Image, bool]:
    """On white, and whether anything shines through."""
    from PIL import Image as module

    colours = image if image.mode == "RGBA" else image.convert("RGBA")
    if colours.getchannel("A").getextrema() == (255, 255):
        return image, False
    flat = module.new("RGB", colours.size)
    for top in range(0, colours.height, STRIP):  # in strips, because all of it at once is four images in memory
        strip = colours.crop((0, top, colours.width, min(top + STRIP, colours.height)))
        flat.paste(module.alpha_composite(module.new("RGBA", strip.size, "white"), strip).convert("RGB"), (0, top))
    return flat, True
