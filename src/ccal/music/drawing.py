"""A staff line as a picture, with a place marked."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.optional import require

__all__ = ["staff_picture"]

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
