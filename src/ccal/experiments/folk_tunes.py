"""The training of `ccal.pretrained("folk-tunes")`, from tunes that come with the extra `music`.

Ryan's Mammoth Collection is played by a piano, O'Neill's Music of Ireland by a violin, a flute and
a guitar, a third each. Pairs are centred on their note and augmented. The towers are the paper's
with a stride of 2, the projection is the CCA layer.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ccal.data.splits import Split
from ccal.experiments.sheet_audio import train_sheet_audio
from ccal.model import DualEncoder
from ccal.music import (
    AugmentedPairs,
    JoinedPairs,
    MusicSettings,
    SheetAudioPairs,
    SheetAudioStore,
    ThinnedPairs,
    build_store,
    collection,
    melody_groups,
    split_tunes_by_melody,
)
from ccal.training.settings import Settings

_PIANO, _VIOLIN, _FLUTE, _GUITAR = 0, 40, 73, 25

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
    max_epochs=12,
)
"""An epoch of 10,000 pairs takes one core about a minute and a half."""


def build_stores(
    folder: Path, progress: Callable[[int, int], None] | None = None
) -> list[SheetAudioStore]:
    """All tunes, rendered into four stores below `folder`; finished stores are only opened."""
    oneill = collection("oneill")
    parts = [
        ("ryan-piano", collection("ryan"), _PIANO),
        ("oneill-violin", oneill[0::3], _VIOLIN),
        ("oneill-flute", oneill[1::3], _FLUTE),
        ("oneill-guitar", oneill[2::3], _GUITAR),
    ]
    return [
        build_store(tunes, folder / name, MusicSettings(program=program), progress=progress)
        for name, tunes, program in parts
    ]


def split_stores(stores: Sequence[SheetAudioStore]) -> list[Split]:
    """Train, validation and test tunes of each store; a melody is on one side in all of them."""
    onsets = [store.tune(number).onsets for store in stores for number in range(len(store))]
    groups = melody_groups([(tune["pitch"].copy(), tune["tick"].copy()) for tune in onsets])
    whole = split_tunes_by_melody(groups, valid=0.04, test=0.06, seed=0)
    splits, start = [], 0
    for store in stores:
        own = range(start, start + len(store))
        parts = (whole.train, whole.valid, whole.test)
        splits.append(Split(*(part[np.isin(part, own)] - start for part in parts)))
        start += len(store)
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
        JoinedPairs([SheetAudioPairs(store, split.valid, centred=True) for store, split in both]),
        1000,
    )
    model, _ = train_sheet_audio(settings, seen, held, folder=folder, progress=progress)
    return model
