"""Which pairs meet in which batch: shuffled anew each epoch, from the seed and the epoch alone."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal import distributed

__all__ = ["Features", "epoch_batches", "one_of_each", "seed_epoch", "share", "some_of"]

Rows = NDArray[np.int64]


class Features(Protocol):
    """Pairs that are ready for two towers.

    `batch` takes row numbers (n,) and returns x and y, float32 CPU tensors of n rows each. What is
    random in it, such as augmentation, draws from torch's global generator.

    Two more are optional, and `PairFeatures` has them: `labels(rows)`, integers (n,) or None, where
    pairs of equal labels are no negatives of each other; and `groups`, integers (pairs,) or None,
    where an epoch takes one pair of each group.
    """

    def __len__(self) -> int:
        """Number of pairs."""

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Both views of some pairs."""


def epoch_batches(pairs: int, batch_size: int, *, seed: int, stage: str, epoch: int) -> list[Rows]:
    """Row numbers of each batch of an epoch, as in the paper.

    All pairs are shuffled and cut into consecutive slices; the last one is topped up to full size
    with random others, so that no pair is in a batch twice. Fewer pairs than `batch_size` make one
    smaller batch.

    >>> [len(rows) for rows in epoch_batches(10, 4, seed=0, stage="train", epoch=1)]
    [4, 4, 4]
    >>> [len(rows) for rows in epoch_batches(3, 4, seed=0, stage="train", epoch=1)]
    [3]
    """
    # Raw bits, since NumPy promises their stream for all versions, which it does not for shuffles.
    bits = np.random.PCG64(_number("shuffle", seed, stage, epoch))
    order = np.argsort(bits.random_raw(pairs), kind="stable").astype(np.int64)
    batches = np.split(order, range(batch_size, pairs, batch_size))
    missing = batch_size - len(batches[-1])
    if missing and len(batches) > 1:
        others = order[: -len(batches[-1])]
        drawn = np.argsort(bits.random_raw(len(others)), kind="stable")[:missing]
        batches[-1] = np.concatenate((batches[-1], others[drawn]))
    return batches


def one_of_each(groups: Rows, *, seed: int, stage: str, epoch: int) -> Rows:
    """The row of one pair of each group, drawn anew each epoch, in the order of the groups.

    `groups` (n,) are whole numbers. Every rank draws the same rows.

    >>> [len(one_of_each(np.array([5, 5, 2, 5]), seed=0, stage="train", epoch=e)) for e in (1, 2)]
    [2, 2]
    """
    keys = np.random.PCG64(_number("group", seed, stage, epoch)).random_raw(len(groups))
    order = np.lexsort((keys, groups))
    first = np.flatnonzero(np.diff(groups[order], prepend=groups.min() - 1))
    return order[first].astype(np.int64)


def some_of(rows: Rows, count: int | None, *, seed: int, stage: str, epoch: int) -> Rows:
    """So many of the rows, drawn anew each epoch, in their order; all if there are no more.

    >>> len(some_of(np.arange(100), 10, seed=0, stage="train", epoch=1))
    10
    """
    if count is None or count >= len(rows):
        return rows
    keys = np.random.PCG64(_number("some", seed, stage, epoch)).random_raw(len(rows))
    return rows[np.sort(np.argsort(keys, kind="stable")[:count])]


def seed_epoch(seed: int, stage: str, epoch: int) -> None:
    """Seed torch's global generator for an epoch, differently on each rank.

    With this no generator's state needs saving: a resumed epoch draws what the first try drew.
    """
    torch.manual_seed(_number("draws", seed, stage, epoch, distributed.rank()) % 2**63)


def share(rows: Rows) -> Rows:
    """This rank's contiguous part of some rows; all of them without torch.distributed.

    >>> share(np.arange(3))
    array([0, 1, 2])
    """
    return np.array_split(rows, distributed.world_size())[distributed.rank()]


def _number(*parts: object) -> int:
    """A number of 128 bits that differs whenever a part does."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:16], "little")
