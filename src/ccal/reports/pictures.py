"""Image files inside the page itself."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from ccal.errors import CcalError
from ccal.optional import require

__all__ = ["data_uri"]

_SIDE, _LONG_SIDE = 192, 1200
# Times longer than wide.
_STRIP = 4
_LARGEST = 200_000
_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


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
    kinds = (kind for start, kind in _TYPES.items() if content.startswith(start))
    kind = next(kinds, None)
    return kind and _uri(content, kind)


def _uri(content: bytes, kind: str) -> str:
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
