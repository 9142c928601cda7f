"""The model of an index: opened from its folder, replaced by a newer one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ccal.encoders import DenseTower
from ccal.errors import InputError
from ccal.features import TfidfVectoriser
from ccal.model import DualEncoder
from ccal.retrieval import Index
from ccal.retrieval.models import bound_model, rebuild_from_files

WORDS = ["red bird", "blue dog", "green cat"]


def make_model(seed: int) -> DualEncoder:
    torch.manual_seed(seed)
    texts = TfidfVectoriser(min_count=1, lemmatise=False).fit(WORDS)
    model = DualEncoder(
        dim=4,
        projection="none",
        front_ends={"text": texts},
        image=DenseTower(3, 4),
        text=DenseTower(6, 4),
    )
    return model.eval()


def test_an_index_finds_its_model(tmp_path: Path) -> None:
    model = make_model(0)
    model.save(tmp_path / "model")
    rows = torch.eye(3)
    Index.build(tmp_path / "a", model, rows, modality="image").close()
    with Index.open(tmp_path / "a") as index:
        with pytest.raises(InputError, match="does not know where its model is"):
            bound_model(index)
        bound_model(index, tmp_path / "model")
        assert index.search(image=rows[1], within="image", k=1)[0].id == "image-2"


def test_rows_and_texts_are_embedded_by_a_newer_model(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    files = [f"{tmp_path / 'rows.npy'}#{row}" for row in range(3)]
    with Index.build(tmp_path / "a", make_model(0), rows, modality="image", files=files) as index:
        index.add("text", WORDS, metadata=[{"text": text} for text in WORDS])
    newer = make_model(1)
    with rebuild_from_files(tmp_path / "a", newer) as index:
        assert index.count() == 6
        for modality, items in (("image", rows), ("text", WORDS)):
            expected = torch.nn.functional.normalize(newer.encode(modality, items)).numpy()
            np.testing.assert_allclose(index.vectors(index.ids(modality)), expected, atol=1e-6)


def test_items_without_file_or_text_stop_a_rebuild(tmp_path: Path) -> None:
    Index.build(tmp_path / "a", make_model(0), torch.eye(3), modality="image").close()
    with pytest.raises(InputError, match=r"3 items cannot be read again; 'image-1' has no file"):
        rebuild_from_files(tmp_path / "a", make_model(1))
