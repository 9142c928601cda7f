"""Every kind of pixel as 8-bit RGB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccal.errors import InputError
from ccal.optional import require

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["to_rgb"]


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
        return _eight_bits(image).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    module = require("PIL.Image", extra="images", purpose="Reading images")
    rgba = image.convert("RGBA")
    white = module.new("RGBA", rgba.size, "white")
    over: Image.Image = module.alpha_composite(white, rgba).convert("RGB")
    return over


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 8 bits from grey of 16, which Pillow would cut off at 255 instead of scaling."""
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise InputError(f"grey values go from {low} to {high}; save it with 8 or 16 bits.")
    # Mode I is wider than either and also holds plain 8 bits.
    scale = 1 if image.mode == "I" and high <= 255 else 257
    module = require("PIL.Image", extra="images", purpose="Reading images")
    grey: Image.Image = module.fromarray(np.round(values / scale).astype(np.uint8))
    return grey
