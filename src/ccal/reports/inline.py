"""Figures as part of a page: SVG elements that follow its colours and its type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ccal.reports.style import DARK, GRID, INK, MUTED, PAPER, SERIES, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["colour_variables", "inline_svg"]

_NAMES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)},
}


def colour_variables(*, dark: bool) -> str:
    """CSS that gives every colour of the plots its value on a light or a dark page.

    >>> colour_variables(dark=False).split("; ")[0]
    '--ink: #1f2328'
    """
    return "; ".join(
        f"{name}: {DARK[colour] if dark else colour}" for colour, name in _NAMES.items()
    )


def inline_svg(figure: Figure, *, label: str, prefix: str, css_class: str) -> str:
    """The figure as an `<svg>` element to stand in HTML, with `label` as its text alternative.

    `prefix` keeps its identifiers apart from those of other figures on the page.
    """
    root = ElementTree.fromstring(render(figure, "svg"))
    for parent in root.iter():
        for child in list(parent):
            # Metadata names schemas by address; the style sheet would rule the whole page.
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    uses = " ".join(value for element in root.iter() for value in element.attrib.values())
    wanted = set(re.findall(r"#([\w-]+)", uses))
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {
            _local(name): _value(_local(name), value, prefix)
            for name, value in element.attrib.items()
            if name != "id" or value in wanted
        }
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    # The first patch is the figure's own background: the page has one.
    background = root.find("g/g/path")
    if background is not None:
        background.set("style", "fill: none")
    root.attrib.update({"role": "img", "aria-label": label, "class": css_class})
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "style":
        return re.sub(r"#[0-9a-f]{6}\b", lambda match: _variable(match.group()), value)
    if name == "href":
        return value.replace("#", f"#{prefix}-")
    return value.replace("url(#", f"url(#{prefix}-")


def _variable(colour: str) -> str:
    return f"var({_NAMES[colour]})" if colour in _NAMES else colour
