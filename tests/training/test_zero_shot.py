"""Unseen classes: captions of things whose classes differ in training, validation and test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ccal import load
from ccal.data import Pairs, disjoint_split
from ccal.errors import InputError
from ccal.evaluation import class_average_precision
from ccal.evaluation.hubs import mean_of_neighbours
from ccal.features import TfidfVectoriser
from ccal.files import read_document, save_part, write_document
from ccal.training import (
    PairFeatures,
    Settings,
    ZeroShotOptions,
    evaluate_zero_shot,
    load_zero_shot,
    train,
    train_zero_shot,
)
from ccal.training.batches import concatenated
from ccal.training.scoring import class_scores

pytestmark = pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")

COLOURS = ["red", "blue", "green", "black", "white", "brown"]
PARTS = ["crown", "wings", "belly", "bill"]
SMALL = ZeroShotOptions(
    dims=(8,), ridges=((1.0, 0.1),), powers=(0.0, 1.0), neighbours=(1, 4), root=False, k=5
)


def birds(classes: int = 40, images: int = 8, captions: int = 3) -> tuple[Pairs, Pairs, Pairs]:
    """Each class has a colour for each part; a caption tells some of them, a picture all."""
    rng = np.random.default_rng(0)
    colour = rng.integers(len(COLOURS), size=(classes, len(PARTS)))
    codes = rng.normal(size=(len(PARTS), len(COLOURS), 24))
    rows, texts, label = [], [], []
    for c in range(classes):
        for _ in range(images):
            row = codes[range(len(PARTS)), colour[c]].sum(0) + 1.5 * rng.normal(size=24)
            for _ in range(captions):
                told = rng.permutation(len(PARTS))[:3]
                rows.append(row.astype(np.float32))
                texts.append(" and ".join(f"{COLOURS[colour[c, p]]}{PARTS[p]}" for p in told))
                label.append(f"bird {c}")
    group = np.arange(len(rows)) // captions
    pairs = Pairs({"image": np.stack(rows), "text": texts}, label=label, group=group)
    return disjoint_split(pairs.label, valid=8, test=8, seed=1).of(pairs)  # type: ignore[arg-type]


def test_linear_model_finds_unseen_classes_and_is_saved(tmp_path: Path) -> None:
    training, valid, test = birds()
    found = train_zero_shot(training, valid, SMALL)
    report = found.evaluate(test, k=5)
    assert report.ap > 40
    assert len(report.names) == 8
    assert report.neighbours == found.neighbours
    assert found.facts["validation AP@5"] == round(found.evaluate(valid, k=5).ap, 2)
    found.model.save(tmp_path / "model")
    texts = test.column("text")[:5]
    assert torch.equal(
        load(tmp_path / "model").encode("text", texts), found.model.encode("text", texts)
    )
    # A hit is right if it is of the query's class.
    assert load(tmp_path / "model").calibrations == found.model.calibrations
    assert found.model.calibrations["text"].positives > 1


def test_neighbours_help_where_pictures_are_noisy() -> None:
    training, valid, test = birds()
    plain = {**vars(SMALL), "hub_weights": (0.0,)}
    alone, together = (
        train_zero_shot(training, valid, ZeroShotOptions(**{**plain, "neighbours": (n,)}))
        for n in (1, 4)
    )
    assert together.neighbours == 4
    assert together.evaluate(test, k=5).ap > alone.evaluate(test, k=5).ap
    x = test.column("image")[::3]
    part = together.model.neighbours
    assert part is not None
    torch.testing.assert_close(
        together.candidates(x),
        mean_of_neighbours(
            alone.model.encode("image", x), part.discriminant(torch.from_numpy(x)), neighbours=4
        ),
    )
    # Each by itself, the pictures are those of the model without neighbours.
    assert alone.model.neighbours is None
    report = together.evaluate(test, k=5)
    assert report.ap_alone == pytest.approx(alone.evaluate(test, k=5).ap)
    lines = [line.rsplit(maxsplit=1) for line in str(report).splitlines()[:2]]
    assert [line[0] for line in lines] == [
        "AP@5, one query a class, items averaged over 4 neighbours",
        "AP@5, one query a class, each item by itself",
    ]
    assert [line[1] for line in lines] == [f"{report.ap:.1f}", f"{report.ap_alone:.1f}"]


@pytest.mark.parametrize("neighbours", [1, 4])
def test_hub_correction_of_classes_equals_the_loop(neighbours: int) -> None:
    """Captions are corrected one by one; for classes penalties are larger."""
    training, valid, test = birds()
    weight, k = 0.2, 5
    changes = {"neighbours": (neighbours,), "hub_weights": (weight,)}
    found = train_zero_shot(training, valid, ZeroShotOptions(**{**vars(SMALL), **changes}))
    model, report = found.model, found.evaluate(test, k=k)
    assert found.facts["hub weight"] == weight
    assert found.facts["validation AP@5"] == round(found.evaluate(valid, k=k).ap, 2)
    hubs, model.hubs = model.hubs, None
    assert hubs is not None
    unit = torch.nn.functional.normalize
    pictures = test.column("image")[::3]
    candidates = unit(model.candidates(pictures).double())
    texts = model.encode("text", test.column("text")).double()

    def hubness(row: torch.Tensor, bank: torch.Tensor) -> float:
        return float((bank.double() @ row).sort(descending=True).values[: hubs.neighbours].mean())

    assert test.label is not None
    of_class = {name: texts[test.label == name] for name in report.names}
    means = {name: unit(rows.mean(0), dim=0) for name, rows in of_class.items()}
    lengths = [float(unit(rows).mean(0).norm()) for rows in of_class.values()]
    gain = len(lengths) / sum(lengths)
    assert gain > 1
    penalties = torch.tensor([weight * hubness(c, hubs.bank_y) for c in candidates])
    of_pictures, right = test.label[::3], 0
    for name, precision in zip(report.names, report.precision.tolist(), strict=True):
        best = (candidates @ means[name] - gain * penalties).topk(k).indices
        assert precision == pytest.approx(100 * (of_pictures[best.numpy()] == name).mean())
    for row, name in zip(candidates, of_pictures, strict=True):
        scores = {n: row @ m - weight * hubness(m, hubs.bank_x) for n, m in means.items()}
        right += max(scores, key=scores.__getitem__) == name
    assert report.accuracy == pytest.approx(100 * right / len(candidates))
    singles: dict[str, list[float]] = {name: [] for name in report.names}
    for row, name in zip(unit(texts), test.label, strict=True):
        best = (candidates @ row - penalties).topk(k).indices
        singles[name].append(100 * (of_pictures[best.numpy()] == name).mean())
    expected = np.mean([np.mean(values) for values in singles.values()])
    assert report.ap_single == pytest.approx(expected)


def test_a_picture_with_several_captions_is_one_candidate() -> None:
    training, valid, test = birds()
    model = train_zero_shot(training, valid, SMALL).model
    assert test.label is not None
    labels = np.unique(test.label, return_inverse=True)[1]
    expected = class_average_precision(
        model.encode("text", test.column("text")),
        labels,
        model.encode("image", test.column("image")[::3]),
        labels[::3],
        k=5,
    )
    assert evaluate_zero_shot(model, test, k=5).ap_alone == pytest.approx(expected)
    front_ends = {"text": TfidfVectoriser(min_count=3).fit(training.column("text")[:])}
    features = PairFeatures(test, front_ends)
    assert class_scores(model, features, k=5).mean() >= 0
    bare = PairFeatures(Pairs({n: test.column(n) for n in test.names}), front_ends)
    with pytest.raises(InputError, match="no labels"):
        class_scores(model, bare)


@pytest.mark.parametrize("preset", ["cub-cnn", "cub-crnn"])
def test_word_towers_train_and_are_saved(preset: str, tmp_path: Path) -> None:
    training, valid, _ = birds(classes=24, images=4)
    settings = Settings.preset(preset, dim=8, hidden_x=[16], max_epochs=2, batch_size=16)
    trained = train(settings, training, valid, progress=False)
    scores = [record["score"] for record in trained.history]
    features = PairFeatures(valid, trained.model.front_ends)
    assert max(scores) == pytest.approx(class_scores(trained.model, features).mean().item())
    trained.model.save(tmp_path / "model")
    texts = valid.column("text")[:5]
    assert torch.equal(
        load(tmp_path / "model").encode("text", texts), trained.model.encode("text", texts)
    )


def test_features_know_labels_and_groups() -> None:
    training, valid, _ = birds(classes=24, images=4)
    front_ends = {"text": TfidfVectoriser(min_count=1).fit(training.column("text")[:])}
    whole = concatenated(PairFeatures(training, front_ends), PairFeatures(valid, front_ends))
    rows = np.array([0, 1, 5, len(whole) - 1])
    assert training.label is not None
    assert valid.label is not None
    names = np.concatenate((training.label, valid.label))
    labels = whole.labels(slice(None))
    assert labels is not None
    assert np.array_equal(np.unique(names)[labels], names)
    some = whole.labels(rows)
    assert some is not None
    assert torch.equal(some, labels[rows])
    assert whole.groups is not None
    assert len(np.unique(whole.groups)) == len(whole) // 3
    unlabelled = Pairs({n: valid.column(n) for n in valid.names}, group=valid.group)
    by_group = PairFeatures(unlabelled, front_ends)
    assert by_group.labels(np.array([0, 1, 3])) is not None
    bare = PairFeatures(Pairs({n: valid.column(n) for n in valid.names}), front_ends)
    same = bare.labels(np.array([0, 1, 3]))
    assert same is not None
    assert same.tolist() == [0, 0, 1]  # by the picture


def test_pairs_without_labels_or_with_other_names_are_refused() -> None:
    training, valid, _ = birds(classes=24, images=4)
    bare = Pairs({n: valid.column(n) for n in valid.names})
    with pytest.raises(InputError, match="no labels"):
        train_zero_shot(training, bare, SMALL)
    with pytest.raises(InputError, match=r"1 of 1 validation classes .*--split-by label"):
        train_zero_shot(training, training[:6], SMALL)
    with pytest.raises(InputError, match="2 classes"):
        train_zero_shot(training[:3], valid, SMALL)
    model = train_zero_shot(training, valid, SMALL).model
    other = Pairs({"photo": valid.column("image"), "text": valid.column("text")}, label=valid.label)
    with pytest.raises(InputError, match="photo"):
        evaluate_zero_shot(model, other)


def test_a_saved_model_searches_as_before(tmp_path: Path) -> None:
    training, valid, test = birds()
    found = train_zero_shot(training, valid, ZeroShotOptions(**{**vars(SMALL), "neighbours": (4,)}))
    found.save(tmp_path / "birds")
    again = load_zero_shot(tmp_path / "birds")
    assert (again.neighbours, again.facts) == (4, found.facts)
    items, texts = test.column("image")[::3], test.column("text")[:5]
    candidates = again.candidates(items)
    assert torch.equal(candidates, found.candidates(items))
    cosines, rows = again.search(texts, candidates, k=7)
    assert cosines.shape == rows.shape == (5, 7)
    expected = torch.nn.functional.normalize(again.model.encode("text", texts)) @ candidates.mT
    torch.testing.assert_close(cosines, expected.topk(7).values)
    assert again.search(texts[:1], candidates, k=10_000)[1].shape == (1, len(items))
    assert again.evaluate(test, k=5) == found.evaluate(test, k=5)


def test_models_of_earlier_versions_still_load(tmp_path: Path) -> None:
    training, valid, test = birds(classes=24, images=4)
    found = train_zero_shot(training, valid, ZeroShotOptions(**{**vars(SMALL), "neighbours": (4,)}))
    found.save(tmp_path / "new")
    config = json.loads((tmp_path / "new" / "zero-shot.json").read_text())
    averaging, items = found.model.neighbours, test.column("image")[:]
    assert averaging is not None
    expected = found.candidates(items)
    part = config["model"].pop("neighbours")
    former = {**config, "neighbours": part["count"]}
    discriminant = averaging.discriminant
    found.model.neighbours = None
    old = tmp_path / "format 2"
    save_part(
        old,
        "zero-shot.json",
        {**former, "format": 2, "model": "model-1234", "relatives": part["discriminant"]},
        discriminant.state_dict(),
    )
    found.model.save(old / "model-1234")
    assert torch.equal(load_zero_shot(old).candidates(items), expected)
    both = torch.nn.ModuleDict({"model": found.model, "discriminant": discriminant})
    third = {**former, "format": 3, "discriminant": part["discriminant"]}
    save_part(tmp_path / "format 3", "zero-shot.json", third, both.state_dict())
    assert torch.equal(load_zero_shot(tmp_path / "format 3").candidates(items), expected)


def test_saving_again_leaves_one_model(tmp_path: Path) -> None:
    training, valid, _ = birds(classes=24, images=4)
    for neighbours in (1, 4):
        options = ZeroShotOptions(**{**vars(SMALL), "neighbours": (neighbours,)})
        train_zero_shot(training[:-12], valid, options).save(tmp_path)
        train_zero_shot(training, valid, options).save(tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
        assert load_zero_shot(tmp_path).neighbours == neighbours


def test_folders_without_a_whole_zero_shot_model_are_refused(tmp_path: Path) -> None:
    training, valid, _ = birds(classes=24, images=4)
    found = train_zero_shot(training, valid, SMALL)
    with pytest.raises(InputError, match=r"zero-shot\.json is missing"):
        load_zero_shot(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing was written"):
        found.save(tmp_path)
    found.save(tmp_path / "birds")
    (weights,) = (tmp_path / "birds").glob("weights-*")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=r"damaged: the content of weights-\w+.safetensors has"):
        load_zero_shot(tmp_path / "birds")
    weights.unlink()
    with pytest.raises(InputError, match=r"damaged: weights-\w+.safetensors is missing"):
        load_zero_shot(tmp_path / "birds")
    config = tmp_path / "birds" / "zero-shot.json"
    write_document(config, {**read_document(config), "format": 9})
    with pytest.raises(InputError, match="has format 9"):
        load_zero_shot(tmp_path / "birds")
    train_zero_shot(training, valid, ZeroShotOptions(**{**vars(SMALL), "neighbours": (4,)})).save(
        tmp_path / "birds"
    )
    facts = read_document(config)
    facts["model"]["neighbours"]["count"] = 0
    write_document(config, facts)
    with pytest.raises(InputError, match="neighbours must be a whole number of at least 1"):
        load_zero_shot(tmp_path / "birds")


def test_small_classes_lower_k() -> None:
    training, valid, test = birds(classes=24, images=4)
    found = train_zero_shot(training, valid, ZeroShotOptions(**{**vars(SMALL), "k": 50}))
    assert "validation AP@4" in found.facts
    assert found.evaluate(test).k == 4


def test_pairs_of_words_tell_what_words_alone_cannot() -> None:
    """All captions have the same words; only their order says which part has which colour."""
    rng = np.random.default_rng(0)
    colour = np.array([rng.permutation(4) for _ in range(40)])
    codes = rng.normal(size=(4, 4, 24))
    rows, texts, label = [], [], []
    for c in np.repeat(np.arange(40), 6):
        rows.append(codes[range(4), colour[c]].sum(0) + 0.5 * rng.normal(size=24))
        order = rng.permutation(4)
        texts.append(" with ".join(f"{COLOURS[colour[c, p]]} {PARTS[p]}" for p in order))
        label.append(f"bird {c}")
    pairs = Pairs({"image": np.stack(rows), "text": texts}, label=label)
    training, valid, test = disjoint_split(pairs.label, valid=8, test=8, seed=0).of(pairs)  # type: ignore[arg-type]
    alone, together = (
        train_zero_shot(
            training,
            valid,
            ZeroShotOptions(**{**vars(SMALL), "neighbours": (1,), "pair_count": count}),
        )
        for count in (0, 3)
    )
    assert together.facts["pair count"] == 3
    assert together.evaluate(test).ap > 2 * alone.evaluate(test).ap


def test_candidates_are_chosen_by_classes() -> None:
    training, valid, _ = birds(classes=24, images=4)
    settings = Settings(select="classes", max_epochs=2, min_count=1, train_on_all=False)
    trained = train(settings, training, valid, progress=False)
    name, scores = trained.facts["chosen"].rstrip(")").split(" (validation AP@k: ")
    kept = dict(entry.rsplit(" ", 1) for entry in scores.split(", "))
    assert list(kept) == ["linear CCA", "linear", "residual"]
    features = PairFeatures(valid, trained.model.front_ends)
    assert f"{100 * class_scores(trained.model, features).mean().item():.1f}" == kept[name]


def test_the_method_trains_as_any_other(tmp_path: Path) -> None:
    training, valid, test = birds()
    settings = Settings(method="zero-shot", dim=8, root_x="no", min_count=1, train_on_all=False)
    trained = train(settings, training, valid, progress=False)
    options = ZeroShotOptions(dims=(8,), root=False)
    found = train_zero_shot(training, valid, options, settings)
    assert trained.facts["chosen"].startswith("8 dimensions, ridge ")
    assert f"AP@8 {found.facts['validation AP@8']:.1f}" in trained.facts["chosen"]
    assert evaluate_zero_shot(trained.model, test).ap == found.evaluate(test).ap
    assert trained.history == []
    # The chosen values are fitted again to all pairs.
    whole = train(settings.changed(train_on_all=True), training, valid, progress=False)
    assert whole.facts["final training"] == f"on all {len(training) + len(valid):,} pairs"
    assert whole.facts["chosen"] == trained.facts["chosen"]
    assert whole.model.config()["neighbours"]["count"] == found.neighbours
    whole.model.save(tmp_path)
    pictures = test.column("image")[::3]
    again = load(tmp_path)
    assert torch.equal(again.candidates(pictures), whole.model.candidates(pictures))
    assert torch.equal(again.encode("image", pictures), whole.model.encode("image", pictures))
    assert not torch.equal(again.encode("image", pictures), again.candidates(pictures))
