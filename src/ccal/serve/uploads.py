"""A file that somebody sent: what it is, and what is in it, within limits."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.optional import require
from ccal.serve.limits import Limits
from ccal.serve.problems import ProblemError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["decode_audio", "decode_image"]

# Front ends look at less; what waits for its turn should be small.
_SIDE = 1024
_STAFF = (8000, 1200)
_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "TIFF", "WEBP")
# What is recorded while it is sent does not know its length.
_UNKNOWN = 2**62
_CHANNELS, _SLOWEST, _FASTEST = 8, 1000, 192_000


def decode_image(content: bytes, limits: Limits, *, whole: bool = False) -> Image.Image:
    """An upright RGB picture: its middle square, of 1,024 pixels a side at most, or the whole.

    The whole, a line of music, is made to fit 8,000 x 1,200 pixels; more show nothing more.

    The number of pixels is read from the header and checked before any of them is decoded.
    """
    from ccal.features.loading import load_image

    module = require("PIL.Image", extra="images", purpose="Reading images")
    module.init()
    try:
        formats = [name for name in _FORMATS if name in module.OPEN]
        with module.open(BytesIO(content), formats=formats) as image:
            width, height = image.size
    except module.DecompressionBombError as error:
        raise _too_many_pixels(limits) from error
    # Broken bytes make decoders raise whatever they happen to run into.
    except Exception as error:
        raise InputError("The file cannot be read as a picture; it may be damaged.") from error
    if width * height > limits.pixels:
        raise _too_many_pixels(limits, f"{width:,} x {height:,}, ")
    loaded = load_image(content, name="the file", at_least=0 if whole else _SIDE)
    if not whole:
        return _middle(loaded)
    loaded.thumbnail(_STAFF, reducing_gap=3.0)
    return loaded


def decode_audio(content: bytes, limits: Limits) -> tuple[NDArray[np.float32], int]:
    """Samples (n,) of all channels together, and their rate.

    What a header says of the length may be a lie, so no more is read than is allowed.
    """
    module = require("soundfile", extra="music", purpose="Reading audio files")
    parts: list[NDArray[np.float32]] = []
    try:
        with module.SoundFile(BytesIO(content)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if not _SLOWEST <= rate <= _FASTEST or channels > _CHANNELS:
                raise InputError(
                    f"The sound has {rate:,} samples a second in {channels} channels; expected "
                    f"{_SLOWEST:,} to {_FASTEST:,} in {_CHANNELS} or fewer."
                )
            most = int(limits.seconds * rate)
            if most < file.frames < _UNKNOWN:
                raise _too_long(limits)
            read = 0
            while len(block := file.read(rate, dtype="float32", always_2d=True)):
                read += len(block)
                if read > most:
                    raise _too_long(limits)
                parts.append(block.mean(axis=1))
    except (InputError, ProblemError):
        raise
    except Exception as error:
        raise InputError("The file cannot be read as sound; it may be damaged.") from error
    samples = np.concatenate(parts) if parts else np.empty(0, np.float32)
    if not len(samples):
        raise InputError("The file has no sound: 0 samples.")
    if not np.isfinite(samples).all():
        raise InputError("The sound has samples that are NaN or infinite.")
    return samples, rate


def _middle(image: Image.Image) -> Image.Image:
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    # The gap lets Pillow average whole pixels first, as the front end itself does.
    return square if side <= _SIDE else square.resize((_SIDE, _SIDE), reducing_gap=3.0)


def _too_many_pixels(limits: Limits, given: str = "") -> ProblemError:
    return ProblemError(413, f"The picture has {given}more than {limits.pixels:,} pixels.")


def _too_long(limits: Limits) -> ProblemError:
    return ProblemError(413, f"The sound is longer than {limits.seconds:g} seconds.")
