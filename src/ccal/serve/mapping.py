"""The map: items in two dimensions, with named regions.

Principal components are quick, but keep few neighbours together: 4% of the ten nearest (among
fifty components, in an index of photos and captions), where PaCMAP keeps 40% and UMAP 50%. Those
two take seconds, and more than a minute where they have to be compiled. So a thread runs the one
that is installed, and until then the map shows principal components.
"""

import logging
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.columns import short
from ccal.optional import require
from ccal.serve.collection import Card
from ccal.serve.sample import Sample

Points = NDArray[np.float64]

_FEWEST = 30
"""Fewer items have no neighbourhoods to keep."""
_WIDTH = 50
_REGIONS, _FINER, _ROUNDS = 10, 4, 30
_NEIGHBOURS = 12
_log = logging.getLogger("ccal.serve")


def _pacmap(rows: Points, start: Points) -> Any:
    module = require("pacmap", package="pacmap", purpose="The map")
    # It warns about its random state.
    logging.getLogger("pacmap").setLevel(logging.ERROR)
    drawer = module.PaCMAP(n_components=2, random_state=0, apply_pca=False)
    return drawer.fit_transform(rows.astype(np.float32), init=start.astype(np.float32))


def _umap(rows: Points, start: Points) -> Any:
    module = require("umap", package="umap-learn", purpose="The map")
    drawer = module.UMAP(n_components=2, random_state=0, n_jobs=1, init=10 * start)
    return drawer.fit_transform(rows.astype(np.float32))


NEIGHBOURING: dict[str, Callable[[Points, Points], Any]] = {"pacmap": _pacmap, "umap": _umap}
"""Projections that keep neighbours together, by the module they need; the first one is preferred.

Each takes rows (n, d) and points (n, 2) to start from.
"""


class Map:
    """Coordinates and regions of a sample, as plain values: `answer`.

    `answer["projection"]` is "pca" at first. While `answer["pending"]` names another one, a thread
    computes it; then the coordinates and regions are its.
    """

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        points, shares, rows = _principal(sample.rows)
        kinds = [name for name in NEIGHBOURING if find_spec(name) is not None]
        pending = kinds[0] if kinds and len(points) >= _FEWEST else None
        cards = sample.cards
        self.answer: dict[str, Any] = {
            "total": sample.total,
            "ids": [card.id for card in cards],
            "modalities": [card.modality for card in cards],
            "kinds": [card.kind for card in cards],
            "labels": [short(_label(card), 80) for card in cards],
            **self._drawn("pca", points),
            "explained": shares,
            "pending": pending,
        }
        if pending is not None:
            run = (pending, rows, points)
            threading.Thread(target=self._improve, args=run, name="ccal-map", daemon=True).start()

    def _improve(self, name: str, rows: Points, points: Points) -> None:
        drawn: dict[str, Any] = {}
        try:
            found = np.asarray(NEIGHBOURING[name](rows, points), np.float64)
            if not np.isfinite(found).all():
                raise FloatingPointError("coordinates that are not finite")
            drawn = {**self._drawn(name, found), "explained": []}
        # An optional package may fail in any way; the map is there without it.
        except Exception as error:
            _log.warning("%s failed, the map shows principal components: %s", name, error)
        self.answer = {**self.answer, **drawn, "pending": None}

    def _drawn(self, name: str, points: Points) -> dict[str, Any]:
        points = points - (points.max(0) + points.min(0)) / 2
        points /= max(float(np.abs(points).max()), 1e-12)
        x, y = ([round(value, 4) for value in column] for column in points.T.tolist())
        return {"projection": name, "x": x, "y": y, "regions": self._regions(points)}

    def _regions(self, points: Points) -> list[dict[str, Any]]:
        """Named regions: a few large ones (level 0), and smaller ones (level 1) in large maps."""
        terms = self._sample.terms
        few = int(min(_REGIONS, np.sqrt(len(points) / _NEIGHBOURS)))
        regions = []
        for level, count in enumerate((few, few * _FINER)):
            if count < 2 or len(points) < _NEIGHBOURS * count:
                continue
            groups = clusters(points, count)
            for number, words in enumerate(terms.named(groups, count, (1.0, 0.5)[level])):
                members = points[groups == number]
                if not words or not len(members):
                    continue
                # The member in the middle: the mean of a bent region may lie outside of it.
                gaps = np.square(members - members.mean(0)).sum(1)
                x, y = members[gaps.argmin()].round(4).tolist()
                about = {"level": level, "x": x, "y": y, "count": len(members), "terms": words}
                regions.append(about)
        return sorted(regions, key=lambda one: (one["level"], -one["count"]))


def _label(card: Card) -> str:
    """The text of an item, or of its first counterpart that has one, or its title."""
    texts = [card.text, *(other.text for other in card.counterparts), card.title]
    return next(text for text in texts if text)


def clusters(points: Points, count: int) -> NDArray[np.int64]:
    """The cluster (n,) of each point (n, d), by k-means from a fixed start.

    >>> clusters(np.array([[0.0], [0.1], [5.0], [5.1]]), 2).tolist()
    [0, 0, 1, 1]
    """
    # Each centre starts at the point that is furthest from the earlier ones, outliers left out.
    gaps = np.square(points - points.mean(0)).sum(1)
    inner = points[gaps <= np.quantile(gaps, 0.95)]
    centres = inner[:1]
    for _ in range(count - 1):
        gaps = np.square(inner[:, None] - centres).sum(2).min(1)
        centres = np.concatenate([centres, inner[[gaps.argmax()]]])
    groups = np.zeros(len(points), np.int64)
    for _ in range(_ROUNDS):
        groups = np.square(points[:, None] - centres).sum(2).argmin(1)
        sizes = np.bincount(groups, minlength=count)[:, None]
        sums = np.stack([np.bincount(groups, column, count) for column in points.T], 1)
        centres = np.where(sizes > 0, sums / np.maximum(sizes, 1), centres)
    return groups


def _principal(rows: Points) -> tuple[Points, list[float], Points]:
    """Principal components of rows (n, d): the first two (n, 2), their shares of the variance, and
    unit rows of the first fifty, among which neighbours are looked for."""
    left, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    # The sign of a component is arbitrary; the largest entry becomes positive, so that maps repeat.
    signs = np.sign(np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1))
    components = (left * sizes * signs[:, 0])[:, :_WIDTH]
    points = np.zeros((len(rows), 2))
    points[:, : components.shape[1]] = components[:, :2]
    shares = np.square(sizes) / max(float(np.square(sizes).sum()), 1e-12)
    lengths = np.linalg.norm(components, axis=1, keepdims=True)
    return points, shares[:2].tolist(), components / np.maximum(lengths, 1e-12)
