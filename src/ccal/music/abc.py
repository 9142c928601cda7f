"""ABC notation: a text becomes tunes, and a tune a score of one voice, played through once.

Chord symbols and other quoted text, decorations, slurs and grace notes are left out: they have no
time of their own. Repeat signs become bar lines, and first and second endings follow each other: a
staff that is read once from left to right belongs to a recording that plays it once. An accidental
holds for its octave until the bar line, and over a tie. A tie between two different pitches, which
people write for a slur, is ignored.

A directive of our own keeps the other voices of a MIDI file, which are heard but not written:
`%%accompaniment 3/2 1 43 47` holds the keys 43 and 47 (MIDI) for one quarter note, 3/2 of one after
the beginning.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from ccal.errors import InputError
from ccal.music.score import Bar, Note, Pitch, Score, Sounding, Tuplet

_FIFTHS = dict(zip("FCGDAEB", range(-1, 6), strict=True))
# Fifths from the signature of the major key to that of the mode on the same note.
_MODES = {"maj": 0, "ion": 0, "mix": -1, "dor": -2, "min": -3, "aeo": -3, "phr": -4, "loc": -5}
_MODES |= {"m": -3, "lyd": 1}
_LENGTH = r"\d*(?:/+\d*)*"
# Sign, letter, octave, length and tie.
_PITCH = rf"(\^\^|\^|__|_|=|)([A-Ga-g])([,']*)({_LENGTH})(-?)"
_TOKEN = re.compile(
    rf"""(?P<field>\[[A-Za-z]:[^\]]{{0,200}}\])
    | (?P<ending>(?:(?<=\|)|\[)\s*\d[\d,.-]*)
    | (?P<bar>\[?[|:]{{0,20}}\|[|:\]]*|::)
    | (?P<chord>\[[^\]|]{{0,200}}\]{_LENGTH}-?)
    | (?P<tuplet>\(\d(?::\d*){{0,2}})
    | (?P<note>{_PITCH})
    | (?P<rest>[zx]{_LENGTH})
    | (?P<bars_rest>[ZX])
    | (?P<broken>[<>]+)
    | (?P<space>\s+)
    | (?P<other>.)""",
    re.VERBOSE,
)
_ALTER = {"^^": 2, "^": 1, "=": 0, "_": -1, "__": -2}
ACCOMPANIMENT = "%%accompaniment"
_BAD_LINE = (
    f"the line `{ACCOMPANIMENT}{{}}` is not as expected: start and length in quarter notes, and "
    "keys from 0 to 127."
)
# A tuplet of so many notes takes the time of so many where it does not say so, in simple metres.
_TIME_OF = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}
_COMPOUND = ("6/8", "9/8", "12/8")
# Limits of what a person could have meant, so that a slip is no work of hours: characters of music,
# notes, whole notes in all and in one note, signs of one note for its length or octave.
_CHARACTERS, _NOTES, _WHOLES, _LONGEST, _SIGNS = 100_000, 10_000, 1000, 32, 8
_SHORTEST, _TUPLET = Fraction(1, 4096), 99
_TIME = re.compile(r"\d{1,6}(\.\d{1,9})?(/\d{1,9})?")


@dataclass(frozen=True)
class Tune:
    """One tune: its text in ABC, its name, and the file and number that it came from.

    `problem` says why a file could not be read; the text is empty then.
    """

    abc: str
    name: str
    source: str
    problem: str | None = None

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
        raise InputError(f"the key {text!r} is unknown; expected one such as G or Em.")
    tonic, accidental, word = found.groups()
    # "EM" is E major and "Em" E minor; other words, such as "treble", do not name a mode.
    mode = "maj" if word == "M" else word[:3].lower()
    fifths = _FIFTHS[tonic] + {"#": 7, "b": -7, "": 0}[accidental] + _MODES.get(mode, 0)
    if not -7 <= fifths <= 7:
        raise InputError(f"the key {text!r} has more than seven accidentals.")
    return fifths


def altered_by_key(step: str, fifths: int) -> int:
    """How a signature of `fifths` sharps (or flats, if negative) alters a note.

    >>> altered_by_key("f", 1), altered_by_key("c", 1), altered_by_key("b", -1)
    (1, 0, -1)
    """
    order = "fcgdaeb".index(step)
    return int(order < fifths) - int(6 - order < -fifths)


def default_length(metre: str) -> Fraction:
    """The length of a note without a number where there is no `L:` field, in whole notes.

    >>> default_length("2/4"), default_length("C|")
    (Fraction(1, 16), Fraction(1, 8))
    """
    found = re.match(r"\s*(\d+)\s*/\s*([1-9]\d*)", metre)
    short = found is not None and Fraction(int(found[1]), int(found[2])) < Fraction(3, 4)
    return Fraction(1, 16 if short else 8)


def parse_abc(abc: str) -> Score:
    r"""The score of one tune.

    >>> score = parse_abc('X:3\nT:Air\nM:3/4\nL:1/8\nK:D\n|:"G"d2 {a}f>g [ac]2:|[1 d2-e !f!f4 |]')
    >>> [str(note.length) for bar in score.bars for note in bar.notes]
    ['1/4', '3/16', '1/16', '1/4', '1/4', '1/8', '1/2']
    >>> [sound.midi for sound in score.sounding()]
    [74, 78, 79, 81, 73, 74, 76, 78]
    """
    header, body = _parts(abc)
    if len(body) > _CHARACTERS:
        raise InputError(
            f"it has {len(body):,} characters of music; a tune has {_CHARACTERS:,} at most."
        )
    reader = _Reader(header)
    # In this order, as quoted text may hold a brace or an exclamation mark. Plus signs enclose the
    # name of a decoration, or in old files a chord, which has the letters of notes only.
    for pattern in (r'"[^"]*"', r"![^!|]*!", r"\+[a-gz]*[h-y][a-z]*\+", r"\{[^}]*\}"):
        # Behind the last end nothing ends, and each beginning would be looked for one.
        last = body.rfind(pattern[-1]) + 1
        body = re.sub(pattern, "", body[:last]) + body[last:]
    for found in _TOKEN.finditer(body):
        reader.take(str(found.lastgroup), found[0])
    bars = [bar for bar in reader.bars if bar.notes]
    if not any(note.pitches for bar in bars for note in bar.notes):
        raise InputError("it has no notes.")
    _check_ties(bars)
    return Score(bars, _accompaniment(abc))


def _accompaniment(abc: str) -> list[Sounding]:
    """The keys of the directives."""
    found = []
    for line in re.findall(rf"^{ACCOMPANIMENT}(.*)", abc, flags=re.M):
        try:
            start, length, *keys = line.split()
            if not _TIME.fullmatch(start) or not _TIME.fullmatch(length):
                raise ValueError(line)
            at = Fraction(start), Fraction(length)
            sounds = [Sounding(*at, int(key)) for key in keys]
        except (ValueError, ZeroDivisionError) as error:
            raise InputError(_BAD_LINE.format(line)) from error
        if (
            at[0] < 0
            or at[1] <= 0
            or sum(at) > 4 * _WHOLES
            or not all(0 <= sound.midi <= 127 for sound in sounds)
        ):
            raise InputError(_BAD_LINE.format(line))
        found += sounds
    return found


def _parts(abc: str) -> tuple[dict[str, str], str]:
    """The header's fields, and the music on one line with its fields in brackets."""
    header: dict[str, str] = {}
    body: list[str] = []
    in_body = False
    for raw in abc.splitlines():
        line = raw.split("%")[0].rstrip()
        # A line of music can begin like a field: one note, and then a repeat sign.
        found = re.match(r"([A-Za-z+]):(?![|:])(.*)", line)
        if found is None:
            if in_body:
                body.append(line[:-1] if line.endswith("\\") else line + " ")
        elif not in_body:
            header[found[1]] = found[2].strip()
            in_body = found[1] == "K"
        elif found[1] in "KLMV":
            body.append(f"[{found[1]}:{found[2].strip()}]")
    if not in_body:
        raise InputError("it has no key: a line such as `K:G` must come before the music.")
    return header, "".join(body)


class _Reader:
    """Builds bars from one token after the other, with the state that lasts between tokens."""

    def __init__(self, header: dict[str, str]) -> None:
        self.fifths = signature(header["K"])
        self.metre = _metre(header.get("M", "4/4"))
        self.bars = [Bar(fifths=self.fifths, metre=self.metre)]
        self.unit = _unit(header["L"]) if "L" in header else default_length(self.metre or "")
        self.accidentals: dict[tuple[str, int], int] = {}
        self.tied: dict[tuple[str, int], int] = {}
        self.tuplet: Tuplet | None = None
        self.in_tuplet = 0
        self.broken = Fraction(1)
        self.joined = False
        self.count, self.wholes = 0, Fraction(0)

    def take(self, kind: str, text: str) -> None:
        """Read one token."""
        if kind in ("note", "chord", "rest", "broken", "tuplet"):
            _check_signs(text)
        if kind == "bar":
            self._close(open_=False)
        elif kind == "space":
            self.joined = False
        elif kind == "note":
            self._add(text, Fraction(1), tied=False)
        elif kind == "chord":
            inside, behind = text[1:].split("]")
            self._add(inside, _length(behind.rstrip("-")), tied=behind.endswith("-"))
        elif kind == "rest":
            self._append([], _length(text[1:]))
        elif kind == "tuplet":
            self._tuplet(text)
        elif kind == "broken":
            self._break(text)
        elif kind == "field":
            self._field(text[1], text[3:-1].strip())
        elif kind == "bars_rest":
            raise InputError("it has rests of several bars (Z), which are not supported.")

    def _add(self, heads: str, factor: Fraction, *, tied: bool) -> None:
        """A note or chord; the first head of a chord gives its length, if there is any head."""
        pitches: dict[tuple[str, int], Pitch] = {}
        lengths: list[Fraction] = []
        for sign, letter, shift, length, tie in re.findall(_PITCH, heads):
            line = (letter.lower(), 4 + letter.islower() + shift.count("'") - shift.count(","))
            if sign:
                self.accidentals[line] = alter = _ALTER[sign]
            else:
                usual = self.accidentals.get(line, altered_by_key(line[0], self.fifths))
                alter = self.tied.get(line, usual)
            pitch = Pitch(*line, alter, alter if sign else None, tied=tied or bool(tie))
            pitches.setdefault(line, pitch)
            lengths.append(_length(length))
        if pitches:
            self._append(list(pitches.values()), lengths[0] * factor)

    def _append(self, pitches: list[Pitch], length: Fraction) -> None:
        self.tied = {(p.step, p.octave): p.alter for p in pitches if p.tied}
        tuplet = self.tuplet if self.in_tuplet > 0 else None
        note = Note(tuple(pitches), length * self.unit * self.broken, tuplet, self.joined)
        self.count += 1
        self.wholes += note.length
        if self.count > _NOTES or self.wholes > _WHOLES:
            raise InputError(
                f"it has more than {_NOTES:,} notes, or is longer than {_WHOLES:,} whole notes."
            )
        if not _SHORTEST <= note.length <= _LONGEST:
            raise InputError(
                f"it has a note of {float(note.length):.3g} whole notes; {_SHORTEST} to {_LONGEST} "
                "can be written."
            )
        self.bars[-1].notes.append(note)
        self.broken, self.joined = Fraction(1), True
        self.in_tuplet -= 1

    def _tuplet(self, text: str) -> None:
        numbers = [int(part) if part else None for part in text[1:].split(":")]
        count, time_of, over = (*numbers, None, None)[:3]
        if not count:
            raise InputError(f"it has a tuplet of no notes, {text!r}.")
        if max(filter(None, numbers)) > _TUPLET:
            raise InputError(f"it has a tuplet {text!r}; its numbers go to {_TUPLET}.")
        usual = _TIME_OF.get(count, 3 if self.metre in _COMPOUND else 2)
        number = self.tuplet.number + 1 if self.tuplet else 0
        self.tuplet = Tuplet(number, count, time_of or usual)
        self.in_tuplet = over or count

    def _break(self, text: str) -> None:
        """`a>b`: the first note gets what the second loses; each further sign halves again."""
        notes = self.bars[-1].notes
        if notes:
            short = Fraction(1, 2 ** len(text))
            first, self.broken = (2 - short, short) if text[0] == ">" else (short, 2 - short)
            notes[-1] = replace(notes[-1], length=notes[-1].length * first)

    def _field(self, letter: str, content: str) -> None:
        if letter == "V":
            raise InputError("it has several voices; only tunes of one voice can be used.")
        if letter == "L":
            self.unit = _unit(content)
        elif letter in "KM":
            self._close(open_=True)
            if letter == "K":
                self.fifths = self.bars[-1].fifths = signature(content)
            else:
                self.metre = self.bars[-1].metre = _metre(content)

    def _close(self, *, open_: bool) -> None:
        """Begin a new bar, or go on with an empty one and its changes of key and metre."""
        self.joined = False
        self.accidentals = {} if not open_ else self.accidentals
        if self.bars[-1].notes:
            self.bars[-1].open = open_
            self.bars.append(Bar())


def _check_signs(text: str) -> None:
    if re.search(rf"\d{{{_SIGNS + 1}}}|(?:/\d*){{{_SIGNS + 1}}}|([,'<>])\1{{{_SIGNS}}}", text):
        raise InputError(
            f"it has {text[:20]!r}: more than {_SIGNS} digits or signs for a length or an octave."
        )


def _unit(text: str) -> Fraction:
    found = re.match(r"\s*1\s*/\s*(1|2|4|8|16|32|64)\b", text)
    if found is None:
        raise InputError(f"the unit of length {text!r} is not one such as 1/8.")
    return Fraction(1, int(found[1]))


def _metre(text: str) -> str | None:
    metre = text.replace(" ", "")
    if metre.lower() in ("", "none"):
        return None
    if not re.fullmatch(r"C\|?|[1-9]\d?/(1|2|4|8|16|32)", metre):
        raise InputError(f"the metre {text!r} is not one such as 6/8.")
    return metre


def _length(text: str) -> Fraction:
    """`3/2`, `/`, `//` or nothing, as a multiple of the unit."""
    number, *divisors = text.split("/")
    value = Fraction(int(number or 1))
    for divisor in divisors:
        if divisor == "0" * max(1, len(divisor)):
            raise InputError("it has a note whose length is divided by zero.")
        value /= int(divisor or 2)
    if value == 0:
        raise InputError("it has a note of no length.")
    return value


def _check_ties(bars: list[Bar]) -> None:
    """Leave ties only where the next note has the same pitch."""
    goals: set[int] = set()
    for bar in reversed(bars):
        for i, note in reversed(list(enumerate(bar.notes))):
            pitches = tuple(replace(p, tied=p.tied and p.midi in goals) for p in note.pitches)
            bar.notes[i] = replace(note, pitches=pitches)
            goals = {pitch.midi for pitch in pitches}
