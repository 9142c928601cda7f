"""The hash that binds an index to its model, and vectors cut to the leading dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ccal import DualEncoder, InputError, load
from ccal.encoders import DenseTower
from ccal.features import TfidfVectoriser
from ccal.retrieval import Index, fingerprint
from ccal.retrieval.embedding import unit_vectors
from tests.retrieval.conftest import DIM, make_model, rows


def trained(power: float = 1.0, hubs: bool = True) -> DualEncoder:
    torch.manual_seed(0)
    model = DualEncoder(dim=5, cca={"power": power}, image=DenseTower(6, 5), text=DenseTower(6, 5))
    x = torch.randn(200, 6)
    pairs = x, x + 0.3 * torch.randn(200, 6)
    model.refit([pairs])
    if hubs:
        embedded = model.encode("image", pairs[0]), model.encode("text", pairs[1])
        model.correct_hubs(embedded)
    return model


def test_every_part_counts(tmp_path: Path) -> None:
    model = trained()
    prints = [fingerprint(model)]
    model.save(tmp_path / "model")
    assert fingerprint(load(tmp_path / "model")) == prints[0]
    state = model.state_dict()
    for name in ("hubs.bank_x", "projection.projection_x", "projection.mean_y"):
        state[name].view(-1)[0] += 1e-3
        prints.append(fingerprint(model))
    model.front_ends["text"] = TfidfVectoriser(min_count=1, lemmatise=False).fit(["a b"])
    prints.append(fingerprint(model))
    model.front_ends["text"] = TfidfVectoriser(min_count=1, lemmatise=False).fit(["a c"])
    prints.append(fingerprint(model))
    model.hubs = None
    prints.append(fingerprint(model))
    assert len(set(prints)) == 7


def test_a_tower_that_cannot_be_saved_has_one_too() -> None:
    model = DualEncoder(dim=6, projection="none", image=torch.nn.Identity(), text=DenseTower(6, 6))
    assert len(fingerprint(model)) == 64


@pytest.mark.parametrize("hubs", [False, True])
def test_leading_dimensions(tmp_path: Path, hubs: bool) -> None:
    model = trained(hubs=hubs)
    data = rows(40)
    with Index.build(tmp_path / "a", model, data, modality="image", dims=3) as index:
        assert index.binding.dim == (7 if hubs else 3)
        leading = model.encode("image", data, corrected=False).double()[:, :3]
        plain = torch.nn.functional.normalize(leading).numpy()
        stored = index.vectors(index.ids())[:, :3] * (3**0.5 if hubs else 1)
        np.testing.assert_allclose(stored, plain, atol=1e-5)
        assert index.search(image=data[7], within="image", k=1)[0].id == "image-8"
    whole = trained(hubs=hubs)
    with Index.build(tmp_path / "b", whole, data, modality="image", dims=5) as index:
        expected = torch.nn.functional.normalize(whole.encode("image", data)).numpy()
        np.testing.assert_allclose(index.vectors(index.ids()), expected, atol=1e-5)


def test_dimensions_without_order_are_not_cut(tmp_path: Path) -> None:
    for model in (make_model(), trained(power=0.0)):
        with pytest.raises(InputError, match="leading canonical dimensions"):
            Index.build(tmp_path / "a", model, rows(3), modality="image", dims=2)
    with pytest.raises(InputError, match="between 1 and the model's 5"):
        Index.build(tmp_path / "a", trained(), rows(3), modality="image", dims=6)


def test_unit_vectors_of_any_size_and_form() -> None:
    wanted = unit_vectors([3.0, 4.0], 2, "v")
    for form in ([3e-160, 4e-160], [3e160, 4e160], np.array([[3, 4]]), torch.tensor([3.0, 4.0])):
        np.testing.assert_allclose(unit_vectors(form, 2, "v"), wanted, rtol=1e-7)
    half = torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_allclose(unit_vectors(half, 2, "v"), wanted, rtol=1e-7)
    assert unit_vectors(np.empty((0, 2)), 2, "v").shape == (0, 2)
    turned = np.asfortranarray(rows(50, width=DIM))
    assert (unit_vectors(turned, DIM, "v") == unit_vectors(rows(50, width=DIM), DIM, "v")).all()
