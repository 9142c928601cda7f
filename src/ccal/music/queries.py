"""Queries as people have them, a recording or a picture of a staff, in the form that models know.

A recording becomes a spectrogram as loud as those of the library; a picture of any size becomes a
staff line of 40 rows. For both, the middles of the snippets to embed are chosen.
"""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.features.loading import load_image
from ccal.music.audio import audio_spectrogram, spectrogram
from ccal.music.engraving import ROWS
from ccal.music.pairs import COLUMNS
from ccal.optional import require

Recording = str | PathLike[str] | tuple[Any, int]
Picture = str | PathLike[str] | NDArray[Any]
# At least this share of each snippet must lie within the recording or the staff line.
_FILLED = 0.75
# Frames softer than this share of the loud ones are silence.
_SOFT = 0.05
# A 16-bit recording that is not silent is louder.
_SILENT = 1e-3
# Pixels from one line of the staff to the next, as engraved, and the row of the middle line.
_SPACE, _MIDDLE = 4.0, ROWS / 2 + 0.5
# Higher pictures are made smaller before the lines are looked for.
_HIGHEST = 1200
# The ink on the five lines must exceed that between them by this share of the columns.
_CLEAR = 0.25


def listen(recording: Recording, level: float) -> NDArray[np.float32]:
    """Spectrogram (frames, 136) of a recording, scaled to the loudness `level` (see `level_of`).

    A recording is the path of an audio file, or samples (n,) or (n, channels) and their rate.
    """
    if isinstance(recording, tuple):
        if len(recording) != 2:
            raise InputError(
                f"a recording is a path, or samples and their rate; got {len(recording)} things."
            )
        values = spectrogram(*recording)
    else:
        values = audio_spectrogram(recording)
    magnitudes = 10.0 ** values.numpy() - 1
    if float(magnitudes.max()) < _SILENT:
        raise InputError("the recording is silent from its beginning to its end.")
    gain = level / max(_loudness(magnitudes), 1e-12)
    return np.log10(1 + gain * magnitudes, dtype=np.float32)


def level_of(audio: NDArray[np.floating]) -> float:
    """The loudness of spectrograms (frames, 136): the mean magnitude of frames with sound."""
    return _loudness(10.0 ** audio.astype(np.float32) - 1)


def sounding(audio: NDArray[np.float32]) -> tuple[int, int]:
    """The first frame with sound in a spectrogram (frames, 136), and the one behind the last."""
    loud = audio.mean(axis=1)
    frames = np.flatnonzero(loud > _SOFT * loud.max())
    return int(frames[0]), int(frames[-1]) + 1


def _loudness(magnitudes: NDArray[np.floating]) -> float:
    frames = magnitudes.mean(axis=1)
    return float(frames[frames >= _SOFT * frames.max()].mean())


@dataclass(frozen=True)
class Staff:
    """A staff line `ink` (columns, 40); a column takes `scale` pixels of the picture."""

    ink: NDArray[np.float32]
    scale: float


def read_staff(picture: Picture) -> Staff:
    """Scale a picture so that its staff lines are 4 pixels apart, the middle one in row 20.

    A picture is the path of an image file, or an array (height, width) or (height, width, 3), grey
    or in colour: of uint8 from 0, black, to 255, or of floats from 0 to 1. White on black is
    inverted. Of several staves, the clearest is taken.
    """
    image = require("PIL.Image", extra="music", purpose="Reading pictures")
    grey = _grey(picture, image)
    middle, space = find_staff(1 - grey / 255)
    width = grey.shape[1]
    scale = space / _SPACE
    columns = max(1, round(width / scale))
    # Paper above and below, since 40 rows can be higher than the picture.
    around = int(np.ceil(ROWS * scale))
    padded = np.pad(grey, ((around, around), (0, 0)), constant_values=255)
    top = around + middle - _MIDDLE * scale
    box = (0.0, top, min(float(width), columns * scale), top + ROWS * scale)
    source = image.fromarray(padded.astype(np.float32))
    small = source.resize((columns, ROWS), resample=image.Resampling.BOX, box=box)
    ink = np.clip(1 - np.asarray(small, dtype=np.float32) / 255, 0, 1)
    return Staff(np.ascontiguousarray(ink.T), scale)


def find_staff(ink: NDArray[np.floating]) -> tuple[float, float]:
    """The middle of the middle line, and the distance of two lines, in pixels from the top.

    `ink` (height, width) is 1 where a picture is black. Five lines at equal distances have ink in
    most columns, and hardly any between them.

    >>> ink = np.zeros((60, 80))
    >>> ink[[10, 18, 26, 34, 42]] = 1
    >>> middle, space = find_staff(ink)
    >>> round(middle, 1), round(space, 1)
    (26.5, 8.0)
    """
    rows = ink.mean(axis=1)
    height = len(rows)
    largest = (height - 1) / 4
    if largest < 2.5:
        raise InputError(
            f"a picture of a staff must be 12 pixels high or more, and this one has {height}."
        )
    best = (-1.0, 0.0, 0.0)
    centres = np.arange(height) + 0.5
    for space in np.geomspace(2.5, largest, 400).tolist():
        tops = np.arange(0.5, height - 4 * space, min(0.5, space / 8))
        if len(tops) == 0:
            continue
        on = np.stack([np.interp(tops + k * space, centres, rows) for k in range(5)])
        between = np.stack([np.interp(tops + (k + 0.5) * space, centres, rows) for k in range(4)])
        # The faintest line decides: where one is missing there is no staff.
        clear = on.min(axis=0) - between.mean(axis=0)
        top = int(clear.argmax())
        if clear[top] > best[0]:
            best = (float(clear[top]), float(tops[top]) + 2 * space, space)
    if best[0] < _CLEAR:
        raise InputError(
            "no staff was found in the picture: five level lines at equal distances, from its left "
            "to its right. Cut out one line of music, and turn it if it is tilted."
        )
    return _fit(rows, best[1], best[2])


def _fit(rows: NDArray[np.floating], middle: float, space: float) -> tuple[float, float]:
    """Middle and space, refined by the centre of the ink of each line."""
    centres = []
    for line in middle + space * np.arange(-2, 3):
        first = max(0, round(line - 0.35 * space))
        near = rows[first : max(first + 1, round(line + 0.35 * space))]
        weight = np.maximum(near - 0.5 * near.max(), 1e-9)
        centres.append(float((weight * (first + 0.5 + np.arange(len(near)))).sum() / weight.sum()))
    slope, height = np.polyfit(np.arange(-2, 3), centres, 1)
    return float(height), float(slope)


def spots(staff: Staff, hop: int) -> NDArray[np.int64]:
    """The middles (n,) of snippets of a staff line, every `hop` columns between its ends."""
    written = np.flatnonzero(staff.ink.max(axis=1) > 0.2)
    first, last = int(written[0]), int(written[-1]) + 1
    margin = round(COLUMNS * (_FILLED - 0.5))
    middles = np.arange(first + margin, last - margin + 1, hop)
    return middles if len(middles) else np.array([(first + last) // 2])


def _grey(picture: Picture, image: Any) -> NDArray[np.float32]:
    """A picture as (height, width) from 0 (ink) to 255 (paper), at most 1,200 pixels high."""
    if isinstance(picture, np.ndarray):
        found = image.fromarray(_eight_bits(picture)).convert("L")
    else:
        found = load_image(picture).convert("L")
    if found.size[1] > _HIGHEST:
        factor = _HIGHEST / found.size[1]
        found = found.resize((max(1, round(found.size[0] * factor)), _HIGHEST))
    grey = np.asarray(found, dtype=np.float32)
    return np.asarray(255 - grey if np.median(grey) < 128 else grey)


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3) or 0 in array.shape:
        raise InputError(
            f"a picture must be an array (height, width) or (height, width, 3), got {array.shape}."
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
            raise InputError("a picture of floats must be within 0 (black) and 1 (white).")
        array = np.rint(255 * array).astype(np.uint8)
    if array.dtype != np.uint8:
        raise InputError(f"a picture must be of uint8 or of floats, got {array.dtype}.")
    return np.ascontiguousarray(array)
