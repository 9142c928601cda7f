"""CUB and Flowers with the captions of Reed et al. (2016), for zero-shot retrieval."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.data.published.captions import Captions, Image, Problems, build_table, check_options
from ccal.data.published.plain_files import (
    FilePath,
    Listed,
    existing_folder,
    read_lines,
    read_lists,
    visible,
)
from ccal.data.published.torch7 import read_t7
from ccal.data.tables import Table
from ccal.errors import InputError


def read_reed(
    texts: FilePath,
    *,
    images: FilePath | None,
    classes: Mapping[str, FilePath] | None = None,
    captions: Captions = "separate",
    strict: bool = True,
) -> Table:
    """Read `text_c10/<class>/<image>.txt`, one caption a line; the label of a pair is its class.

    `texts` is the folder `text_c10`. `images` is a folder of `<class>/<image>.jpg` (CUB's
    `images/`) or of `<image>.jpg` (`jpg/` of Flowers), or None; an image's name is
    `<class>/<image>.jpg` in each case. `rows` counts images in the order of classes and names.

    `classes` gives the files that list the classes of "train", "valid" and "test", one a line, such
    as `trainclasses.txt`, `valclasses.txt` and `testclasses.txt`; classes in none of them are left
    out. Without lists, `split` is None; `ccal.data.split_pairs(..., by="label")` draws classes.

    Numbers to check yours with: CUB has 11,788 images of 200 classes, split 100 / 50 / 50; Flowers
    has 8,189 images of 102 classes, 82 for training (those of `trainvalclasses.txt`) and 20 for the
    test. Each image has 10 captions. The paper reports precision among the first 50 images (AP@50)
    for one query a test class, the mean embedding of the captions of the class.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "text_c10", "class_00001", "image_06734.txt")
    ...     path.parent.mkdir(parents=True)
    ...     _ = path.write_text("a pink flower\\nthe flower has pink petals\\n")
    ...     pairs = read_reed(Path(folder, "text_c10"), images=None).pairs
    >>> pairs[0], pairs.label.tolist()
    (('class_00001/image_06734.jpg', 'a pink flower'), ['class_00001', 'class_00001'])
    """
    root = check_options(images, captions)
    folder = existing_folder(texts)
    names = _classes(folder)
    bad = Problems(path=folder)
    parts: dict[str, str] = {}
    if classes is not None:
        parts = _listed_parts(read_lists(classes), folder, bad)
    has_split = bool(parts)
    # CUB has a folder of images for each class, Flowers one for all.
    flat = root is not None and not any((root / name).is_dir() for name in names)
    found: list[Image] = []
    for name in names:
        images_of_class = _images(folder / name, flat)
        found += images_of_class
        if has_split and name not in parts:
            continue
        if not images_of_class:
            bad.at(name, "no images: the folder has no .txt file")
        for image in images_of_class:
            image.split = parts.get(name)
            _read_captions(image, folder / image.place, bad)
    return build_table(
        found, bad, folder=root, captions=captions, has_split=has_split, strict=strict
    )


def read_reed_features(texts: FilePath, features: FilePath) -> NDArray[np.float32]:
    """The image features (n, d) of Reed et al., in the order in which `read_reed` counts images.

    `texts` is the folder `text_c10`, `features` the one of `<class>.t7`: tensors (images of the
    class, 1024, crops). The first crop is taken, as their evaluation does. Row i is taken to be
    image i of the class by file name, since the archive does not name its rows.
    """
    folder, root = existing_folder(texts), existing_folder(features)
    found: list[NDArray[np.float32]] = []
    for name in _classes(folder):
        path, count = root / f"{name}.t7", len(visible(folder / name, "*.txt"))
        tensor = read_t7(path)
        if tensor.ndim not in (2, 3) or len(tensor) != count:
            raise InputError(
                f"{path}: shape {tensor.shape}; expected ({count}, features) or ({count}, "
                f"features, crops), since {folder / name} has {count} images."
            )
        rows = tensor if tensor.ndim == 2 else tensor[:, :, 0]
        if found and rows.shape[1] != found[0].shape[1]:
            raise InputError(
                f"{path}: {rows.shape[1]} features, but the classes before have "
                f"{found[0].shape[1]}."
            )
        found.append(rows.astype(np.float32))
    return np.concatenate(found)


def _classes(texts: Path) -> list[str]:
    """The names of all classes, in order."""
    names = [path.name for path in visible(texts, "*") if path.is_dir()]
    if not names:
        raise InputError(f"{texts}: no folders of classes; give the folder text_c10 itself.")
    return names


def _listed_parts(listed: dict[str, Listed], folder: Path, bad: Problems) -> dict[str, str]:
    """The part of each class; report listed classes that do not exist."""
    for name, entry in listed.items():
        if not (folder / name).is_dir():
            bad.at(entry.place, f"class {name} has no folder in {folder}")
    return {name: entry.split for name, entry in listed.items()}


def _images(folder: Path, flat: bool) -> list[Image]:
    """The images of a class, sorted by name."""
    return [
        Image(
            name=f"{folder.name}/{path.stem}.jpg",
            place=f"{folder.name}/{path.name}",
            label=folder.name,
            file=f"{path.stem}.jpg" if flat else None,
        )
        for path in visible(folder, "*.txt")
    ]


def _read_captions(image: Image, path: Path, bad: Problems) -> None:
    lines = list(read_lines(path))
    if not lines:
        bad.at(image.place, "no captions")
    for line, text in lines:
        image.describe(text, f"{image.place} line {line}", bad)
