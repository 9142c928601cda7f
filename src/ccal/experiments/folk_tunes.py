"""The training of `ccal.pretrained("folk-tunes")`, from tunes that come with the extra `music`.

    python -m ccal.experiments.folk_tunes FOLDER

Tunes of Ryan's Mammoth Collection and O'Neill's Music of Ireland are engraved, plainly or as
printed books look, and played by five instruments at five tempi. Pairs are centred on their note
and augmented. The tower of staves is the paper's with a stride of 2, that of sound sees pitch
classes only (`ChromaTower`), the projection is the CCA layer.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ccal.bundled import abc_hash, held_out
from ccal.data.splits import Split
from ccal.experiments.sheet_audio import train_sheet_audio
from ccal.model import DualEncoder
from ccal.music import (
    Augmentation,
    AugmentedPairs,
    JoinedPairs,
    MusicSettings,
    SheetAudioPairs,
    SheetAudioStore,
    ThinnedPairs,
    build_store,
    collection,
)
from ccal.music.wear import Wear
from ccal.training.settings import Settings

_ACCORDION, _GUITAR, _VIOLIN, _FLUTE, _RECORDER = 21, 25, 40, 73, 74
# One tune in so many is for validation.
_VALID = 25
# Validation pairs are changed half as far as those of training, at the right tempo.
_LIGHT = Augmentation(
    tempo=0,
    frames=0,
    loudness=0,
    noise=0.2,
    room=0.3,
    company=0.2,
    sheet=Wear(**{name: value / 2 for name, value in Wear().__dict__.items()}),
)

SETTINGS = Settings.preset(
    "nottingham",
    stride=2,
    direction="both",
    reduction="mean",
    select="both",
    learning_rate=2e-3,
    weight_decay=2e-4,
    batch_size=200,
    epoch_pairs=10_000,
    refit_pairs=4_000,
    averaging=0.99,
    refinements=0,
    max_epochs=16,
)
"""An epoch of 10,000 pairs takes one core about half a minute."""


def build_stores(
    folder: Path, progress: Callable[[int, int], None] | None = None
) -> list[SheetAudioStore]:
    """The tunes, rendered into five stores below `folder`; finished stores are only opened."""
    ryan, oneill = collection("ryan"), collection("oneill")
    printed = "printed"
    parts = [
        ("flute", oneill[0::4], MusicSettings(program=_FLUTE)),
        ("violin", oneill[2::4], MusicSettings(program=_VIOLIN, tempo=200)),
        ("guitar", oneill[1::4], MusicSettings(program=_GUITAR, tempo=170, look=printed)),
        ("accordion", ryan[1::2], MusicSettings(program=_ACCORDION, tempo=190, look=printed)),
        ("recorder", oneill[3::4], MusicSettings(program=_RECORDER, tempo=140, look=printed)),
    ]
    return [
        build_store(tunes, folder / name, settings, progress=progress)
        for name, tunes, settings in parts
    ]


def split_stores(stores: Sequence[SheetAudioStore]) -> list[Split]:
    """Train, validation and test tunes of each store.

    Test tunes are those that the package lists as held out; no other tune has one of their
    melodies. A tune is in the same part in every store.
    """
    unseen = held_out("folk-tunes")
    splits = []
    for store in stores:
        names = [abc_hash(tune.abc or "") for tune in store.tunes]
        test = np.array([name in unseen for name in names])
        valid = np.array([int(name, 16) % _VALID == 0 for name in names]) & ~test
        parts = (~(test | valid), valid, test)
        splits.append(Split(*(np.flatnonzero(part) for part in parts)))
    return splits


def train_folk_tunes(
    stores: Sequence[SheetAudioStore],
    folder: Path,
    settings: Settings = SETTINGS,
    *,
    progress: bool = True,
) -> DualEncoder:
    """Train on the tunes that are not held out; an interrupted training continues."""
    both = list(zip(stores, split_stores(stores), strict=True))
    seen = JoinedPairs(
        [AugmentedPairs(SheetAudioPairs(store, split.train, centred=True)) for store, split in both]
    )
    held = ThinnedPairs(
        JoinedPairs(
            [
                AugmentedPairs(SheetAudioPairs(store, split.valid, centred=True), _LIGHT)
                for store, split in both
            ]
        ),
        1000,
    )
    model, _ = train_sheet_audio(
        settings, seen, held, chroma=True, folder=folder, progress=progress
    )
    return model


def main() -> None:
    """Render, train, and save the model in FOLDER/model."""
    parser = argparse.ArgumentParser(description="The training of the model folk-tunes.")
    parser.add_argument("folder", type=Path, help="of the rendered tunes, checkpoints and model")
    folder = parser.parse_args().folder
    model = train_folk_tunes(build_stores(folder / "stores"), folder / "training")
    model.save(folder / "model")


if __name__ == "__main__":
    main()
