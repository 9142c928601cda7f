"""Where pairs come from, as plain data: files, columns and split.

`View` is one modality: a column of a table or an array file, with its name. `Source` joins two of
them with a table, or with the folder of a published data set, and says how to split the pairs.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

from ccal.bounds import Number, Options, Rule, Text, Whole, check_all, check_names
from ccal.errors import InputError

Layout = Literal["flickr8k", "flickr30k", "karpathy", "coco", "iapr-tc12", "reed"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
"""Published data sets, which `ccal.data.published.layouts` describes; reed: CUB and Flowers."""

SHARE = 0.1
"""The part of the pairs that is held out for validation, and for the test, if nobody says more."""

_OPTIONAL = (Text(), Options(None))
_RULES: dict[str, Rule | tuple[Rule, ...]] = {
    "x": Text(),
    "y": Text(),
    **dict.fromkeys(("table", "folder", "files", "label", "group", "split_column"), _OPTIONAL),
    "layout": Options(None, *LAYOUTS),
    "captions": Options("separate", "concatenate"),
    "split_by": Options("random", "group", "label", None),
    "train_classes": Options("train", "trainval"),
    **dict.fromkeys(("valid", "test"), (Number(at_least=0), Options(None))),
    "split_seed": Whole(at_least=0),
    **dict.fromkeys(("allow_leaks", "skip_bad_rows"), Options(True, False)),
}


@dataclass(frozen=True)
class View:
    """One modality as a person names it: `column`, `file.npy`, `file.npz:key`, or `name=` these.

    >>> View.of("image=photos/features.npz:resnet")
    View(name='image', file='photos/features.npz', key='resnet', column=None)
    >>> View.of("captions", table=True).column
    'captions'
    """

    name: str
    file: str | None
    key: str | None
    column: str | None

    @classmethod
    def of(cls, text: str, *, table: bool = False) -> Self:
        """Parse what was given; columns exist only in a table."""
        named = re.fullmatch(r"([A-Za-z_][\w-]*)=(.+)", text)
        name, rest = (named[1], named[2]) if named else (None, text)
        keyed = re.fullmatch(r"(.+\.npz):([^:/]+)", rest)
        file, key = (keyed[1], keyed[2]) if keyed else (rest, None)
        if table and not file.endswith((".npy", ".npz")):
            return cls(name or _identifier(rest), None, None, rest)
        return cls(name or _identifier(Path(file).stem), file, key, None)

    def check_name(self) -> None:
        """Refuse names that torch modules or `DualEncoder` need for themselves."""
        from torch.nn import ModuleDict

        from ccal.model import DualEncoder

        taken = inspect.signature(DualEncoder.__init__).parameters
        if (self.name in taken and self.name != "towers") or hasattr(ModuleDict(), self.name):
            raise InputError(
                f"A modality cannot be called {self.name!r}; give it another name, as in "
                f"image={self.column or self.file}."
            )

    def hint(self) -> str:
        """A hint for a view that was not found: a name before "=" must not contain a space.

        >>> View.of("my photo=photos.npy").hint()
        " A name before '=' has letters, digits, _ and -, as in my_photo=photos.npy."
        """
        name, equals, rest = (self.column or self.file or "").partition("=")
        if not equals or "/" in name:
            return ""
        better = f"{_identifier(name)}={rest}"
        return f" A name before '=' has letters, digits, _ and -, as in {better}."


def _identifier(text: str) -> str:
    """A file's stem or a column as the name of a modality: word characters only."""
    return re.sub(r"\W+", "_", text).strip("_") or "modality"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Two array files, or a table with its columns, and how to split the pairs.

    Args:
        x: the first modality, as `View` reads it.
        y: the second modality.
        table: a .csv, .tsv, .jsonl or .parquet file; none if x and y are array files.
        layout: of a published data set, whose folder then stands for the table; x and y are its
            "image" (or features of its images) and "text", in either order. Row i of features
            belongs to image i of the data set, or to the name in line i of a file beside them,
            such as `features.txt` beside `features.npy`.
        folder: where relative paths start.
        files: where the files that a column names are; the table's folder if not given. A column
            whose first entry has the suffix of an image names files. Of a layout, where its images
            are if not with its texts.
        label: column of classes.
        group: column of what pairs show; pairs of one group are never split apart.
        split_column: column of train, valid or test.
        captions: a list of texts in one row is "separate" pairs or one text ("concatenate").
        split_by: what stays together in a split: "group", "label", or "random" for neither; groups
            if there are any. Of a layout its published lists decide, unless this is given, and
            labels if it has some.
        train_classes: "trainval" of the layout "reed" trains on the training and the validation
            classes (82 of Flowers, as the paper does); `valid` classes are drawn from these.
        valid: share (float) or number (int) of validation pairs or groups; 0.1 if not given, or the
            paper's number for a layout that has one and is large enough.
        test: the same for test pairs. Where validation but no test images are published (COCO),
            the test images are drawn from those.
        split_seed: of the random split.
        allow_leaks: split apart rows that show the same photo or have the same text, which else
            stay together unless a column or labels decide; see `ccal.data.splits.connected_rows`.
        skip_bad_rows: leave out what cannot be read, instead of refusing it.
    """

    x: str
    y: str
    table: str | None = None
    layout: Layout | None = None
    folder: str | None = None
    files: str | None = None
    label: str | None = None
    group: str | None = None
    split_column: str | None = None
    captions: Literal["separate", "concatenate"] = "separate"
    split_by: Literal["random", "group", "label"] | None = None
    train_classes: Literal["train", "trainval"] = "train"
    valid: float | int | None = None
    test: float | int | None = None
    split_seed: int = 0
    allow_leaks: bool = False
    skip_bad_rows: bool = False

    def __post_init__(self) -> None:
        check_all(_RULES, vars(self))
        for name in ("files", "label", "group", "split_column"):
            if self.table is None and getattr(self, name) is not None:
                raise InputError(f"{name} belongs to a table, but no table was given.")
        if self.layout is not None:
            _check_layout(self)
        for name in ("valid", "test") if self.layout is None else ():
            if getattr(self, name) is None:
                object.__setattr__(self, name, SHARE)
        first, second = self.views
        if first.name == second.name:
            raise InputError(
                f"x and y are both called {first.name!r}; name them, as in x = 'image={self.x}'."
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """A source from plain data, as TOML has it.

        >>> Source.from_mapping({"x": "a.npy", "y": "b.npy", "vald": 0.2})
        Traceback (most recent call last):
        ...
        ccal.errors.InputError: There is no data option 'vald'; did you mean 'valid'?
        """
        names = [field.name for field in fields(cls)]
        check_names(values, names, "data option")
        if missing := [name for name in ("x", "y") if values.get(name) is None]:
            raise InputError(f"The data lack {' and '.join(missing)}.")
        return cls(**values)

    @property
    def views(self) -> tuple[View, View]:
        """Both modalities, taken apart."""
        table = self.table is not None
        return View.of(self.x, table=table), View.of(self.y, table=table)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def path(self, given: str) -> Path:
        """A file of the source: below `folder`, or below the current folder if it has moved."""
        if self.folder is None or os.path.isabs(given):
            return Path(given)
        there = Path(os.path.normpath(Path(self.folder, given)))
        return Path(given) if not there.exists() and Path(given).exists() else there


def _check_layout(source: Source) -> None:
    """Refuse options that a layout does not allow."""
    if source.table is None:
        raise InputError(f"layout = {source.layout!r} needs the folder of the data set.")
    for name in ("label", "group", "split_column"):
        if getattr(source, name) is not None:
            raise InputError(f"The layout {source.layout!r} has no columns; leave {name} out.")
    if source.train_classes == "trainval" and (source.layout != "reed" or source.split_by):
        raise InputError(
            "train_classes = 'trainval' chooses among the class lists of the layout 'reed'; leave "
            "it out, or split_by, which draws the classes."
        )
    kinds = [layout_kind(source, view) for view in (0, 1)]
    if set(kinds) != {"image", "text"}:
        raise InputError(
            f"The layout {source.layout!r} joins image and text; got x = {source.x!r}, "
            f"y = {source.y!r}. Features of its images are given as x = 'image=features.npy'."
        )


def layout_kind(source: Source, place: int) -> str:
    """Whether view x (0) or y (1) is "image" or "text"; an array holds features of the images."""
    view = source.views[place]
    return "image" if view.column is None else view.column
