"""Some of many pairs, for a quicker validation or a given number of candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from ccal.data.music.joined import Part
from ccal.errors import InputError

__all__ = ["ThinnedPairs"]


class ThinnedPairs:
    """At most `count` of the pairs, evenly spread over all of them."""

    def __init__(self, pairs: Part, count: int) -> None:
        if count < 1:
            raise InputError(f"count must be 1 or more, got {count}.")
        self._pairs = pairs
        count = min(count, len(pairs))
        self.rows = np.arange(count) * len(pairs) // max(count, 1)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: ArrayLike) -> tuple[Tensor, Tensor]:
        """Both modalities of the pairs numbered `rows` (n,) among these."""
        return self._pairs.batch(self.rows[np.asarray(rows, dtype=np.int64)])
