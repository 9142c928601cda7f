"""Pairs in memory, and the same in shards of every kind."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

ENDS = (0, 700, 701, 2000, 3000)
"""Where shards begin and end; one has a single row."""


def pairs(seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    meaning = rng.normal(size=(ENDS[-1], 6))
    noise = [rng.normal(size=(len(meaning), d)) for d in (20, 15)]
    views = [meaning @ rng.normal(size=(6, view.shape[1])) + view for view in noise]
    return views[0].astype(np.float32), views[1].astype(np.float32)


MANY = tuple(range(0, ENDS[-1] + 1, 10))
"""The same for so many small shards that somebody can be killed in the middle."""


def write_shards(
    folder: Path, kind: str, x: NDArray[Any], y: NDArray[Any], ends: Sequence[int] = ENDS
) -> Path:
    folder.mkdir(parents=True)
    for number, (start, stop) in enumerate(pairwise(ends)):
        some = slice(start, stop)
        ids = [f"id {row}" for row in range(start, stop)]
        if kind == "npy":
            np.save(folder / f"x-{number:03}.npy", x[some])
            np.save(folder / f"y-{number:03}.npy", y[some])
        elif kind == "parquet":
            arrow, parquet = (pytest.importorskip(f"pyarrow{n}") for n in ("", ".parquet"))
            cells = {"id": ids, "x": list(x[some]), "y": list(y[some])}
            parquet.write_table(arrow.table(cells), folder / f"{number:03}.parquet")
        else:
            with tarfile.open(folder / f"{number:03}.tar", "w") as archive:
                for id, *views in zip(ids, x[some], y[some], strict=True):
                    for name, view in zip(("x.npy", "y.npy"), views, strict=True):
                        content = io.BytesIO()
                        np.save(content, view)
                        info = tarfile.TarInfo(f"{id}.{name}")
                        info.size = content.tell()
                        content.seek(0)
                        archive.addfile(info, content)
    return folder


def die() -> NoReturn:
    """What a worker may be started with; here, as importing the tests would load torch."""
    os._exit(7)
