"""Instruments of a sound font (SoundFont 2, .sf2): which samples sound for a key, and how.

The controls that shape a plain note are read: ranges, tuning, loops, volume and its envelope, and
the cutoff of the filter. Modulators, vibrato, panning and effects are ignored.
"""

from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError

# Numbers of generators, as the format calls its controls.
_FILTER, _FILTER_SWEEP, _HOLD_BY_KEY, _DECAY_BY_KEY, _INSTRUMENT = 8, 11, 39, 40, 41
_KEYS, _VELOCITIES = 43, 44
_ATTENUATION, _COARSE, _FINE, _SAMPLE, _LOOPS, _SCALE, _ROOT = 48, 51, 52, 53, 54, 56, 58
_DELAY, _ATTACK, _HOLD, _DECAY, _SUSTAIN, _RELEASE = range(33, 39)
# Values of an instrument that does not set them; those of a preset are added.
_DEFAULTS = {_FILTER: 13500, _SCALE: 100, _ROOT: -1}
_DEFAULTS |= dict.fromkeys((_DELAY, _ATTACK, _HOLD, _DECAY, _RELEASE), -12000)
_NOT_ADDED = (_ROOT, _LOOPS, _KEYS, _VELOCITIES, _SAMPLE, _INSTRUMENT)

_HEADER = np.dtype(
    [("name", "S20"), ("preset", "<u2"), ("bank", "<u2"), ("bag", "<u2"), ("_", "V12")]
)
_INST = np.dtype([("name", "S20"), ("bag", "<u2")])
_BAG = np.dtype([("gen", "<u2"), ("mod", "<u2")])
_GEN = np.dtype([("oper", "<u2"), ("amount", "<i2")])
_NUMBERS = [(name, "<u4") for name in ("start", "end", "loop", "loop_end", "rate")]
_SHDR = np.dtype([("name", "S20"), *_NUMBERS, ("pitch", "u1"), ("correction", "i1"), ("_", "V4")])
_TABLES: dict[str, np.dtype[Any]] = {"phdr": _HEADER, "pbag": _BAG, "pgen": _GEN, "inst": _INST}
_TABLES |= {"ibag": _BAG, "igen": _GEN, "shdr": _SHDR, "smpl": np.dtype("<i2")}

_Zone = dict[int, int]


@dataclass(frozen=True)
class Voice:
    """One sample as a key plays it: `speed` in samples a second, times in seconds.

    `loop` is None or the samples from and up to which it repeats; `gain` and `sustain` are
    amplitudes, `decay` and `release` the times in which the sound falls by 100 dB, `cutoff` Hz.
    """

    samples: NDArray[np.int16]
    speed: float
    loop: tuple[int, int] | None
    gain: float
    cutoff: float
    delay: float
    attack: float
    hold: float
    decay: float
    sustain: float
    release: float


class SoundFont:
    """A file of instruments; `voices` gives the samples that sound together for one key."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(fspath(path))
        if not self.path.is_file():
            raise InputError(f"the sound font {str(self.path)!r} is not there.")
        content = self.path.read_bytes()
        if content[:4] != b"RIFF" or content[8:12] != b"sfbk":
            raise InputError(f"{str(self.path)!r} is not a sound font (.sf2).")
        found = dict(_chunks(content, 12, len(content)))
        missing = sorted(_TABLES.keys() - found.keys())
        if missing:
            raise InputError(f"the sound font {str(self.path)!r} lacks {', '.join(missing)}.")
        self._tables = {
            name: np.frombuffer(found[name], dtype, count=len(found[name]) // dtype.itemsize)
            for name, dtype in _TABLES.items()
        }

    def voices(self, program: int, key: int, velocity: int) -> list[Voice]:
        """The samples that sound when a key (MIDI) of the instrument `program` is struck."""
        presets, instruments = self._tables["phdr"], self._tables["inst"]
        chosen = (presets["preset"] == program) & (presets["bank"] == 0)
        # The last entry of each table only ends it.
        numbers = np.flatnonzero(chosen[:-1])
        if len(numbers) == 0:
            raise InputError(f"the sound font {str(self.path)!r} has no instrument {program}.")
        voices = []
        preset_bags = presets["bag"][int(numbers[0]) :]
        for preset in self._zones("p", preset_bags, _INSTRUMENT, key, velocity):
            own_bags = instruments["bag"][preset[_INSTRUMENT] :]
            for zone in self._zones("i", own_bags, _SAMPLE, key, velocity):
                own = _DEFAULTS | zone
                added = {o: own.get(o, 0) + a for o, a in preset.items() if o not in _NOT_ADDED}
                voices.append(self._voice(own | added, key, velocity))
        return voices

    def _zones(
        self, kind: str, bags: NDArray[np.uint16], ends_in: int, key: int, velocity: int
    ) -> list[_Zone]:
        """The zones for a key of the first preset ("p") or instrument ("i") that `bags` begin with.

        Each has the values of the first, global one.
        """
        generators, limits = self._tables[f"{kind}gen"], self._tables[f"{kind}bag"]["gen"]
        common: _Zone = {}
        zones: list[_Zone] = []
        for bag in range(int(bags[0]), int(bags[1])):
            rows = generators[int(limits[bag]) : int(limits[bag + 1])]
            zone = dict(zip(rows["oper"].tolist(), rows["amount"].tolist(), strict=True))
            if ends_in in zone:
                zones.append(common | zone)
            elif not zones:
                common = zone
        return [zone for zone in zones if _within(zone, key, velocity)]

    def _voice(self, zone: _Zone, key: int, velocity: int) -> Voice:
        header = self._tables["shdr"][zone[_SAMPLE]]
        root = zone[_ROOT] if 0 <= zone[_ROOT] <= 127 else int(header["pitch"])
        cents = zone[_SCALE] * (key - root) + 100 * zone.get(_COARSE, 0) + zone.get(_FINE, 0)
        cents += int(header["correction"])
        start = int(header["start"])
        loop = (int(header["loop"]) - start, int(header["loop_end"]) - start)
        looped = zone.get(_LOOPS, 0) in (1, 3) and 0 <= loop[0] < loop[1]
        return Voice(
            samples=self._tables["smpl"][start : int(header["end"])],
            speed=float(header["rate"]) * 2 ** (cents / 1200),
            loop=loop if looped else None,
            # Players apply 0.4 of the attenuation, and fonts are made for that.
            gain=10 ** (-0.4 * max(0, zone.get(_ATTENUATION, 0)) / 200) * (velocity / 127) ** 2,
            # As open as it gets: the filter does not close here while the note rings.
            cutoff=8.176 * 2 ** ((zone[_FILTER] + max(0, zone.get(_FILTER_SWEEP, 0))) / 1200),
            delay=_seconds(zone[_DELAY]),
            attack=_seconds(zone[_ATTACK]),
            hold=_seconds(zone[_HOLD] + zone.get(_HOLD_BY_KEY, 0) * (60 - key)),
            decay=_seconds(zone[_DECAY] + zone.get(_DECAY_BY_KEY, 0) * (60 - key)),
            sustain=10 ** (-min(max(0, zone.get(_SUSTAIN, 0)), 1000) / 200),
            release=_seconds(zone[_RELEASE]),
        )


def _chunks(content: bytes, position: int, end: int) -> list[tuple[str, memoryview]]:
    """Names and contents of the parts of a RIFF file and of its lists."""
    found: list[tuple[str, memoryview]] = []
    while position + 8 <= end:
        name = content[position : position + 4]
        size = int.from_bytes(content[position + 4 : position + 8], "little")
        first, last = position + 8, min(position + 8 + size, end)
        if name == b"LIST":
            found += _chunks(content, first + 4, last)
        else:
            found.append((name.decode("latin-1"), memoryview(content)[first:last]))
        position = position + 8 + size + size % 2
    return found


def _within(zone: _Zone, key: int, velocity: int) -> bool:
    """Whether a zone is for this key and velocity; a range is two bytes, lowest first."""
    pairs = ((zone.get(_KEYS), key), (zone.get(_VELOCITIES), velocity))
    return all(r is None or (r & 0xFF) <= value <= (r >> 8 & 0xFF) for r, value in pairs)


def _seconds(timecents: int) -> float:
    return float(2 ** (max(-12000, min(timecents, 8000)) / 1200))
