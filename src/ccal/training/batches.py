"""Training pairs as batches: the features of each pair, and which pairs meet in which batch.

`PairFeatures` turns raw pairs into rows of features once. `epoch_rows` and `epoch_batches` shuffle
them anew each epoch, from the seed, the stage and the epoch alone, so that a resumed epoch repeats
what the interrupted one did.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal import distributed
from ccal.data import Pairs, Rows
from ccal.encoders import FrontEnd
from ccal.errors import InputError
from ccal.features import FeatureRows, SparseRows, UnionRows, feature_rows
from ccal.features.union import is_network
from ccal.numbering import numbered
from ccal.positives import Positives
from ccal.progress import counting
from ccal.training.settings import Settings

RowNumbers = NDArray[np.int64]

# Captions of a photo are a group of which an epoch takes one; names of classes repeat more often.
_MOST_IN_GROUP = 20


class Features(Protocol):
    """Pairs that are ready for two towers.

    `batch` takes row numbers (n,) and returns x and y, float32 CPU tensors of n rows each. Random
    work in it, such as augmentation, draws from torch's global generator.

    Three members are optional, and `PairFeatures` has them: `labels(rows)`, integers (n,) or None,
    where pairs of equal labels are no negatives of each other; `groups`, integers (pairs,) or
    None, where an epoch takes one pair of each group; and `items`, the item of each pair in x and
    in y, integers (pairs,) each. Validation asks for each item once, and any item that it is paired
    with or that is of its group is right.
    """

    def __len__(self) -> int:
        """Number of pairs."""

    def batch(self, rows: RowNumbers) -> tuple[Tensor, Tensor]:
        """Both views of some pairs."""


class _Concatenated:
    """Rows of one matrix followed by those of another, without a copy of both."""

    def __init__(self, first: _Matrix, second: _Matrix) -> None:
        self._first, self._second = first, second
        self.shape: tuple[int, ...] = (len(first) + len(second), *first.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        rows = np.arange(len(self))[index]
        late = rows >= len(self._first)
        result = np.empty((len(rows), *self.shape[1:]), dtype=np.float32)
        result[~late] = self._first[rows[~late]]
        result[late] = self._second[rows[late] - len(self._first)]
        return result


_Matrix = Rows | FeatureRows | _Concatenated


class PairFeatures:
    """Feature rows of both modalities of n pairs; `batch(rows)` gives some of them as tensors.

    Arrays (n, d) and pictures (n, height, width) stay where they are, memory-mapped or not. Texts
    and image files go through the front end once; TF-IDF rows are stored without their zeros. Rows
    of a `FeatureUnion` follow its weights.

    Args:
        pairs: raw items or features.
        front_ends: by modality, of raw items.
        fit: the front ends of texts take their vocabulary from these pairs first.
        progress: is given a title, and returns a function of (done, total).

    Attributes:
        groups: (n,) integers, equal for pairs that show the same thing. Pairs without groups are
            grouped by the item that repeats, such as the photo of five captions; None if no item
            repeats, or so often that it must be a class.
        classes: (n,) integers, the label of each pair; None without labels.
        items: (n,) integers of x and of y, equal for pairs of the same item (`Pairs.items`).
    """

    def __init__(
        self,
        pairs: Pairs,
        front_ends: Mapping[str, FrontEnd],
        *,
        fit: bool = False,
        progress: Callable[[str], Callable[[int, int], None]] = counting,
    ) -> None:
        self._columns = [
            _column(pairs.column(n), front_ends.get(n), n, fit, progress) for n in pairs.names
        ]
        self._set_keys(pairs.group, pairs.label)
        self._pairs = pairs

    @cached_property
    def items(self) -> tuple[RowNumbers, RowNumbers]:
        """Which x and which y each pair has."""
        x, y = map(self._pairs.items, self._pairs.names)
        return x, y

    def _set_keys(self, group: NDArray[Any] | None, label: NDArray[Any] | None) -> None:
        self._keys = (group, label)
        self.classes = _numbers(label)

    @cached_property
    def groups(self) -> RowNumbers | None:
        """Which group each pair is in."""
        return training_groups(self._keys[0], self.items)

    @cached_property
    def _repeated(self) -> RowNumbers | None:
        return _repeated_items(self.items)

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of one x and of one y: (d,), or (height, width) of a picture."""
        x, y = (tuple(map(int, column.shape[1:])) for column in self._columns)
        return x, y

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of an x and of a y: d_x and d_y."""
        x, y = map(math.prod, self.shapes)
        return x, y

    @property
    def scales(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the features of x (d_x,) and of y (d_y,) are multiplied by now: 1 but in unions."""
        x, y = (
            column.scales if isinstance(column, UnionRows) else np.ones(width)
            for column, width in zip(self._columns, self.widths, strict=True)
        )
        return x, y

    def never_negative(self, view: int) -> bool:
        """Whether view x (0) or y (1) is an array without negative numbers."""
        return _never_negative(self._columns[view])

    def batch(self, rows: RowNumbers | slice) -> tuple[Tensor, Tensor]:
        """Features (m, d_x) and (m, d_y) of m pairs, float32; pictures keep their shapes."""
        x, y = (
            torch.from_numpy(np.array(column[rows], dtype=np.float32)) for column in self._columns
        )
        return x, y

    def labels(self, rows: RowNumbers | slice) -> Tensor | None:
        """Integers (m,), equal for pairs that must not count as negatives of each other.

        They are the labels of the pairs, else their groups, else their items if these repeat; None
        without any.
        """
        known = (self.classes, self.groups, self._repeated)
        numbers = next((numbers for numbers in known if numbers is not None), None)
        return None if numbers is None else torch.from_numpy(numbers[rows])

    def batches(self, size: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
        """All pairs in order."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All features in memory: (n, d_x) and (n, d_y), pictures flattened."""
        x, y = self.batch(slice(None))
        return x.flatten(1).numpy(), y.flatten(1).numpy()


def concatenated(first: PairFeatures, second: PairFeatures) -> PairFeatures:
    """The pairs of the first, followed by those of the second."""
    result = object.__new__(PairFeatures)
    columns = zip(first._columns, second._columns, strict=True)
    result._columns = [_Concatenated(a, b) for a, b in columns]
    keys = zip(first._keys, second._keys, strict=True)
    result._set_keys(*(None if a is None or b is None else np.concatenate((a, b)) for a, b in keys))
    x, y = (
        np.concatenate((a, b + a.max() + 1)) for a, b in zip(first.items, second.items, strict=True)
    )
    result.items = x, y
    return result


def relation(pairs: Features) -> tuple[Positives, tuple[RowNumbers, RowNumbers]]:
    """Which items belong together, and the first pair of each x and of each y."""
    own = np.arange(len(pairs))
    x_items, y_items = getattr(pairs, "items", (own, own))
    groups = getattr(pairs, "groups", None)
    positives, x_first, y_first = Positives.of_items(x_items, y_items, groups)
    return positives, (x_first, y_first)


def _column(
    rows: Rows,
    front_end: FrontEnd | None,
    name: str,
    fit: bool,
    progress: Callable[[str], Callable[[int, int], None]],
) -> _Matrix:
    if rows.is_text:
        if front_end is None:
            raise InputError(f"{name} is text, but there is no front end for it.")
        shown = progress(f"{name} features") if is_network(front_end) else None
        return feature_rows(front_end, rows[:], fit=fit, progress=shown)
    if len(rows.shape) < 2:
        raise InputError(
            f"{name} must be an array of shape (pairs, features), or (pairs, height, width), got "
            f"{rows.shape}."
        )
    return rows


def _never_negative(column: _Matrix) -> bool:
    """Whether an array has no negative numbers; TF-IDF, which has none either, is no array."""
    if isinstance(column, SparseRows):
        return False
    if isinstance(column, UnionRows):
        return all(map(_never_negative, column.parts))
    return all(np.min(column[i : i + 4096]) >= 0 for i in range(0, len(column), 4096))


def _numbers(keys: NDArray[Any] | None) -> RowNumbers | None:
    """Keys of any kind, such as names, as integers from 0."""
    return None if keys is None else np.unique(keys, return_inverse=True)[1].astype(np.int64)


def check_pairs(train: Features, valid: Features | None, *, one_per_group: bool) -> None:
    """Refuse too few pairs, and training and validation pairs of different shapes."""
    if len(train) < 2:
        raise InputError(f"Training needs at least 2 pairs, got {len(train)}.")
    if epoch_length(train, one_per_group=one_per_group) == 1:
        raise InputError(
            "All training pairs are of one group, and one_per_group takes one pair of each; "
            "set it to false."
        )
    shapes = _shapes(train, "training")
    if valid is None:
        return
    if len(valid) < 2:
        raise InputError(
            f"Validation needs at least 2 pairs, better some hundreds; got {len(valid)}."
        )
    for view, ours, theirs in zip("xy", shapes, _shapes(valid, "validation"), strict=True):
        if ours != theirs:
            raise InputError(
                f"View {view} has shape {ours} a pair in training, but {theirs} in validation."
            )


def training_groups(group: NDArray[Any] | None, items: Sequence[RowNumbers]) -> RowNumbers | None:
    """Which group each pair is in, for training: as given, else by the item that repeats, or None.

    `group` (n,) is what the user gave, or None; `items` are the numbers (n,) of x and of y.
    """
    if group is not None:
        return _numbers(group)
    repeated = _repeated_items(items)
    seldom = repeated is not None and len(repeated) <= _MOST_IN_GROUP * (repeated.max() + 1)
    return repeated if seldom else None


def _repeated_items(items: Sequence[RowNumbers]) -> RowNumbers | None:
    """The items of the view whose items repeat more often; None if every pair has its own."""
    fewer = min((numbered(numbers)[1] for numbers in items), key=lambda rows: rows.max())
    return fewer if fewer.max() + 1 < len(fewer) else None


def epoch_length(pairs: Features, *, one_per_group: bool) -> int:
    """Number of pairs that an epoch can visit: all, or one of each group."""
    groups = getattr(pairs, "groups", None)
    return len(pairs) if groups is None or not one_per_group else len(np.unique(groups))


def _shapes(pairs: Features, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    x, y = pairs.batch(np.arange(2))
    for view, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor) or len(tensor) != 2 or not tensor.is_floating_point():
            raise InputError(
                f"View {view} of 2 {name} pairs must be a floating tensor of 2 rows, got "
                f"{getattr(tensor, 'dtype', type(tensor).__name__)} of shape "
                f"{tuple(getattr(tensor, 'shape', ()))}."
            )
    return tuple(x.shape[1:]), tuple(y.shape[1:])


def epoch_rows(pairs: Features, settings: Settings, *, stage: str, epoch: int) -> RowNumbers:
    """The rows that an epoch visits: all, or one of each group; or `epoch_pairs` of these."""
    draw: dict[str, Any] = {"seed": settings.seed, "stage": stage, "epoch": epoch}
    groups: RowNumbers | None = getattr(pairs, "groups", None)
    rows = np.arange(len(pairs))
    if groups is not None and settings.one_per_group:
        rows = one_of_each(groups, **draw)
    count = settings.epoch_pairs
    if count is None or count >= len(rows):
        return rows
    keys = np.random.PCG64(_seed("some", *draw.values())).random_raw(len(rows))
    return rows[np.sort(np.argsort(keys, kind="stable")[:count])]


def epoch_batches(
    pairs: int, batch_size: int, *, seed: int, stage: str, epoch: int
) -> list[RowNumbers]:
    """Row numbers of each batch of an epoch, as in the paper.

    All pairs are shuffled and cut into consecutive slices; the last one is topped up to full size
    with random others, so that no pair is in a batch twice. Fewer pairs than `batch_size` make one
    smaller batch.

    >>> [len(rows) for rows in epoch_batches(10, 4, seed=0, stage="train", epoch=1)]
    [4, 4, 4]
    >>> [len(rows) for rows in epoch_batches(3, 4, seed=0, stage="train", epoch=1)]
    [3]
    """
    # NumPy promises the stream of raw bits for all versions, which it does not for shuffles.
    bits = np.random.PCG64(_seed("shuffle", seed, stage, epoch))
    order = np.argsort(bits.random_raw(pairs), kind="stable").astype(np.int64)
    batches = np.split(order, range(batch_size, pairs, batch_size))
    missing = batch_size - len(batches[-1])
    if missing and len(batches) > 1:
        others = order[: -len(batches[-1])]
        drawn = np.argsort(bits.random_raw(len(others)), kind="stable")[:missing]
        batches[-1] = np.concatenate((batches[-1], others[drawn]))
    return batches


def one_of_each(groups: RowNumbers, *, seed: int, stage: str, epoch: int) -> RowNumbers:
    """The row of one pair of each group, drawn anew each epoch, in the order of the groups.

    `groups` (n,) are integers. Every rank draws the same rows.

    >>> [len(one_of_each(np.array([5, 5, 2, 5]), seed=0, stage="train", epoch=e)) for e in (1, 2)]
    [2, 2]
    """
    keys = np.random.PCG64(_seed("group", seed, stage, epoch)).random_raw(len(groups))
    order = np.lexsort((keys, groups))
    first = np.flatnonzero(np.diff(groups[order], prepend=groups.min() - 1))
    return order[first].astype(np.int64)


def seed_epoch(seed: int, stage: str, epoch: int) -> None:
    """Seed torch's global generator for an epoch, differently on each rank.

    A checkpoint therefore needs no generator state: a resumed epoch draws the same numbers again.
    """
    torch.manual_seed(_seed("draws", seed, stage, epoch, distributed.rank()) % 2**63)


def share(rows: RowNumbers) -> RowNumbers:
    """This rank's contiguous part of some rows; all of them without torch.distributed.

    >>> share(np.arange(3))
    array([0, 1, 2])
    """
    return np.array_split(rows, distributed.world_size())[distributed.rank()]


def _seed(*parts: object) -> int:
    """A seed of 128 bits that differs whenever a part does."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:16], "little")
