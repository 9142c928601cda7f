"""A file that somebody sent: its type by its first bytes, and its content within limits."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.optional import require
from ccal.serve.guard import Limits
from ccal.serve.problems import ProblemError, time_text

if TYPE_CHECKING:
    from PIL import Image

HEAD = 64
"""Bytes of a file that `sniff` needs at most."""

_STARTS = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
}
_IMAGE_NAMES = ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif")
IMAGES = tuple(f"image/{name}" for name in _IMAGE_NAMES)
AUDIO = ("audio/wav", "audio/flac", "audio/ogg", "audio/mpeg")
_FORMATS = ("MPO", *(name.upper() for name in _IMAGE_NAMES))
# Front ends look at fewer pixels; pictures that wait for a batch should be small.
_SIDE, _STAFF = 1024, (8000, 1200)
# A file that is recorded while it is sent has a header with no length, or with a huge one.
_NO_LENGTH = 2**62
# Measured for all formats and modes: the most is 16.3, with WebP.
_PIXEL_BYTES = 17
_CHANNELS, _LOWEST_RATE, _HIGHEST_RATE = 8, 1000, 192_000


def sniff(head: bytes) -> str | None:
    """The type of a picture or a sound by its first bytes; None for anything else.

    Names and Content-Type headers do not count, as a client can set them to anything.

    >>> sniff(b"RIFF....WAVEfmt "), sniff(b"<svg onload=alert(1)>")
    ('audio/wav', None)
    """
    for start, type in _STARTS.items():
        if head.startswith(start):
            return type
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] in (b"WAVE", b"WEBP"):
        return "audio/wav" if head[8:12] == b"WAVE" else "image/webp"
    if head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"avis"):
        return "image/avif"
    # A frame of MPEG-1 or 2, layer III, with a valid bit rate.
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[2] & 0xF0 != 0xF0:
        return "audio/mpeg"
    return None


def memory_for(content: bytes, type: str, limits: Limits) -> int:
    """Bytes that decoding a file takes at most, by its header; refuses what exceeds the limits."""
    if type in IMAGES:
        return _PIXEL_BYTES * _count_pixels(content, limits)
    # Blocks of all channels become samples of one, which are joined at the end.
    return round(8 * limits.seconds * _HIGHEST_RATE)


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
    """Samples (n,), the mean of all channels, and their rate.

    A header may lie about the length, so that no more is read than is allowed.
    """
    module = require("soundfile", extra="music", purpose="Reading audio files")
    too_long = ProblemError(413, f"The sound is longer than {time_text(limits.seconds)}.")
    parts: list[NDArray[np.float32]] = []
    try:
        with module.SoundFile(BytesIO(content)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if not _LOWEST_RATE <= rate <= _HIGHEST_RATE or channels > _CHANNELS:
                raise InputError(
                    f"The sound has {rate:,} samples a second in {channels} channels; expected "
                    f"{_LOWEST_RATE:,} to {_HIGHEST_RATE:,} in {_CHANNELS} or fewer."
                )
            most, read = int(limits.seconds * rate), 0
            if most < file.frames < _NO_LENGTH:
                raise too_long
            while len(block := file.read(rate, dtype="float32", always_2d=True)):
                read += len(block)
                if read > most:
                    raise too_long
                parts.append(block.mean(axis=1))
    except (InputError, ProblemError):
        raise
    except Exception as error:
        raise InputError("The file cannot be read as sound; it may be damaged.") from error
    if not parts:
        raise InputError("The file has no sound: 0 samples.")
    samples = np.concatenate(parts)
    if not np.isfinite(samples).all():
        raise InputError("The sound has samples that are NaN or infinite.")
    return samples, rate
