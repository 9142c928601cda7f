"""Images with captions, on the way from a published data set to pairs, and their problems."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypeGuard

import numpy as np

from ccal.data.bad_rows import BadRows
from ccal.data.pairs import Pairs, Rows
from ccal.data.published.files import FilePath, existing_folder
from ccal.data.tables import Table
from ccal.errors import InputError

__all__ = ["Captions", "Image", "Problems", "build_table", "check_options"]

Captions: TypeAlias = Literal["separate", "concatenate"]


@dataclass
class Problems(BadRows):
    """`BadRows` of a data set that may lie in several files, so that each reason names its place.

    `rows` counts the images of the data set, good or bad.

    >>> bad = Problems(Path("Flickr8k.token.txt"), rows=8092)
    >>> bad.at("line 7", "the caption is empty")
    >>> print(bad)
    Flickr8k.token.txt: 1 problem among 8,092 images
      line 7: the caption is empty
    """

    unit: str = "image"

    def at(self, place: str, reason: str) -> None:
        """Count a problem, and keep its place and reason while there is room."""
        self.add(self.total + 1, f"{place}: {reason}")

    def is_text(self, value: object, place: str, what: str) -> TypeGuard[str]:
        """Whether this is text to work with; if not, that is a problem."""
        if not isinstance(value, str):
            given = "is missing" if value is None else f"must be text, got {type(value).__name__}"
            self.at(place, f"{what} {given}")
        elif not value.strip():
            self.at(place, f"{what} is empty")
        elif not value.isascii() and re.search("[\ud800-\udfff]", value):
            self.at(place, f"{what} is not UTF-8 text")
        else:
            return True
        return False

    def __str__(self) -> str:
        problems = "problem" if self.total == 1 else "problems"
        images = "image" if self.rows == 1 else "images"
        head = f"{self.path}: {self.total:,} {problems} among {self.rows:,} {images}"
        lines = [f"  {reason}" for _, reason in self.shown]
        if self.total > len(self.shown):
            lines.append(f"  ... and {self.total - len(self.shown):,} more")
        return "\n".join([head, *lines])


@dataclass
class Image:
    """An image of a data set: its name there, where it is named, and what is said of it.

    `file` is its path in the folder of images, if that is not its name. An entry that cannot be
    read is an image without a name: it keeps its place, since features are counted by it.
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
    """The folder of images or None, after a look at what all readers are given."""
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
        found = [" ".join(image.captions)] if captions == "concatenate" else image.captions
        used += [row] * len(found)
        paths += [path] * len(found)
        texts += found
    if bad and strict:
        raise InputError(f"{bad}\nCorrect this, or leave it out with strict=False.")
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
