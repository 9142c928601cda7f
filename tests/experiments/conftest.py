"""A store of a few invented tunes, rendered once for all tests of the experiments."""

from __future__ import annotations

import numpy as np
import pytest

from ccal.music import SheetAudioStore, Tune, build_store
from tests.music.tunes import MISSING


def melodies(count: int) -> list[Tune]:
    """Tunes of random notes, so that no two resemble each other."""
    rng = np.random.default_rng(0)
    tunes = []
    for number in range(count):
        bars = ["".join(rng.choice(list("CDEFGABcdefg"), 8)) for _ in range(8)]
        text = f"X:{number + 1}\nT:Tune {number}\nM:4/4\nL:1/8\nK:C\n{'|'.join(bars)}|]"
        tunes.append(Tune(text, f"Tune {number}", f"invented.abc, X:{number + 1}"))
    return tunes


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> SheetAudioStore:
    if MISSING:
        pytest.skip(f"the extra music is not installed: {', '.join(MISSING)} missing")
    return build_store(melodies(14), tmp_path_factory.mktemp("music") / "store")
