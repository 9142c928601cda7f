"""A picture of a staff, of any size, as the staff lines that models know.

A staff line as a picture, with a place marked.
"""

from __future__ import annotations

import io
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.music.engraving import ROWS
from ccal.music.pairs import COLUMNS
from ccal.optional import require

__all__ = ["Picture", "Staff", "find_staff", "read_staff", "spots", "staff_picture"]

Picture = str | PathLike[str] | NDArray[Any]
# Pixels from one line of the staff to the next, as engraved, and the row of the middle line.
_SPACE, _MIDDLE = 4.0, ROWS / 2 + 0.5
# Larger pictures are made smaller before the lines are looked for.
_LARGEST = 1200
# How much more ink there must be on the five lines than between them.
_CLEAR = 0.25
_FILLED = 0.75


class Staff:
    """A staff line `ink` (columns, 40), and the `scale` of its columns to those of the picture."""

    def __init__(self, ink: NDArray[np.float32], scale: float) -> None:
        self.ink, self.scale = ink, scale


def read_staff(picture: Picture) -> Staff:
    """Scale a picture so that its staff lines are 4 pixels apart, the middle one in row 20.

    A picture is the path of an image file, or an array (height, width) or (height, width, 3), grey
    or in colour: of uint8 from 0, black, to 255, or of floats from 0 to 1. White on black is
    turned. If there are several staves, the clearest is taken.
    """
    image = require("PIL.Image", extra="music", purpose="Reading pictures")
    grey = _grey(picture)
    middle, space = find_staff(1 - grey / 255)
    width = grey.shape[1]
    scale = space / _SPACE
    columns = max(1, round(width / scale))
    # Paper all around, since the part that is cut out can be higher than the picture.
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
        place = int(clear.argmax())
        if clear[place] > best[0]:
            best = (float(clear[place]), float(tops[place]) + 2 * space, space)
    if best[0] < _CLEAR:
        raise InputError(
            "no staff was found in the picture: five level lines at equal distances, from its left "
            "to its right. Cut out one line of music, and turn it if it is tilted."
        )
    return _fit(rows, best[1], best[2])


def _fit(rows: NDArray[np.floating], middle: float, space: float) -> tuple[float, float]:
    """Middle and space once more, from where the ink of each line has its centre."""
    centres = []
    for place in middle + space * np.arange(-2, 3):
        first = max(0, round(place - 0.35 * space))
        near = rows[first : max(first + 1, round(place + 0.35 * space))]
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


def _grey(picture: Picture) -> NDArray[np.float32]:
    """A picture as (height, width) from 0 (ink) to 255 (paper), not too large."""
    image = require("PIL.Image", extra="music", purpose="Reading pictures")
    if isinstance(picture, np.ndarray):
        found = _from_array(picture, image)
    else:
        found = _from_file(Path(fspath(picture)), image)
    if min(found.size) < 1:
        raise InputError(f"the picture is empty: {found.size[0]} x {found.size[1]} pixels.")
    if found.size[1] > _LARGEST:
        factor = _LARGEST / found.size[1]
        found = found.resize((max(1, round(found.size[0] * factor)), _LARGEST))
    grey = np.asarray(found, dtype=np.float32)
    return np.asarray(255 - grey if np.median(grey) < 128 else grey)


def _from_file(path: Path, image: Any) -> Any:
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "there is no such file"
        raise InputError(f"{str(path)!r}: {problem}; expected a picture.")
    try:
        with image.open(path) as opened:
            # What is transparent shows paper.
            colour = opened.convert("RGBA")
            paper = image.new("RGBA", colour.size, "white")
            return image.alpha_composite(paper, colour).convert("L")
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise InputError(f"{str(path)!r} cannot be read as a picture ({error}).") from error


def _from_array(array: NDArray[Any], image: Any) -> Any:
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
    return image.fromarray(np.ascontiguousarray(array)).convert("L")


_ZOOM, _FRAME = 3, 2
_TINT, _EDGE = np.array([255, 226, 140], dtype=np.float32), np.array([191, 77, 0], dtype=np.float32)


def staff_picture(
    sheet: NDArray[np.uint8],
    columns: tuple[float, float] | None = None,
    mark: tuple[float, float] | None = None,
) -> bytes:
    """PNG, three times as large, of the columns from..to of a staff line (width, 40).

    The columns of `mark` have a yellow ground between two lines.
    """
    width = len(sheet)
    first, last = (0, width) if columns is None else _within(columns, width)
    image = require("PIL.Image", extra="music", purpose="Writing pictures")
    size = (_ZOOM * (last - first), _ZOOM * sheet.shape[1])
    drawn = image.fromarray(np.ascontiguousarray(sheet[first:last].T))
    page = np.asarray(drawn.resize(size, image.Resampling.LANCZOS))
    colour = np.repeat(page[:, :, None].astype(np.float32), 3, axis=2)
    if mark is not None:
        begin, end = (_ZOOM * (place - first) for place in _within(mark, width))
        begin, end = max(0, begin), min(colour.shape[1], end)
        if begin < end:
            # Paper takes the tint, and ink stays black.
            colour[:, begin:end] *= _TINT / 255
            colour[:, begin : begin + _FRAME] = _EDGE
            colour[:, max(begin, end - _FRAME) : end] = _EDGE
    content = io.BytesIO()
    image.fromarray(colour.astype(np.uint8)).save(content, format="PNG")
    return content.getvalue()


def _within(columns: tuple[float, float], width: int) -> tuple[int, int]:
    first, last = columns
    if not first <= last:
        raise InputError(f"columns must be from..to, got {first:g} and {last:g}.")
    begin = min(max(0, int(np.floor(first))), width - 1)
    return begin, max(begin + 1, min(width, int(np.ceil(last))))
