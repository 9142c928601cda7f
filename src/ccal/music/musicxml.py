"""MusicXML as ABC: the first voice of the first part becomes a tune like any other."""

import io
import re
import zipfile
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

from ccal.errors import InputError
from ccal.music.abc import Tune
from ccal.music.abc_writing import key_text, pitch_text, tempo_text
from ccal.music.score import Pitch

SUFFIXES = (".musicxml", ".mxl", ".xml")
_LARGEST = 50_000_000
# Quarter notes in a beat of a metronome mark.
_BEATS = {"whole": 4.0, "half": 2.0, "quarter": 1.0, "eighth": 0.5, "16th": 0.25}

Element = ElementTree.Element


def read_musicxml(file: Path) -> Tune:
    """A MusicXML file, compressed or not, as a tune.

    Repeats are not played out; grace notes, words and chord symbols are left out, as in ABC.
    Raises `InputError` if the file cannot be read.
    """
    root = _root(file)
    part = root.find("part")
    if root.tag != "score-partwise" or part is None:
        raise InputError(
            f"it is no MusicXML by parts: it begins with <{root.tag}>, expected "
            "<score-partwise> with a <part>."
        )
    name = root.findtext("work/work-title") or root.findtext("movement-title") or file.stem
    name = " ".join(name.split()) or file.stem
    voice = _Voice()
    try:
        bars = [voice.bar(measure, first=not n) for n, measure in enumerate(part.iter("measure"))]
    except (ValueError, ZeroDivisionError, KeyError, IndexError) as error:
        raise InputError(f"it is damaged ({type(error).__name__}: {error}).") from error
    head = f"X:1\nT:{name}\n{tempo_text(_tempo(root))}"
    return Tune(head + "\n".join([*bars, ""]), name, file.name)


def _tempo(root: Element) -> float | None:
    """Quarter notes a minute, as it begins: how it sounds, or else as the metronome mark says."""
    for sound in root.iter("sound"):
        with suppress(ValueError):
            return float(sound.get("tempo") or "") or None
    for mark in root.iter("metronome"):
        number = re.search(r"\d+(?:\.\d+)?", mark.findtext("per-minute") or "")
        quarters = _BEATS.get(mark.findtext("beat-unit") or "")
        if number and quarters and float(number[0]) > 0:
            return (
                float(number[0]) * quarters * (1.5 if mark.find("beat-unit-dot") is not None else 1)
            )
    return None


class _Voice:
    """Writes the bars of a part, with the state that lasts from one to the next."""

    def __init__(self) -> None:
        self.divisions, self.fifths, self.metre = 1, 0, "4/4"
        self.voice: str | None = None

    def bar(self, measure: Element, first: bool) -> str:
        """A bar as ABC, with its metre and key if they are new; lengths are in eighths."""
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
            head = f"M:{self.metre}\nL:1/8\nK:{key_text(self.fifths)}\n"
        elif (self.fifths, self.metre) != before:
            head = f"[M:{self.metre}][K:{key_text(self.fifths)}]"
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
        actual, normal = (
            int(note.findtext(f"time-modification/{kind}-notes") or 1)
            for kind in ("actual", "normal")
        )
        eighths = Fraction(int(note.findtext("duration") or ""), self.divisions) * 2
        # A note of a tuplet sounds for a part of its written length.
        written = eighths * actual / normal
        length = "" if written == 1 else f"{written.numerator}/{written.denominator}"
        text = self._head(note, length, signs)
        if note.find("chord") is not None and notes and not notes[-1].startswith("z"):
            notes[-1] = _with(notes[-1], text)
        elif any(t.get("type") == "start" for t in note.iter("tuplet")):
            notes.append(f"({actual}:{normal}:{actual}{text}")
        else:
            notes.append(text)

    def _head(self, note: Element, length: str, signs: dict[tuple[str, int], int]) -> str:
        pitch = note.find("pitch")
        if pitch is None:
            return f"z{length}"
        step, octave = pitch.findtext("step") or "", int(pitch.findtext("octave") or "")
        alter = round(float(pitch.findtext("alter") or 0))
        head = pitch_text(Pitch(step.lower(), octave, alter), signs, self.fifths)
        tie = "-" if any(t.get("type") == "start" for t in note.iter("tie")) else ""
        return f"{head}{length}{tie}"


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
            raise ValueError("it declares XML entities, which are not read")
        return ElementTree.fromstring(content)
    except (OSError, ElementTree.ParseError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise InputError(f"it cannot be read as MusicXML ({error}).") from error


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
