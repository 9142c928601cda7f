"""Pairs from rows that hold images and texts: other libraries' data sets.

Images become files, since front ends, caches and indexes know images by their files.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ccal.data import Pairs, Rows
from ccal.errors import InputError
from ccal.files import write_atomically
from ccal.media_types import HEAD, IMAGES, sniff
from ccal.optional import require


def pairs_from_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    images: str | os.PathLike[str],
    names: tuple[str, str] | None = None,
) -> Pairs:
    """Pairs of two columns of rows.

    A cell is a text (or its bytes), an array of numbers, or an image: its bytes, a mapping with
    `bytes`, or a picture of Pillow. A list of texts is several pairs with the same counterpart.

    Args:
        rows: a Hugging Face dataset, a WebDataset, or any iterable of mappings.
        x: name of the column that becomes view x, and so on for y.
        y: see x.
        images: folder for image files, which are called by their content.
        names: of the modalities; those of the columns by default.

    >>> rows = [{"a": [1.0, 2.0], "text": ["a dog", "a hound"]}, {"a": [0.0, 1.0], "text": "a cat"}]
    >>> pairs = pairs_from_rows(rows, x="a", y="text", images="photos")
    >>> len(pairs), pairs.column("text")[:]
    (3, ['a dog', 'a hound', 'a cat'])
    """
    folder = Path(images)
    columns: dict[str, list[Any]] = {x: [], y: []}
    groups: list[int] = []
    files = dict.fromkeys(columns, False)
    for number, row in enumerate(rows):
        cells: dict[str, list[Any]] = {}
        for name in columns:
            if name not in row:
                raise InputError(f"Row {number} has no {name!r}; it has {', '.join(row)}.")
            found = _texts(row[name])
            if found is None:
                content = _image(row[name])
                files[name] = files[name] or content is not None
                found = [row[name] if content is None else _written(folder, content)]
            cells[name] = found
        for one in cells[x]:
            for other in cells[y]:
                columns[x].append(one)
                columns[y].append(other)
                groups.append(number)
    if not groups:
        raise InputError("The rows are empty; expected at least one pair.")
    called = dict(zip(columns, names or (x, y), strict=True))
    views = {called[name]: _view(cells, files[name]) for name, cells in columns.items()}
    repeated = len(set(groups)) < len(groups)
    return Pairs(views, group=np.array(groups) if repeated else None)


def parquet_rows(path: str | os.PathLike[str]) -> Iterable[dict[str, Any]]:
    """The rows of a Parquet file, such as those with image bytes that the hub stores."""
    parquet = require("pyarrow.parquet", package="pyarrow", purpose="Reading Parquet")
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=256):
            yield from batch.to_pylist()


def _texts(cell: Any) -> list[str] | None:
    if isinstance(cell, bytes) and sniff(cell[:HEAD]) not in IMAGES:
        cell = cell.decode("utf-8", errors="replace")
    if isinstance(cell, str):
        return [cell]
    is_list = isinstance(cell, list | tuple) and cell and all(isinstance(c, str) for c in cell)
    return list(cell) if is_list else None


def _image(cell: Any) -> bytes | None:
    """The bytes of an image file, or None for numbers."""
    if isinstance(cell, Mapping) and isinstance(cell.get("bytes"), bytes):
        return bytes(cell["bytes"])
    if isinstance(cell, bytes):
        return cell
    if hasattr(cell, "save") and hasattr(cell, "convert"):
        content = io.BytesIO()
        cell.save(content, format="PNG")
        return content.getvalue()
    return None


def _written(folder: Path, content: bytes) -> str:
    kind = sniff(content[:HEAD])
    suffix = kind.partition("/")[2].replace("jpeg", "jpg") if kind in IMAGES else "img"
    name = f"{hashlib.sha256(content).hexdigest()[:24]}.{suffix}"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)
    return str(folder / name)


def _view(cells: list[Any], files: bool) -> Any:
    if isinstance(cells[0], str):
        return Rows(cells, files=files)
    return np.stack([np.asarray(cell, dtype=np.float32) for cell in cells])
