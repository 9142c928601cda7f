"""An index in a database, asked by many threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ccal.cli.serve import _title
from ccal.model import load
from ccal.retrieval import Index
from ccal.serve import IndexCollection
from tests.retrieval.conftest import server  # noqa: F401
from tests.serve.live import Live


def test_a_database_is_served(
    serve: Callable[..., Live],
    photos: Path,
    server: str,  # noqa: F811
) -> None:
    model = load(photos / "model")
    location = f"{server}{'&' if '?' in server else '?'}table=served"
    features = np.load(photos / "features.npy")
    ids = [f"{number}.jpg" for number in range(len(features))]
    files = [photos / id for id in ids]
    index = Index.build(location, model, features, modality="image", ids=ids, files=files)
    with serve(IndexCollection(index, model, title=_title(location))).client() as client:
        assert client.get("/api/info").json()["title"] == "served"

        def ask(number: int) -> Any:
            if number % 3 == 0:
                return client.get("/api/item", params={"id": f"{number}.jpg"})
            if number % 3 == 1:
                return client.get("/media/thumbnail", params={"id": f"{number}.jpg"})
            body = {"text": "a red square on a blueground", "k": 3, "explain": True}
            return client.post("/api/search", json=body)

        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(ask, range(75)))
        assert {answer.status_code for answer in answers} == {200}
        found = [answer.json()["results"] for answer in answers[2::3]]
        assert all([r["id"] for r in one] == [r["id"] for r in found[0]] for one in found)
        assert client.get("/api/map").json()["total"] == 75
        assert client.get("/ready").status_code == 200
