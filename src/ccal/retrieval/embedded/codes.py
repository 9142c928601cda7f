"""Search in a large segment by binary codes: bits that differ choose candidates.

A vector becomes the signs of its coordinates after a rotation that makes signs lose little
(iterative quantisation). Codes take a few bytes a vector and are all that a search reads of most
vectors. Only candidates come from here; their cosines are computed exactly, like all others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.array_files import ArrayFile, write_array_file
from ccal.retrieval.embedded.approximate import RECALL, is_available
from ccal.retrieval.embedded.exact import largest
from ccal.retrieval.home import Vectors

__all__ = ["CodesFile", "write_codes"]

_SAMPLE, _ASKED = 10_000, 200
_CALIBRATED = 10
"""The number of nearest for which candidates are counted."""


class CodesFile(ArrayFile):
    """Codes of a segment, `packed` (n, bytes), and the axes (d, bits) whose signs they are.

    `rerank` is how many candidates the wanted recall of the ten nearest takes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _layout)
        self.rerank = int(self.about["rerank"])
        axes, self.packed = self.arrays
        self._axes = torch.from_numpy(axes)
        self._held = _searched(self.packed)

    def encode(self, queries: Vectors) -> NDArray[np.uint8]:
        """Codes (q, bytes) of queries (q, d)."""
        return _packed(queries, self._axes)

    def candidates(
        self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Positions (q, m) of near vectors for queries (q, d); -1 where there are no more."""
        wanted = max(2 * k, self.rerank * k // _CALIBRATED, self.rerank)
        if allowed is not None:
            # Those that do not count are found as well, and more so if they are near.
            wanted = int(1.5 * wanted * len(allowed) / max(1, int(allowed.sum())))
        at: NDArray[np.int64] = self._held.nearest(self.encode(queries), wanted)[0]
        return at if allowed is None else np.where(allowed[at], at, -1)


def write_codes(path: Path, vectors: NDArray[np.floating], bits: int) -> None:
    """Write codes of unit vectors (n, d).

    As many candidates are noted as the wanted recall takes, which depends on the data: measured
    for points halfway between items, which are as far from any item as a query is.
    """
    rng = np.random.default_rng(0)
    count, dim = vectors.shape
    sample = vectors[np.sort(rng.choice(count, min(_SAMPLE, count), replace=False))]
    rows = torch.from_numpy(sample.astype(np.float64))
    centre = rows.mean(0)
    axes = _axes(rows - centre, bits)
    packed = _packed(vectors, axes, centre.float())
    ends = rng.integers(count, size=(2, min(_ASKED, count)))
    between = (vectors[ends[0]] + vectors[ends[1]]).astype(np.float32)
    rerank = _needed(between, vectors, packed, axes)
    about = {"count": count, "dim": dim, "bits": bits, "rerank": rerank}
    write_array_file(path, about, axes.numpy(), packed)


def _axes(rows: Tensor, bits: int) -> Tensor:
    """Axes (d, bits) float32, whose signs say most of centred rows (n, d)."""
    from ccal.codes.itq import itq_rotation

    # Along the directions in which the rows differ most, no more of them than there are bits.
    leading = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)[:, :bits]
    rotation, _ = itq_rotation(rows @ leading, bits)
    axes: Tensor = (leading @ rotation).float()
    return axes


def _packed(
    vectors: NDArray[np.floating], axes: Tensor, centre: Tensor | None = None
) -> NDArray[np.uint8]:
    """Codes (n, bytes); of items around their centre, of queries as they are.

    What all items have in common adds the same to each cosine with a query, so that it is left out
    of the items only.
    """
    packed = np.empty((len(vectors), axes.shape[1] // 8), np.uint8)
    for start in range(0, len(vectors), _SAMPLE):
        rows = torch.from_numpy(vectors[start : start + _SAMPLE].astype(np.float32))
        values = (rows if centre is None else rows - centre) @ axes
        packed[start : start + _SAMPLE] = np.packbits((values > 0).numpy(), axis=1)
    return packed


def _needed(
    queries: Vectors, vectors: NDArray[np.floating], packed: NDArray[np.uint8], axes: Tensor
) -> int:
    """How many candidates hold the wanted share of the ten nearest."""
    k = min(_CALIBRATED, len(vectors))
    best = torch.full((len(queries), 0), -torch.inf)
    at = torch.empty(len(queries), 0, dtype=torch.int64)
    asked = torch.from_numpy(queries)
    for start in range(0, len(vectors), 1 << 16):
        some = torch.from_numpy(vectors[start : start + (1 << 16)].astype(np.float32))
        values, places = largest(asked @ some.T, min(k, len(some)))
        best, at = torch.cat((best, values), 1), torch.cat((at, places + start), 1)
        chosen = best.topk(min(k, best.shape[1]), dim=1).indices
        best, at = best.gather(1, chosen), at.gather(1, chosen)
    held, coded, wanted = _searched(packed), _packed(queries, axes), 8 * k
    while wanted < len(vectors):
        found = held.nearest(coded, wanted)[0]
        pairs = zip(at.numpy(), found, strict=True)
        if np.mean([np.isin(near, there).mean() for near, there in pairs]) >= RECALL:
            break
        wanted *= 2
    return min(wanted, len(vectors))


def _searched(packed: NDArray[np.uint8]) -> Any:
    from ccal.codes.hamming import FaissCodes, HammingCodes

    return FaissCodes(packed) if is_available() else HammingCodes(packed)


def _layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    count, dim, bits = (int(about[name]) for name in ("count", "dim", "bits"))
    return [(np.float32, (dim, bits)), (np.uint8, (count, bits // 8))]
