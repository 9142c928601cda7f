"""Shared by all plots: colours, fonts, figures without global state, files without dates."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ccal.optional import require

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

WIDE, NARROW = 8.4, 4.0
"""Widths in inches: of a page, and of a phone's screen."""

INK, MUTED, GRID, PAPER = "#1f2328", "#59626d", "#e3e6ea", "#ffffff"
SERIES = ("#0068a8", "#bf4d00", "#00755a", "#a0408f", "#846000", "#5a6270")
"""Line colours: told apart with any colour vision, and readable as small text on `PAPER`."""

_ON_DARK = ("#e8eaed", "#a8b0ba", "#33383f", "#15181c")
_SERIES_ON_DARK = ("#62b5f2", "#ff9a52", "#3fc9a3", "#e596d6", "#dfb953", "#b3bbc5")
DARK = dict(zip((INK, MUTED, GRID, PAPER, *SERIES), _ON_DARK + _SERIES_ON_DARK, strict=True))
"""The colour on a dark page of each colour on a light one."""

_MARKERS = ("o", "s", "^", "D", "v", "P")

_RC: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 14,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": PAPER,
    # The font that comes with matplotlib: the same figure on every machine.
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    # A legend inside the axes hides what is behind it, without a frame of its own.
    "legend.edgecolor": "none",
    "legend.facecolor": PAPER,
    "legend.fontsize": 8.5,
    "legend.framealpha": 0.85,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.7,
    "svg.fonttype": "none",
    # Without a salt the identifiers in an SVG are random, and no two files are the same.
    "svg.hashsalt": "ccal",
    "text.color": INK,
    # Names come from users: a dollar sign in them does not start a formula.
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelsize": 8.5,
    "xtick.major.size": 3,
    "xtick.minor.size": 0,
    "ytick.color": MUTED,
    "ytick.labelsize": 8.5,
    "ytick.major.size": 0,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Apply our settings of matplotlib for a while, then restore those of the caller."""
    style = require("matplotlib.style", extra="plots", purpose="Plotting")
    with style.context(_RC, after_reset=True), warnings.catch_warnings():
        # The font has no emoji; the browser that shows the SVG does.
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from font")
        yield


def look(index: int) -> tuple[str, str]:
    """Colour and marker of the line number `index`; the first 36 all differ.

    >>> look(0), look(6)
    (('#0068a8', 'o'), ('#0068a8', 's'))
    """
    turn = index // len(SERIES)
    return SERIES[index % len(SERIES)], _MARKERS[(index + turn) % len(_MARKERS)]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, sized in inches; pyplot does not know about it."""
    module = require("matplotlib.figure", extra="plots", purpose="Plotting")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure


def panel(axes: Axes, title: str, *, x: str = "", y: str = "", grid: str = "y") -> None:
    """The title, the labels of the axes, and a grid across the axis that is read."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=False, axis="x" if grid == "y" else "y")


@contextmanager
def chart(
    width: float, height: float, title: str, *, x: str = "", grid: str = "y"
) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one panel, and its axes to draw on; our settings hold meanwhile."""
    with drawing():
        figure = new_figure(width, height)
        axes = figure.subplots()
        panel(axes, title, x=x, grid=grid)
        yield figure, axes


def remark(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> None:
    """Small text beside the point `at`; the offset is in points."""
    style.setdefault("fontsize", 8)
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **style)


def whole_ticks(axes: Axes) -> None:
    """Ticks of the x axis at whole numbers only: there is no epoch 1.5."""
    ticker = require("matplotlib.ticker", extra="plots", purpose="Plotting")
    axes.xaxis.set_major_locator(
        ticker.MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )


def label_legend(
    target: Axes | Figure, handles: Sequence[Artist], labels: Sequence[str], **place: Any
) -> Legend:
    """A legend whose labels are shown as they are; matplotlib would drop those with a leading _."""
    legend = target.legend(list(handles), ["-"] * len(handles), **place)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
    return legend


def plain(text: str, limit: int = 36) -> str:
    """`text` on one line, at most `limit` characters, without characters that XML cannot hold.

    >>> plain("CCAL\\n(ours)"), plain("a very long name", limit=8)
    ('CCAL (ours)', 'a very …')
    """
    line = "".join(c if c.isprintable() else " " for c in text[: 20 * limit])
    line = " ".join(line.split())
    return line if len(line) <= limit and len(text) <= 20 * limit else line[: limit - 1] + "…"


def arrow(direction: str, limit: int = 36) -> str:
    """The name of a direction as people write it.

    >>> arrow("image -> text")
    'image → text'
    """
    return plain(direction, limit).replace(" -> ", " → ")


def render(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """The figure as a file, PNG at 150 dpi or SVG; the same bytes every time."""
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()
