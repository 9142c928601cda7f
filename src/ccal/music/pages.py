"""Pages of sheet music, as pictures or PDF files, and the staff lines on them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.features.loading import load_image, path_name, read_file
from ccal.music.staves import Floats, Staff, find_staves, straighten
from ccal.optional import require

Page = str | PathLike[str] | bytes | NDArray[Any]
"""The path or the bytes of a picture or a PDF file, or an array."""

# Pixels to which larger pages are scaled (A4 at 170 dots per inch), and dots per inch for PDF.
_LARGEST, _DPI = 2_800_000, 150
_MOST_PAGES = 40
# PDFium must not be called by two threads at once.
_PDFIUM = threading.Lock()


@dataclass(frozen=True)
class StaffLine:
    """A line of music that was found on a page.

    Args:
        page: number of the page, from 0.
        number: number of the line on its page, from 0.
        ink: the line (columns, 40), straight and level, 4 pixels from line to line, ink 1.
        outline: corners around it, as shares (x, y) of the page's width and height.
    """

    page: int
    number: int
    ink: Floats
    outline: list[tuple[float, float]]


def read_lines(
    source: Page, each: Callable[[Floats], object] = lambda page: None
) -> list[StaffLine]:
    """The staff lines of a picture, or of all pages of a PDF file, from top to bottom.

    Pictures may be scans, photographs or exported pages of any size: transparent, turned by some
    degrees, bent, unevenly lit, white on black. Titles and texts are passed over. Arrays are
    (height, width) or (height, width, 3), of uint8 from 0, black, to 255, or of floats to 1.
    `each` is called with every page as it is read, (height, width) from 0, black, to 255.
    `InputError` says what was looked for if there is no staff.
    """
    found: list[StaffLine] = []
    shapes = []
    for number, grey in enumerate(_greys(source)):
        each(grey)
        shapes.append(grey.shape)
        found += _lines(grey, number)
    if not found:
        heights = " and ".join(f"{width} x {height}" for height, width in shapes[:2])
        raise InputError(
            f"no staff was found in the picture of {heights} pixels: five lines, one above the "
            "other at equal distances of 4 pixels or more, from left to right and turned by at "
            "most 8 degrees. Is it sharp and upright? A line of music should be 500 pixels wide."
        )
    return found


def ink_of(grey: Floats) -> Floats:
    """A page (height, width) of grey from 0 to 255 as ink from 0 to 1, the paper made even.

    Paper may be dark, shaded and stained; white on black is inverted.

    >>> page = np.full((90, 90), 200, dtype=np.float32) - np.arange(90, dtype=np.float32)
    >>> page[40:42] *= 0.2
    >>> ink = ink_of(page)
    >>> bool(ink[40:42].min() > 0.8), bool(ink[:30].max() < 0.1)
    (True, True)
    """
    near = _paper(grey, 0.5)
    lighter = np.maximum(grey - near, 0)
    darker = np.maximum(near - grey, 0)
    if (lighter**2).sum() > (darker**2).sum():
        grey = 255 - grey
    paper = np.maximum(_paper(grey, 0.8), 1)
    ink = np.clip(1 - grey / paper, 0, 1)
    black = np.quantile(ink[ink > 0.15], 0.9) if (ink > 0.15).any() else 1.0
    return np.asarray(np.clip(ink / black, 0, 1), dtype=np.float32)


def is_pdf(source: bytes) -> bool:
    """Whether the first bytes of a file are those of a PDF file."""
    return source[:1024].lstrip().startswith(b"%PDF")


def measure_pdf(content: bytes) -> tuple[int, int]:
    """The number of pages, and the pixels of the largest picture on them; nothing is decoded."""
    with _opened(content, "the PDF file") as document:
        count, kinds = len(document), [_pdfium().raw.FPDF_PAGEOBJ_IMAGE]
        pages = (document[number] for number in range(min(count, _MOST_PAGES)))
        pictures = (one for page in pages for one in page.get_objects(filter=kinds))
        sizes = [one.get_px_size() for one in pictures]
        return count, max((width * height for width, height in sizes), default=0)


def _greys(source: Page) -> Iterator[Floats]:
    """Each page as (height, width) from 0, black, to 255, one at a time."""
    name = "the file"
    if isinstance(source, np.ndarray):
        source = _eight_bits(source)
    elif not isinstance(source, bytes):
        name, source = path_name(source), read_file(source)
    if isinstance(source, bytes) and is_pdf(source):
        yield from _pdf(source, name)
    else:
        yield _grey(load_image(source, name=name))


def _grey(image: Any) -> Floats:
    """At most 2.8 million pixels."""
    factor = min(1.0, (_LARGEST / (image.size[0] * image.size[1])) ** 0.5)
    if factor < 1:
        size = [max(1, round(side * factor)) for side in image.size]
        image = image.convert("L").resize(size, 4)
    return np.asarray(image.convert("L"), dtype=np.float32)


def _pdf(content: bytes, name: str) -> Iterator[Floats]:
    with _opened(content, name) as document:
        count = len(document)
    if count > _MOST_PAGES:
        raise InputError(
            f"{name}: it has {count:,} pages, and at most {_MOST_PAGES} are read; "
            "take out those with the tunes."
        )
    for number in range(count):
        # Others may use PDFium while the lines of a page are looked for.
        with _opened(content, name) as document:
            page = document[number]
            width, height = page.get_size()
            scale = min(_DPI / 72, (_LARGEST / max(width * height, 1)) ** 0.5)
            grey = _grey(page.render(scale=scale, grayscale=True).to_pil())
        yield grey


@contextmanager
def _opened(content: bytes, name: str) -> Iterator[Any]:
    """A PDF document, for one thread at a time."""
    module = _pdfium()
    with _PDFIUM:
        try:
            document = module.PdfDocument(content)
            try:
                yield document
            finally:
                document.close()
        except module.PdfiumError as error:
            raise InputError(f"{name}: cannot be read as a PDF file: {error}.") from error


def _pdfium() -> Any:
    return require("pypdfium2", extra="music", purpose="Reading PDF files")


def _paper(grey: Floats, share: float) -> Floats:
    """How light the paper is, or another quantile: taken in blocks, and smooth between them."""
    height, width = grey.shape
    block = max(8, max(height, width) // 24)
    rows, columns = max(1, height // block), max(1, width // block)
    ys = np.linspace(0, height, rows + 1).astype(int)
    xs = np.linspace(0, width, columns + 1).astype(int)
    coarse = np.array(
        [[np.quantile(grey[a:b:2, c:d:2], share) for c, d in pairwise(xs)] for a, b in pairwise(ys)]
    )
    x, y = (xs[1:] + xs[:-1]) / 2, (ys[1:] + ys[:-1]) / 2
    wide = np.stack([np.interp(np.arange(width), x, row) for row in coarse])
    at = np.interp(np.arange(height), y, np.arange(rows))
    low = np.minimum(at.astype(int), max(0, rows - 2))
    part = (at - low)[:, None].astype(np.float32)
    high = np.minimum(low + 1, rows - 1)
    return np.asarray(wide[low] * (1 - part) + wide[high] * part, dtype=np.float32)


def _lines(grey: Floats, page: int) -> list[StaffLine]:
    ink = ink_of(grey)
    return [_line(ink, staff, page, n) for n, staff in enumerate(find_staves(ink))]


def _line(ink: Floats, staff: Staff, page: int, number: int) -> StaffLine:
    """A staff straightened, with 4 spaces above and below its middle as the outline."""
    height, width = ink.shape
    corners = []
    for side in (-1, 1):
        down = side * 4 * staff.space
        edge = zip((staff.x - staff.slope * down) / width, (staff.y + down) / height, strict=True)
        points = [(min(max(float(x), 0.0), 1.0), min(max(float(y), 0.0), 1.0)) for x, y in edge]
        # A staff is smooth: some of its points are enough.
        some = points[:: max(1, len(points) // 8)]
        some = some if some[-1] == points[-1] else [*some, points[-1]]
        corners += some if side < 0 else some[::-1]
    return StaffLine(page, number, straighten(ink, staff), corners)


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
    return np.repeat(array[..., None], 3, axis=2) if array.ndim == 2 else array
