"""Published data sets as they come, in place of a table: which files of a folder are what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from numpy.typing import NDArray

from ccal.data import Pairs, Table
from ccal.data.published import match_features, read_reed
from ccal.errors import InputError

if TYPE_CHECKING:
    from ccal.sources.source import Source

__all__ = ["LAYOUTS", "Layout", "check_layout", "read_layout"]

Layout = Literal["reed"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
"""reed: `text_c10/CLASS/IMAGE.txt` and lists of classes (CUB and Flowers of Reed et al. 2016)."""


def check_layout(source: Source) -> None:
    """Refuse what does not go together with a layout."""
    if source.table is None:
        raise InputError(f"layout = {source.layout!r} needs the folder of the data set.")
    for name in ("label", "group", "split_column"):
        if getattr(source, name) is not None:
            raise InputError(f"The layout {source.layout!r} has no columns; leave {name} out.")
    kinds = [_kind(source, view) for view in (0, 1)]
    if set(kinds) != {"image", "text"}:
        raise InputError(
            f"The layout {source.layout!r} joins image and text; got x = {source.x!r}, "
            f"y = {source.y!r}. Features of its images are given as x = 'image=features.npy'."
        )


def read_layout(source: Source, arrays: dict[str, NDArray[Any]]) -> Table:
    """The pairs of a folder, under the names that the source gives them.

    Features in `arrays`, by modality, stand for the images, in the order of the data set.
    """
    folder = source.path(str(source.table))
    texts = folder / "text_c10" if (folder / "text_c10").is_dir() else folder
    home = texts.parent if texts.name == "text_c10" else texts
    listed = _class_lists(home) if source.split_by is None else None
    table = read_reed(
        texts,
        images=None if arrays else _image_folder(source, home),
        classes=listed,
        captions=source.captions,
        strict=not source.skip_bad_rows,
    )
    for features in arrays.values():
        table = match_features(table, features)
    named = {
        view.name: table.pairs.column(_kind(source, place))
        for place, view in enumerate(source.views)
    }
    pairs = Pairs(named, label=table.pairs.label, group=table.pairs.group)
    return Table(pairs, table.split, table.rows, table.bad)


def _kind(source: Source, place: int) -> str:
    """What view x (0) or y (1) is in the data set: an array of features is of its images."""
    view = source.views[place]
    return "image" if view.column is None else view.column


def _class_lists(home: Path) -> dict[str, Path] | None:
    """The published lists by part; without validation classes of its own, train has them too."""
    there = {name: home / f"{name}classes.txt" for name in ("train", "trainval", "val", "test")}
    there = {name: path for name, path in there.items() if path.is_file()}
    if "train" in there and "val" in there:
        there.pop("trainval", None)
    elif "trainval" in there:
        there["train"] = there.pop("trainval")
        there.pop("val", None)
    return there if "train" in there else None


def _image_folder(source: Source, home: Path) -> Path:
    if source.files is not None:
        return source.path(source.files)
    for name in ("images", "jpg"):
        # In the archive of the captions `images` has features in a format of its own.
        if any(next((home / name).glob(pattern), None) for pattern in ("*.jpg", "*/*.jpg")):
            return home / name
    raise InputError(
        f"{home} has no images/CLASS/IMAGE.jpg and no jpg/IMAGE.jpg; say where the image files "
        "are (--files FOLDER), or give their features (--x image=features.npy)."
    )
