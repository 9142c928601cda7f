"""MusicXML as ABC: the first voice of the first part becomes a tune like any other."""

from __future__ import annotations

import io
import zipfile
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

from ccal.errors import InputError
from ccal.music.abc import Tune, altered_by_key

SUFFIXES = (".musicxml", ".mxl", ".xml")
_LARGEST = 50_000_000
_KEYS = ("Cb", "Gb", "Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B", "F#", "C#")
_SIGNS = {-2: "__", -1: "_", 0: "=", 1: "^", 2: "^^"}

Element = ElementTree.Element


def read_musicxml(file: Path) -> Tune:
    """A MusicXML file, compressed or not, as a tune.

    Repeats are not played out; grace notes, words and chord symbols are left out, as in ABC.
    """
    root = _root(file)
    part = root.find("part")
    if root.tag != "score-partwise" or part is None:
        raise InputError(
            f"{str(file)!r} is no MusicXML by parts: it begins with <{root.tag}>, expected "
            "<score-partwise> with a <part>."
        )
    name = root.findtext("work/work-title") or root.findtext("movement-title") or file.stem
    name = " ".join(name.split()) or file.stem
    try:
        music = _Voice().music(part)
    except (ValueError, ZeroDivisionError, KeyError, IndexError) as error:
        raise InputError(f"{str(file)!r} is damaged ({type(error).__name__}: {error}).") from error
    return Tune(f"X:1\nT:{name}\n{music}\n", name, file.name)


class _Voice:
    """Writes the bars of a part, with the state that lasts from one to the next."""

    def __init__(self) -> None:
        self.divisions, self.fifths, self.metre = 1, 0, "4/4"
        self.voice: str | None = None

    def music(self, part: Element) -> str:
        """Key, metre and bars as ABC, with a note length of 1/8 of a whole note."""
        bars = [self._bar(measure, first=not n) for n, measure in enumerate(part.iter("measure"))]
        return "\n".join(bars)

    def _bar(self, measure: Element, first: bool) -> str:
        before = (self.fifths, self.metre)
        signs: dict[tuple[str, int], int] = {}
        notes: list[str] = []
        for element in measure:
            if element.tag == "attributes":
                self._attributes(element)
            elif element.tag == "note":
                self._note(element, signs, notes)
        head = ""
        if first:
            head = f"M:{self.metre}\nL:1/8\nK:{_KEYS[self.fifths + 7]}\n"
        elif (self.fifths, self.metre) != before:
            head = f"[M:{self.metre}][K:{_KEYS[self.fifths + 7]}]"
        return f"{head}{' '.join(notes)}|"

    def _attributes(self, element: Element) -> None:
        self.divisions = int(element.findtext("divisions") or self.divisions)
        self.fifths = int(element.findtext("key/fifths") or self.fifths)
        beats, unit = element.findtext("time/beats"), element.findtext("time/beat-type")
        if beats and unit:
            self.metre = f"{sum(map(int, beats.split('+')))}/{int(unit)}"

    def _note(self, note: Element, signs: dict[tuple[str, int], int], notes: list[str]) -> None:
        voice = note.findtext("voice") or "1"
        self.voice = self.voice or voice
        # Other voices and staves are left out, as are grace notes, which have no time of their own.
        elsewhere = voice != self.voice or (note.findtext("staff") or "1") != "1"
        if elsewhere or note.find("grace") is not None:
            return
        text = self._head(note, signs)
        if note.find("chord") is not None and notes and not notes[-1].startswith("z"):
            notes[-1] = _with(notes[-1], text)
            return
        notes.append(self._tuplet(note) + text)

    def _head(self, note: Element, signs: dict[tuple[str, int], int]) -> str:
        length = self._length(note)
        pitch = note.find("pitch")
        if pitch is None:
            return f"z{length}"
        step, octave = pitch.findtext("step") or "", int(pitch.findtext("octave") or "")
        alter = round(float(pitch.findtext("alter") or 0))
        letter = step.lower() + "'" * (octave - 5) if octave >= 5 else step + "," * (4 - octave)
        sign = ""
        if alter != signs.get((step, octave), altered_by_key(step.lower(), self.fifths)):
            sign, signs[step, octave] = _SIGNS[alter], alter
        tie = "-" if any(t.get("type") == "start" for t in note.iter("tie")) else ""
        return f"{sign}{letter}{length}{tie}"

    def _length(self, note: Element) -> str:
        """The written length in eighths; a note of a tuplet sounds for a part of it."""
        eighths = Fraction(int(note.findtext("duration") or ""), self.divisions) * 2
        actual, normal = _modification(note)
        written = eighths * actual / normal
        return "" if written == 1 else f"{written.numerator}/{written.denominator}"

    def _tuplet(self, note: Element) -> str:
        """The sign before the first note of a tuplet."""
        if not any(t.get("type") == "start" for t in note.iter("tuplet")):
            return ""
        actual, normal = _modification(note)
        return f"({actual}:{normal}:{actual}"


def _modification(note: Element) -> tuple[int, int]:
    """The number of notes of a tuplet, and in the time of how many; (1, 1) outside of tuplets."""
    actual, normal = (
        int(note.findtext(f"time-modification/{name}-notes") or 1) for name in ("actual", "normal")
    )
    return actual, normal


def _with(stem: str, head: str) -> str:
    """A note or chord with one more note head.

    >>> _with("c2/1", "e2/1"), _with("[c2/1e2/1]", "g2/1")
    ('[c2/1e2/1]', '[c2/1e2/1g2/1]')
    """
    start = stem.rfind(":") + 2 if stem.startswith("(") else 0
    before, notes = stem[:start], stem[start:].strip("[]")
    return f"{before}[{notes}{head}]"


def _root(file: Path) -> Element:
    try:
        content = file.read_bytes()
        if zipfile.is_zipfile(io.BytesIO(content)):
            content = _unpacked(content)
        # Entities could make a small file fill the memory, and no score has them.
        if b"<!ENTITY" in content:
            raise InputError(f"{str(file)!r} declares XML entities, which are not read.")
        return ElementTree.fromstring(content)
    except InputError:
        raise
    except (OSError, ElementTree.ParseError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise InputError(f"{str(file)!r} cannot be read as MusicXML ({error}).") from error


def _unpacked(content: bytes) -> bytes:
    """The score of a compressed file: the first that its container names."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        for element in container.iter():
            name = element.get("full-path")
            if name and element.tag.endswith("rootfile"):
                if archive.getinfo(name).file_size > _LARGEST:
                    raise ValueError(f"{name} would be larger than {_LARGEST:,} bytes")
                return archive.read(name)
    raise ValueError("the archive names no score")
