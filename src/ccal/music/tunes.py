"""Collections of tunes: read from files, grouped by melody, and split without sharing a melody.

One melody may come in several keys and under several names; a split must not have it on two sides.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import combinations
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.bounds import Whole, check
from ccal.data.splits import Split, part_size
from ccal.errors import CcalError, InputError
from ccal.media_types import HEAD, sniff
from ccal.media_types import MIDI as MIDI_TYPE
from ccal.music.abc import Tune, default_length, split_tunes
from ccal.music.midi import SUFFIXES as MIDI
from ccal.music.midi import read_midi
from ccal.music.musicxml import SUFFIXES as MUSICXML
from ccal.music.musicxml import read_musicxml
from ccal.optional import install_command

NOTATION = (".abc", *MUSICXML, *MIDI)
# A beat as a fraction of a whole note, and beats a minute: 3/8=120. Words may stand beside it.
_TEMPO = re.compile(r"(?:(\d+)/(\d+)(?:\s+\d+/\d+)*\s*=\s*)?(\d+(?:\.\d+)?)\s*(?:\"|$|\s)")
_SLOWEST, _FASTEST = 20.0, 400.0
# Printed in 1883 and 1903, and part of the package music21.
COLLECTIONS = {"ryan": "ryansMammoth", "oneill": "oneills1850"}
# Chosen on the Nottingham tunes: nearly all pairs that share a fifth of their runs have similar
# names. Freer versions of a tune share less and are not found.
_LENGTH, _SHARED = 8, 0.2


def read_tunes(
    path: str | PathLike[str],
    *,
    melody: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tune]:
    """The tunes of an ABC, MusicXML or MIDI file, or of all such files in a folder, by name.

    A MusicXML file (.musicxml, .mxl, .xml) gives one tune, the first voice of its first part. A
    MIDI file (.mid, .midi) gives one, too: `melody` is the number or name of the voice that is its
    score, if `read_midi` is not to choose it, and the other voices are heard with it. In a folder,
    a MIDI file is left out if there is notation of the same name (air.mid and air.abc, or
    airs7.mid and X:7 of airs.abc), and a file that cannot be read becomes a tune with a `problem`,
    which `build_store` leaves out. `progress` is called with the number of files read and their
    total.
    """
    where = Path(fspath(path))
    if where.is_dir():
        files = sorted(file for file in where.rglob("*") if file.suffix.lower() in NOTATION)
        if not files:
            raise InputError(f"the folder {str(where)!r} has no ABC, MusicXML or MIDI files.")
    elif where.is_file():
        files = [where]
    else:
        raise InputError(f"{str(where)!r} is neither a file nor a folder.")
    tunes: list[Tune] = []
    written: set[str] = set()
    # Stable: notation comes before MIDI, and each in order of name.
    files.sort(key=lambda file: file.suffix.lower() in MIDI)
    for done, file in enumerate(files):
        if progress is not None and done:
            progress(done, len(files))
        name = file.name if file == where else file.relative_to(where).as_posix()
        is_midi = file.suffix.lower() in MIDI
        if is_midi and file.stem in written:
            continue
        try:
            found = _tunes_of(file, name, melody)
        except InputError as error:
            found = [Tune("", file.stem, name, problem=str(error))]
        tunes.extend(found)
        if not is_midi:
            written |= {file.stem, *(file.stem + t.source.rpartition("X:")[2] for t in found)}
    if all(tune.problem is not None for tune in tunes):
        first = f"{str(where)!r}" if files == [where] else f"{str(where)!r}: {tunes[0].source}"
        raise InputError(f"{first}: {tunes[0].problem}")
    return tunes


def _tunes_of(file: Path, name: str, melody: str | None) -> list[Tune]:
    """The tunes of one file, whose content says what it is; `name` is for messages."""
    try:
        with file.open("rb") as content:
            head = content.read(HEAD)
    except OSError as error:
        raise InputError(f"it cannot be read ({error}).") from error
    type = sniff(head)
    if type == MIDI_TYPE or (type is None and file.suffix.lower() in MIDI):
        return [replace(read_midi(file, melody), source=name)]
    if type is not None:
        raise InputError(
            f"it is no notation but {type}; expected ABC, MusicXML or MIDI. To find the tune of a "
            "picture or a recording: ccal identify FILE."
        )
    is_xml = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"<", b"PK\3\4"))
    if is_xml or file.suffix.lower() in MUSICXML:
        return [replace(read_musicxml(file), source=name)]
    found = split_tunes(_text(file), name)
    if not found:
        raise InputError("it has no tunes: in ABC notation each begins with a line such as X:1.")
    return found


def holds_notation(folder: Path) -> bool:
    """Whether a folder, or one inside of it, has a file of notation."""
    return any(file.suffix.lower() in NOTATION for file in folder.rglob("*"))


def tempo_of(abc: str) -> float | None:
    r"""The tempo of the first field `Q:` of a tune, in quarter notes a minute, within 20 and 400.

    >>> tempo_of("X:1\nQ:3/8=120\nK:C\n"), tempo_of('X:1\nQ:"Allegro" 1/2=104\nK:C\n')
    (180.0, 208.0)
    >>> tempo_of("X:1\nL:1/8\nQ:120\nK:C\n"), tempo_of("X:1\nK:C\n")
    (60.0, None)
    """
    field = re.search(r"^Q:\s*([^%\n]*)", abc, flags=re.M)
    if field is None:
        return None
    # "C=120" and a number alone, in old files, count units of length.
    text = re.sub(r'"[^"]*"', " ", field[1]).replace("C", "").strip().removeprefix("=").strip()
    found = _TEMPO.match(text)
    if found is None:
        return None
    if found[1]:
        # Several lengths, as in 1/4 3/8 1/4=40, together are one beat.
        lengths = re.findall(r"(\d+)/(\d+)", text.partition("=")[0])
        beat = sum((Fraction(int(a), int(b)) for a, b in lengths if int(b)), Fraction(0))
    else:
        unit, metre = (re.search(rf"^{name}:\s*([^%\n]*)", abc, flags=re.M) for name in "LM")
        length = re.match(r"(\d+)/(\d+)", unit[1].strip()) if unit else None
        usual = default_length(metre[1] if metre else "")
        beat = Fraction(int(length[1]), max(int(length[2]), 1)) if length else usual
    quarters = float(4 * beat) * float(found[3])
    return min(max(quarters, _SLOWEST), _FASTEST) if quarters > 0 else None


def collection(name: str) -> list[Tune]:
    """A public-domain collection that is installed with the extra `music`.

    "ryan" is Ryan's Mammoth Collection (1883), 1,059 tunes; "oneill" is O'Neill's Music of
    Ireland (1903), 2,009 tunes.
    """
    if name not in COLLECTIONS:
        raise InputError(f"there is no collection {name!r}; there are {', '.join(COLLECTIONS)}.")
    # Only its files are needed; importing the package would take seconds.
    spec = find_spec("music21")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "corpus" / COLLECTIONS[name]
        if path.is_dir():
            return read_tunes(path)
    raise CcalError(
        f"The collection {name!r} is part of the package music21; "
        f"install it with: {install_command('music')}"
    )


def _text(file: Path) -> str:
    """The text of a file, in UTF-8 or, as in old files, in Latin-1."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read ({error}).") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def melody_groups(melodies: Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]) -> list[int]:
    """For each melody, pitches (n,) and starts (n,) in any unit, the number of its group.

    Melodies are compared by steps: the interval from one note to the next, and the time between
    them in relation to that of the step before, so that neither key nor unit matters. Two are in
    one group if the one with fewer runs of eight steps shares a fifth of them with the other (a
    shorter melody is one run), and so are two that each resemble a third. Groups are numbered by
    their first melody.

    >>> one = (np.array([60, 62, 64, 60]), np.array([0, 1, 2, 4]))
    >>> higher, other = (one[0] + 5, one[1] * 2), (np.array([60, 64, 62, 60]), one[1])
    >>> melody_groups([one, other, higher])
    [0, 1, 0]
    """
    runs = [_runs(pitches, starts) for pitches, starts in melodies]
    having: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, found in enumerate(runs):
        for run in found:
            having[run].append(number)
    shared: Counter[tuple[int, int]] = Counter()
    for numbers in having.values():
        shared.update(combinations(numbers, 2))
    # The first melody of the group of each.
    leader = np.arange(len(runs))
    for (one, other), count in shared.items():
        if count >= _SHARED * min(len(runs[one]), len(runs[other])):
            first, second = sorted((leader[one], leader[other]))
            leader[leader == second] = first
    return list(np.unique(leader, return_inverse=True)[1].tolist())


def _runs(
    pitches: NDArray[np.integer], starts: NDArray[np.integer]
) -> set[tuple[tuple[int, int], ...]]:
    """All runs of eight steps; a shorter melody is one run."""
    gaps = np.diff(starts.astype(np.int64))
    # In 1/24: fine enough for triplets, and ticks that were rounded stay equal.
    relative = np.rint(24 * gaps[1:] / gaps[:-1]).astype(np.int64)
    intervals = np.diff(pitches.astype(np.int64))
    steps = list(zip(intervals.tolist(), [0, *relative.tolist()][: len(gaps)], strict=True))
    if len(steps) <= _LENGTH:
        return {tuple(steps)}
    return {tuple(steps[i : i + _LENGTH]) for i in range(len(steps) - _LENGTH + 1)}


def split_tunes_by_melody(
    groups: Sequence[int], *, valid: float | int = 0.1, test: float | int = 0.1, seed: int = 0
) -> Split:
    """Split tunes, given the melody group (n,) of each, so that those of one group stay together.

    `valid` and `test` are fractions (float) or counts (int) of tunes; whole groups, in an order
    drawn with the seed, are taken while they fit. The same seed gives the same split on every
    machine, and the test tunes do not depend on `valid`.

    >>> split = split_tunes_by_melody([0, 0, 1, 2, 3, 3, 4, 5], valid=2, test=2)
    >>> len(split.train), len(split.valid), len(split.test)
    (4, 2, 2)
    """
    keys = np.asarray(groups)
    n = len(keys)
    counts = {"test": part_size(test, n, "test"), "valid": part_size(valid, n, "valid")}
    if sum(counts.values()) >= n:
        raise InputError(
            f"valid ({counts['valid']}) and test ({counts['test']}) leave nothing of {n} tunes "
            "to train on; lower them."
        )
    check("seed", seed, Whole(at_least=0))
    distinct = np.unique(keys)
    # Raw bits, since NumPy promises their stream for all versions, which it does not for shuffles.
    order = np.argsort(np.random.PCG64(seed).random_raw(len(distinct)), kind="stable")
    parts = {name: np.zeros(n, dtype=np.bool_) for name in counts}
    for name, wanted in counts.items():
        for key in distinct[order]:
            members = keys == key
            free = not (parts["test"] | parts["valid"])[members].any()
            if free and parts[name].sum() + members.sum() <= wanted:
                parts[name] |= members
    train = ~(parts["test"] | parts["valid"])
    return Split(*map(np.flatnonzero, (train, parts["valid"], parts["test"])))
