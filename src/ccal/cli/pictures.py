"""Pictures in a terminal: by its graphics protocol, or of coloured half blocks."""

import base64
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

Graphics = Literal["kitty", "iterm", "true", "256"]
"""The graphics protocols of kitty and iTerm2, or half blocks in 24-bit or in 256 colours."""

_COLUMNS, _ROWS = 32, 12
_PIXELS = 384
_CHUNK = 4096
_LEVELS = (0, 95, 135, 175, 215, 255)


def terminal_graphics(
    environment: Mapping[str, str] = os.environ, terminal: bool | None = None
) -> Graphics | None:
    """How the terminal at stdout shows pictures, by its environment variables; None if it cannot.

    Asking the terminal is no option: an answer may never come, or end up in the next command.

    >>> [terminal_graphics({"TERM": "xterm-kitty"}, terminal) for terminal in (True, False)]
    ['kitty', None]
    """
    if not (sys.stdout.isatty() if terminal is None else terminal):
        return None
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if term in ("", "dumb"):
        return None
    # Multiplexers swallow images, or put them where another window is.
    if not term.startswith(("tmux", "screen")) and "TMUX" not in environment:
        if "kitty" in term or "ghostty" in term or "KITTY_WINDOW_ID" in environment:
            return "kitty"
        if program in ("iTerm.app", "WezTerm", "mintty"):
            return "iterm"
        if environment.get("LC_TERMINAL") == "iTerm2":
            return "iterm"
    if environment.get("NO_COLOR"):
        return None
    if environment.get("COLORTERM") in ("truecolor", "24bit"):
        return "true"
    return "256" if "256" in term else None


def picture(file: str | None, graphics: Graphics) -> str | None:
    """The text that shows an image file; None if the file is no image or cannot be read."""
    from ccal.features.scan import SUFFIXES

    if file is None or Path(file).suffix.lower() not in SUFFIXES or not Path(file).is_file():
        return None
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ModuleNotFoundError:
        return None
    try:
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
        return None
    if graphics in ("true", "256"):
        image.thumbnail((_COLUMNS, 2 * _ROWS))
        return "\n".join(_half_blocks(image, graphics))
    image.thumbnail((_PIXELS, _PIXELS))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    content = stream.getvalue()
    # A cell is about twice as high as it is wide.
    rows = max(1, min(_ROWS, round(_COLUMNS * image.height / image.width / 2)))
    return _kitty(content, rows) if graphics == "kitty" else _iterm(content, rows)


def _kitty(content: bytes, rows: int) -> str:
    """A PNG in pieces; q=2 asks for no answer."""
    text = base64.b64encode(content).decode()
    pieces = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    sent = []
    for number, piece in enumerate(pieces):
        first = f"a=T,f=100,q=2,r={rows}," if number == 0 else ""
        sent.append(f"\x1b_G{first}m={int(number + 1 < len(pieces))};{piece}\x1b\\")
    return "".join(sent)


def _iterm(content: bytes, rows: int) -> str:
    text = base64.b64encode(content).decode()
    about = f"inline=1;size={len(content)};height={rows};preserveAspectRatio=1"
    return f"\x1b]1337;File={about}:{text}\a"


def _half_blocks(image: Any, graphics: Graphics) -> Iterator[str]:
    """Lines of upper half blocks: the letter has the colour of one pixel, its ground the next."""
    pixels = image.load()
    for y in range(0, image.height, 2):
        line = ""
        for x in range(image.width):
            line += _colour(38, pixels[x, y], graphics)
            # An odd last row has no pixel below.
            line += _colour(48, pixels[x, y + 1], graphics) if y + 1 < image.height else ""
            line += "▀"
        yield f"{line}\x1b[0m"


def _colour(ground: int, pixel: tuple[int, int, int], graphics: Graphics) -> str:
    """Select a colour of the letter (38) or its ground (48).

    >>> _colour(38, (255, 0, 0), "256")
    '\\x1b[38;5;196m'
    """
    if graphics == "true":
        return f"\x1b[{ground};2;{pixel[0]};{pixel[1]};{pixel[2]}m"
    red, green, blue = (
        min(range(6), key=lambda level: abs(_LEVELS[level] - value)) for value in pixel
    )
    return f"\x1b[{ground};5;{16 + 36 * red + 6 * green + blue}m"
