"""Photos and captions in a real index with a trained model, and servers that answer for it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from ccal.evaluation.calibration import Calibration
from ccal.features import Backbone, ImageFeatures, register_backbone
from ccal.model import load
from ccal.retrieval import Index
from ccal.serve import IndexCollection, Limits
from tests.cli.conftest import invoke
from tests.music.conftest import library, model, store  # noqa: F401
from tests.serve.live import Live

COLOURS = {
    "red": (200, 30, 30),
    "green": (30, 160, 40),
    "blue": (40, 50, 200),
    "grey": (120, 120, 120),
    "yellow": (230, 220, 40),
}
PLACES = {"left": 2, "middle": 22, "right": 42}
AWKWARD = "photos/../Käse ☃ #1?&.jpg"
GRID = "test-grid"


def _grid() -> Backbone:
    """A network without weights: mean colours of 16 parts of the picture."""
    pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    return Backbone(pool.eval(), size=16)


register_backbone(GRID, _grid)


def photo(front: str, back: str, place: str) -> Image.Image:
    """A square of one colour on a ground of another, above a white bar.

    A linear model sees the place of the bar; that of the square depends on both colours.
    """
    picture = Image.new("RGB", (64, 48), COLOURS[back])
    picture.paste(COLOURS[front], (PLACES[place], 14, PLACES[place] + 20, 34))
    picture.paste((255, 255, 255), (PLACES[place], 37, PLACES[place] + 20, 47))
    return picture


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 75 JPEGs, a finished run, and the index `photos.index`; not to be changed."""
    folder = tmp_path_factory.mktemp("photos")
    rows = []
    for number, (front, back, place) in enumerate(product(COLOURS, COLOURS, PLACES)):
        file = folder / f"{number}.jpg"
        photo(front, back, place).save(file, quality=95)
        text = f"a {front} square on a {back}ground at the {place}"
        rows.append((str(file), text, front, number))
    with (folder / "pairs.csv").open("w", newline="") as table:
        csv.writer(table).writerows([("file", "caption", "front", "number"), *rows])
    images = ImageFeatures(GRID, cache=None)
    np.save(folder / "features.npy", images.transform([file for file, *_ in rows]))
    views = ["--x", f"image={folder / 'features.npy'}", "--y", "text=caption"]
    options = [
        "--method",
        "linear",
        "--set",
        "text=tfidf",
        "--dim",
        "8",
        "-q",
        "-o",
        folder / "run",
    ]
    outcome = invoke("train", folder / "pairs.csv", *views, *options)
    assert outcome.code == 0, outcome
    trained = load(folder / "run" / "model")
    trained.front_ends["image"] = images
    # 7 validation pairs are too few to estimate it.
    trained.calibrations = {"text": Calibration(12.0, 0.3, 1.0, 100, 75)}
    trained.save(folder / "model")
    ids = [AWKWARD, *(Path(file).name for file, *_ in rows[1:])]
    facts = [{"front": front, "number": number} for _, _, front, number in rows]
    files = [file for file, *_ in rows]
    index = Index.build(
        folder / "photos.index",
        trained,
        files,
        modality="image",
        ids=ids,
        metadata=facts,
        files=files,
        model_folder=folder / "run",
    )
    with index:
        texts = [text for _, text, *_ in rows]
        index.add("text", texts, metadata=[{"text": text} for text in texts])
    return folder


def open_collection(folder: Path, **options: Any) -> IndexCollection:
    """The index of a folder with its model."""
    index = Index.open(folder / "photos.index")
    return IndexCollection(
        index, load(folder / "model"), title="photos", model_folder=folder / "run", **options
    )


@pytest.fixture
def serve(photos: Path) -> Iterator[Callable[..., Live]]:
    """Starts servers of the photos with given limits; all are stopped at the end of the test."""
    running = []

    def start(collection: Any = None, **options: Any) -> Live:
        limits = {name: options.pop(name) for name in list(options) if hasattr(Limits, name)}
        opened = open_collection(photos) if collection is None else collection
        running.append(Live(opened, limits=Limits(**limits), **options))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def live(photos: Path) -> Iterator[Live]:
    """A server of the photos with the default limits."""
    server = Live(open_collection(photos))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(live: Live) -> Iterator[httpx.Client]:
    with live.client() as one:
        yield one


def problem(response: httpx.Response, status: int) -> str:
    """The detail of an answer that must be a problem of this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = json.loads(response.content)
    assert set(content) == {"type", "title", "status", "detail"}
    assert content["status"] == status
    assert "Traceback" not in response.text
    return str(content["detail"])
