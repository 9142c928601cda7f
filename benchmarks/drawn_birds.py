"""Birds that a program draws, in the layout of CUB with the captions of Reed et al. (2016).

    python -m benchmarks.drawn_birds FOLDER

Photographs of CUB may not be passed on; these pictures may. A class has a colour for head, wings
and belly and a long or a short bill; its pictures differ in place, size, direction and ground, and
ten captions tell some of what is seen. FOLDER gets images/, text_c10/ and the lists of classes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ccal.optional import require

COLOURS = {
    "red": (196, 40, 36),
    "blue": (44, 84, 190),
    "green": (48, 136, 60),
    "yellow": (236, 200, 44),
    "black": (28, 28, 30),
    "white": (246, 246, 240),
    "brown": (124, 80, 44),
}
GROUNDS = [(188, 214, 232), (214, 226, 196), (228, 220, 206), (206, 206, 214)]
PARTS = {"train": 0.7, "val": 0.15, "test": 0.15}


@dataclass(frozen=True)
class Bird:
    """What all birds of a class look like."""

    head: str
    wing: str
    belly: str
    bill: str

    @property
    def name(self) -> str:
        """Colours of head, wings and belly, and the bill: Red_Blue_White_Longbill."""
        return f"{self.head}_{self.wing}_{self.belly}_{self.bill}bill".title()


def birds(count: int, rng: np.random.Generator) -> list[Bird]:
    """Classes that all differ."""
    every = [Bird(*looks) for looks in product(COLOURS, COLOURS, COLOURS, ("long", "short"))]
    return [every[i] for i in rng.permutation(len(every))[:count]]


def draw(bird: Bird, rng: np.random.Generator, side: int = 160) -> Any:
    """A picture of the class, drawn twice as large and scaled down for smooth edges."""
    pillow = require("PIL.Image", extra="images", purpose="Drawing")
    drawing = require("PIL.ImageDraw", extra="images", purpose="Drawing")
    size = 2 * side
    ground = GROUNDS[rng.integers(len(GROUNDS))]
    picture = pillow.new("RGB", (size, size), ground)
    pen = drawing.Draw(picture)
    unit = size * rng.uniform(0.24, 0.32)
    x, y = size * rng.uniform(0.42, 0.54), size * rng.uniform(0.5, 0.6)

    def oval(dx: float, dy: float, width: float, height: float, colour: str) -> None:
        middle = x + dx * unit, y + dy * unit
        reach = width * unit, height * unit
        box = [m + sign * r for sign in (-1, 1) for m, r in zip(middle, reach, strict=True)]
        pen.ellipse(box, fill=COLOURS[colour], outline=(60, 60, 60), width=2)

    def shape(points: list[tuple[float, float]], colour: tuple[int, int, int]) -> None:
        pen.polygon([(x + px * unit, y + py * unit) for px, py in points], fill=colour)

    for leg in (-0.15, 0.2):
        shape([(leg, 0.5), (leg + 0.06, 0.5), (leg + 0.06, 1.15), (leg, 1.15)], (90, 70, 40))
    shape([(-0.9, -0.1), (-1.6, -0.35), (-1.5, 0.1)], COLOURS[bird.wing])
    oval(0, 0.05, 1.0, 0.65, bird.belly)
    oval(-0.25, -0.1, 0.62, 0.36, bird.wing)
    oval(0.85, -0.6, 0.42, 0.42, bird.head)
    tip = 2.0 if bird.bill == "long" else 1.45
    shape([(1.2, -0.7), (tip, -0.55), (1.2, -0.45)], (230, 150, 40))
    oval(0.98, -0.68, 0.07, 0.07, "white" if bird.head == "black" else "black")
    if rng.random() < 0.5:
        picture = picture.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)
    return picture.resize((side, side), pillow.Resampling.LANCZOS)


def caption(bird: Bird, rng: np.random.Generator) -> str:
    """A sentence that tells two or three of the four features."""
    told = [
        f"a {bird.head} head",
        f"{bird.wing} wings",
        f"a {bird.belly} belly",
        f"a {bird.bill} bill",
    ]
    some = [told[i] for i in rng.permutation(4)[: rng.integers(2, 4)]]
    start = ["this bird has", "a small bird with", "the bird shows"][rng.integers(3)]
    return f"{start} {', '.join(some[:-1])} and {some[-1]}."


def write_tree(folder: Path, *, classes: int = 60, images: int = 10, seed: int = 0) -> Path:
    """A data set in the layout of CUB; returns its folder."""
    rng = np.random.default_rng(seed)
    names = []
    for number, bird in enumerate(birds(classes, rng), start=1):
        names.append(f"{number:03}.{bird.name}")
        pictures, texts = (folder / part / names[-1] for part in ("images", "text_c10"))
        pictures.mkdir(parents=True)
        texts.mkdir(parents=True)
        for i in range(1, images + 1):
            stem = f"{bird.name}_{i:04}"
            draw(bird, rng).save(pictures / f"{stem}.jpg", quality=88)
            lines = [caption(bird, rng) for _ in range(10)]
            (texts / f"{stem}.txt").write_text("\n".join(lines) + "\n")
    order = rng.permutation(classes)
    ends = np.cumsum([round(share * classes) for share in PARTS.values()])[:-1]
    for part, rows in zip(PARTS, np.split(order, ends), strict=True):
        listed = "\n".join(names[row] for row in sorted(rows))
        (folder / f"{part}classes.txt").write_text(listed + "\n")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=60)
    parser.add_argument("--images", type=int, default=10)
    arguments = parser.parse_args()
    write_tree(arguments.folder, classes=arguments.classes, images=arguments.images)


if __name__ == "__main__":
    main()
