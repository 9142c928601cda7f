"""Pairs of several stores as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ccal.errors import InputError

__all__ = ["JoinedPairs", "Part"]


class Part(Protocol):
    """Pairs of sheet and sound by their numbers."""

    def __len__(self) -> int: ...

    def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Both modalities of the pairs numbered `rows` (n,)."""
        ...


class JoinedPairs:
    """The pairs of the first part, then those of the second, and so on.

    Parts are `SheetAudioPairs`, as they are or augmented: the same music played by different
    instruments, say, or different collections.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        if not parts:
            raise InputError("there are no parts to join.")
        self.parts = list(parts)
        self._starts = np.cumsum([0, *(len(part) for part in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def batch(self, rows: ArrayLike) -> tuple[Tensor, Tensor]:
        """Sheets (n, 1, 40, 100) and audio (n, 1, 136, 100) of the pairs numbered `rows` (n,)."""
        index = np.asarray(rows, dtype=np.int64)
        if len(index) and not 0 <= index.min() <= index.max() < len(self):
            raise InputError(f"there are the pairs 0 to {len(self) - 1}; others were asked for.")
        owner = np.searchsorted(self._starts, index, side="right") - 1
        pieces = []
        places = []
        for number in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == number)
            pieces.append(self.parts[number].batch(index[mine] - self._starts[number]))
            places.append(mine)
        if not pieces:
            return self.parts[0].batch(index)
        order = torch.from_numpy(np.argsort(np.concatenate(places)))
        sheet, audio = (torch.cat(view)[order] for view in zip(*pieces, strict=True))
        return sheet, audio
