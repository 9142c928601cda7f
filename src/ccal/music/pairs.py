"""The paper's pairs of a piece of staff and a piece of sound; several sets joined, or one thinned.

All of them are `Features`, ready for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ccal.bounds import Whole, check
from ccal.errors import InputError
from ccal.music.audio import BINS
from ccal.music.engraving import ROWS
from ccal.music.store import SheetAudioStore

if TYPE_CHECKING:
    from ccal.training.batches import Features

COLUMNS = FRAMES = 100


class SheetAudioPairs:
    """One pair per onset of some tunes: sheet (1, 40, 100) and audio (1, 136, 100), float32.

    As in the paper, the sheet is the 100 columns left of the note head and the audio the 100 frames
    that end at the onset, the note itself in neither. With `centred` the note is in the middle of
    both. Onsets too near to an end of their tune have no pair. Ink is 1 and paper 0.

    `tunes` are numbers of the store's tunes (all by default), in whose order the pairs come. The
    pairs are cut from the store when asked for; nothing is held in memory. `tune`, `onset`,
    `column` and `frame` (n,) give the origin of each: the number of its tune, the row of
    `store.onsets`, and the rows of `store.sheet` and `store.audio` where its snippets begin.
    """

    def __init__(
        self,
        store: SheetAudioStore,
        tunes: Sequence[int] | NDArray[np.int64] | None = None,
        *,
        centred: bool = False,
    ) -> None:
        self.store, self.centred = store, centred
        numbers = range(len(store)) if tunes is None else tunes
        self.tunes = np.array([int(number) for number in numbers], dtype=np.int64)
        if len(self.tunes) and not 0 <= self.tunes.min() <= self.tunes.max() < len(store):
            raise InputError(f"the store has the tunes 0 to {len(store) - 1}, and no others.")
        parts = [self._of_tune(number) for number in self.tunes.tolist()]
        rows = np.concatenate([np.empty((0, 4), dtype=np.int64), *parts])
        self.tune, self.onset, self.column, self.frame = np.ascontiguousarray(rows.T)

    def __len__(self) -> int:
        return len(self.onset)

    def batch(self, rows: ArrayLike) -> tuple[Tensor, Tensor]:
        """Sheets (n, 1, 40, 100) and audio (n, 1, 136, 100) of the pairs numbered `rows` (n,)."""
        index = np.asarray(rows, dtype=np.int64)
        if index.ndim != 1:
            raise InputError(f"expected row numbers (n,), got the shape {index.shape}.")
        return self.sheet(index), self.audio(index)

    def sheet(self, index: NDArray[np.int64]) -> Tensor:
        """Sheets (n, 1, 40, 100) alone."""
        ink = np.subtract(255, _cut(self.store.sheet, self.column[index], COLUMNS))
        sheet = torch.empty(len(index), 1, ROWS, COLUMNS)
        # One pass transposes and converts, as reading memory takes most of the time.
        sheet[:, 0].copy_(torch.from_numpy(ink).transpose(1, 2)).mul_(1 / 255)
        return sheet

    def audio(self, index: NDArray[np.int64]) -> Tensor:
        """Audio (n, 1, 136, 100) alone."""
        audio = torch.empty(len(index), 1, BINS, FRAMES)
        pieces = _cut(self.store.audio, self.frame[index], FRAMES)
        audio[:, 0].copy_(torch.from_numpy(pieces).transpose(1, 2))
        return audio

    def __repr__(self) -> str:
        return f"SheetAudioPairs({len(self):,} pairs of {len(self.tunes):,} tunes)"

    def _of_tune(self, number: int) -> NDArray[np.int64]:
        """Tune, onset, first column and first frame of each pair (n, 4)."""
        tune = self.store.tunes[number]
        onsets = self.store.onsets[slice(*tune.onsets)]
        before = FRAMES // 2 if self.centred else FRAMES
        edge = np.rint(onsets["centre"]) if self.centred else np.floor(onsets["left"])
        column = tune.sheet[0] + edge.astype(np.int64) - before
        frame = tune.audio[0] + onsets["frame"].astype(np.int64) - before
        fits = (column >= tune.sheet[0]) & (column + COLUMNS <= tune.sheet[1])
        fits &= (frame >= tune.audio[0]) & (frame + FRAMES <= tune.audio[1])
        origin = [np.full(len(onsets), number), np.arange(*tune.onsets), column, frame]
        return np.asarray(np.stack(origin, axis=1)[fits])


def _cut(array: NDArray[np.generic], starts: NDArray[np.int64], length: int) -> NDArray[np.generic]:
    """`length` rows from each start on, (n, length, ...)."""
    windows = np.lib.stride_tricks.sliding_window_view(array, length, axis=0)
    # Time becomes the first axis again: a snippet is one piece of memory.
    return np.ascontiguousarray(np.moveaxis(windows, -1, 1)[starts])


class JoinedPairs:
    """The pairs of the first part, then those of the second, and so on.

    Parts are `SheetAudioPairs`, as they are or augmented: the same music played by different
    instruments, say, or different collections.
    """

    def __init__(self, parts: Sequence[Features]) -> None:
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
        if not len(index):
            return self.parts[0].batch(index)
        owner = np.searchsorted(self._starts, index, side="right") - 1
        owned = [np.flatnonzero(owner == number) for number in range(len(self.parts))]
        pieces = [
            part.batch(index[own] - start)
            for part, own, start in zip(self.parts, owned, self._starts, strict=False)
            if len(own)
        ]
        order = torch.from_numpy(np.argsort(np.concatenate(owned)))
        sheet, audio = (torch.cat(view)[order] for view in zip(*pieces, strict=True))
        return sheet, audio


class ThinnedPairs:
    """At most `count` of the pairs, evenly spread over all of them."""

    def __init__(self, pairs: Features, count: int) -> None:
        check("count", count, Whole(at_least=1))
        self._pairs = pairs
        count = min(count, len(pairs))
        self.rows = np.arange(count) * len(pairs) // max(count, 1)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: ArrayLike) -> tuple[Tensor, Tensor]:
        """Both modalities of the pairs numbered `rows` (n,) among these."""
        return self._pairs.batch(self.rows[np.asarray(rows, dtype=np.int64)])
