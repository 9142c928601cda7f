"""Approximate search in a large segment: few candidates, chosen by faiss' cells or binary codes.

Only candidates come from here; their cosines are computed exactly, as everywhere. A segment has
cells, or codes if the index was built with `codes=`. How many cells or codes a search looks at is
measured when they are built, as it depends on the data: by queries halfway between two items, which
are as far from any item as a real query of their modality; and by items of the other modality, if
the index has some. Queries of the other modality lie elsewhere, and may need more.
"""

from __future__ import annotations

import warnings
import zlib
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.array_files import ArrayFile, DamagedFileError, write_array_file
from ccal.files import write_atomically
from ccal.optional import require
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.folder.segments import Segment
from ccal.retrieval.exact import Bools, Floats, Ints, nearest
from ccal.retrieval.items import Binding

RECALL = 0.99
"""Share of the ten nearest that a search must find."""

QUERIES = 200
"""Queries of each kind that the recall is measured with."""

_NEAREST, _SAMPLE = 10, 10_000


@cache
def has_faiss() -> bool:
    """Whether faiss is installed."""
    return find_spec("faiss") is not None


def open_candidates(folder: Path, segment: Segment, binding: Binding) -> Cells | CodesFile | None:
    """The codes of a segment, or its cells if faiss is installed; None if missing or damaged."""
    if segment.approximate is None:
        return None
    path = folder / segment.file("faiss" if binding.codes is None else "codes")
    with suppress(DamagedFileError, OSError):
        if binding.codes is not None:
            codes = CodesFile(path)
            codes.verify()
            return codes
        if not has_faiss():
            return None
        content = path.read_bytes()
        if zlib.crc32(content) == segment.approximate:
            return Cells(content)
    warnings.warn(f"{path} is missing or damaged: search is exact, and slower.", stacklevel=2)
    return None


def write_candidates(
    folder: Path, segment: Segment, vectors: Floats, codes: int | None, others: Floats
) -> int | None:
    """Write codes of this many bits, or cells; returns `Segment.approximate`.

    `others` (m, dim) are items of the other modality.
    """
    if codes is not None:
        write_codes(folder / segment.file("codes"), vectors, codes, others)
        return 0
    if not has_faiss():
        return None
    content = build_cells(vectors, others)
    write_atomically(folder / segment.file("faiss"), content)
    return zlib.crc32(content)


class Cells:
    """Cells of a segment, of which faiss searches those nearest to the query."""

    def __init__(self, content: bytes) -> None:
        self._index = _faiss().deserialize_index(np.frombuffer(content, np.uint8))

    def candidates(self, queries: Vectors, k: int, allowed: Bools | None) -> Ints:
        """Positions (q, m) of near vectors for queries (q, d); -1 where there are no more."""
        # faiss compares vectors of float16: a few more, as the last may come in another order.
        count = min(k + max(2, k // 8), self._index.ntotal)
        parameters = None
        if allowed is not None:
            faiss = _faiss()
            bits = np.packbits(allowed, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
            parameters = faiss.SearchParametersIVF(nprobe=self._index.nprobe, sel=selector)
        _, positions = self._index.search(queries, count, params=parameters)
        found: Ints = positions
        return found


def build_cells(vectors: Floats, others: Floats) -> bytes:
    """A faiss index of unit vectors (n, d) in cells, as the content of a file."""
    faiss = _faiss()
    count, dim = vectors.shape
    rows = np.ascontiguousarray(vectors, np.float32)
    cells = max(1, min(int(4 * count**0.5), count // 40))
    flat, form = faiss.IndexFlatIP(dim), faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexIVFScalarQuantizer(flat, dim, cells, form, faiss.METRIC_INNER_PRODUCT)
    index.cp.spherical = True
    # More points would move the cells little; the recall is measured below.
    index.cp.max_points_per_centroid = 64
    index.train(rows)
    index.add(rows)
    measured = _measured(rows, others, np.random.default_rng(0))
    index.nprobe = 1
    for queries, true in measured:
        width = true.shape[1]
        while index.nprobe < cells and _recall(index.search(queries, width)[1], true) < RECALL:
            index.nprobe = min(2 * index.nprobe, cells)
    return bytes(faiss.serialize_index(index))


class CodesFile(ArrayFile):
    """Codes of a segment, `packed` (n, bytes), and the axes (d, bits) whose signs they are.

    A code has the signs of a vector after a rotation that makes signs lose little (iterative
    quantisation), and takes a few bytes. `rerank` candidates hold the wanted share of the ten
    nearest.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _layout)
        self.rerank = int(self.about["rerank"])
        axes, self.packed = self.arrays
        self._axes = torch.from_numpy(axes)
        self._searched = _searched(self.packed)

    def candidates(self, queries: Vectors, k: int, allowed: Bools | None) -> Ints:
        """Positions (q, m) of near vectors for queries (q, d); -1 where there are no more."""
        wanted = max(2 * k, self.rerank * k // _NEAREST, self.rerank)
        if allowed is not None:
            # Codes that are not allowed are found as well, and more so if they are near.
            wanted = int(1.5 * wanted * len(allowed) / max(1, int(allowed.sum())))
        at: Ints = self._searched.nearest(self.codes_of(queries), wanted)[0]
        return at if allowed is None else np.where(allowed[at], at, -1)

    def codes_of(self, queries: Vectors) -> NDArray[np.uint8]:
        """Codes (q, bytes) of queries (q, d)."""
        return _packed(queries, self._axes)


def write_codes(path: Path, vectors: Floats, bits: int, others: Floats) -> None:
    """Write codes of unit vectors (n, d)."""
    from ccal.retrieval.codes.heads import itq_rotation

    rng = np.random.default_rng(0)
    count, dim = vectors.shape
    sample = vectors[np.sort(rng.choice(count, min(_SAMPLE, count), replace=False))]
    rows = torch.from_numpy(sample.astype(np.float64))
    centre = rows.mean(0)
    centred = rows - centre
    # The directions along which the rows differ most, at most as many as bits.
    leading = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :bits]
    rotation, _ = itq_rotation(centred @ leading, bits)
    axes = (leading @ rotation).float()
    packed = _packed(vectors, axes, centre.float())
    searched, rerank = _searched(packed), 8 * min(_NEAREST, count)
    for queries, true in _measured(vectors, others, rng):
        coded = _packed(queries, axes)
        while rerank < count and _recall(searched.nearest(coded, rerank)[0], true) < RECALL:
            rerank *= 2
    about = {"count": count, "dim": dim, "bits": bits, "rerank": min(rerank, count)}
    write_array_file(path, about, axes.numpy(), packed)


def _measured(
    vectors: Floats, others: Floats, rng: np.random.Generator
) -> list[tuple[Vectors, Ints]]:
    """Queries (q, d) halfway between items, and `others`; positions (q, 10) of their nearest."""
    ends = rng.integers(len(vectors), size=(2, min(QUERIES, len(vectors))))
    halfway = (vectors[ends[0]] + vectors[ends[1]]).astype(np.float32)
    k = min(_NEAREST, len(vectors))
    kinds = [halfway, others.astype(np.float32)]
    return [(asked, nearest(asked, vectors, k).positions[:, :k]) for asked in kinds if len(asked)]


def _recall(found: Ints, true: Ints) -> float:
    pairs = zip(true, found, strict=True)
    return float(np.mean([np.isin(near, there).mean() for near, there in pairs]))


def _packed(vectors: Floats, axes: Tensor, centre: Tensor | None = None) -> NDArray[np.uint8]:
    """Codes (n, bytes) of items, around their centre, or of queries, without one.

    The centre adds the same to the cosine of every item with a query, so that queries keep it.
    """
    packed = np.empty((len(vectors), axes.shape[1] // 8), np.uint8)
    for start in range(0, len(vectors), _SAMPLE):
        rows = torch.from_numpy(vectors[start : start + _SAMPLE].astype(np.float32))
        values = (rows if centre is None else rows - centre) @ axes
        packed[start : start + _SAMPLE] = np.packbits((values > 0).numpy(), axis=1)
    return packed


def _searched(packed: NDArray[np.uint8]) -> Any:
    from ccal.retrieval.codes.code_index import HammingCodes

    return HammingCodes(packed, "faiss" if has_faiss() else "numpy")


def _layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    count, dim, bits = (int(about[name]) for name in ("count", "dim", "bits"))
    return [(np.float32, (dim, bits)), (np.uint8, (count, bits // 8))]


def _faiss() -> Any:
    return require("faiss", package="faiss-cpu", purpose="Approximate search")
