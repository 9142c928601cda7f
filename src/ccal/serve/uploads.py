"""The content of a file that somebody sent, within limits."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.media_types import IMAGE_NAMES, PDF
from ccal.music.decoding import HIGHEST_RATE, TooLongError, decode
from ccal.optional import require
from ccal.serve.guard import Limits
from ccal.serve.problems import ProblemError, time_text

if TYPE_CHECKING:
    from PIL import Image

    from ccal.music.pages import StaffLine

_FORMATS = ("MPO", *(name.upper() for name in IMAGE_NAMES))
# Front ends look at fewer pixels; pictures that wait for a batch should be small.
_SIDE = 1024
# Measured for all formats and modes: the most is 16.3, with WebP.
_PIXEL_BYTES = 17
# Pages of a PDF file, and the side of what is shown of them.
_PAGES, _SHOWN = 10, 1200
# Looking for staff lines on a page of the largest size, measured.
_PAGE_BYTES = 200_000_000


@dataclass(frozen=True)
class UploadedSheet:
    """The staff lines of a picture or a PDF file, and its pages as small JPEG files."""

    lines: list[StaffLine]
    pages: list[bytes]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return sum(line.ink.nbytes for line in self.lines) + sum(map(len, self.pages))


def memory_for(content: bytes, type: str, kind: str, limits: Limits) -> int:
    """Bytes that decoding a file takes at most, by its header; refuses what exceeds the limits."""
    if kind == "audio":
        # Blocks of all channels become samples of one, which are joined at the end.
        return round(8 * limits.seconds * HIGHEST_RATE)
    pixels = _measure_pdf(content, limits) if type == PDF else _count_pixels(content, limits)
    return _PIXEL_BYTES * pixels + (_PAGE_BYTES if kind == "sheet" else 0)


def _measure_pdf(content: bytes, limits: Limits) -> int:
    """Pixels of the largest picture in a PDF file."""
    from ccal.music.pages import measure_pdf

    pages, pixels = measure_pdf(content)
    if pages > _PAGES:
        detail = f"The PDF file has {pages:,} pages; {_PAGES} or fewer are read at once."
        raise ProblemError(413, detail)
    if pixels > limits.pixels:
        most = _megapixels(limits.pixels)
        raise ProblemError(413, f"The PDF file has a picture of more than {most}.")
    return pixels


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


def decode_image(content: bytes, limits: Limits) -> Image.Image:
    """The middle square of a picture: upright, RGB, of at most 1,024 pixels a side.

    The number of pixels is read from the header and checked before any of them is decoded.
    """
    from ccal.features.loading import load_image

    _count_pixels(content, limits)
    loaded = load_image(content, name="the file", at_least=_SIDE)
    side = min(loaded.size)
    left, top = (loaded.width - side) // 2, (loaded.height - side) // 2
    square = loaded.crop((left, top, left + side, top + side))
    # The gap lets Pillow average whole pixels first, as the front end itself does.
    return square if side <= _SIDE else square.resize((_SIDE, _SIDE), reducing_gap=3.0)


def read_sheet(content: bytes) -> UploadedSheet:
    """The staff lines of a picture or a PDF file whose limits `memory_for` has checked."""
    from ccal.music.pages import read_lines

    pages: list[bytes] = []
    lines = read_lines(content, each=lambda grey: pages.append(_shown(grey)))
    return UploadedSheet(lines, pages)


def _shown(grey: NDArray[np.float32]) -> bytes:
    module = require("PIL.Image", extra="images", purpose="Showing pages")
    page, file = module.fromarray(grey.astype(np.uint8)), BytesIO()
    page.thumbnail((_SHOWN, _SHOWN), reducing_gap=3.0)
    page.save(file, "JPEG", quality=70)
    return file.getvalue()


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
