"""FeatureUnion: one modality through several front ends, whose features are put side by side.

`feature_rows` gives the rows of any front end in the form that takes the least memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.encoders import FrontEnd, build_front_end, front_end_config, register_front_end
from ccal.errors import InputError, NotFittedError
from ccal.features.images import ImageFeatures
from ccal.features.sentences import SentenceEmbeddings
from ccal.features.text import TextFrontEnd
from ccal.features.tfidf import SparseRows, TfidfVectoriser

Progress = Callable[[int, int], None]
_ROWS = 4096


class UnionRows:
    """Rows (n, d) of a union; indexing gives dense float32 rows with the union's weights of now.

    `parts` are the rows of each front end, not yet scaled.
    """

    def __init__(self, union: FeatureUnion, parts: Sequence[FeatureRows]) -> None:
        self.union, self.parts = union, tuple(parts)
        self.shape: tuple[int, int] = (len(parts[0]), sum(part.shape[1] for part in parts))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def scales(self) -> NDArray[np.float64]:
        """What each feature (d,) is multiplied by now."""
        return np.repeat(self.union.scales, [part.shape[1] for part in self.parts])

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        scales = np.array(self.union.scales, dtype=np.float32)
        scaled = [scale * part[index] for scale, part in zip(scales, self.parts, strict=True)]
        return np.concatenate(scaled, axis=1, dtype=np.float32)


FeatureRows = SparseRows | UnionRows | NDArray[Any]


@register_front_end("union")
class FeatureUnion:
    """Features of several front ends side by side, as scikit-learn's class of this name has them.

    Each part is divided by the root of its total variance in training, so that all count equally,
    and multiplied by its weight. Training chooses the weights on validation pairs.

    Args:
        parts: two or more front ends, all of texts or all of images.
        weights: one a part, 1 if not given.

    >>> words = (TfidfVectoriser(min_count=1, lemmatise=False, sublinear=root) for root in (0, 1))
    >>> union = FeatureUnion(list(words), weights=[1.0, 3.0])
    >>> union.fit_rows(["a dog", "a cat"]).shape
    (2, 6)
    >>> union.transform(["dog"]).round(2)
    array([[0.  , 0.  , 1.74, 0.  , 0.  , 5.21]], dtype=float32)
    """

    def __init__(
        self, parts: Sequence[FrontEnd], *, weights: Sequence[float] | None = None
    ) -> None:
        self.parts = tuple(parts)
        self.weights = [1.0] * len(parts) if weights is None else list(map(float, weights))
        self._spreads: list[float] = []
        if len(parts) < 2 or len(self.weights) != len(parts) or not min(self.weights) > 0:
            raise InputError(
                "A FeatureUnion needs two parts or more and a positive weight for each, got "
                f"{len(parts)} and weights={weights}."
            )
        if len({reads_images(part) for part in parts}) > 1:
            raise InputError("A FeatureUnion reads texts or images; it cannot join both.")

    @property
    def scales(self) -> list[float]:
        """What the features of each part are multiplied by."""
        if not self._spreads:
            raise NotFittedError("FeatureUnion has no scales yet; call fit_rows first.")
        return [w / spread for w, spread in zip(self.weights, self._spreads, strict=True)]

    def fit_rows(self, items: Sequence[Any], *, progress: Progress | None = None) -> UnionRows:
        """Fit all parts to the training items, and return the rows of the same items."""
        rows = self._rows(items, fit=True, progress=progress)
        self._spreads = [math.sqrt(_total_variance(part)) or 1.0 for part in rows.parts]
        return rows

    def rows(self, items: Sequence[Any], *, progress: Progress | None = None) -> UnionRows:
        """The rows of some items; their zeros are not stored."""
        return self._rows(items, fit=False, progress=progress)

    def transform(self, items: Sequence[Any]) -> NDArray[np.float32]:
        """The dense (n, d) matrix."""
        return self.rows(items)[:]

    def config(self) -> dict[str, Any]:
        """The configs of all parts, their weights and their spreads in training."""
        return {
            "parts": [front_end_config(part) for part in self.parts],
            "weights": self.weights,
            "spreads": self._spreads,
        }

    @classmethod
    def from_config(
        cls, *, parts: list[dict[str, Any]], weights: list[float], spreads: list[float]
    ) -> FeatureUnion:
        """The union that `config` described."""
        union = cls([build_front_end(part) for part in parts], weights=weights)
        if len(spreads) not in (0, len(parts)) or not all(spread > 0 for spread in spreads):
            raise InputError(f"the config of FeatureUnion is broken: spreads are {spreads}.")
        union._spreads = list(spreads)
        return union

    def _rows(self, items: Sequence[Any], *, fit: bool, progress: Progress | None) -> UnionRows:
        networks = sum(map(is_network, self.parts))
        rows: list[FeatureRows] = []
        behind = 0
        for part in self.parts:
            shown = None if progress is None else _share(progress, behind, networks)
            rows.append(feature_rows(part, items, fit=fit, progress=shown))
            behind += is_network(part)
        return UnionRows(self, rows)


def _share(progress: Progress, behind: int, networks: int) -> Progress:
    """Progress of one network, after those `behind` it, as that of all."""
    return lambda done, total: progress(behind * total + done, networks * total)


def feature_rows(
    front_end: FrontEnd, items: Sequence[Any], *, fit: bool = False, progress: Progress | None
) -> FeatureRows:
    """Rows of items by any front end, without the zeros of TF-IDF.

    With `fit`, a front end that learns from training items does so first. `progress` is called by
    networks alone.
    """
    if isinstance(front_end, FeatureUnion):
        make = front_end.fit_rows if fit else front_end.rows
        return make(items, progress=progress)
    if fit and isinstance(front_end, TextFrontEnd):
        fitted: FeatureRows = front_end.fit_rows(items)
        return fitted
    if isinstance(front_end, TfidfVectoriser):
        return front_end.sparse(items)
    if isinstance(front_end, ImageFeatures | SentenceEmbeddings):
        return front_end.transform(items, progress=progress)
    return front_end.transform(items)


def is_network(front_end: FrontEnd | None) -> bool:
    """Whether a network makes the features, which takes long and shows its progress."""
    if isinstance(front_end, FeatureUnion):
        return any(map(is_network, front_end.parts))
    return isinstance(front_end, ImageFeatures | SentenceEmbeddings)


def reads_images(front_end: FrontEnd | None) -> bool:
    """Whether a front end takes images; the others take texts."""
    if isinstance(front_end, FeatureUnion):
        return reads_images(front_end.parts[0])
    return isinstance(front_end, ImageFeatures)


def unions(front_ends: Mapping[str, FrontEnd]) -> dict[str, FeatureUnion]:
    """The front ends that are unions, by modality."""
    return {n: part for n, part in front_ends.items() if isinstance(part, FeatureUnion)}


def _total_variance(rows: FeatureRows) -> float:
    """The variances of all features together."""
    total, squares = np.zeros(rows.shape[1]), 0.0
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS].astype(np.float64)
        total += some.sum(0)
        squares += float((some**2).sum())
    mean = total / max(len(rows), 1)
    return max(squares / max(len(rows), 1) - float(mean @ mean), 0.0)
