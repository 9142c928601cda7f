"""Recordings that a library has never heard, and what it makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.data.music import parse_abc, synthesise
from ccal.data.music.sound import RENDER_RATE
from ccal.music import TuneLibrary, TuneMatch

__all__ = ["Query", "ask", "recordings"]

_SECONDS = 8.0
# Name, instrument of General MIDI, tempo, noise in decibels below the sound.
_KINDS = (
    ("piano", 0, 120.0, None),
    ("violin", 40, 120.0, None),
    ("piano, 10% faster", 0, 132.0, None),
    ("flute, with noise", 73, 120.0, 10.0),
)


@dataclass(frozen=True)
class Query:
    """Some seconds of a tune of the library: its number, how it is played, and the sound (n,)."""

    tune: int
    how: str
    sound: NDArray[np.float32]


def recordings(library: TuneLibrary, *, seed: int = 0) -> Iterator[Query]:
    """One recording of each kind, from the middle of some tune."""
    rng = np.random.default_rng(seed)
    for number, (how, program, tempo, noise) in zip(
        rng.choice(len(library), len(_KINDS), replace=False).tolist(), _KINDS, strict=True
    ):
        abc = library.store.tunes[number].abc
        assert abc is not None
        sound = synthesise(parse_abc(abc), program=program, tempo=tempo)
        length = round(_SECONDS * RENDER_RATE)
        start = int(rng.integers(max(1, len(sound) - length)))
        piece = sound[start : start + length]
        if noise is not None:
            level = float(np.sqrt(np.mean(piece**2))) * 10 ** (-noise / 20)
            piece = piece + level * rng.standard_normal(len(piece)).astype(np.float32)
        yield Query(number, f"{len(piece) / RENDER_RATE:.0f} s, {how}", piece)


def ask(library: TuneLibrary, query: Query, k: int, folder: Path) -> list[tuple[TuneMatch, Path]]:
    """The first k tunes that are found, each with a picture of the place on its staff."""
    found = []
    for rank, match in enumerate(library.identify((query.sound, RENDER_RATE), k=k), start=1):
        first, last = match.columns
        around = (max(0.0, first - 60), last + 60)
        picture = folder / f"{query.tune}-{rank}.png"
        picture.write_bytes(library.staff_png(match.tune, around, mark=match.columns))
        found.append((match, picture))
    return found
