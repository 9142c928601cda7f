from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.bundled import pretrained
from ccal.music import TuneLibrary, parse_abc, synthesise
from ccal.music.store import SheetAudioStore

RATE = 44100


@pytest.fixture(scope="module")
def tunes(store: SheetAudioStore, tmp_path_factory: pytest.TempPathFactory) -> TuneLibrary:
    """The random dances, which the model of the package has never seen."""
    folder: Path = tmp_path_factory.mktemp("hearing")
    return TuneLibrary.build(folder / "library", pretrained("folk-tunes"), store)


def sound(library: TuneLibrary, tune: int, tempo: float, program: int = 73) -> np.ndarray:
    return synthesise(parse_abc(library.abc(tune)), tempo=tempo, program=program)


def test_any_tempo_key_and_octave_is_found(tunes: TuneLibrary) -> None:
    # Played as if at another rate, everything is higher or lower by that factor, and faster.
    for tune, tempo, semitones in ((0, 190.0, 0), (1, 80.0, 12), (2, 150.0, 5), (3, 120.0, -7.4)):
        factor = 2 ** (semitones / 12)
        piece = sound(tunes, tune, tempo / factor)[: round(12 * RATE * factor)]
        best, *others = tunes.identify((piece, round(RATE * factor)), k=3)
        assert best.tune == tune
        assert best.known
        assert best.confidence > max(other.confidence for other in others)


def test_chords_that_sound_on_do_no_harm(tunes: TuneLibrary) -> None:
    samples = sound(tunes, 2, 150.0)[: 12 * RATE]
    time = np.arange(len(samples)) / RATE
    chord = np.sin(2 * np.pi * np.outer([146.8, 220.0, 293.7, 370.0], time)).sum(axis=0)
    loud = samples / samples.std() + 2 * chord / chord.std()
    best = tunes.identify((loud.astype(np.float32), RATE), k=2)[0]
    assert best.tune == 2
    assert best.known


def test_what_is_no_tune_of_the_library_is_unknown(tunes: TuneLibrary) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=8 * RATE)
    tone = np.sin(2 * np.pi * 440 * np.arange(8 * RATE) / RATE)
    notes = rng.choice([262, 294, 330, 349, 392, 440, 494, 523], size=40)
    other = np.sin(2 * np.pi * np.cumsum(np.repeat(notes, RATE // 5)) / RATE)
    for samples in (noise, tone, other):
        found = tunes.identify((samples.astype(np.float32), RATE), k=2)
        assert not any(match.known for match in found)
