"""A few tunes, rendered, and a small model that has learned them by heart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

import ccal
from ccal import DualEncoder, PairwiseRankingLoss
from ccal.encoders import VGG
from ccal.music import SheetAudioPairs, SheetAudioStore, TuneLibrary, build_store, split_tunes
from tests.music.tunes import MISSING

_TUNES = 4


def random_abc(number: int) -> str:
    """A dance of eighths, quarters and skips, drawn by its number."""
    rng = np.random.default_rng(number)
    letters = "CDEFGABcdefga"
    bars, place = [], 6
    for _ in range(14):
        notes: list[tuple[str, int]] = []
        while sum(length for _, length in notes) < 8:
            left = 8 - sum(length for _, length in notes)
            length = int(min(left, rng.choice([1, 1, 2, 2, 3])))
            place = int(np.clip(place + rng.integers(-3, 4), 0, len(letters) - 1))
            notes.append((letters[place], length))
        bars.append("".join(f"{name}{length if length > 1 else ''}" for name, length in notes))
    key = ["C", "G", "D", "F"][number % 4]
    return f"X:{number}\nT:Dance {number}\nM:4/4\nL:1/8\nK:{key}\n{'|'.join(bars)}|]\n\n"


def small_model(seed: int = 0) -> DualEncoder:
    torch.manual_seed(seed)
    maps = (4, 8, 16, 16)
    return DualEncoder(
        dim=16,
        projection="cca",
        sheet=VGG(40, out_features=16, maps=maps),
        audio=VGG(136, out_features=16, maps=maps),
    )


@contextmanager
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for all processes of a test run: the first to come fills it, the others wait."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    (folder / "dances").mkdir(exist_ok=True)
    with FileLock(folder / "dances.lock"):
        yield folder / "dances"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> SheetAudioStore:
    if MISSING:
        pytest.skip(f"the extra music is not installed: {', '.join(MISSING)} missing")
    text = "".join(random_abc(number) for number in range(1, _TUNES + 1))
    with common(tmp_path_factory) as folder:
        return build_store(split_tunes(text, "random.abc"), folder / "store")


@pytest.fixture(scope="session")
def model(store: SheetAudioStore, tmp_path_factory: pytest.TempPathFactory) -> DualEncoder:
    """Trained for some seconds; it need only know these tunes."""
    with common(tmp_path_factory) as folder:
        if not (folder / "model").exists():
            trained(store).save(folder / "model")
        loaded = ccal.load(folder / "model")
    assert isinstance(loaded, DualEncoder)
    return loaded


def trained(store: SheetAudioStore) -> DualEncoder:
    model = small_model()
    pairs = SheetAudioPairs(store, centred=True)
    loss = PairwiseRankingLoss(margin=0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    rng = np.random.default_rng(0)
    model.train()
    # With 20 steps, rounding already decides whether every tune is found; with 40 it does not.
    for _ in range(50):
        rows = np.sort(rng.choice(len(pairs), size=64, replace=False))
        optimiser.zero_grad()
        loss(*model(*pairs.batch(rows))).backward()
        optimiser.step()
    model.refit([pairs.batch(np.arange(len(pairs)))])
    return model.eval()


@pytest.fixture(scope="session")
def library(
    store: SheetAudioStore, model: DualEncoder, tmp_path_factory: pytest.TempPathFactory
) -> TuneLibrary:
    with common(tmp_path_factory) as folder:
        if not (folder / "library").exists():
            TuneLibrary.build(folder / "library", model, store)
        return TuneLibrary.open(folder / "library", model)


@pytest.fixture
def saved(library: TuneLibrary, tmp_path: Path) -> Path:
    """A copy of the library that may be damaged."""
    return Path(shutil.copytree(library.folder, tmp_path / "copy"))
