"""What a worker is given: a shard, and the model that embeds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ccal.errors import InputError
from ccal.features import reads_images
from ccal.model import DualEncoder
from ccal.scale.formats import Batch
from ccal.scale.shards import Shard

T = TypeVar("T")
_ROWS, _IMAGES = 4096, 64


def batch_size(model: DualEncoder, modality: str) -> int:
    """Rows to embed at a time; fewer images, for which networks take long."""
    return _IMAGES if reads_images(model.front_ends.get(modality)) else _ROWS


@dataclass(frozen=True)
class ShardTask:
    """Work on one shard."""

    shard: Shard

    def __str__(self) -> str:
        return f"shard {self.shard.name}"

    def read(
        self, columns: Sequence[str], size: int, make: Callable[[Batch, int], T]
    ) -> Iterator[tuple[int, T]]:
        """What `make` gives for each batch and the number of its first row, with its rows.

        What it refuses is refused with the name of the shard, and so is a shard that does not have
        as many rows as it had.
        """
        start = 0
        for batch in self.shard.batches(columns, size):
            try:
                made = make(batch, start)
            except InputError as error:
                raise InputError(f"{self}, from row {start}: {error}") from error
            count = len(batch[columns[0]])
            start += count
            yield count, made
        if start != self.shard.rows:
            raise InputError(f"{self} has {start:,} rows, and {self.shard.rows:,} were expected.")
