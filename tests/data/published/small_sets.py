"""Small data sets in the layouts of the published ones, with captions that features can find.

Each has 60 images: 40 to train, 10 to validate, 10 to test, where parts are published.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.source import Layout
from tests.data.published.torch7_files import tensor, write_t7
from tests.data.published.trees import touch

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (40, 50, 200), "grey": (120,) * 3}
PLACES = {"left": 2, "middle": 20, "right": 38, "edge": 44}
MEANINGS = [m for m in product(COLOURS, COLOURS, PLACES) if m[0] != m[1]] + [
    (colour, colour, place) for colour in COLOURS for place in ("left", "middle", "right")
]
PARTS = ["train"] * 40 + ["val"] * 10 + ["test"] * 10


def meaning(number: int) -> tuple[str, str, str]:
    """The two colours and the place of image `number` (0 to 59), none of them twice."""
    return MEANINGS[number * 7 % 60]


def captions(number: int) -> list[str]:
    front, back, place = meaning(number)
    return [f"a {front} square on {back} at the {place} .", f"{place} : {front} before {back} ."]


def features(noise: float = 0.1) -> NDArray[np.float32]:
    """Features (60, 12) of the images, in order."""
    rng = np.random.default_rng(0)
    rows = np.zeros((60, 12))
    for number in range(60):
        front, back, place = meaning(number)
        rows[number, list(COLOURS).index(front)] = 1
        rows[number, 4 + list(COLOURS).index(back)] = 1
        rows[number, 8 + list(PLACES).index(place)] = 1
    return np.asarray(rows + noise * rng.normal(size=rows.shape), dtype=np.float32)


def draw(path: Path, number: int) -> None:
    """The image itself."""
    from PIL import Image

    front, back, place = meaning(number)
    picture = Image.new("RGB", (60, 60), COLOURS[back])
    picture.paste(COLOURS[front], (PLACES[place], 20, PLACES[place] + 16, 40))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=95)


def _text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _tokens(path: Path, name: Callable[[int], str]) -> None:
    lines = [f"{name(i)}#{k}\t{text}" for i in range(60) for k, text in enumerate(captions(i))]
    _text(path, "\n".join(lines) + "\n")


def _listed(part: str) -> list[int]:
    return [number for number, its in enumerate(PARTS) if its == part]


def flickr8k(root: Path) -> list[str]:
    """As the two archives unpack: texts and images one folder deeper."""

    def name(number: int) -> str:
        return f"{1000268201 + number}_{number:010x}.jpg"

    _tokens(root / "Flickr8k_text" / "Flickr8k.token.txt", name)
    for part, theirs in (("train", "train"), ("val", "dev"), ("test", "test")):
        listed = "".join(f"{name(number)}\n" for number in _listed(part))
        _text(root / "Flickr8k_text" / f"Flickr_8k.{theirs}Images.txt", listed)
    names = [name(number) for number in range(60)]
    touch(root / "Flickr8k_Dataset" / "Flicker8k_Dataset", *names)
    return names


def flickr30k(root: Path) -> list[str]:
    def name(number: int) -> str:
        return f"{1000092795 + number}.jpg"

    _tokens(root / "results_20130124.token", name)
    names = [name(number) for number in range(60)]
    touch(root / "flickr30k-images", *names)
    return names


def karpathy(root: Path) -> list[str]:
    names = [f"{1000268201 + number}.jpg" for number in range(60)]
    images = []
    for number, name in enumerate(names):
        sentences = [{"tokens": t.split(), "raw": t, "imgid": number} for t in captions(number)]
        images.append({"imgid": number, "filename": name, "split": PARTS[number]})
        images[-1]["sentences"] = sentences
    _text(root / "dataset_flickr8k.json", json.dumps({"images": images, "dataset": "flickr8k"}))
    touch(root / "Flicker8k_Dataset", *names)
    return names


def coco(root: Path) -> list[str]:
    """Validation images are those that other sets validate and test on."""
    names = []
    for part, numbers in (("train2014", range(40)), ("val2014", range(40, 60))):
        files = [f"COCO_{part}_{number:012}.jpg" for number in numbers]
        images = [{"id": n, "file_name": f} for n, f in zip(numbers, files, strict=True)]
        told: list[Any] = [
            {"id": 10 * n + k, "image_id": n, "caption": text}
            for n in numbers
            for k, text in enumerate(captions(n))
        ]
        content = {"info": {}, "images": images, "licenses": [], "annotations": told}
        _text(root / "annotations" / f"captions_{part}.json", json.dumps(content))
        touch(root / part, *files)
        names += [f"{part}/{file}" for file in files]
    return names


def iapr_tc12(root: Path) -> list[str]:
    names = []
    for number in range(60):
        name = f"{number // 30:02}/{number + 1}"
        _text(
            root / "annotations_complete_eng" / f"{name}.eng",
            f"<DOC>\n<DOCNO>annotations/{name}.eng</DOCNO>\n<TITLE>A & B</TITLE>\n"
            f"<DESCRIPTION>{'; '.join(captions(number))}</DESCRIPTION>\n"
            f"<IMAGE>images/{name}.jpg</IMAGE>\n</DOC>\n",
        )
        names.append(f"{name}.jpg")
    touch(root / "images", *names)
    return names


def reed(root: Path) -> list[str]:
    """20 classes of 3 images, their features in torch7 files; the second of 10 crops is noise."""
    classes, names, rng = [], [], np.random.default_rng(1)
    for c in range(20):
        classes.append(f"class_{c + 1:05}")
        numbers = range(3 * c, 3 * c + 3)
        crops = rng.normal(size=(3, 12, 10)).astype(np.float32)
        crops[:, :, 0] = features()[list(numbers)]
        (root / "images").mkdir(parents=True, exist_ok=True)
        write_t7(root / "images" / f"{classes[-1]}.t7", tensor(crops))
        for number in numbers:
            stem = f"image_{number + 1:05}"
            _text(root / "text_c10" / classes[-1] / f"{stem}.txt", "\n".join(captions(number)))
            names.append(f"{classes[-1]}/{stem}.jpg")
        _text(root / "text_c10" / f"{classes[-1]}.t7", "")
    for part, listed in (
        ("train", classes[:12]),
        ("val", classes[12:16]),
        ("trainval", classes[:16]),
        ("test", classes[16:]),
    ):
        _text(root / f"{part}classes.txt", "\n".join(listed) + "\n")
    return names


WRITERS: dict[Layout, Callable[[Path], list[str]]] = {
    "flickr8k": flickr8k,
    "flickr30k": flickr30k,
    "karpathy": karpathy,
    "coco": coco,
    "iapr-tc12": iapr_tc12,
    "reed": reed,
}
"""Functions that write a set to a folder and return the names of its images, in its order."""
