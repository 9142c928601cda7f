"""A score as one staff line in pixels, with the position of each note head.

The drawing must stay bit-identical (see `rendering`): keep the options and the rasteriser as they
are. The engraver runs in a child process, which may crash or hang without harm to this one; its
state is lost after each tune.
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
from ccal.music.mei import to_mei
from ccal.music.score import Score
from ccal.optional import require

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
_HEAD = re.compile(
    r'<g id="n(\d+)h\d+" class="note">\s*<g class="notehead">\s*'
    r'<use [^>]*transform="translate\((-?\d+), (-?\d+)\)'
)
_LINE = re.compile(r'class="staff">\s*<path d="M-?\d+ (-?\d+) L')


@dataclass(frozen=True)
class Engraving:
    """A staff line and the columns of its onsets.

    `pixels` (40, width) of uint8, black 0 on white 255, the middle line of the staff in row 20.
    `left` and `centre` (onsets,) are the columns of the left edge and of the centre of the leftmost
    note head of each onset, as in `Score.attacks`.
    """

    pixels: NDArray[np.uint8]
    left: NDArray[np.float64]
    centre: NDArray[np.float64]


def engrave(score: Score, *, space: float = 4.0, timeout: float = 60.0) -> Engraving:
    """Engrave a score on one unbroken staff, `space` pixels from line to line.

    `InputError` says what went wrong. With the default of 4 pixels, the heads of MIDI notes 55 (g)
    to 86 (d) are within the 40 rows, except for half a pixel of the lowest; stems, beams and tuplet
    numbers beyond the rows are cut off.
    """
    # Imported here, since each child would have to import it again.
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
    # Only the thread that imported the module knows its fonts, and this may be another.
    toolkit.setResourcePath(str(Path(module.__file__).parent / "data"))
    toolkit.setOptions(_OPTIONS)
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


def _raster(svg: str, *, middle: int, size: tuple[int, int], scale: float) -> NDArray[np.uint8]:
    """40 rows around the staff, (40, width), of a picture of `size` (width, height) units."""
    columns = int(np.ceil(size[0] * scale))
    # Half a pixel more, so that a staff line fills one row instead of half of two.
    top = middle - (ROWS / 2 + 0.5) / scale
    view = f"0 {top / 10:.4f} {columns / scale / 10:.4f} {ROWS / scale / 10:.4f}"
    outer = f'<svg width="{columns}" height="{ROWS}" viewBox="{view}"'
    svg = re.sub(r'<svg viewBox="[^"]*"', outer, svg, count=1)
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
    child = context.Process(target=_send_result, args=(sending, function, arguments))
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
    sending: Connection[Any, Any], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """The child: it computes the result, or the error, without printing anything."""
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
