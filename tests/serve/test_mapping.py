"""The map: projections, what happens while one is computed, and named regions."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from ccal.serve import mapping
from ccal.serve.collection import Card
from ccal.serve.mapping import Map, clusters
from ccal.serve.sample import Sample, Terms
from tests.serve.live import until

TOPICS = ("dogs in the snow", "a red bus", "children playing football", "boats on the lake")
SIDE = 40


@pytest.fixture
def sample() -> Sample:
    """160 captions of four topics in 16 dimensions."""
    random = np.random.default_rng(0)
    middles = 2 * random.normal(size=(len(TOPICS), 16))
    topics = np.repeat(np.arange(len(TOPICS)), SIDE)
    vectors = (middles[topics] + random.normal(size=(len(topics), 16))).astype(np.float32)
    texts = [f"the {TOPICS[topic]} number {n}" for n, topic in enumerate(topics.tolist())]
    cards = [Card(str(n), "text", "text", text, {}, text) for n, text in enumerate(texts)]
    return Sample(len(cards), cards, vectors, texts)


def kept(sample: Sample, drawn: dict[str, Any], k: int = 5) -> float:
    """The share of the k nearest neighbours that the map keeps."""

    def nearest(rows: Any) -> Any:
        gaps = np.square(rows[:, None] - rows).sum(2)
        np.fill_diagonal(gaps, np.inf)
        return np.argsort(gaps, 1)[:, :k]

    points = np.column_stack([drawn["x"], drawn["y"]])
    pairs = zip(nearest(sample.rows), nearest(points), strict=True)
    return float(np.mean([len(np.intersect1d(one, other)) / k for one, other in pairs]))


def test_principal_components_and_named_regions(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "NEIGHBOURING", {})
    drawn = Map(sample).answer
    assert (drawn["projection"], drawn["pending"]) == ("pca", None)
    assert max(map(abs, drawn["x"] + drawn["y"])) == 1
    assert drawn == Map(sample).answer
    named = {word for region in drawn["regions"] for word in region["terms"]}
    assert {"snow", "bus", "football", "lake"} & named
    assert "the" not in named
    for level in (0, 1):
        counts = [one["count"] for one in drawn["regions"] if one["level"] == level]
        assert 0 < sum(counts) <= len(drawn["ids"])


def test_a_better_projection_takes_over(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A module that is there stands for a package that may not be installed.
    monkeypatch.setattr(mapping, "NEIGHBOURING", {"json": lambda rows, start: -start})
    drawn = Map(sample)
    until(lambda: drawn.answer["pending"] is None)
    assert drawn.answer["projection"] == "json"
    monkeypatch.setattr(mapping, "NEIGHBOURING", {"json": lambda rows, start: start * np.nan})
    broken = Map(sample)
    until(lambda: broken.answer["pending"] is None)
    assert broken.answer["projection"] == "pca"
    assert "json failed" in caplog.text


@pytest.mark.parametrize("name", mapping.NEIGHBOURING)
def test_installed_projections_keep_neighbours_and_repeat(
    sample: Sample, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(name) is None:
        package = {"umap": "umap-learn"}.get(name, name)
        pytest.skip(f"{name} is not installed: pip install {package}")
    monkeypatch.setattr(mapping, "NEIGHBOURING", {name: mapping.NEIGHBOURING[name]})
    one, other = Map(sample), Map(sample)
    before = kept(sample, one.answer)
    until(lambda: one.answer["pending"] is None and other.answer["pending"] is None, seconds=300)
    assert one.answer["projection"] == name
    assert kept(sample, one.answer) > before
    assert one.answer["x"] == other.answer["x"]


def test_few_items_and_items_without_words() -> None:
    cards = [Card(str(n), "x", "array", str(n), {}) for n in range(3)]
    vectors = np.eye(3, 1, dtype=np.float32)
    drawn = Map(Sample(3, cards, vectors, [""] * 3)).answer
    assert (drawn["pending"], drawn["regions"], len(drawn["x"])) == (None, [], 3)
    assert Terms(["", ""]).named(np.array([0, 1]), 2) == [[], []]


def test_clusters_are_those_that_lie_apart() -> None:
    random = np.random.default_rng(1)
    middles = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    true = np.repeat(np.arange(3), 30)
    found = clusters(middles[true] + random.normal(size=(90, 2)), 3)
    assert len(set(zip(true.tolist(), found.tolist(), strict=True))) == 3


def test_ends_of_a_dimension_have_their_words_and_items() -> None:
    texts = [*["a dog runs"] * 20, *["the red bus"] * 20]
    vectors = np.linspace(1, -1, 40, dtype=np.float32)[:, None]
    cards = [Card(str(n), "text", "text", text, {}, text) for n, text in enumerate(texts)]
    ends = Sample(40, cards, vectors, texts).ends
    high, low = ends.describe(1), ends.describe(-1)
    assert (high[0], low[0]) == (["dog", "runs"], ["bus", "red"])
    assert [card.id for card in high[1]] == ["0", "1", "2"]
    assert [card.id for card in low[1]] == ["39", "38", "37"]
    assert ends.describe(1) is high
