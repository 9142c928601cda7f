"""COCO captions as published: a JSON file of images and captions for each part."""

from collections.abc import Mapping
from pathlib import Path

from ccal.data.published.captions import Captions, Image, Problems, build_table, check_options
from ccal.data.published.plain_files import FilePath, read_json
from ccal.data.splits import split_name
from ccal.data.tables import Table
from ccal.errors import InputError


def read_coco(
    annotations: Mapping[str, FilePath],
    *,
    images: FilePath | None,
    captions: Captions = "separate",
    strict: bool = True,
) -> Table:
    """Read the caption files of COCO, given by part.

    `annotations` is `{"train": "annotations/captions_train2014.json", "valid": ...val2014.json}`,
    or one of them; `images` the folder that has `train2014/` and `val2014/`. An image is named with
    its folder, which the name of the caption file tells: `train2014/COCO_train2014_...jpg`.

    Numbers to check yours with: 82,783 images with 414,113 captions for training, 40,504 with
    202,654 for validation. The captions of the test images are not published; for a split that
    has a test part, see `read_karpathy`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "captions_val2014.json")
    ...     _ = path.write_text('''{"images": [{"id": 42, "file_name": "COCO_val2014_42.jpg"}],
    ...         "annotations": [{"id": 1, "image_id": 42, "caption": "A red bus."}]}''')
    ...     pairs = read_coco({"valid": path}, images=None).pairs
    >>> pairs[0]
    ('val2014/COCO_val2014_42.jpg', 'A red bus.')
    """
    folder = check_options(images, captions)
    if not annotations:
        raise InputError("annotations is empty; give a caption file for train, valid or both.")
    paths = {part: Path(path) for part, path in annotations.items()}
    first = next(iter(paths.values()))
    bad = Problems(path=first if len(paths) == 1 else first.parent)
    found: list[Image] = []
    for key, path in paths.items():
        part = split_name(key)
        if part is None:
            raise InputError(f"{path} is given for {key!r}; expected train, valid or test.")
        found += _images(path, part, bad)
    return build_table(found, bad, folder=folder, captions=captions, has_split=True, strict=strict)


def _images(path: Path, part: str, bad: Problems) -> list[Image]:
    """The images of one file, in its order, with their captions."""
    entries, annotations = read_json(path, "images", "annotations")
    folder = path.stem.removeprefix("captions_")
    images: list[Image] = []
    by_id: dict[int, Image] = {}
    for number, entry in enumerate(entries):
        place = f"{path.name} images[{number}]"
        image = Image("", place, split=part)
        images.append(image)
        if not isinstance(entry, dict) or type(entry.get("id")) is not int:
            bad.at(place, "expected a JSON object with a whole number as id")
        elif by_id.setdefault(entry["id"], image) is not image:
            bad.at(place, f"id {entry['id']} was given in {by_id[entry['id']].place} already")
        elif bad.is_text(entry.get("file_name"), place, "file_name"):
            image.name = f"{folder}/{entry['file_name']}"
    described: set[int] = set()
    for number, annotation in enumerate(annotations):
        place = f"{path.name} annotations[{number}]"
        if not isinstance(annotation, dict) or type(annotation.get("image_id")) is not int:
            bad.at(place, "expected a JSON object with a whole number as image_id")
            continue
        key = annotation["image_id"]
        if key not in by_id:
            bad.at(place, f"image_id {key} is the id of no image")
            continue
        described.add(key)
        by_id[key].describe(annotation.get("caption"), place, bad)
    for key, image in by_id.items():
        if image.name and key not in described:
            bad.at(image.place, f"{image.name} has no captions")
    return images
