"""A small model that reads texts, and an index of its items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ccal import DualEncoder, Index
from ccal.encoders import DenseTower
from ccal.features import TfidfVectoriser

TEXTS = ["a red bird", "a blue bird", "a red car", "a blue boat", "two red boats", "a grey car"]


@pytest.fixture(scope="session")
def model() -> DualEncoder:
    torch.manual_seed(0)
    words = TfidfVectoriser(min_count=1, lemmatise=False).fit(TEXTS)
    width = len(words.vocabulary)
    image, text = DenseTower(6, 4, hidden=(8,)), DenseTower(width, 4)
    model = DualEncoder(dim=4, front_ends={"text": words}, image=image, text=text)
    images, texts = torch.randn(200, 6), torch.randn(200, width)
    model.refit([(images, texts)])
    pairs = model.encode("image", images), model.encode("text", texts)
    return model.correct_hubs(pairs, neighbours=3).eval()


@pytest.fixture
def index(model: DualEncoder, tmp_path: Path) -> Iterator[Index]:
    photos = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    facts = [{"year": 1990 + number} for number in range(9)]
    with Index.build(tmp_path / "index", model, photos, modality="image", metadata=facts) as built:
        built.add("text", TEXTS, metadata=[{"text": text} for text in TEXTS])
        yield built
