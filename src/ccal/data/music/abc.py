"""ABC texts: their tunes, and what a key or a metre without further words means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ccal.errors import InputError

__all__ = ["Tune", "default_length", "signature", "split_tunes"]

_FIFTHS = dict(zip("FCGDAEB", range(-1, 6), strict=True))
# How many fifths a mode's signature lies from that of the major key on the same note.
_MODES = {"maj": 0, "ion": 0, "mix": -1, "dor": -2, "min": -3, "aeo": -3, "phr": -4, "loc": -5}
_MODES |= {"m": -3, "lyd": 1}


@dataclass(frozen=True)
class Tune:
    """One tune: its ABC as it was written, its name, and where it came from."""

    abc: str
    name: str
    source: str

    @property
    def title(self) -> str:
        """Name and source, for messages."""
        return f"{self.name!r} ({self.source})"


def split_tunes(text: str, source: str) -> list[Tune]:
    r"""The tunes of an ABC text: each begins with a line `X:`.

    >>> [tune.title for tune in split_tunes("X:1\nT:Air\nK:C\nCDE|\n\nX:7\nK:C\nc|", "a.abc")]
    ["'Air' (a.abc, X:1)", "'untitled' (a.abc, X:7)"]
    """
    tunes = []
    for part in re.split(r"^(?=X:)", text.replace("\r\n", "\n").replace("\r", "\n"), flags=re.M):
        number = re.match(r"X:\s*([^\n]*)", part)
        if number is None:
            continue
        name = re.search(r"^T:\s*(\S[^\n]*)", part, flags=re.M)
        where = f"{source}, X:{number[1].strip()}"
        tunes.append(Tune(part.strip() + "\n", name[1].strip() if name else "untitled", where))
    return tunes


def signature(key: str) -> int:
    """Sharps (positive) or flats (negative) of the content of a `K:` field, in any mode.

    >>> signature("Dmix"), signature(" F#m"), signature("Bb"), signature("A dorian"), signature("C")
    (1, 3, -2, 1, 0)
    """
    text = key.strip()
    if re.match(r"(none|perc|clef|$)", text, flags=re.I):
        return 0
    if re.match(r"HP\b", text, flags=re.I):
        return 2
    found = re.match(r"([A-G])([#b]?)\s*([A-Za-z]*)", text)
    if found is None:
        raise InputError(f"the key {text!r} is not one such as G or Em.")
    tonic, accidental, word = found.groups()
    # "EM" is E major and "Em" E minor; other words, such as "treble", say nothing of the mode.
    mode = "maj" if word == "M" else word[:3].lower()
    fifths = _FIFTHS[tonic] + {"#": 7, "b": -7, "": 0}[accidental] + _MODES.get(mode, 0)
    if not -7 <= fifths <= 7:
        raise InputError(f"the key {text!r} has more than seven accidentals.")
    return fifths


def default_length(metre: str) -> Fraction:
    """The length of a note without a number where there is no `L:` field, in whole notes.

    >>> default_length("2/4"), default_length("C|")
    (Fraction(1, 16), Fraction(1, 8))
    """
    found = re.match(r"\s*(\d+)\s*/\s*([1-9]\d*)", metre)
    short = found is not None and Fraction(int(found[1]), int(found[2])) < Fraction(3, 4)
    return Fraction(1, 16 if short else 8)
