"""Figures and images inside a page: SVG in the page's colours and font, files as data URIs."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ccal.errors import CcalError
from ccal.media_types import HEAD, IMAGES, sniff
from ccal.optional import require
from ccal.reports.style import DARK, SERIES, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SERIES = tuple(f"--series-{number}" for number in range(1, len(SERIES) + 1))
_NAMES = dict(zip(DARK, ("--ink", "--muted", "--grid", "--paper", *_SERIES), strict=True))
"""The CSS variable of each colour on a light page."""


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


_SIDE, _LONG_SIDE = 192, 1200
# Times longer than wide.
_STRIP = 4
_LARGEST = 200_000


def data_uri(path: Path) -> str | None:
    """The image as a data URI, scaled down to 192 pixels a side if Pillow is there.

    A long strip, such as a line of music, may have 1,200. None if the file cannot be read, is no
    image, or would be larger than 200 kB.
    """
    small = _scaled(path)
    if small is not None:
        return _uri(small, "image/jpeg")
    try:
        if path.stat().st_size >= _LARGEST:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    kind = sniff(content[:HEAD])
    return _uri(content, kind) if kind in IMAGES else None


def _uri(content: bytes, kind: str | None) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _scaled(path: Path) -> bytes | None:
    try:
        pillow = require("PIL.Image", extra="plots", purpose="Scaling images")
        turned = require("PIL.ImageOps", extra="plots", purpose="Scaling images")
    except CcalError:
        return None
    try:
        with pillow.open(path) as image:
            long = max(image.size) > _STRIP * min(image.size)
            side = _LONG_SIDE if long else _SIDE
            image.draft("RGB", (2 * side, 2 * side))
            picture = turned.exif_transpose(image)
            picture.thumbnail((side, side))
            if picture.mode != "RGB":
                # Transparent places become white, as on paper; JPEG would make them black.
                layer = picture.convert("RGBA")
                picture = pillow.new("RGB", layer.size, "white")
                picture.paste(layer, mask=layer.getchannel("A"))
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=82)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError):
        return None
    return buffer.getvalue()
