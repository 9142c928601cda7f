from __future__ import annotations

import numpy as np
import pytest
import torch

from ccal.errors import InputError
from ccal.music.embedding import Embedder, cut, ink
from tests.music.conftest import small_model


def test_snippets_are_cut_around_their_middles() -> None:
    values = np.arange(1, 131, dtype=np.float32)[:, None] * np.array([1.0, -1.0])
    snippets = cut(values, np.array([50, 65.4, 80]))
    assert snippets.shape == (3, 1, 2, 100)
    assert snippets.dtype == torch.float32
    for snippet, first in zip(snippets, (0, 15, 30), strict=True):
        assert snippet[0, 0].tolist() == values[first : first + 100, 0].tolist()
        assert snippet[0, 1].tolist() == values[first : first + 100, 1].tolist()


def test_beyond_the_ends_are_zeros_or_a_mirror_image() -> None:
    values = np.arange(1, 61, dtype=np.float32)[:, None]
    empty = cut(values, np.array([0]))[0, 0, 0].tolist()
    assert empty == [0] * 50 + list(range(1, 51))
    mirror = cut(values, np.array([20]), mirrored=True)[0, 0, 0].tolist()
    assert mirror[:30] == list(range(31, 1, -1))
    assert mirror[30:90] == list(range(1, 61))
    assert mirror[90:] == list(range(59, 49, -1))
    # Even a single frame has something to both sides.
    assert cut(values[:1], np.array([0]), mirrored=True).unique().tolist() == [1]
    for wrong in (-1, 61):
        with pytest.raises(InputError, match="within the length of 60"):
            cut(values, np.array([wrong]))


def test_ink_is_one_on_paper_of_zero() -> None:
    assert ink(np.array([[0, 255, 51]], dtype=np.uint8)).tolist() == [[1, 0, pytest.approx(0.8)]]


def test_rows_have_length_one_and_the_model_is_left_alone() -> None:
    model = small_model()
    snippets = {"sheet": torch.rand(80, 1, 40, 100), "audio": torch.rand(80, 1, 136, 100)}
    model.refit([(snippets["sheet"], snippets["audio"])]).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    embedder = Embedder(model)
    for name, batch in snippets.items():
        rows = embedder.embed(name, batch)
        assert rows.shape == (80, embedder.dim)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
        wanted = torch.nn.functional.normalize(model.encode(name, batch)).numpy()
        np.testing.assert_allclose(rows, wanted, atol=1e-4)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
