"""Linear CCA of shards is that of the same rows in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.cca import CCA
from ccal.errors import InputError
from ccal.scale.engines import LocalEngine
from ccal.scale.fitting import fit_linear
from ccal.scale.shards import open_dataset
from tests.scale.data import pairs, write_shards
from tests.scale.engines import Here, fatal


@pytest.mark.parametrize("kind", ["npy", "parquet", "tar"])
def test_shards_give_the_fit_of_one_machine(kind: str, tmp_path: Path) -> None:
    x, y = pairs()
    dataset = open_dataset(write_shards(tmp_path / "shards", kind, x, y))
    columns = ("x.npy", "y.npy") if kind == "tar" else ("x", "y")
    told = []
    names = ("image", "text")
    found = fit_linear(
        dataset, *columns, Here(), names=names, dim=8, progress=lambda *w: told.append(w)
    )
    whole = CCA(8, ridge="auto", power="auto").fit(x, y)
    for name in ("correlations_", "x_projection_", "y_projection_", "x_mean_", "y_mean_"):
        np.testing.assert_allclose(getattr(found.cca, name), getattr(whole, name), atol=1e-10)
    np.testing.assert_allclose(found.cca.ridge_, whole.ridge_, rtol=1e-10)
    assert found.cca.power_ == whole.power_
    assert [t["mrr"] for t in found.cca.search_] == [t["mrr"] for t in whole.search_]
    assert ("rows", len(x), len(x)) in told
    # The model embeds as the estimator does, up to a factor a view.
    embedded, scores = found.model.encode("image", x[:5]).numpy(), whole.transform(x[:5])
    factor = float((embedded * scores).sum() / (scores**2).sum())
    np.testing.assert_allclose(embedded, factor * scores, atol=1e-5)
    assert set(found.model.calibrations) == {"image", "text"}


def test_ridge_and_power_may_be_given(tmp_path: Path) -> None:
    x, y = pairs()
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", x, y))
    found = fit_linear(dataset, "x", "y", Here(), dim=99, ridge=0.1, power=1.0)
    whole = CCA(15, ridge=0.1, power=1.0).fit(x, y)
    np.testing.assert_allclose(found.cca.x_projection_, whole.x_projection_, atol=1e-10)
    assert not found.model.calibrations


def test_what_cannot_be_fitted_is_named(tmp_path: Path) -> None:
    x, y = pairs()
    x[710, 3] = np.nan
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", x, y))
    with pytest.raises(InputError, match="shard 002, from row 0: X contains 1 NaN"):
        fit_linear(dataset, "x", "y", Here())
    with pytest.raises(InputError, match="no column 'z'; the columns are 'x', 'y'"):
        fit_linear(dataset, "x", "z", Here())


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    dataset = open_dataset(write_shards(tmp_path / "shards", "npy", *pairs()))
    told: list[int] = []
    whole = fit_linear(dataset, "x", "y", Here(), dim=8)
    found = fit_linear(
        fatal(dataset, tmp_path),
        "x",
        "y",
        LocalEngine(2),
        dim=8,
        progress=lambda what, done, _: told.append(done) if what == "rows" else None,
    )
    assert (tmp_path / "killed").exists()
    assert told[-1] == dataset.rows
    np.testing.assert_allclose(found.cca.x_projection_, whole.cca.x_projection_, atol=1e-10)
