"""All methods, from pairs to a saved model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal import load
from ccal.cca import CCA
from ccal.data import Pairs
from ccal.errors import InputError
from ccal.ranks import unit_rows
from ccal.training import METHODS, PairFeatures, Settings, embed, embed_pairs, evaluate, train
from ccal.training.methods import LinearInitialisation, choose_initialisation
from ccal.training.refined import _OF_TOWER, _candidate_settings, choose_hub_weight
from ccal.training.settings import BY_TOWER

pytestmark = pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")

QUICK: dict[str, Any] = {"max_epochs": 8, "batch_size": 100, "dim": 8, "min_count": 1}


def views(n: int = 400, noise: float = 0.5) -> Pairs:
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(n, 6))
    left = meaning @ rng.normal(size=(6, 20)) + noise * rng.normal(size=(n, 20))
    right = meaning @ rng.normal(size=(6, 15)) + noise * rng.normal(size=(n, 15))
    return Pairs({"left": left.astype(np.float32), "right": right.astype(np.float32)})


def texts(n: int = 300) -> Pairs:
    rng = np.random.default_rng(0)
    words = np.array(["dog", "cat", "bird", "tree", "house", "river", "car", "road", "ball"])
    present = rng.random((n, len(words))) < 0.3
    present[:, 0] |= ~present.any(1)
    images = present @ rng.normal(size=(len(words), 12)) + 0.1 * rng.normal(size=(n, 12))
    return Pairs({"image": images, "text": [" ".join(words[row]) for row in present]})


@pytest.mark.parametrize("method", [m for m in METHODS if m != "zero-shot"])  # it needs classes
def test_each_method_learns_and_is_saved(method: str, tmp_path: Path) -> None:
    pairs = views()
    settings = Settings(
        **{**QUICK, "method": method, "hub_correction": "yes", "learning_rate": 1e-2}
    )
    trained = train(settings, pairs[:250], pairs[250:300], progress=False, folder=tmp_path)
    report = evaluate(trained.model, pairs[300:], bootstrap=0)
    assert report.x_to_y.measures.mrr > 40
    assert report.y_to_x.measures.mrr > 40
    trained.model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert list(again.calibrations) == ["left", "right"]
    assert again.calibrations == trained.model.calibrations
    embedded = embed_pairs(trained.model, pairs[300:])
    for direction in embedded.reliability(again.calibrations):
        said, right = 0.0, sum(right for right, _ in direction.counts.values())
        calibration = again.calibrations[direction.name.split()[0]]
        x, y = (unit_rows(view, "view") for view in (embedded.x, embedded.y))
        scores = x @ y.mT if direction.name.startswith("left") else y @ x.mT
        for row in scores.topk(10).values.tolist():
            said += sum(calibration.chances(row, len(scores)))
        assert sum(hits for _, hits in direction.counts.values()) == 10 * len(scores)
        # As often as said: validation pairs were scored before the training on them.
        assert said == pytest.approx(right, rel=0.25)
    for name in pairs.names:
        rows = pairs.column(name)[300:]
        assert torch.equal(again.encode(name, rows), trained.model.encode(name, rows))


@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_refined_is_not_below_linear_cca(noise: float) -> None:
    pairs = views(700, noise)
    scores = {"linear": 0.0, "refined": 0.0}
    # Several seeds, since other draws of dropout move the mean by a point.
    for method, seed in itertools.product(scores, (0, 1, 2)):
        options: dict[str, Any] = {"method": method, "seed": seed}
        settings = Settings(**options, dim=8, max_epochs=30)
        model = train(settings, pairs[:300], pairs[300:400], progress=False).model
        report = evaluate(model, pairs[400:], bootstrap=0)
        scores[method] += (report.x_to_y.measures.mrr + report.y_to_x.measures.mrr) / 6
    assert scores["refined"] >= scores["linear"] - 0.5


def test_texts_are_taken_raw(tmp_path: Path) -> None:
    pairs = texts()
    trained = train(Settings(**QUICK), pairs[:200], pairs[200:250], progress=False)
    trained.model.save(tmp_path / "model")
    model = load(tmp_path / "model")
    found = model.encode("text", ["a dog at the river", "a cat"])
    assert found.shape[0] == 2
    assert evaluate(model, pairs[250:], bootstrap=0).x_to_y.measures.r5 > 50


def test_same_seed_same_weights_and_others_not() -> None:
    pairs = views()

    def weights(seed: int) -> torch.Tensor:
        settings = Settings(**QUICK, seed=seed)
        model = train(settings, pairs[:250], pairs[250:300], progress=False).model
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    one = weights(1)
    assert torch.equal(weights(1), one)
    assert not torch.equal(weights(2), one)


def test_linear_method_is_linear_cca() -> None:
    pairs = views()
    settings = Settings(method="linear", dim=6, train_on_all=False)
    model = train(settings, pairs[:300], pairs[300:], progress=False).model
    cca = CCA(6, ridge="auto", power="auto").fit(
        *(pairs[:300].column(name)[:] for name in pairs.names)
    )
    rows = pairs.column("left")[300:]
    unit = torch.nn.functional.normalize
    torch.testing.assert_close(
        unit(model.encode("left", rows)),
        unit(torch.from_numpy(cca.transform(rows))),
        atol=1e-4,
        rtol=1e-3,
    )


def test_square_roots_are_taken_where_they_help() -> None:
    pairs = views()
    left, right = (pairs.column(name)[:] for name in pairs.names)
    both_signs = Pairs({"left": np.sign(left) * left**2, "right": right})
    positive = Pairs({"left": np.exp(left), "right": right - right.min()})
    settings = Settings(dim=6)

    def roots(pairs: Pairs, settings: Settings) -> tuple[bool, bool]:
        start = choose_initialisation(
            settings, *(PairFeatures(p, {}) for p in (pairs[:250], pairs[250:]))
        )
        return start.root_x, start.root_y

    assert roots(both_signs, settings) == (False, False)
    assert roots(both_signs, settings.changed(root_x="yes")) == (True, False)
    assert roots(positive, settings)[0]
    assert not roots(positive, settings.changed(root_x="no"))[0]
    assert roots(positive, settings.changed(method="linear")) == (False, False)


def test_square_roots_are_not_taken_where_they_harm() -> None:
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(400, 6))
    left = meaning @ rng.normal(size=(6, 6))
    left -= left.min(0)
    right = meaning @ rng.normal(size=(6, 15)) + 0.3 * rng.normal(size=(400, 15))
    pairs = Pairs({"left": left, "right": right})
    start = choose_initialisation(
        Settings(dim=6), *(PairFeatures(p, {}) for p in (pairs[:200], pairs[200:]))
    )
    assert start.root_x is False


def test_too_few_pairs_to_choose_a_ridge_take_one() -> None:
    pairs = views(16)
    features = PairFeatures(pairs[:12], {}), PairFeatures(pairs[12:], {})
    assert choose_initialisation(Settings(dim=3), *features).ridge == (1.0, 1.0)
    model = train(Settings(dim=3, max_epochs=2), pairs[:12], pairs[12:], progress=False).model
    assert len(model.encode("left", pairs.column("left")[:])) == 16


def test_hub_weight_is_chosen_on_held_out_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 8, generator=generator)
    assert choose_hub_weight((x[:200], x[:200]), (x[200:], x[200:])) == 0


def test_embeddings_before_correction() -> None:
    pairs = views()
    model = train(Settings(**QUICK), pairs[:250], pairs[250:300], progress=False).model
    features = PairFeatures(pairs[300:], {})
    x, _ = embed(model, features)
    expected = model.encode("left", pairs[300:].column("left"), corrected=False)
    torch.testing.assert_close(x, expected)


def test_initialised_towers_have_unit_variance() -> None:
    features = PairFeatures(views(), {})
    for tower, view in zip(
        LinearInitialisation().towers(Settings(dim=5), features),
        features.batch(slice(None)),
        strict=True,
    ):
        assert abs(float(tower.eval()(view).detach().std()) - 1) < 0.01


def test_pairs_must_be_of_the_same_modalities() -> None:
    with pytest.raises(InputError, match="left"):
        train(Settings(), views(), texts(), progress=False)
    model = train(Settings(**QUICK), views(50), views(50), progress=False).model
    with pytest.raises(InputError, match="joins left and right"):
        evaluate(model, texts())
    with pytest.raises(InputError, match="no pairs"):
        evaluate(model, views()[:0])


def test_an_item_with_several_counterparts_is_one_candidate() -> None:
    pairs = views(60)
    left, right = (pairs.column(name)[:] for name in pairs.names)
    repeated = np.repeat(left[:20], 3, axis=0)
    grouped = Pairs({"left": repeated, "right": right}, group=np.repeat(np.arange(20), 3))
    model = train(Settings(**QUICK), pairs[:40], pairs[40:], progress=False).model
    report = evaluate(model, grouped, bootstrap=0)
    assert (len(report.x_to_y.ranks), report.x_to_y.candidates) == (20, 60)
    turned = Pairs({"left": left, "right": np.repeat(right[:20], 3, axis=0)}, group=grouped.group)
    report = evaluate(model, turned, bootstrap=0)
    assert (len(report.x_to_y.ranks), report.x_to_y.candidates) == (60, 20)
    assert report.x_to_y.name == "left -> right"
    mixed = Pairs({"left": left, "right": right}, group=grouped.group)
    report = evaluate(model, mixed, bootstrap=0)
    # Three right answers each, of either modality.
    assert (len(report.x_to_y.ranks), report.x_to_y.candidates) == (60, 60)
    alone = evaluate(model, Pairs({"left": left, "right": right}), bootstrap=0)
    assert (report.x_to_y.ranks <= alone.x_to_y.ranks).all()


def test_towers_have_own_defaults_for_settings_not_given() -> None:
    assert set(BY_TOWER) == set(_OF_TOWER["residual"]) > set(_OF_TOWER["linear"])
    linear, residual = _candidate_settings(Settings(), pairs=1000)
    assert (linear.max_epochs, residual.max_epochs, residual.batch_size) == (60, 300, 500)
    assert (linear.learning_rate, Settings(tower="linear").learning_rate) == (1e-3, 2e-4)
    for epochs in (60, 61):
        towers = _candidate_settings(Settings.preset("default", max_epochs=epochs), pairs=1000)
        assert [tower.max_epochs for tower in towers] == [epochs, epochs]
        assert towers[1].batch_size == 500
    patience = [
        [own.patience for own in _candidate_settings(Settings(), pairs)]
        for pairs in (1000, 5400, 50_000)
    ]
    assert patience == [[10, 30], [5, 8], [5, 5]]
    assert [own.patience for own in _candidate_settings(Settings(patience=20), 9999)] == [20, 20]
