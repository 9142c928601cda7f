"""One image: from a file, bytes, a Pillow image or an array to upright 8-bit RGB pixels."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccal.errors import CcalError, InputError
from ccal.optional import require

if TYPE_CHECKING:
    from PIL import Image


_BAND = 64


def to_rgb(image: Image.Image) -> Image.Image:
    """The image in mode RGB: grey, palette, CMYK and 16 bits converted, transparency over white.

    >>> from PIL import Image
    >>> to_rgb(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    >>> to_rgb(Image.new("I;16", (1, 1), 65535)).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode == "F":
        raise InputError("pixels are floating-point, of unknown range; save it with 8 or 16 bits.")
    if image.mode.startswith("I"):
        return _converted(image, _eight_bits(image))
    if not image.has_transparency_data:
        return image.convert("RGB")
    return _converted(image, _over_white)


def _converted(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """The image in RGB, a band at a time: intermediate results would take 20 bytes a pixel."""
    module = require("PIL.Image", extra="images", purpose="Reading images")
    made: Image.Image = module.new("RGB", image.size)
    for top in range(0, image.height, _BAND):
        box = (0, top, image.width, min(top + _BAND, image.height))
        made.paste(convert(image.crop(box)), box)
    return made


def _over_white(image: Image.Image) -> Image.Image:
    module = require("PIL.Image", extra="images", purpose="Reading images")
    rgba = image.convert("RGBA")
    over: Image.Image = module.alpha_composite(module.new("RGBA", rgba.size, "white"), rgba)
    return over


def _eight_bits(whole: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Makes grey of 8 bits from grey of 16, which Pillow would cut off at 255, not scale."""
    module = require("PIL.Image", extra="images", purpose="Reading images")
    extremes: Any = whole.getextrema()
    low, high = extremes
    if low < 0 or high > 65535:
        raise InputError(f"grey values go from {low} to {high}; save it with 8 or 16 bits.")
    # Mode I is wider than either and also holds plain 8 bits.
    scale = 1 if whole.mode == "I" and high <= 255 else 257

    def grey(image: Image.Image) -> Image.Image:
        made: Image.Image = module.fromarray(np.round(np.asarray(image) / scale).astype(np.uint8))
        return made

    return grey


ImageItem: TypeAlias = "str | PathLike[str] | bytes | Image.Image | NDArray[np.uint8]"

# Pillow knows more, but some of those start other programs (EPS) or hold no picture (HDF5).
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")

_LARGEST_FILE = 1 << 30
_ORIENTATION = 0x0112


def _pillow(module: str = "Image") -> Any:
    """A module of Pillow, which the extra `images` brings."""
    return require(f"PIL.{module}", extra="images", purpose="Reading images")


def load_image(item: ImageItem, *, name: str | None = None, at_least: int = 0) -> Image.Image:
    """An image in RGB and upright, whatever it came from; the first frame if there are several.

    Transparency is laid over white, 16 bits become 8. A file or bytes may be decoded at a fraction
    of its size that keeps both sides at `at_least` pixels (JPEG only; 0: never). What cannot be
    read raises `InputError` that begins with `name` (default: the path, or the type of the item).

    >>> load_image(np.zeros((2, 3, 3), dtype=np.uint8)).size
    (3, 2)
    """
    if isinstance(item, str | PathLike):
        name, item = name or path_name(item), read_file(item)
    name = name or f"an image given as {type(item).__name__}"
    image_module = _pillow()
    try:
        if isinstance(item, bytes):
            return _decode(item, at_least)
        if isinstance(item, np.ndarray):
            return _from_array(item)
        if isinstance(item, image_module.Image):
            return to_rgb(_upright(item))
    except image_module.UnidentifiedImageError:
        raise InputError(f"{name}: not an image of a known format ({_listed()}).") from None
    except CcalError as error:
        raise InputError(f"{name}: {error}") from error
    # Broken bytes make decoders raise whatever they happen to run into.
    except Exception as error:
        raise InputError(f"{name}: cannot be read as an image: {error}") from error
    raise InputError(
        f"{name}: expected a path, bytes, a Pillow image or an array (height, width, 3) of uint8."
    )


def centre_crop(image: Image.Image, size: int, crop: float) -> NDArray[np.uint8]:
    """The middle of an RGB image as pixels (size, size, 3).

    The square has `crop` times the length of the shorter side, and is resampled (bicubic) in one
    step: the same as scaling that side to size / crop and cutting out the centre, but for rounding.

    >>> image = load_image(np.full((30, 40, 3), 7, dtype=np.uint8))
    >>> centre_crop(image, size=8, crop=0.875).shape
    (8, 8, 3)
    """
    side = min(image.size) * crop
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    bicubic = _pillow().Resampling.BICUBIC
    return np.array(image.resize((size, size), bicubic, box=box, reducing_gap=3.0))


def path_name(path: str | PathLike[str]) -> str:
    """A path as it can be printed, even if its bytes are no text."""
    return os.fspath(path).encode("utf-8", "replace").decode()


def read_file(path: str | PathLike[str]) -> bytes:
    """The bytes of an image file; `InputError` if there are none or absurdly many."""
    name = path_name(path)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{name}: not a file.")
        if found.st_size == 0:
            raise InputError(f"{name}: the file is empty.")
        if found.st_size > _LARGEST_FILE:
            raise InputError(f"{name}: {found.st_size:,} bytes are too many for an image file.")
        with open(path, "rb") as file:
            return file.read()
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{name}: file not found.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be read: {error}") from error


def _decode(content: bytes, at_least: int) -> Image.Image:
    module = _pillow()
    module.init()
    formats = [name for name in FORMATS if name in module.OPEN]
    try:
        image = module.open(BytesIO(content), formats=formats)
    except module.DecompressionBombError as error:
        raise InputError(f"{error} {_LIMIT}") from error
    with image:
        limit = module.MAX_IMAGE_PIXELS
        if limit is not None and image.width * image.height > limit:
            raise InputError(
                f"{image.width:,} x {image.height:,} pixels are more than {limit:,}. {_LIMIT}"
            )
        if at_least:
            image.draft(None, (at_least, at_least))
        image.load()
        return to_rgb(_upright(image))


_LIMIT = "If the file can be trusted, raise PIL.Image.MAX_IMAGE_PIXELS."


def _from_array(pixels: NDArray[Any]) -> Image.Image:
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or pixels.size == 0:
        raise InputError(
            f"expected pixels (height, width, 3) of uint8, got {pixels.shape} of {pixels.dtype}."
        )
    image: Image.Image = _pillow().fromarray(np.ascontiguousarray(pixels))
    return image


def _upright(image: Image.Image) -> Image.Image:
    """Turned as the camera's note of its own position says."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    # Broken notes do not spoil the picture.
    except Exception:
        return image
    turns = _pillow().Transpose
    turn = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)


def _listed() -> str:
    return ", ".join(FORMATS)
