"""`read_layout`: the pairs of a published data set from its folder, whatever its layout."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from numpy.typing import NDArray

from ccal.data.published.captions import LEAVE_OUT, Captions, match_features
from ccal.data.published.coco import read_coco
from ccal.data.published.flickr import read_flickr
from ccal.data.published.iapr_tc12 import read_iapr_tc12
from ccal.data.published.karpathy import read_karpathy
from ccal.data.published.layouts import LISTS, check_layout
from ccal.data.published.plain_files import FilePath, visible
from ccal.data.published.reed import read_reed, read_reed_features
from ccal.data.source import Layout
from ccal.data.tables import Table
from ccal.errors import InputError


class _Common(TypedDict):
    images: Path | None
    captions: Captions
    strict: bool


def read_layout(
    name: Layout,
    folder: FilePath,
    *,
    files: FilePath | None = None,
    features: NDArray[Any] | None = None,
    names: list[str] | None = None,
    captions: Captions = "separate",
    listed: bool = True,
    train_classes: Literal["train", "trainval"] = "train",
    strict: bool = True,
) -> Table:
    """Read a data set in one of the layouts that `describe_layout` describes.

    Args:
        name: of the layout.
        folder: of the data set; for "karpathy" also the JSON file itself.
        files: folder of the image files, if they are elsewhere.
        features: (n, ...) in place of the image files; see `match_features`.
        names: the image of each row of `features`; without it, row i belongs to image i.
        captions: "separate" pairs, or one text an image ("concatenate").
        listed: give the published parts as `split`; without, `split` is None. It is None, too, if
            no parts are published, or the lists are not there.
        train_classes: of "reed": "trainval" trains on `trainvalclasses.txt` and has no
            validation classes.
        strict: refuse problems instead of leaving the images out. IAPR TC-12, which lacks a few
            images as published, is refused if more than 1% of its images have problems.

    Files `images/CLASS.t7` of Reed et al. stand for image files if there are none.
    """
    found = check_layout(name, folder, files=files, images=features is None, listed=listed)
    images = None if features is not None else _image_root(found["images"])
    if name == "reed" and images is not None and _has_torch7_only(images):
        features, images = read_reed_features(found["captions"], images), None
    common: _Common = {"images": images, "captions": captions, "strict": strict}
    lists = {part: found[part] for part in LISTS if part in found} if listed else {}
    if name in ("flickr8k", "flickr30k"):
        table = read_flickr(found["captions"], splits=lists if "train" in lists else None, **common)
    elif name == "karpathy":
        table = read_karpathy(found["captions"], **common)
    elif name == "coco":
        files_by_part = {"train": found["captions"], "valid": found["captions_val"]}
        table = read_coco(files_by_part, **common)
    elif name == "iapr-tc12":
        table = _read_iapr_tc12(found["captions"], images, strict)
    else:
        classes = _class_lists(found, train_classes) if listed else None
        table = read_reed(found["captions"], classes=classes, **common)
    if not listed:
        table = replace(table, split=None)
    return table if features is None else match_features(table, features, names, strict=strict)


def _image_root(images: Path) -> Path:
    """The folder that image names start from; COCO's begin with `train2014/`."""
    return images.parent if images.name in ("train2014", "val2014") else images


def _has_torch7_only(folder: Path) -> bool:
    images = (path for pattern in ("*.jpg", "*/*.jpg") for path in folder.glob(pattern))
    return bool(visible(folder, "*.t7")) and next(images, None) is None


def _read_iapr_tc12(annotations: Path, images: Path | None, strict: bool) -> Table:
    table = read_iapr_tc12(annotations, images=images)
    if strict and 100 * table.bad.total > table.bad.rows:
        raise InputError(f"{table.bad}\n{LEAVE_OUT}")
    return table


def _class_lists(found: dict[str, Path], train_classes: str) -> dict[str, Path] | None:
    """The files that list classes by part; None without a list for training."""
    lists = {part: found[part] for part in LISTS if part in found}
    if train_classes == "trainval" and "trainval" not in found:
        raise InputError(
            f"train_classes = 'trainval' needs trainvalclasses.txt beside {found['captions']}."
        )
    if "trainval" in found and (
        train_classes == "trainval" or not {"train", "valid"} <= set(lists)
    ):
        lists.pop("valid", None)
        lists["train"] = found["trainval"]
    return lists if "train" in lists else None
