"""A score as one staff line in pixels, with the position of each note head.

The plain drawing must stay bit-identical (see `rendering`): keep its options and the rasteriser as
they are. The engraver runs in a child process, which may crash or hang without harm to this one;
its state is lost after each tune.
"""

from __future__ import annotations

import faulthandler
import io
import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ccal.errors import CcalError, InputError
from ccal.music.looks import decorated, random_options, with_letters
from ccal.music.mei import to_mei
from ccal.music.score import Score
from ccal.optional import require
from ccal.processes import end_with_parent

Result = TypeVar("Result")

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
_LINE_OR_HEAD = re.compile(
    r'class="staff">\s*<path d="M(-?\d+) (-?\d+) L(-?\d+)'
    r'|<g id="n(\d+)(?:p\d+)?h\d+" class="note">\s*<g class="notehead">\s*'
    r'<use [^>]*transform="translate\((-?\d+), (-?\d+)\)'
)
_MARGIN = re.compile(r'class="page-margin" transform="translate\((\d+), (\d+)\)"')
_SIZE = re.compile(r'class="definition-scale"[^>]*viewBox="0 0 (\d+) (\d+)"')
# Columns of paper between two lines that are laid one behind the other.
_GAP = 6
_VIEW = re.compile(r'<svg viewBox="0 0 (\d+) (\d+)"')


@dataclass(frozen=True)
class Engraving:
    """A staff line and the columns of its onsets.

    `pixels` (40, width) of uint8, black 0 on white 255, the middle line of the staff in row 20.
    `left` and `centre` (onsets,) are the columns of the left edge and of the centre of the leftmost
    note head of each onset, as in `Score.attacks`. `heads` (n, 2) are column and row of the centre
    of every head.
    """

    pixels: NDArray[np.uint8]
    left: NDArray[np.float64]
    centre: NDArray[np.float64]
    heads: NDArray[np.float64]


def engrave(
    score: Score, *, space: float = 4.0, timeout: float = 60.0, look: int | None = None
) -> Engraving:
    """Engrave a score on one unbroken staff, `space` pixels from line to line.

    `InputError` says what went wrong. With the default of 4 pixels, the heads of MIDI notes 55 (g)
    to 86 (d) are within the 40 rows, except for half a pixel of the lowest; stems, beams and tuplet
    numbers beyond the rows are cut off. A `look`, the seed of a random one (see `looks`), draws the
    lines of a page, and lays them one behind the other.
    """
    # Imported here, since each child would have to import it again.
    module = require("verovio", extra="music", purpose="Engraving")
    mei, options, rng = to_mei(score), _OPTIONS, np.random.default_rng(look)
    if look is not None:
        mei, options = decorated(mei, rng), _OPTIONS | random_options(rng)
    svg, timemap = in_child(_verovio, module, mei, options, timeout=timeout)
    onsets = score.attacks()
    _check_times(onsets, timemap)
    margin, size = _MARGIN.search(svg), _SIZE.search(svg)
    if margin is None or _LINE_OR_HEAD.search(svg) is None or size is None:
        raise InputError("the engraver's picture is not as expected; is this another version?")
    across, down, wide, high = (int(text) for text in (*margin.groups(), *size.groups()))
    scale, lines = space / _SPACE, _lines(svg)
    if look is None:
        pixels = _raster(svg, middle=down + lines[0].middle, size=(wide, high), scale=scale)
        begins = [(0.0, ROWS / 2 + 0.5 - (down + lines[0].middle) * scale)]
    else:
        page = _raster(svg, middle=None, size=(wide, high), scale=scale)
        pixels, begins = _in_a_row(page, lines, (across, down), scale)
        pixels = with_letters(pixels, rng)
    numbers, heads = [], []
    for line, (column, row) in zip(lines, begins, strict=True):
        for number, x, y in line.heads:
            numbers.append(number)
            heads.append((column + (across + x) * scale, row + (down + y) * scale))
    left: dict[int, float] = {}
    for number, (edge, _) in zip(numbers, heads, strict=True):
        left[number] = min(edge, left.get(number, edge))
    missing = [number for _, number in onsets if number not in left]
    if missing:
        raise InputError(f"the engraver left out {len(missing)} of {len(onsets)} notes.")
    edges = np.array([left[number] for _, number in onsets])
    half = _HEAD_WIDTH * scale / 2
    centres = np.array(heads).reshape(-1, 2) + np.array([half, 0.0])
    return Engraving(pixels, edges, edges + half, centres)


def engrave_page(score: Score, *, look: int, space: float = 12.0) -> NDArray[np.uint8]:
    """A page (height, width) in a random look, `space` pixels from line to line."""
    module = require("verovio", extra="music", purpose="Engraving")
    rng = np.random.default_rng(look)
    mei, options = decorated(to_mei(score), rng), _OPTIONS | random_options(rng)
    svg, _ = in_child(_verovio, module, mei, options, timeout=60)
    size = _SIZE.search(svg)
    assert size is not None
    page = _raster(svg, middle=None, size=(int(size[1]), int(size[2])), scale=space / _SPACE)
    # Books have margins.
    return np.pad(page, round(6 * space), constant_values=255)


@dataclass
class _Line:
    """A line of a page in the engraver's units: y of the middle line, x of both ends, heads."""

    middle: int
    ends: list[int]
    heads: list[tuple[int, int, int]]


def _lines(svg: str) -> list[_Line]:
    """The lines of a page. A head is its note's number, x of the left edge and y of the centre."""
    lines: list[_Line] = []
    for found in _LINE_OR_HEAD.finditer(svg):
        first, top, last, number, x, y = found.groups()
        if number is not None:
            lines[-1].heads.append((int(number), int(x), int(y)))
        elif lines and lines[-1].middle == int(top) + 2 * _SPACE:
            lines[-1].ends.append(int(last))
        else:
            lines.append(_Line(int(top) + 2 * _SPACE, [int(first), int(last)], []))
    return lines


def _in_a_row(
    page: NDArray[np.uint8], lines: list[_Line], margin: tuple[int, int], scale: float
) -> tuple[NDArray[np.uint8], list[tuple[float, float]]]:
    """The lines of a page one behind the other, with a gap, and what to add to page positions."""
    padded = np.pad(page, ((ROWS, ROWS), (_GAP, _GAP)), constant_values=255)
    strips: list[NDArray[np.uint8]] = []
    begins: list[tuple[float, float]] = []
    start = 0
    for line in lines:
        top = round((margin[1] + line.middle) * scale - ROWS / 2 - 0.5)
        first = max(0, round((margin[0] + min(line.ends)) * scale) - _GAP)
        last = round((margin[0] + max(line.ends)) * scale) + _GAP
        strips.append(padded[ROWS + top : 2 * ROWS + top, _GAP + first : _GAP + last])
        begins.append((float(start - first), float(-top)))
        start += strips[-1].shape[1]
    return np.concatenate(strips, axis=1), begins


def draw(score: Score, *, space: float = 4.0, timeout: float = 60.0) -> str:
    """The same staff line as a drawing in SVG, as wide as `engrave` makes it.

    Nothing above or below the staff is cut off.
    """
    module = require("verovio", extra="music", purpose="Engraving")
    svg, _ = in_child(_verovio, module, to_mei(score), _OPTIONS, timeout=timeout)
    width, height = (float(part) * 10 * space / _SPACE for part in _VIEW.findall(svg)[0])
    return svg.replace("<svg ", f'<svg width="{width:.2f}" height="{height:.2f}" ', 1)


def _verovio(module: Any, mei: str, options: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Picture and times; runs in a child."""
    module.enableLog(module.LOG_OFF)
    toolkit = module.toolkit(False)
    # Only the thread that imported the module knows its fonts, and this may be another.
    toolkit.setResourcePath(str(Path(module.__file__).parent / "data"))
    toolkit.setOptions(options)
    if not toolkit.loadData(mei):
        raise InputError("the engraver cannot read the score.")
    if toolkit.getPageCount() != 1:
        raise InputError("it is too long for one line of staff.")
    return toolkit.renderToSVG(1), toolkit.renderToTimemap({"includeRests": False})


def _check_times(onsets: list[tuple[Any, int]], timemap: list[dict[str, Any]]) -> None:
    """Compare the onsets with those that the engraver computed by itself."""
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


def _raster(
    svg: str, *, middle: int | None, size: tuple[int, int], scale: float
) -> NDArray[np.uint8]:
    """40 rows around the staff, (40, width), of a picture of `size` (width, height) units.

    Without a `middle`, all rows.
    """
    columns = int(np.ceil(size[0] * scale))
    rows = ROWS if middle is not None else int(np.ceil(size[1] * scale))
    # Half a pixel more, so that a staff line fills one row instead of half of two.
    top = 0.0 if middle is None else middle - (ROWS / 2 + 0.5) / scale
    view = f"0 {top / 10:.4f} {columns / scale / 10:.4f} {rows / scale / 10:.4f}"
    outer = f'<svg width="{columns}" height="{rows}" viewBox="{view}"'
    svg = re.sub(r'<svg viewBox="[^"]*"', outer, svg, count=1)
    # Without a size of its own the picture would be fitted into the view.
    inner = f'<svg width="{size[0] / 10}" height="{size[1] / 10}" class="definition-scale"'
    svg = svg.replace('<svg class="definition-scale"', inner, 1)
    resvg = require("resvg_py", extra="music", purpose="Drawing sheet music")
    image = require("PIL.Image", extra="music", purpose="Drawing sheet music")
    png = resvg.svg_to_bytes(svg_string=svg, background="#ffffff", skip_system_fonts=True)
    with image.open(io.BytesIO(bytes(png))) as picture:
        pixels = np.asarray(picture.convert("L"))
    if pixels.shape != (rows, columns):
        raise InputError(f"the picture has the size {pixels.shape}, not {(rows, columns)}.")
    return pixels


class ChildFailedError(InputError):
    """A child process crashed, or took too long."""


def in_child(function: Callable[..., Result], *arguments: Any, timeout: float) -> Result:
    """function(*arguments), computed in a forked child of this process.

    The child sees everything that this process has loaded, and leaves no trace in it. Raises
    `InputError` if the function does, and `ChildFailedError` if the child crashes or takes longer
    than `timeout` seconds. The function must use no threads: a fork does not copy them.

    >>> in_child(divmod, 17, 5, timeout=10)
    (3, 2)
    """
    if not hasattr(os, "fork"):
        raise CcalError("Engraving needs a system with fork, such as Linux or macOS.")
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(sending, function, arguments, os.getpid()))
    child.start()
    sending.close()
    try:
        if not receiving.poll(timeout):
            raise ChildFailedError(f"no result after {timeout:g} seconds.")
        result, error = receiving.recv()
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise ChildFailedError(f"the child process crashed ({how}).") from None
    finally:
        child.kill()
        child.join()
        receiving.close()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _send_result(
    sending: Connection[Any, Any],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    parent: int,
) -> None:
    """The child: it computes the result, or the error, without printing anything."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        answer: tuple[Any, CcalError | None] = (function(*arguments), None)
    except CcalError as error:
        answer = (None, error)
    except Exception as error:
        answer = (None, InputError(f"{type(error).__name__}: {error}"))
    sending.send(answer)
