"""How printed music differs from book to book: fonts, widths, spacing, line breaks, other signs.

A look is drawn at random. It changes how a score is engraved, never which notes are written.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.optional import require

FONTS = ("Leipzig", "Bravura", "Leland", "Gootville", "Petaluma")
# Ranges of the engraver's options. Narrow pages crowd or stretch the notes of a line.
_RANGES = {
    "barLineWidth": (0.15, 0.6),
    "ledgerLineThickness": (0.12, 0.45),
    "slurMidpointThickness": (0.2, 0.8),
    "spacingLinear": (0.12, 0.45),
    "spacingNonLinear": (0.45, 0.75),
    "staffLineWidth": (0.1, 0.3),
    "stemWidth": (0.12, 0.4),
}
_WIDTHS = (1300, 2800)
# The share of the bars with a repeat sign, and the largest share of the notes with other signs.
_REPEATS, _SIGNS = 0.1, 0.15
_ORNAMENTS = ("mordent", "trill", "turn", "fermata")
_BAR = re.compile(r'(<measure [^>]*?)right="single"(.*?)(?=</measure>)')
_NOTE = re.compile(r'xml:id="(n\d+h0)"')


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    """Options of the engraver: another font, other widths, and several lines on a page."""
    options: dict[str, Any] = {n: float(rng.uniform(*ends)) for n, ends in _RANGES.items()}
    return options | {
        "beamMaxSlope": int(rng.integers(0, 16)),
        "breaks": "auto",
        "font": str(rng.choice(FONTS)),
        "pageHeight": 60000,
        "pageWidth": int(rng.integers(*_WIDTHS)),
        "spacingSystem": 20,
    }


def decorated(mei: str, rng: np.random.Generator) -> str:
    """The document with repeat signs, slurs, staccato dots and ornaments at some of its notes."""
    share = rng.uniform(0, _SIGNS) * (rng.random() < 0.7)

    def bar(found: re.Match[str]) -> str:
        begin, inside = found[1], found[2]
        kind = rng.random() / _REPEATS
        begin += 'right="rptend"' if kind < 0.5 else 'right="single"'
        begin += ' left="rptstart"' if 0.5 <= kind < 1 else ""
        notes, signs = _NOTE.findall(inside), []
        for place, note in enumerate(notes):
            if rng.random() >= share:
                continue
            if place + 1 < len(notes) and rng.random() < 0.6:
                last = notes[min(place + int(rng.integers(1, 4)), len(notes) - 1)]
                signs.append(f'<slur startid="#{note}" endid="#{last}"/>')
            else:
                signs.append(f'<{rng.choice(_ORNAMENTS)} startid="#{note}"/>')
        return begin + inside + "".join(signs)

    return _BAR.sub(bar, mei)


def with_letters(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A staff line (40, columns) with words above or below it, in every other look.

    Books print chords, bar numbers, titles and verses there; the engraver here has no letters.
    """
    if rng.random() < 0.5:
        return pixels
    purpose = "Drawing sheet music"
    image, draw, font = (
        require(f"PIL.{name}", extra="music", purpose=purpose)
        for name in ("Image", "ImageDraw", "ImageFont")
    )
    picture = image.fromarray(pixels)
    pen, size = draw.Draw(picture), float(rng.uniform(6, 10))
    letters = font.load_default(size)
    # Chords and titles are above the staff, verses below it.
    high = float(rng.uniform(-3, 3)) if rng.random() < 0.75 else float(rng.uniform(30, 36))
    column = float(rng.uniform(0, 60))
    while column < pixels.shape[1]:
        count = int(rng.integers(1, 4)) if rng.random() < 0.8 else int(rng.integers(4, 12))
        word = "".join(rng.choice(list("ABCDEFGabdegimnorstu7#0123"), count))
        pen.text((column, high), word, font=letters, fill=0)
        column += size * count * 0.6 + float(rng.uniform(10, 90))
    return np.array(picture)
