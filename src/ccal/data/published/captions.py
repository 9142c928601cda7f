"""What all readers of published data sets share: images with captions, their problems, features.

A reader gathers an `Image` for each entry and reports what is wrong to `Problems`; `build_table`
makes pairs of the good ones, and `match_features` puts arrays of features in place of image files.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ccal.data.pairs import Pairs, Rows
from ccal.data.published.plain_files import FilePath, existing_folder
from ccal.data.tables import BadRows, Table, text_fault
from ccal.errors import InputError

Captions: TypeAlias = Literal["separate", "concatenate"]
LEAVE_OUT = "Correct this, or leave it out with --skip-bad-rows (strict=False)."


@dataclass(kw_only=True)
class Problems(BadRows):
    """The problems of a data set, which may lie in several files; `rows` counts its images.

    >>> bad = Problems(path=Path("Flickr8k.token.txt"), rows=8092)
    >>> bad.at("line 7", "the caption is empty")
    >>> print(bad)
    Flickr8k.token.txt: 1 problem among 8,092 images
      line 7: the caption is empty
    """

    def at(self, place: str, reason: str) -> None:
        """Add a problem and the place of the data set where it is."""
        self.add(f"{place}: {reason}")

    def is_text(self, value: object, place: str, what: str) -> TypeGuard[str]:
        """Whether this is text to work with; if not, that is a problem."""
        fault = text_fault(value, what)
        if fault is not None:
            self.at(place, fault)
        return fault is None

    def __str__(self) -> str:
        problems = "problem" if self.total == 1 else "problems"
        images = "image" if self.rows == 1 else "images"
        return self.listed(f"{self.path}: {self.total:,} {problems} among {self.rows:,} {images}")


@dataclass
class Image:
    """An image of a data set: its name, where the data set names it, its captions and class.

    `file` is its path in the folder of images, if that is not its name. An unreadable
    entry is an image without a name: it keeps its position, by which features are matched.
    """

    name: str
    place: str
    captions: list[str] = field(default_factory=list)
    split: str | None = None
    label: str | None = None
    file: str | None = None

    def describe(self, caption: object, place: str, bad: Problems, what: str = "caption") -> None:
        """Add a caption, with single spaces, unless it is bad."""
        if bad.is_text(caption, place, what):
            self.captions.append(" ".join(caption.split()))


def check_options(images: FilePath | None, captions: str) -> Path | None:
    """Check the options that all readers share; return the folder of images, or None."""
    if captions not in ("separate", "concatenate"):
        raise InputError(f"captions must be 'separate' or 'concatenate', got {captions!r}.")
    return None if images is None else existing_folder(images)


def build_table(
    images: Sequence[Image],
    bad: Problems,
    *,
    folder: Path | None,
    captions: Captions,
    has_split: bool,
    strict: bool,
) -> Table:
    """Pairs of the images that have captions, a part if `has_split`, and a file if `folder`.

    Images without captions are taken to be in `bad` already. Those of no part are left out, since
    published lists do not name every image.
    """
    bad.rows = len(images)
    first: dict[str, Image] = {}
    used: list[int] = []
    paths: list[str] = []
    texts: list[str] = []
    for row, image in enumerate(images):
        if not image.name or (has_split and image.split is None):
            continue
        if first.setdefault(image.name, image) is not image:
            bad.at(image.place, f"{image.name} was given in {first[image.name].place} already")
            continue
        if not image.captions:
            continue
        path = image.name
        if folder is not None:
            path = os.path.join(folder, image.file or image.name)
            if not os.path.isfile(path):
                bad.at(image.place, f"no image file {path}")
                continue
        found = ["\n".join(image.captions)] if captions == "concatenate" else image.captions
        used += [row] * len(found)
        paths += [path] * len(found)
        texts += found
    if bad and strict:
        raise InputError(f"{bad}\n{LEAVE_OUT}")
    if not used:
        raise InputError(f"{bad}\nNothing is left to read.")
    rows = np.array(used, dtype=np.int64)
    pairs = Pairs(
        {"image": Rows(paths, files=folder is not None), "text": texts},
        label=None if images[used[0]].label is None else [str(images[row].label) for row in used],
        group=rows if captions == "separate" else None,
    )
    split = np.array([str(images[row].split) for row in used]) if has_split else None
    return Table(pairs, split, rows, bad)


def image_names(table: Table) -> list[str]:
    """The image of every pair, each once and in the order of the data set.

    Features computed for these, in this order, are matched by
    `match_features(table, features, image_names(table))`.

    >>> from ccal.data import BadRows
    >>> from pathlib import Path
    >>> pairs = Pairs({"image": ["7.jpg", "7.jpg", "9.jpg"], "text": ["a", "b", "c"]})
    >>> none = BadRows(path=Path("tokens.txt"), rows=2)
    >>> image_names(Table(pairs, None, np.array([0, 0, 1]), none))
    ['7.jpg', '9.jpg']
    """
    return list(dict.fromkeys(table.pairs.column("image")[:]))


def match_features(
    table: Table, features: NDArray[Any], names: Sequence[str] | None = None, *, strict: bool = True
) -> Table:
    """Put features (n, ...) in the place of image names; nothing is copied.

    Row i of `features` belongs to the image `names[i]`, spelled as in the table. Without `names` it
    belongs to image i of the data set, those included that the table leaves out, and n must be the
    number of all of them. Images that `names` lacks are refused, or left out with `strict=False`
    and added to `bad`.

    >>> from ccal.data import BadRows
    >>> from pathlib import Path
    >>> pairs = Pairs({"image": ["7.jpg", "7.jpg", "9.jpg"], "text": ["a", "b", "c"]})
    >>> table = Table(pairs, None, np.array([0, 0, 1]), BadRows(path=Path("tokens.txt"), rows=2))
    >>> match_features(table, np.array([[9.0], [7.0]]), ["9.jpg", "7.jpg"]).pairs[1]
    (array([7.]), 'b')
    """
    if names is None:
        if len(features) != table.bad.rows:
            raise InputError(
                f"features has {len(features):,} rows, but {table.bad.path} has "
                f"{table.bad.rows:,} images; say which image each row belongs to (names=, or a "
                "file of names beside the features, as features.txt beside features.npy)."
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
    missing = list(dict.fromkeys(images[i] for i in np.flatnonzero(index < 0)))
    for name in missing:
        bad.add(f"{name}: no features")
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
