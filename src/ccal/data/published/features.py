"""Arrays of image features in place of image files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.pairs import Pairs, Rows
from ccal.data.tables import Table
from ccal.errors import InputError

__all__ = ["image_names", "match_features"]


def image_names(table: Table) -> list[str]:
    """The image of every pair, each once and in the order of the data set.

    Features computed for these, in this order, are matched by
    `match_features(table, features, image_names(table))`.

    >>> from ccal.data import BadRows
    >>> from pathlib import Path
    >>> pairs = Pairs({"image": ["7.jpg", "7.jpg", "9.jpg"], "text": ["a", "b", "c"]})
    >>> image_names(Table(pairs, None, np.array([0, 0, 1]), BadRows(Path("tokens.txt"), rows=2)))
    ['7.jpg', '9.jpg']
    """
    return list(dict.fromkeys(table.pairs.column("image")[:]))


def match_features(
    table: Table,
    features: NDArray[Any],
    names: Sequence[str] | None = None,
    *,
    strict: bool = True,
) -> Table:
    """Put features (n, ...) in the place of image names; nothing is copied.

    Row i of `features` belongs to the image `names[i]`, spelled as in the table. Without `names` it
    belongs to image i of the data set, those included that the table leaves out, and n must be the
    number of all of them. Images that `names` lacks are refused, or left out with `strict=False`
    and added to `bad`.

    >>> from ccal.data import BadRows
    >>> from pathlib import Path
    >>> pairs = Pairs({"image": ["7.jpg", "7.jpg", "9.jpg"], "text": ["a", "b", "c"]})
    >>> table = Table(pairs, None, np.array([0, 0, 1]), BadRows(Path("tokens.txt"), rows=2))
    >>> match_features(table, np.array([[9.0], [7.0]]), ["9.jpg", "7.jpg"]).pairs[1]
    (array([7.]), 'b')
    """
    if names is None:
        if len(features) != table.bad.rows:
            raise InputError(
                f"features has {len(features):,} rows, but {table.bad.path} has "
                f"{table.bad.rows:,} images; say with names which image each row belongs to."
            )
        return _with_features(table, features, table.rows, np.arange(len(table.pairs)))
    if len(features) != len(names):
        raise InputError(f"features has {len(features):,} rows, but names has {len(names):,}.")
    position = {name: row for row, name in enumerate(names)}
    if len(position) < len(names):
        twice = next(name for row, name in enumerate(names) if position[name] != row)
        raise InputError(f"names has {twice!r} more than once; give each image one row.")
    images = table.pairs.column("image")[:]
    index = np.array([position.get(name, -1) for name in images], dtype=np.int64)
    keep = np.flatnonzero(index >= 0)
    bad = replace(table.bad, shown=list(table.bad.shown))
    missing = {images[i]: int(table.rows[i]) for i in np.flatnonzero(index < 0)}
    for name, row in missing.items():
        bad.add(row + 1, f"{name}: no features")
    if missing and (strict or not len(keep)):
        some = f"; names begins with {names[0]!r}" if len(names) else ""
        raise InputError(f"{bad}\nnames must be spelled as the images of the table are{some}.")
    return _with_features(replace(table, bad=bad), features, index, keep)


def _with_features(
    table: Table, features: NDArray[Any], index: NDArray[np.int64], keep: NDArray[np.int64]
) -> Table:
    """The pairs `keep`, pair i with row `index[i]` of the features."""
    kept = table.pairs[keep]
    pairs = Pairs(
        {"image": Rows(features, index[keep]), "text": kept.column("text")},
        label=kept.label,
        group=kept.group,
    )
    split = None if table.split is None else table.split[keep]
    return Table(pairs, split, table.rows[keep], table.bad)
