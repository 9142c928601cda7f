"""Hashes of pairs and splits, by which changed data is noticed."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ccal.data import Pairs, Rows, Split

__all__ = ["content_hash", "split_hash"]


def content_hash(pairs: Pairs) -> str:
    """SHA-256 of all that pairs hold, read a piece at a time."""
    digest = hashlib.sha256()
    for name in pairs.names:
        rows = pairs.column(name)
        digest.update(f"{name} {rows.shape} {getattr(rows.source, 'dtype', 'text')}\n".encode())
        step = 1024 if rows.is_text else _rows_of_16_mb(rows)
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step]
            if rows.is_text:
                # Lengths, so that ["ab", "c"] is not ["a", "bc"].
                texts = (text.encode() for text in chunk)
                digest.update(b"".join(b"%d:%b" % (len(text), text) for text in texts))
            else:
                digest.update(np.ascontiguousarray(chunk).tobytes())
    for keys in (pairs.label, pairs.group):
        digest.update(b"-" if keys is None else "\n".join(map(str, keys.tolist())).encode())
    return digest.hexdigest()


def split_hash(split: Split) -> str:
    """SHA-256 of the rows of each part."""
    parts = (split.train, split.valid, split.test)
    return hashlib.sha256(b"|".join(rows.tobytes() for rows in parts)).hexdigest()


def _rows_of_16_mb(rows: Rows) -> int:
    source = cast("NDArray[Any]", rows.source)
    return max(1, (1 << 24) * len(source) // max(1, source.nbytes))
