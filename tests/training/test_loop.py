from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ccal.cca import CCALayer
from ccal.encoders import DenseTower
from ccal.errors import CcalError, InputError
from ccal.model import DualEncoder
from ccal.ranks import mean_reciprocal_ranks
from ccal.training.batch_norm import unbiased_batch_norm
from ccal.training.progress import History
from tests.training.stand_ins import Arrays, Contrast, make_model, pairs, quick, run, untimed


def mrr(model: DualEncoder, valid: Arrays) -> tuple[float, float]:
    x, y = model.encode("image", valid.x), model.encode("text", valid.y)
    return mean_reciprocal_ranks(x, y, pessimistic=True)


def same(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("averaging", [0.0, 0.9])
@pytest.mark.parametrize("projection", ["cca", "learned", "none"])
def test_training_finds_counterparts(projection: str, averaging: float) -> None:
    settings = quick(max_epochs=15, averaging=averaging)
    model, history = run(settings, model=make_model(projection))
    first, best = history.records[0], history.records[history.best_epoch - 1]
    assert best["loss"] < first["loss"]
    assert history.best_mrr == (best["mrr_x_to_y"] + best["mrr_y_to_x"]) / 2
    assert history.best_mrr is not None
    # By chance it is 0.08 among 60.
    assert history.best_mrr > 0.2
    assert not model.training
    # The model is the one of the best epoch, not of the last.
    found = mrr(model, pairs(60, start=900))
    assert found == (best["mrr_x_to_y"], best["mrr_y_to_x"])
    assert (best["mean_correlation"] is not None) == (projection == "cca")


def test_projections_are_those_of_all_training_pairs() -> None:
    ways: list[dict[str, Any]] = [{}, {"epochs": 3, "valid": None}]
    for options in ways:
        for averaging in (0.0, 0.9):
            model, _ = run(quick(averaging=averaging), **options)
            stored = {name: t.clone() for name, t in model.state_dict().items()}
            data = pairs()
            model.refit([(data.x, data.y)])
            torch.testing.assert_close(stored, model.state_dict(), rtol=1e-4, atol=1e-4)
            assert isinstance(model.projection, CCALayer)
            assert model.projection.samples_seen == 200


def test_the_same_seed_gives_the_same_weights() -> None:
    def tower(inputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Dropout(0.2), DenseTower(inputs, 4, hidden=(8,)))

    def train(seed: int) -> tuple[DualEncoder, History]:
        torch.manual_seed(0)
        model = DualEncoder(dim=4, image=tower(6), text=tower(9))
        torch.manual_seed(torch.seed())
        return run(quick(seed=seed, averaging=0.5), model=model)

    (one, history), (two, again), (other, _) = train(0), train(0), train(1)
    assert same(one, two)
    assert not same(one, other)
    assert untimed(history.records) == untimed(again.records)


def test_a_batch_is_followed_by_a_plain_adam_step() -> None:
    data, model, objective = pairs(40), make_model("none"), Contrast()
    settings = quick(optimiser="adam", weight_decay=0.1, batch_size=40)
    expected, loss = make_model("none"), Contrast()
    weights = [*expected.parameters(), *loss.parameters()]
    groups = [{"params": [p], "weight_decay": 0.1 * (p.ndim > 1)} for p in weights]
    optimiser = torch.optim.Adam(groups, lr=0.01)
    with unbiased_batch_norm(expected):
        for _ in range(2):
            optimiser.zero_grad()
            loss(expected, data.x, data.y).backward()
            optimiser.step()
    run(settings, model=model, objective=objective, train=data, epochs=2)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    torch.testing.assert_close(objective.state_dict(), loss.state_dict())
    assert objective.loss.log_scale is not None
    assert objective.loss.log_scale != Contrast().loss.log_scale


def test_the_running_mean_of_the_weights_is_kept() -> None:
    data = pairs(40)
    settings = quick(batch_size=40, averaging=0.25)
    path = []
    for epochs in range(4):
        model, _ = run(settings.changed(averaging=0.0), train=data, epochs=epochs)
        path.append([p.detach().clone() for p in model.parameters()])
    mean = path[0]
    for steps, new in enumerate(path[1:], start=1):
        decay = min(0.25, (1 + steps) / (10 + steps))
        mean = [decay * m + (1 - decay) * p for m, p in zip(mean, new, strict=True)]
    model, _ = run(settings, train=data, epochs=3)
    torch.testing.assert_close(list(model.parameters()), mean)
    plain, _ = run(settings.changed(averaging=0.0), train=data, epochs=3)
    statistics = "towers.image.layers.1.running_mean"
    assert torch.equal(model.state_dict()[statistics], plain.state_dict()[statistics])


class Scripted(nn.Module):
    """Ends the epochs of given numbers with a loss that is not finite."""

    def __init__(self, *bad: int, value: float = math.nan) -> None:
        super().__init__()
        self.loss, self.bad, self.value, self.calls = Contrast(), bad, value, 0
        self.seen: list[Tensor] = []

    def forward(self, model: DualEncoder, x: Tensor, y: Tensor) -> Tensor:
        self.seen.append(next(model.parameters()).detach().clone())
        self.calls += 1
        loss: Tensor = self.loss(model, x, y)
        return loss * self.value if self.calls in self.bad else loss


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_brings_the_best_weights_back(value: float) -> None:
    # One batch an epoch: the third epoch diverges, the fourth starts where the third did.
    objective = Scripted(3, value=value)
    settings = quick(batch_size=200, refinements=1, learning_rate=0.01)
    _, history = run(settings, objective=objective)
    assert [r["loss"] is None for r in history.records] == [False, False, True, False]
    assert [r["learning_rate"] for r in history.records] == [0.01, 0.01, 0.01, 0.001]
    best = max((1, 2), key=lambda e: (history.records[e - 1]["mrr_x_to_y"], e))
    assert torch.equal(objective.seen[3], objective.seen[best])


def test_divergence_without_refinements_ends_with_the_best() -> None:
    model, history = run(quick(batch_size=200), objective=Scripted(3))
    assert history.epochs == 3
    assert history.best_epoch in (1, 2)
    assert all(bool(torch.isfinite(t).all()) for t in model.state_dict().values())


def test_divergence_from_the_start_is_an_error() -> None:
    with pytest.raises(CcalError, match=r"diverged.*epoch 1.*learning_rate \(it was 0.01\)"):
        run(objective=Scripted(1))


def test_refinement_after_divergence_starts_from_the_given_weights() -> None:
    objective = Scripted(1)
    _, history = run(quick(batch_size=200, refinements=1, max_epochs=3), objective=objective)
    assert torch.equal(objective.seen[0], objective.seen[1])
    assert history.best_epoch > 1


@pytest.mark.parametrize("projection", ["cca", "none"])
def test_huge_learning_rates_do_not_crash(projection: str) -> None:
    settings = quick(learning_rate=1e25, refinements=1, max_epochs=6)
    try:
        run(settings, model=make_model(projection))
    except CcalError as error:
        assert "diverged" in str(error)  # noqa: PT017


def test_bad_data_are_not_mistaken_for_divergence() -> None:
    data = pairs()
    data.x[7, 2] = math.nan
    with pytest.raises(InputError, match="NaN"):
        run(train=data)


def test_patience_and_refinement_in_the_loop() -> None:
    # A learning rate of nearly nothing: scores stay equal, and equal is improvement.
    settings = quick(learning_rate=1e-12, max_epochs=5)
    _, history = run(settings, model=make_model(hidden=()), validate_first=True)
    assert history.best_epoch == 5
    # Training that only harms: patience 3, then refinements of patience 2 from the given weights.
    good, _ = run(quick(max_epochs=20))
    start = {name: t.clone() for name, t in good.state_dict().items()}
    settings = quick(
        learning_rate=30.0, max_epochs=50, refinements=2, batch_size=200, weight_decay=0.0
    )
    objective = Scripted()
    model, history = run(settings, model=good, objective=objective, validate_first=True)
    rates = [r["learning_rate"] for r in history.records]
    assert rates == [None, *[30.0] * 3, *[3.0] * 2, *[0.3] * 2]
    assert history.best_epoch == 0
    at_start = objective.seen
    assert torch.equal(at_start[3], at_start[0])
    assert torch.equal(at_start[5], at_start[0])
    # Adam's very first step is one of the learning rate: its memory came back too.
    torch.testing.assert_close((at_start[4] - at_start[3]).abs().max().item(), 3.0)
    assert all(torch.equal(model.state_dict()[name], start[name]) for name in start)


def test_select_names_the_deciding_direction() -> None:
    for select, name in (("x->y", "mrr_x_to_y"), ("y->x", "mrr_y_to_x")):
        _, history = run(quick(max_epochs=6), select=select)
        assert history.best_mrr == max(r[name] for r in history.records)


def test_corrected_embeddings_decide() -> None:
    def only_one(model: DualEncoder, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        assert len(x) == len(y) == 60
        return x[:, :1], y[:, :1]

    plain, corrected = (
        run(quick(max_epochs=2), correct=correct)[1] for correct in (None, only_one)
    )
    assert corrected.best_mrr is not None
    assert plain.best_mrr is not None
    assert corrected.best_mrr < plain.best_mrr
    assert corrected.records[0]["loss"] == plain.records[0]["loss"]


def test_fixed_epochs_need_no_validation() -> None:
    model, history = run(epochs=3, valid=None)
    assert [r["epoch"] for r in history.records] == [1, 2, 3]
    assert (history.best_mrr, history.best_epoch, history.epochs) == (None, 3, 3)
    assert model.encode("image", torch.zeros(2, 6)).shape == (2, 4)
    model, history = run(epochs=0, valid=None)
    assert history.records == []
    assert model.encode("image", torch.zeros(2, 6)).shape == (2, 4)


def test_it_runs_in_another_thread(tmp_path: Path) -> None:
    results: list[History] = []
    thread = threading.Thread(target=lambda: results.append(run(folder=tmp_path)[1]))
    thread.start()
    thread.join()
    assert results[0].epochs == 4


def test_fewer_pairs_than_a_batch() -> None:
    sizes: list[int] = []

    class Counting(Arrays):
        def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            sizes.append(len(rows))
            return super().batch(rows)

    data = pairs(30)
    run(train=Counting(data.x, data.y), epochs=2, valid=None)
    assert set(sizes) == {2, 30}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"train": pairs(0)}, "at least 2 pairs, got 0"),
    ({"train": pairs(1)}, "at least 2 pairs, got 1"),
    ({"valid": pairs(1)}, "Validation needs at least 2 pairs"),
    ({"valid": None}, "pass valid, or a fixed number of epochs"),
    ({"valid": Arrays(torch.zeros(5, 3), torch.zeros(5, 9))}, r"View x has shape \(6,\).*\(3,\)"),
    ({"train": Arrays(torch.zeros(9, 6).int(), torch.zeros(9, 9))}, "floating tensor"),
    ({"epochs": -1}, "epochs must be a whole number of at least 0 or None, got epochs=-1"),
    ({"epochs": 2, "validate_first": True}, "validate_first needs validation"),
    ({"select": "x"}, "select must be"),
    ({"stage": "a/b"}, "stage names files"),
    ({"resume": True}, "resume needs a folder"),
    ({"tensorboard": True}, "tensorboard needs a folder"),
    ({"folder": Path(__file__)}, "is a file"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(**options)


def test_nothing_to_train() -> None:
    model = make_model().requires_grad_(False)
    with pytest.raises(InputError, match="nothing to train"):
        run(model=model, objective=nn.Identity())
