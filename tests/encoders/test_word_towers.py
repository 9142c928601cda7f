from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ccal
from ccal.encoders import DenseTower, WordCNN, WordCRNN, build_tower, tower_config
from ccal.encoders.word_towers import OneHotConv
from ccal.errors import InputError
from ccal.features import WordSequences
from ccal.training import PairFeatures, make_objective

Tower = WordCNN | WordCRNN
BOTH = pytest.mark.parametrize("kind", [WordCNN, WordCRNN])
TEXTS = ["a red bird", "a blue bird with red wings", "the yellow flower", "long petals, blue"]


def one_hot(numbers: Tensor, vocabulary: int) -> Tensor:
    """(n, length) -> (n, words, length); padding and unknown are zeros."""
    return functional.one_hot(numbers, vocabulary)[:, :, 2:].mT.double()


def explicit(conv: OneHotConv, vocabulary: int) -> nn.Conv1d:
    """The same convolution, for one-hot vectors."""
    weight = torch.stack([table.weight[1:].T for table in conv.tables], dim=2)  # type: ignore[index]
    plain = nn.Conv1d(vocabulary - 2, len(weight), 3, padding="same", bias=False).double()
    plain.weight.data.copy_(weight)
    return plain


def test_equal_to_a_convolution_over_one_hot_words() -> None:
    vocabulary = 12
    conv = OneHotConv(vocabulary, 5).double()
    plain = explicit(conv, vocabulary)
    numbers = torch.randint(vocabulary, (8, 9))
    assert {0, 1} <= set(numbers.flatten().tolist())
    ours, theirs = conv(numbers), plain(one_hot(numbers, vocabulary))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)

    slope = torch.randn_like(ours)
    (ours * slope).sum().backward()
    (theirs * slope).sum().backward()
    assert plain.weight.grad is not None
    for place, table in enumerate(conv.tables):
        grad = table.weight.grad
        assert isinstance(grad, Tensor)
        torch.testing.assert_close(
            grad[1:].T, plain.weight.grad[..., place], rtol=1e-12, atol=1e-13
        )
        assert not grad[0].any()


@BOTH
def test_gradients_of_the_tower_are_those_with_one_hot_words(kind: type[Tower]) -> None:
    vocabulary = 9
    tower = kind(vocabulary, 3, length=18, maps=4, hidden=6).double()
    numbers = torch.randint(vocabulary, (7, 18))
    conv = tower.convolutions[0]
    assert isinstance(conv, OneHotConv)
    plain = explicit(conv, vocabulary)
    slope = torch.randn(7, 3, dtype=torch.float64)

    ours = tower(numbers)
    (ours * slope).sum().backward()
    found = {name: p.grad for name, p in tower.named_parameters() if "tables" not in name}
    tables = torch.stack([t.weight.grad[1:].T for t in conv.tables], dim=2)  # type: ignore[index]

    tower.zero_grad()
    hidden = tower.convolutions[1:](plain(one_hot(numbers, vocabulary)))
    theirs = (
        tower.head(hidden)
        if isinstance(tower, WordCNN)
        else tower.last(tower.recurrent(hidden.mT)[0].mean(1))
    )
    (theirs * slope).sum().backward()
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(tables, plain.weight.grad, rtol=1e-9, atol=1e-11)
    for name, parameter in tower.named_parameters():
        if "tables" not in name:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-11)


def test_gradients_by_finite_differences() -> None:
    conv = OneHotConv(6, 2).double()
    numbers = torch.tensor([[2, 5, 0, 1, 3, 3, 0]])
    names = [name for name, _ in conv.named_parameters()]
    words = tuple(p.detach()[1:].clone().requires_grad_() for p in conv.parameters())

    def forward(*weights: Tensor) -> Tensor:
        tables = {n: functional.pad(w, (0, 0, 1, 0)) for n, w in zip(names, weights, strict=True)}
        output: Tensor = torch.func.functional_call(conv, tables, (numbers,))
        return output

    assert torch.autograd.gradcheck(forward, words)


def test_layers_of_table_8() -> None:
    tower = WordCNN(5000)
    kinds = [type(layer).__name__ for layer in (*tower.convolutions, *tower.head)]
    normal = ["BatchNorm1d", "ELU"]
    convolutions = ["OneHotConv", *normal, "MaxPool1d", *(["Conv1d", *normal] * 2)]
    assert kinds == [*convolutions, "Flatten", "Linear", *normal, "Linear"]
    assert [tuple(p.shape) for p in tower.parameters() if p.ndim > 1] == [
        *[(4999, 256)] * 3,
        *[(256, 256, 3)] * 2,
        (1024, 6 * 256),
        (64, 1024),
    ]
    assert tower.convolve(torch.randint(5000, (2, 30))).shape == (2, 256, 6)


def test_layers_of_table_9() -> None:
    tower = WordCRNN(5000)
    assert [type(m).__name__ for m in tower.convolutions] == [
        type(m).__name__ for m in WordCNN(5000).convolutions
    ]
    assert (tower.recurrent.input_size, tower.recurrent.hidden_size) == (256, 512)
    assert (tower.last.in_features, tower.last.out_features) == (512, 64)
    assert tower.steps == 6


def test_weights_start_with_variance_one_over_inputs() -> None:
    for table in OneHotConv(402, 300).tables:
        assert isinstance(table, nn.Embedding)
        assert not table.weight[0].any()
        assert table.weight[1:].var().item() == pytest.approx(1 / 1200, rel=0.05)


@BOTH
def test_texts_without_words_and_single_texts(kind: type[Tower]) -> None:
    tower = kind(50, 8, maps=16, hidden=16)
    numbers = torch.randint(50, (6, 30))
    numbers[0] = 0
    assert tower(numbers).isfinite().all()
    assert tower(torch.zeros(4, 30)).isfinite().all()
    tower.eval()
    assert torch.equal(tower(numbers), tower(numbers))
    for row, whole in zip(numbers, tower(numbers), strict=True):
        torch.testing.assert_close(tower(row[None])[0], whole)
    assert tower(numbers[:0]).shape == (0, 8)


@BOTH
def test_unknown_words_are_as_padding_and_order_matters(kind: type[Tower]) -> None:
    tower = kind(50, 8, maps=16, hidden=16).eval()
    numbers = torch.randint(2, 50, (3, 30))
    numbers[:, 20:] = 0
    unknown = numbers.clone()
    unknown[:, 20:] = 1
    assert torch.equal(tower(numbers), tower(unknown))
    turned = torch.cat((numbers[:, :20].flip(1), numbers[:, 20:]), dim=1)
    assert (tower(turned) - tower(numbers)).abs().amax(1).min() > 1e-4


@BOTH
def test_training_leaves_padding_at_zero(kind: type[Tower]) -> None:
    tower = kind(20, 4, maps=8, hidden=8)
    optimiser = torch.optim.Adam(tower.parameters(), weight_decay=1e-2)
    numbers = torch.randint(20, (16, 30))
    for _ in range(3):
        optimiser.zero_grad()
        tower(numbers).square().sum().backward()
        optimiser.step()
    conv = tower.convolutions[0]
    assert isinstance(conv, OneHotConv)
    assert not conv(torch.tensor([[0, 1, 0]])).any()
    assert conv(torch.tensor([[0, 2, 0]])).any()


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.uint8])
def test_numbers_of_any_exact_type(kind: type[Tower], dtype: torch.dtype) -> None:
    tower = kind(200, 4, maps=8, hidden=8).eval()
    numbers = torch.randint(200, (3, 30))
    assert torch.equal(tower(numbers.to(dtype)), tower(numbers))


@BOTH
def test_half_precision_in_the_tower(kind: type[Tower]) -> None:
    tower = kind(200, 4, maps=8, hidden=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = tower(torch.randint(200, (5, 30)).float())
    output.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in tower.parameters())


@BOTH
def test_configuration_round_trip(kind: type[Tower]) -> None:
    tower = kind(40, 6, length=21, maps=8, hidden=10).eval()
    config = json.loads(json.dumps(tower_config(tower)))
    again = build_tower(config).eval()
    again.load_state_dict(tower.state_dict())
    assert type(again) is kind
    assert tower_config(again) == config
    numbers = torch.randint(40, (3, 21))
    assert torch.equal(again(numbers), tower(numbers))


@BOTH
def test_a_model_from_raw_texts_saved_and_loaded(kind: type[Tower], tmp_path: Path) -> None:
    words = WordSequences().fit(TEXTS)
    model = ccal.DualEncoder(
        dim=3,
        front_ends={"text": words},
        image=DenseTower(5, 3, hidden=(8, 8)),
        text=kind(words.size, 3, maps=8, hidden=8),
    )
    texts, images = model.features("text", TEXTS * 10), torch.randn(40, 5)
    assert texts.dtype == torch.float32
    model(images, texts)
    model.refit([(images, texts)])
    model.save(tmp_path / "model")
    loaded = ccal.load(tmp_path / "model")
    new = ["a red bird", "", "zebra", "bird " * 100]
    found = loaded.encode("text", new)
    assert found.shape == (4, 3)
    assert torch.equal(found, model.encode("text", new))
    torch.testing.assert_close(found[1], found[2])
    torch.testing.assert_close(loaded.encode("text", new[:1]), found[:1])


@BOTH
def test_trained_from_raw_texts(kind: type[Tower]) -> None:
    rng = np.random.default_rng(0)
    kinds = ["red", "blue", "green", "black", "white", "pink", "brown", "grey"]
    chosen = rng.integers(8, size=(240, 2))
    texts = [f"a {kinds[a]} bird on a {kinds[b]} flower" for a, b in chosen]
    images = np.eye(8)[chosen].reshape(240, 16) + 0.1 * rng.normal(size=(240, 16))
    pairs = ccal.Pairs({"image": images.astype(np.float32), "text": texts})
    words = WordSequences(length=15).fit(texts[:160])
    model = ccal.DualEncoder(
        dim=8,
        front_ends={"text": words},
        image=DenseTower(16, 8),
        text=kind(words.size, 8, length=15, maps=16, hidden=16),
    )
    train, valid = (PairFeatures(p, model.front_ends) for p in (pairs[:160], pairs[160:200]))
    settings = ccal.Settings(method="ccal", batch_size=80, max_epochs=15)
    ccal.fit(model, make_objective(settings), train, valid, settings, progress=False)
    found = ccal.evaluate(model, pairs[200:], bootstrap=0)
    # By chance it is 11 among 40.
    assert found.x_to_y.measures.mrr > 40


@BOTH
def test_errors(kind: type[Tower]) -> None:
    tower = kind(100, 4, maps=8, hidden=8)
    rows = torch.zeros(2, 30)
    with pytest.raises(InputError, match=r"shape \(n, 30\), got \(2, 29\)"):
        tower(rows[:, 1:])
    for wrong in (100.0, -1.0, 2.5, float("nan"), float("inf"), 1e30):
        rows[1, 7] = wrong
        with pytest.raises(InputError, match=r"whole and from 0 to 99, got .* row 1, column 7"):
            tower(rows)
    with pytest.raises(InputError, match=r"length must be 15 or more .* got 14"):
        kind(100, length=14)
    with pytest.raises(InputError, match=r"vocabulary must be 3 or more, .* got 2"):
        kind(2)
    with pytest.raises(InputError, match="maps must be a whole number of at least 1, got maps=0"):
        kind(100, maps=0)
    with pytest.raises(InputError, match="float16 cannot hold every number below 5000"):
        kind(5000, maps=8, hidden=8)(torch.zeros(2, 30, dtype=torch.float16))


@BOTH
def test_the_shortest_length_works(kind: type[Tower]) -> None:
    tower = kind(10, 4, length=15, maps=8, hidden=8)
    assert tower.steps == 1
    assert tower(torch.randint(10, (5, 15))).shape == (5, 4)
