"""Pictures for people: a staff line with a part marked, and a preview of rendered pairs."""

import io
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.files import write_atomically
from ccal.music.pairs import SheetAudioPairs
from ccal.optional import require

# Pixels of a picture for one of the staff line, and of the lines around a marked part.
_ZOOM, _EDGE_WIDTH = 3, 2
_TINT, _EDGE = np.array([255, 226, 140], dtype=np.float32), np.array([191, 77, 0], dtype=np.float32)
# The preview: columns of each tune, pixels between its parts, and the number of pairs.
_WIDTH, _GAP, _PAIRS = 620, 12, 6
_RED = np.array([255, 0, 0], dtype=np.uint8)


def staff_picture(
    sheet: NDArray[np.uint8],
    columns: tuple[float, float] | None = None,
    mark: tuple[float, float] | None = None,
) -> bytes:
    """PNG, enlarged three times, of the columns from..to of a staff line (width, 40).

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
        begin, end = (_ZOOM * (column - first) for column in _within(mark, width))
        begin, end = max(0, begin), min(colour.shape[1], end)
        if begin < end:
            # Paper takes the tint, and ink stays black.
            colour[:, begin:end] *= _TINT / 255
            colour[:, begin : begin + _EDGE_WIDTH] = _EDGE
            colour[:, max(begin, end - _EDGE_WIDTH) : end] = _EDGE
    return _png(colour.astype(np.uint8))


def write_preview(
    pairs: SheetAudioPairs, path: str | PathLike[str], *, tunes: int = 3, seed: int = 0
) -> None:
    """Write a PNG of the beginnings of some tunes and of six pairs.

    For each tune, red lines are on the note heads of the staff and on the onsets of the spectrogram
    (low notes at the bottom) below it; then come six pairs, sheet above audio.
    """
    if len(pairs) == 0:
        raise InputError("there are no pairs to show.")
    blocks: list[NDArray[np.uint8]] = []
    for number in pairs.tunes[:tunes].tolist():
        tune = pairs.store.tune(number)
        blocks.append(_marked(tune.sheet[:_WIDTH].T, np.floor(tune.onsets["centre"])))
        blocks.append(_marked(_grey(tune.audio[:_WIDTH].T), tune.onsets["frame"]))
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(pairs), size=min(_PAIRS, len(pairs)), replace=False))
    sheet, audio = pairs.batch(rows)
    blocks.append(_row([(255 * (1 - one[0])).astype(np.uint8) for one in sheet.numpy()]))
    blocks.append(_row([_grey(one[0]) for one in audio.numpy()]))
    width = max(block.shape[1] for block in blocks)
    below = [_padded(block, _GAP, width - block.shape[1]) for block in blocks]
    write_atomically(Path(fspath(path)), _png(np.concatenate(below)))


def _within(columns: tuple[float, float], width: int) -> tuple[int, int]:
    first, last = columns
    if not first <= last:
        raise InputError(f"columns must be from..to, got {first:g} and {last:g}.")
    begin = min(max(0, int(np.floor(first))), width - 1)
    return begin, max(begin + 1, min(width, int(np.ceil(last))))


def _grey(audio: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Spectrogram (136, n), loud parts dark and low notes at the bottom."""
    values = audio[::-1].astype(np.float32)
    # The root, since most of the sound would be too faint to see.
    relative = np.sqrt(np.maximum(values, 0) / max(float(values.max()), 1e-6))
    return np.asarray(255 * (1 - relative), dtype=np.uint8)


def _colour(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Enlarged and in three colours (h, w, 3)."""
    return np.repeat(np.kron(grey, np.ones((_ZOOM, _ZOOM), np.uint8))[:, :, None], 3, axis=2)


def _marked(grey: NDArray[np.uint8], columns: NDArray[np.floating]) -> NDArray[np.uint8]:
    """With a red line in the middle of each of these columns."""
    picture = _colour(grey)
    middles = (columns.astype(np.int64) * _ZOOM) + _ZOOM // 2
    picture[:, middles[middles < picture.shape[1]]] = _RED
    return picture


def _row(greys: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    return np.concatenate([_padded(_colour(grey), 0, _GAP) for grey in greys], axis=1)


def _padded(picture: NDArray[np.uint8], below: int, right: int) -> NDArray[np.uint8]:
    return np.pad(picture, ((0, below), (0, right), (0, 0)), constant_values=220)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    image = require("PIL.Image", extra="music", purpose="Writing pictures")
    content = io.BytesIO()
    image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()
