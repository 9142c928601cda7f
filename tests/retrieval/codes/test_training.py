from __future__ import annotations

import pytest
import torch

from ccal import CCALayer
from ccal.encoders import DenseTower
from ccal.errors import CcalError, InputError
from ccal.losses import PairwiseRankingLoss
from ccal.model import DualEncoder
from ccal.ranks import mean_reciprocal_ranks
from ccal.retrieval.codes.heads import (
    Head,
    HeadTraining,
    itq_heads,
    train_heads,
    train_through,
    unit_views,
)
from tests.retrieval.codes.data import embedded_pairs

QUICK = HeadTraining(epochs=6, batch_size=100, learning_rate=3e-3)


def score(heads: tuple[Head, Head], views: tuple[torch.Tensor, torch.Tensor]) -> float:
    x, y = (torch.where(h(v) > 0, 1.0, -1.0) for h, v in zip(heads, views, strict=True))
    return mean_reciprocal_ranks(x, y, pessimistic=True)[0]


def test_training_finds_what_a_common_rotation_cannot() -> None:
    # View y is view x turned: only heads that differ by view can make the same bits of both.
    x, y = embedded_pairs(600, noise=0.2)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(3))).Q
    x, y = unit_views(x, y @ turn)
    start = itq_heads(x[:400], y[:400], 32)
    more = HeadTraining(epochs=40, batch_size=100, learning_rate=1e-2)
    trained = train_heads(x[:400], y[:400], start, more)
    held = x[400:], y[400:]
    assert score(trained, held) > score(start, held) + 0.2


def test_the_ranking_loss_of_the_bits_falls() -> None:
    x, y = unit_views(*embedded_pairs(300, noise=1.0))
    start = itq_heads(x, y, 16)
    trained = train_heads(x, y, start, HeadTraining(epochs=20, batch_size=300, dropout=0.0))
    loss = PairwiseRankingLoss(margin=0.5, direction="both")
    before, after = (
        loss(*(h(v).sign() for h, v in zip(heads, (x, y), strict=True))).item()
        for heads in (start, trained)
    )
    assert after < before


def test_the_same_seed_gives_the_same_heads_and_leaves_the_global_one_alone() -> None:
    x, y = unit_views(*embedded_pairs(200))
    start = itq_heads(x, y, 16)
    state = torch.get_rng_state()
    first, again = (train_heads(x, y, start, QUICK)[1] for _ in range(2))
    other = train_heads(x, y, start, HeadTraining(epochs=6, batch_size=100, seed=5))[1]
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(first.bias, again.bias)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(torch.get_rng_state(), state)


def test_fewer_pairs_than_a_batch_are_one_batch() -> None:
    x, y = unit_views(*embedded_pairs(30))
    start = itq_heads(x, y, 16)
    trained = train_heads(x, y, start, HeadTraining(epochs=2))
    assert not torch.equal(trained[0].weight, start[0].weight)


@pytest.mark.parametrize("projection", ["cca", "learned", "none"])
def test_end_to_end_moves_the_towers_of_a_copy(projection: str) -> None:
    x, y = embedded_pairs(400, dim=8, noise=0.3)
    model = DualEncoder(
        dim=8,
        projection=projection,  # type: ignore[arg-type]
        image=DenseTower(8, 8, hidden=(16,)),
        text=DenseTower(8, 8, hidden=(16,)),
    )
    model.refit([(x, y)]).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    embedded = unit_views(model.encode("image", x), model.encode("text", y))
    start = itq_heads(*embedded, 16)
    long = HeadTraining(epochs=20, batch_size=100, learning_rate=3e-3, tower_learning_rate=1e-3)
    tuned, heads = train_through(model, x, y, start, long)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    moved = {
        n.split(".")[0] for n, v in tuned.state_dict().items() if not torch.equal(v, before[n])
    }
    assert moved == {"towers"}
    assert not tuned.training
    assert all(parameter.requires_grad for parameter in tuned.parameters())
    after = unit_views(tuned.encode("image", x), tuned.encode("text", y))
    assert score(heads, after) > score(start, embedded)


def test_a_cca_layer_keeps_its_projections_while_the_towers_learn() -> None:
    x, y = embedded_pairs(200, dim=8)
    model = DualEncoder(dim=8, image=DenseTower(8, 8), text=DenseTower(8, 8))
    model.refit([(x, y)]).eval()
    heads = itq_heads(*unit_views(model.encode("image", x), model.encode("text", y)), 16)
    tuned, _ = train_through(model, x, y, heads, QUICK)
    assert isinstance(tuned.projection, CCALayer)
    assert isinstance(model.projection, CCALayer)
    for name, value in model.projection.state_dict().items():
        assert torch.equal(value, tuned.projection.state_dict()[name]), name


def test_end_to_end_is_the_same_with_the_same_seed_in_spite_of_dropout() -> None:
    x, y = embedded_pairs(200, dim=8)
    image, text = (DenseTower(8, 8, hidden=(16,), dropout=0.5) for _ in range(2))
    model = DualEncoder(dim=8, projection="none", image=image, text=text).eval()
    heads = itq_heads(*unit_views(model.encode("image", x), model.encode("text", y)), 16)
    state = torch.get_rng_state()
    first, again = (train_through(model, x, y, heads, QUICK) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first[1][0].weight, again[1][0].weight)
    for name, value in first[0].state_dict().items():
        assert torch.equal(value, again[0].state_dict()[name]), name


def test_training_that_diverges_is_named() -> None:
    x, y = unit_views(*embedded_pairs(100))
    wild = HeadTraining(epochs=3, batch_size=50, learning_rate=float("inf"))
    with pytest.raises(CcalError, match="diverged"):
        train_heads(x, y, itq_heads(x, y, 8), wild)


def test_through_needs_pairs() -> None:
    model = DualEncoder(dim=8, projection="none", a=DenseTower(8, 8), b=DenseTower(8, 8))
    x, y = embedded_pairs(20, dim=8)
    heads = itq_heads(*unit_views(x, y), 8)
    with pytest.raises(InputError, match="20 and 19 rows"):
        train_through(model, x, y[:19], heads, QUICK)


@pytest.mark.parametrize(
    "options", [{"epochs": 0}, {"batch_size": 1}, {"slope": 0.5}, {"dropout": 1.0}]
)
def test_settings_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        HeadTraining(**options)  # type: ignore[arg-type]
