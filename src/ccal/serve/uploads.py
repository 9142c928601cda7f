"""The content of a file that somebody sent, within limits."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.media_types import IMAGE_NAMES, IMAGES
from ccal.music.decoding import HIGHEST_RATE, TooLongError, decode
from ccal.optional import require
from ccal.serve.guard import Limits
from ccal.serve.problems import ProblemError, time_text

if TYPE_CHECKING:
    from PIL import Image

_FORMATS = ("MPO", *(name.upper() for name in IMAGE_NAMES))
# Front ends look at fewer pixels; pictures that wait for a batch should be small.
_SIDE, _STAFF = 1024, (8000, 1200)
# Measured for all formats and modes: the most is 16.3, with WebP.
_PIXEL_BYTES = 17


def memory_for(content: bytes, type: str, limits: Limits) -> int:
    """Bytes that decoding a file takes at most, by its header; refuses what exceeds the limits."""
    if type in IMAGES:
        return _PIXEL_BYTES * _count_pixels(content, limits)
    # Blocks of all channels become samples of one, which are joined at the end.
    return round(8 * limits.seconds * HIGHEST_RATE)


def _count_pixels(content: bytes, limits: Limits) -> int:
    module = require("PIL.Image", extra="images", purpose="Reading images")
    module.init()
    try:
        formats = [name for name in _FORMATS if name in module.OPEN]
        with module.open(BytesIO(content), formats=formats) as image:
            width, height = image.size
    except module.DecompressionBombError as error:
        raise ProblemError(
            413, f"The picture has more than {_megapixels(limits.pixels)}."
        ) from error
    # Decoders raise all kinds of exceptions for broken bytes.
    except Exception as error:
        raise InputError("The file cannot be read as a picture; it may be damaged.") from error
    if width * height > limits.pixels:
        given = f"{width:,} x {height:,} pixels, more than {_megapixels(limits.pixels)}"
        raise ProblemError(413, f"The picture has {given}.")
    return int(width * height)


def decode_image(content: bytes, limits: Limits, *, whole: bool = False) -> Image.Image:
    """An upright RGB picture: its middle square of at most 1,024 pixels a side, or the whole.

    The whole, a line of music, is made to fit 8,000 x 1,200 pixels. The number of pixels is read
    from the header and checked before any of them is decoded.
    """
    from ccal.features.loading import load_image

    _count_pixels(content, limits)
    loaded = load_image(content, name="the file", at_least=0 if whole else _SIDE)
    if whole:
        loaded.thumbnail(_STAFF, reducing_gap=3.0)
        return loaded
    side = min(loaded.size)
    left, top = (loaded.width - side) // 2, (loaded.height - side) // 2
    square = loaded.crop((left, top, left + side, top + side))
    # The gap lets Pillow average whole pixels first, as the front end itself does.
    return square if side <= _SIDE else square.resize((_SIDE, _SIDE), reducing_gap=3.0)


def _megapixels(pixels: int) -> str:
    return f"{pixels / 1e6:.3g} megapixels" if pixels >= 1e6 else f"{pixels:,} pixels"


def decode_audio(content: bytes, limits: Limits) -> tuple[NDArray[np.float32], int]:
    """Samples (n,), the mean of all channels, and their rate."""
    try:
        return decode(BytesIO(content), limits.seconds)
    except TooLongError as error:
        longest = time_text(limits.seconds)
        raise ProblemError(413, f"The sound is longer than {longest}.") from error
    except InputError as error:
        raise InputError(f"The file cannot be searched with: {error}") from error
