"""Snippets of a strip, such as a whole staff or a whole recording, and their embeddings."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.data.music.snippets import FRAMES
from ccal.encoders import VGG
from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.ranks import unit_rows

__all__ = ["MODALITIES", "Embedder", "cut", "ink"]

MODALITIES = ("sheet", "audio")
# Small enough for the caches of a CPU.
_BATCH = 64


def ink(sheet: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Staff lines as models see them: ink 1, paper 0."""
    return np.asarray((255 - sheet.astype(np.float32)) / 255)


def cut(
    strip: NDArray[np.floating], middles: NDArray[np.number], *, mirrored: bool = False
) -> Tensor:
    """Snippets (n, 1, rows, 100) of a strip (length, rows) around `middles` (n,).

    Beyond its ends a whole strip has silence or paper, 0. A strip that was cut out of a longer one
    does not end there: `mirrored`, it goes on as it came, which misleads a model less.
    """
    starts = np.rint(middles).astype(np.int64)
    if len(starts) and not 0 <= starts.min() <= starts.max() <= len(strip):
        raise InputError(f"middles must lie within the strip of {len(strip)}.")
    # Padded by half a snippet, the snippet around a middle begins at its number.
    half = FRAMES // 2
    around = ((half, half), (0, 0))
    padded = np.pad(strip.astype(np.float32), around, "reflect" if mirrored else "constant")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FRAMES, axis=0)
    return torch.from_numpy(np.ascontiguousarray(windows[starts])).unsqueeze(1)


class Embedder:
    """Unit embeddings of snippets by a model that joins "sheet" and "audio"."""

    def __init__(self, model: DualEncoder) -> None:
        if set(model.modalities) != set(MODALITIES):
            raise InputError(
                "finding tunes needs a model of sheet and audio, and this one joins "
                f"{' and '.join(model.modalities)}."
            )
        self._model = deepcopy(model).eval()
        for name, tower in self._model.towers.items():
            if isinstance(tower, VGG):
                self._model.towers[name] = tower.fused()
        with torch.no_grad():
            self.dim = self.embed("sheet", cut(np.eye(100, 40), np.array([50.0]))).shape[1]

    def embed(self, modality: str, snippets: Tensor) -> NDArray[np.float32]:
        """Rows (n, dim) of length 1 for snippets (n, 1, rows, 100)."""
        rows = self._model.encode(modality, snippets, batch_size=_BATCH)
        return np.asarray(unit_rows(rows.cpu(), f"the embedding of {modality}").numpy())
