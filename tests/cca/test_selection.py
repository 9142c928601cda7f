from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from ccal.cca import selection
from ccal.cca.linear import CCA
from ccal.cca.selection import POWERS, held_out_units, hold_out
from ccal.errors import InputError
from ccal.numbering import components, numbered
from ccal.positives import Positives
from ccal.ranks import mean_reciprocal_ranks
from tests.evaluation import naive

Array = NDArray[np.float64]
FLICKR8K = Path(__file__).parents[2] / "../shared/data/flickr8k"


def mrr(trial: dict[str, Any]) -> float:
    return float(trial["mrr"])


def noisy_pairs(
    n: int, dim_x: int, dim_y: int, seed: int = 0, noise: float = 1.0
) -> tuple[Array, Array]:
    """Six shared factors in the first features of each view; the others are noise."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 6))
    X, Y = rng.normal(size=(n, dim_x)), rng.normal(size=(n, dim_y))
    X[:, :8] = shared @ rng.normal(size=(6, 8)) + noise * X[:, :8]
    Y[:, :8] = shared @ rng.normal(size=(6, 8)) + noise * Y[:, :8]
    return X, Y


@pytest.mark.parametrize(
    ("n", "dim_x", "dim_y", "k"),
    [(200, 20, 30, 6), (200, 30, 10, None), (100, 150, 20, 6), (100, 150, 120, 10)],
)
@pytest.mark.parametrize("relative_ridge", [True, False])
def test_auto_equals_fitting_every_setting_from_scratch(
    n: int, dim_x: int, dim_y: int, k: int | None, relative_ridge: bool
) -> None:
    X, Y = noisy_pairs(n, dim_x, dim_y)
    auto = CCA(k, ridge="auto", power="auto", relative_ridge=relative_ridge).fit(X, Y)
    tried = list({t["ridge"]: None for t in auto.search_})[::3]
    scores: dict[object, list[float]] = {}
    for held in hold_out(n, 0.1, 0):
        train = np.setdiff1d(np.arange(n), held)
        for ridge in tried:
            fixed = CCA(k, relative_ridge=relative_ridge, power=0).set_params(ridge=ridge)
            xs, ys = fixed.fit(X[train], Y[train]).transform(X[held], Y[held])
            for p in POWERS:
                weights = fixed.correlations_**p
                views = (torch.from_numpy(view * weights) for view in (xs, ys))
                score = sum(mean_reciprocal_ranks(*views, pessimistic=True)) / 2
                scores.setdefault((ridge, p), []).append(score)
    for trial in auto.search_:
        if trial["ridge"] not in tried:
            continue
        expected = np.mean(scores[trial["ridge"], trial["power"]])
        assert mrr(trial) == pytest.approx(expected, abs=1e-9)
    best = max(auto.search_, key=mrr)
    params: dict[str, Any] = {"ridge": best["ridge"], "power": best["power"]}
    refit = CCA(k, relative_ridge=relative_ridge, **params).fit(X, Y)
    np.testing.assert_allclose(auto.transform(X), refit.transform(X), atol=1e-8)
    assert auto.power_ == best["power"]
    assert auto.ridge_ == pytest.approx(refit.ridge_)


def test_the_search_is_moderate_and_covers_the_powers() -> None:
    search = CCA(6, ridge="auto", power="auto").fit(*noisy_pairs(200, 20, 30)).search_
    ridges = {trial["ridge"] for trial in search}
    assert 9 <= len(ridges) <= 25
    assert len(search) == len(ridges) * len(POWERS)
    assert {trial["power"] for trial in search} == set(POWERS)


def test_one_of_the_two_may_be_fixed() -> None:
    X, Y = noisy_pairs(200, 20, 30)
    ridge = CCA(6, ridge="auto", power=0.5).fit(X, Y)
    assert ridge.power_ == 0.5
    assert {trial["power"] for trial in ridge.search_} == {0.5}
    power = CCA(6, ridge=(2, 3), power="auto").fit(X, Y)
    assert [trial["ridge"] for trial in power.search_] == [(2.0, 3.0)] * len(POWERS)
    np.testing.assert_allclose(power.ridge_, CCA(6, ridge=(2, 3)).fit(X, Y).ridge_)
    assert CCA(6).fit(X, Y).search_ == []


def test_auto_is_never_below_the_fixed_settings_on_held_out_pairs() -> None:
    gains = []
    for seed in range(5):
        X, Y = noisy_pairs(600, 60, 90, seed)
        auto = CCA(6, ridge="auto", power="auto", random_state=seed).fit(X[:300], Y[:300])
        fixed = CCA.for_retrieval(6).fit(X[:300], Y[:300])
        tried = {(t["ridge"], t["power"]): mrr(t) for t in auto.search_}
        assert max(tried.values()) >= tried[(1.0, 1.0), 1.0]
        gains.append(auto.score(X[300:], Y[300:]) - fixed.score(X[300:], Y[300:]))
    assert np.mean(gains) > -0.01


def test_the_draw_is_random_but_repeatable() -> None:
    X, Y = noisy_pairs(200, 20, 30)
    one, two = (CCA(6, ridge="auto").fit(X, Y) for _ in range(2))
    assert one.search_ == two.search_
    np.testing.assert_array_equal(one.x_projection_, two.x_projection_)
    assert CCA(6, ridge="auto", random_state=1).fit(X, Y).search_ != one.search_


def test_memory_maps_and_chunks_change_nothing(tmp_path: Path) -> None:
    X, Y = noisy_pairs(300, 20, 30)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    whole = CCA(6, ridge="auto").fit(X, Y)
    chunked = CCA(6, ridge="auto", chunk_rows=7).fit(mapped, Y)
    assert [mrr(t) for t in whole.search_] == pytest.approx([mrr(t) for t in chunked.search_])
    np.testing.assert_allclose(whole.x_projection_, chunked.x_projection_, atol=1e-8)


@pytest.mark.parametrize(
    ("n", "fraction", "folds", "size"),
    [
        (20, 0.1, 1, 10),
        (20, 0.99, 1, 18),
        (300, 0.1, 9, 30),
        (1500, 0.1, 4, 150),
        (4000, 0.1, 2, 400),
        (5400, 0.1, 1, 540),
        (1000, 0.5, 1, 500),
        (10**6, 0.1, 1, 2000),
    ],
)
def test_hold_out_sizes(n: int, fraction: float, folds: int, size: int) -> None:
    held = hold_out(n, fraction, 0)
    assert [len(fold) for fold in held] == [size] * folds
    assert len(np.unique(np.concatenate(held))) == folds * size <= n - 2
    assert all((np.diff(fold) > 0).all() for fold in held)


@pytest.mark.parametrize("n", [20, 25, 40])
def test_auto_on_a_handful_of_pairs(n: int) -> None:
    X, Y = noisy_pairs(n, 15, 50)
    assert np.isfinite(CCA(ridge="auto", power="auto").fit(X, Y).transform(X)).all()
    constant = CCA(ridge="auto", power="auto").fit(np.ones((n, 3)), Y)
    assert np.isfinite(constant.transform_y(Y)).all()


def test_too_few_pairs_and_partial_fit_say_what_to_do() -> None:
    X, Y = noisy_pairs(19, 8, 8)
    with pytest.raises(InputError, match=r"at least 20 samples, got 19; pass numbers"):
        CCA(ridge="auto").fit(X, Y)
    with pytest.raises(InputError, match="partial_fit cannot hold pairs out"):
        CCA(power="auto").partial_fit(X, Y)


def test_collapsed_projections_do_not_look_perfect() -> None:
    _, Y = noisy_pairs(200, 20, 30)
    # Equal rows are one item unless something else is known.
    items = np.arange(200), np.arange(200)
    constant = CCA(ridge="auto", power="auto").fit(np.ones((200, 3)), Y, items=items)
    assert constant.score(np.ones((200, 3)), Y) < 0.1
    assert max(mrr(t) for t in constant.search_) < 0.5


def test_large_views_are_searched_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = noisy_pairs(400, 60, 90)
    exact = CCA(6, ridge="auto", power="auto").fit(X, Y)
    monkeypatch.setattr(selection, "_EXACT_UP_TO", 10)
    single = CCA(6, ridge="auto", power="auto").fit(X, Y)
    found, expected = ([mrr(t) for t in cca.search_] for cca in (single, exact))
    assert found == pytest.approx(expected, abs=4e-3)
    np.testing.assert_allclose(single.transform(X), exact.transform(X), atol=1e-12)


@pytest.mark.parametrize("shape", [(520, 700), (700, 520)])
def test_few_singular_vectors_are_those_of_a_full_decomposition(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(n, 520, generator=generator).double() for n in shape)
    values = 1 / torch.arange(1, 521).double() ** 0.5
    T = torch.linalg.qr(left)[0] * values @ torch.linalg.qr(right)[0].mT
    U, d, V = selection._leading_triplets(T, 100)
    torch.testing.assert_close(d[:60], values[:60], rtol=5e-3, atol=0)
    torch.testing.assert_close(d, values[:100], rtol=3e-2, atol=0)
    # The last directions are not quite singular vectors, so those of one side not quite orthogonal.
    for part in (U, V):
        torch.testing.assert_close(part.mT @ part, torch.eye(100).double(), rtol=0, atol=0.05)
    torch.testing.assert_close((U * (T @ V)).sum(0), d, rtol=1e-3, atol=0)


@pytest.mark.slow
@pytest.mark.skipif(not FLICKR8K.exists(), reason=f"real data not found at {FLICKR8K}")
@pytest.mark.parametrize(("n", "least"), [(6000, (52.0, 49.0)), (1500, (39.0, 37.5))])
def test_flickr8k(n: int, least: tuple[float, float]) -> None:
    """Retrieval among the 1,000 dev pairs; everything is chosen on training pairs."""
    rows = [json.loads(line) for line in (FLICKR8K / "pairs.jsonl").open()]
    texts = [" ".join(row["lemmas"]) for row in rows]
    images = np.load(FLICKR8K / "image_features.npy", mmap_mode="r")
    train = [i for i, row in enumerate(rows) if row["split"] == "train"][:n]
    dev = [i for i, row in enumerate(rows) if row["split"] == "dev"]
    tfidf = TfidfVectorizer(min_df=5, sublinear_tf=True, dtype=np.float32)
    Y = tfidf.fit_transform(texts[i] for i in train).toarray()
    Y_dev = tfidf.transform(texts[i] for i in dev).toarray()
    cca = CCA(128, ridge="auto", power="auto").fit(images[train], Y)
    xs, ys = (torch.from_numpy(v) for v in cca.transform(images[dev], Y_dev))
    found = [100 * mrr for mrr in mean_reciprocal_ranks(xs, ys)]
    print(f"{n} pairs: image->text {found[0]:.1f}, text->image {found[1]:.1f}, {cca.ridge_=}")
    assert found[0] >= least[0]
    assert found[1] >= least[1]


@pytest.mark.parametrize(("n", "each"), [(300, 5), (100, 3), (25, 40), (4000, 5)])
def test_rows_of_a_group_are_held_out_together(n: int, each: int) -> None:
    units = np.random.default_rng(0).permutation(np.repeat(np.arange(n), each))
    folds = hold_out(n * each, 0.1, 0, units)
    drawn = [set(units[fold]) for fold in folds]
    for fold, groups in zip(folds, drawn, strict=True):
        assert fold.tolist() == np.flatnonzero(np.isin(units, list(groups))).tolist()
        assert len(fold) <= max(2000, 2 * each)
    assert sum(map(len, drawn)) == len(set.union(*drawn)) <= n - 2
    with pytest.raises(InputError, match="at least 20 groups of samples that share nothing, got 6"):
        hold_out(30, 0.1, 0, np.arange(30) // 5)


def test_units_of_one_row_change_no_draw() -> None:
    plain, units = hold_out(500, 0.1, 3), hold_out(500, 0.1, 3, np.arange(500)[::-1])
    assert all(map(np.array_equal, plain, units))


@pytest.mark.parametrize("known", [False, True])
def test_held_out_items_are_candidates_once_and_have_several_right_answers(known: bool) -> None:
    photos, captions = noisy_pairs(60, 20, 30)
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(60), 4)
    X, Y = photos[rows], captions[rows] + rng.normal(size=(240, 30))
    Y[5] = Y[200]  # two photos share a caption
    y_items = np.arange(240)
    y_items[5] = 200
    items = (rows, y_items) if known else None
    cca = CCA(4, ridge=1.0, power="auto").fit(X, Y, groups=rows, items=items)
    units = components(rows, y_items) if known else rows
    found = held_out_units(rows, items)
    assert found is not None
    assert np.array_equal(numbered(found)[1], numbered(units)[1])
    expected = np.zeros(len(POWERS))
    folds = hold_out(240, 0.1, 0, units)
    for held in folds:
        rest = np.setdiff1d(np.arange(240), held)
        positives, x_first, y_first = Positives.of_items(rows[held], y_items[held], rows[held])
        right = np.zeros(positives.shape, dtype=bool)
        right[positives.links()] = True
        assert right.sum() <= len(held)
        for i, power in enumerate(POWERS):
            fold = CCA(4, ridge=1.0, power=power).fit(X[rest], Y[rest])
            x, y = fold.transform(X[held][x_first], Y[held][y_first])
            ranks = naive.general_ranks(
                torch.from_numpy(x), torch.from_numpy(y), right.tolist(), pessimistic=True
            )
            expected[i] += sum(np.mean([1 / r for r in way]) for way in ranks) / 2 / len(folds)
    assert [mrr(trial) for trial in cca.search_] == pytest.approx(expected.tolist(), abs=1e-9)
    counts = [round(np.mean([len(set(i[f])) for f in folds])) for i in (y_items, rows)]
    assert cca.search_[0]["candidates"] == tuple(counts)


def test_bad_groups_are_refused() -> None:
    X, Y = noisy_pairs(30, 8, 8)
    with pytest.raises(InputError, match=r"groups must have one value a row, shape \(30,\)"):
        CCA(ridge="auto").fit(X, Y, groups=np.arange(29))


@pytest.mark.parametrize("features", [12, 400], ids=["covariances", "span of the samples"])
def test_validation_pairs_choose_in_place_of_held_out_training_pairs(features: int) -> None:
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, 5, features))

    def pairs(count: int) -> tuple[Array, Array]:
        meaning = rng.normal(size=(count, 5))
        x, y = (meaning @ m + 2 * rng.normal(size=(count, features)) for m in maps)
        return x, y

    (X, Y), (x, y) = pairs(150), pairs(90)
    valid = np.concatenate((x, x[:10])), np.concatenate((y, y[:10]))  # some pairs come twice
    chosen = CCA(4, ridge="auto", power="auto").fit(X, Y, valid=valid)
    assert chosen.n_samples_seen_ == len(X)

    # Each trial is what a fit on all training pairs finds among the different validation pairs.
    different = [view[:90] for view in valid]
    for trial in chosen.search_[::7]:
        ridge, power = trial["ridge"], trial["power"]
        again = CCA(4, ridge=ridge, power=power).fit(X, Y)  # type: ignore[arg-type]
        assert trial["mrr"] == pytest.approx(again.score(*different), abs=1e-9)
        assert trial["candidates"] == (90, 90)
    best = max(chosen.search_, key=lambda trial: trial["mrr"])  # type: ignore[arg-type, return-value]
    again = CCA(4, ridge=best["ridge"], power=best["power"]).fit(X, Y)  # type: ignore[arg-type]
    np.testing.assert_allclose(chosen.x_projection_, again.x_projection_, rtol=1e-9, atol=1e-12)


def test_validation_pairs_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 4))
    cca = CCA(2, ridge="auto")
    with pytest.raises(InputError, match="X has 4 features, but CCA is expecting 3"):
        cca.fit(X, Y, valid=(Y, X))
    with pytest.raises(InputError, match="X has 5 rows and Y has 6"):
        cca.fit(X, Y, valid=(X[:5], Y[:6]))
    with pytest.raises(InputError, match="1 NaN or infinite value"):
        cca.fit(X, Y, valid=(X, np.where(np.arange(4) + np.arange(40)[:, None] == 0, np.nan, Y)))
