"""A score as one line of staff in pixels, with the place of each note head."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.music.isolation import in_child
from ccal.data.music.mei import to_mei
from ccal.data.music.score import Score
from ccal.errors import InputError
from ccal.optional import require

__all__ = ["ROWS", "Engraving", "engrave"]

ROWS = 40
# The engraver's units: 1/10 of its pixels, of which a staff space (line to line) takes 18.
_SPACE = 180
_HEAD_WIDTH = 226
_OPTIONS = {
    "adjustPageHeight": True,
    "adjustPageWidth": True,
    "breaks": "none",
    "expandNever": True,
    "footer": "none",
    "header": "none",
    "inputFrom": "mei",
    "pageHeight": 3000,
    "pageMarginLeft": 20,
    "pageMarginRight": 20,
    "pageWidth": 60000,
    "scale": 100,
    # At a few pixels a space, thinner lines would be faint.
    "staffLineWidth": 0.25,
    "stemWidth": 0.3,
    "svgViewBox": True,
    "xmlIdSeed": 1,
}
_HEAD = re.compile(
    r'<g id="n(\d+)h\d+" class="note">\s*<g class="notehead">\s*'
    r'<use [^>]*transform="translate\((-?\d+), (-?\d+)\)'
)
_LINE = re.compile(r'class="staff">\s*<path d="M-?\d+ (-?\d+) L')


@dataclass(frozen=True)
class Engraving:
    """A staff line and where its onsets are.

    `pixels` (40, width) of uint8, black 0 on white 255, the middle line of the staff in row 20.
    `left` and `centre` (onsets,) are the columns of the left edge and of the centre of the leftmost
    note head of each onset, as in `Score.attacks`.
    """

    pixels: NDArray[np.uint8]
    left: NDArray[np.float64]
    centre: NDArray[np.float64]


def engrave(score: Score, *, space: float = 4.0, timeout: float = 60.0) -> Engraving:
    """Engrave a score on one unbroken staff, `space` pixels from line to line.

    The engraver works in a child process, where neither a crash nor what it remembers of one tune
    can do harm; `InputError` says what went wrong. With the default of 4 pixels, the heads of MIDI
    notes 55 (g) to 86 (d) are within the 40 rows, the lowest but for half a pixel; stems, beams and
    the numbers of tuplets beyond them are cut off.
    """
    # Imported here and not in the child, which would have to do so for every tune.
    module = require("verovio", extra="music", purpose="Engraving")
    svg, timemap = in_child(_verovio, module, to_mei(score), timeout=timeout)
    onsets = score.attacks()
    _check_times(onsets, timemap)
    heads: dict[int, int] = {}
    for number, x, _ in _HEAD.findall(svg):
        heads[int(number)] = min(int(x), heads.get(int(number), int(x)))
    missing = [number for _, number in onsets if number not in heads]
    if missing:
        raise InputError(f"the engraver left out {len(missing)} of {len(onsets)} notes.")
    margin = re.search(r'class="page-margin" transform="translate\((\d+), (\d+)\)"', svg)
    line = _LINE.search(svg)
    size = re.search(r'class="definition-scale"[^>]*viewBox="0 0 (\d+) (\d+)"', svg)
    if margin is None or line is None or size is None:
        raise InputError("the engraver's picture is not as expected; is this another version?")
    scale = space / _SPACE
    left = np.array([int(margin[1]) + heads[number] for _, number in onsets]) * scale
    middle = int(margin[2]) + int(line[1]) + 2 * _SPACE
    pixels = _raster(svg, middle=middle, size=(int(size[1]), int(size[2])), scale=scale)
    return Engraving(pixels, left, left + _HEAD_WIDTH * scale / 2)


def _verovio(module: Any, mei: str) -> tuple[str, list[dict[str, Any]]]:
    """Picture and times; runs in a child."""
    module.enableLog(module.LOG_OFF)
    toolkit = module.toolkit(False)
    # Fonts are known to the thread that imported the module only; this may be another.
    toolkit.setResourcePath(str(Path(module.__file__).parent / "data"))
    toolkit.setOptions(_OPTIONS)
    if not toolkit.loadData(mei):
        raise InputError("the engraver cannot read the score.")
    if toolkit.getPageCount() != 1:
        raise InputError("it is too long for one line of staff.")
    return toolkit.renderToSVG(1), toolkit.renderToTimemap({"includeRests": False})


def _check_times(onsets: list[tuple[Any, int]], timemap: list[dict[str, Any]]) -> None:
    """The engraver counts time for itself; it must come to the same result."""
    times = {
        int(name[1:].split("h")[0]): entry["qstamp"]
        for entry in timemap
        for name in entry.get("on", [])
        if "p" not in name
    }
    for start, number in onsets:
        if abs(times.get(number, -1.0) - float(start)) > 1e-3:
            raise InputError(
                f"note {number} begins after {float(start):g} quarter notes, "
                f"but the engraver says {times.get(number)}."
            )


def _raster(svg: str, *, middle: int, size: tuple[int, int], scale: float) -> NDArray[np.uint8]:
    """40 rows around the staff, (40, width), of a picture of `size` (width, height) units."""
    columns = int(np.ceil(size[0] * scale))
    # Half a pixel more, so that a staff line fills one row and is not smeared over two.
    top = middle - (ROWS / 2 + 0.5) / scale
    view = f"0 {top / 10:.4f} {columns / scale / 10:.4f} {ROWS / scale / 10:.4f}"
    svg = re.sub(
        r'<svg viewBox="[^"]*"',
        f'<svg width="{columns}" height="{ROWS}" viewBox="{view}"',
        svg,
        count=1,
    )
    # Without a size of its own the picture would be fitted into the view.
    inner = f'<svg width="{size[0] / 10}" height="{size[1] / 10}" class="definition-scale"'
    svg = svg.replace('<svg class="definition-scale"', inner, 1)
    resvg = require("resvg_py", extra="music", purpose="Drawing sheet music")
    image = require("PIL.Image", extra="music", purpose="Drawing sheet music")
    png = resvg.svg_to_bytes(svg_string=svg, background="#ffffff", skip_system_fonts=True)
    with image.open(io.BytesIO(bytes(png))) as picture:
        pixels = np.asarray(picture.convert("L"))
    if pixels.shape != (ROWS, columns):
        raise InputError(f"the picture has the size {pixels.shape}, not {(ROWS, columns)}.")
    return pixels
