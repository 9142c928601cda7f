"""Karpathy's `dataset_*.json` files: captions and splits of Flickr8k, Flickr30k and COCO."""

from pathlib import Path
from typing import Any

from ccal.data.published.captions import Captions, Image, Problems, build_table, check_options
from ccal.data.published.plain_files import FilePath, read_json
from ccal.data.splits import split_name
from ccal.data.tables import Table


def read_karpathy(
    path: FilePath,
    *,
    images: FilePath | None,
    restval: bool = True,
    captions: Captions = "separate",
    strict: bool = True,
) -> Table:
    """Read `dataset_flickr8k.json`, `dataset_flickr30k.json` or `dataset_coco.json`.

    `images` is the folder of the image files; for COCO, the one that has `train2014/` and
    `val2014/`. COCO's part "restval", what its validation images leave beside the 10,000 that
    Karpathy validates and tests on, is trained on with `restval`, else left out.

    Pairs keep the order of the file, so that row i of an array of features which was made from it
    belongs to the image with `rows == i` (see `match_features`).

    Images to check yours with, train / valid / test: Flickr8k 6,000 / 1,000 / 1,000; Flickr30k
    29,000 / 1,014 / 1,000; COCO 82,783 (113,287 with restval) / 5,000 / 5,000. The VSE protocol
    (Kiros et al. 2014, Faghri et al. 2018) uses these with the captions separate and takes the
    best rank of an image's five captions; COCO is tested on all 5,000 or on five times 1,000.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "dataset_flickr8k.json")
    ...     _ = path.write_text('''{"dataset": "flickr8k", "images": [{"filename": "7.jpg",
    ...         "imgid": 0, "split": "val", "sentences": [{"raw": "A dog ."}]}]}''')
    ...     table = read_karpathy(path, images=None)
    >>> table.pairs[0], table.split
    (('7.jpg', 'A dog .'), array(['valid'], dtype='<U5'))
    """
    folder = check_options(images, captions)
    bad = Problems(path=Path(path))
    (entries,) = read_json(path, "images")
    found = [_image(entry, f"images[{row}]", bad) for row, entry in enumerate(entries)]
    for image in found:
        if image.split == "restval":
            image.split = "train" if restval else None
    return build_table(found, bad, folder=folder, captions=captions, has_split=True, strict=strict)


def _image(entry: Any, place: str, bad: Problems) -> Image:
    """The image of one entry, without a name if that cannot be read."""
    image = Image("", place)
    if not isinstance(entry, dict):
        bad.at(place, f"expected a JSON object, got a {type(entry).__name__}")
        return image
    name, part, sentences = (entry.get(key) for key in ("filename", "split", "sentences"))
    if not bad.is_text(name, place, "filename"):
        return image
    image.name = f"{entry['filepath']}/{name}" if entry.get("filepath") else name
    image.split = "restval" if part == "restval" else split_name(str(part))
    if image.split is None:
        bad.at(place, f"split is {part!r}; expected train, restval, val or test")
    if not isinstance(sentences, list) or not sentences:
        bad.at(place, f"{image.name} has no sentences")
        return image
    for number, sentence in enumerate(sentences):
        raw = sentence.get("raw") if isinstance(sentence, dict) else None
        image.describe(raw, f"{place}.sentences[{number}]", bad, "raw")
    return image
