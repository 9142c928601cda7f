from __future__ import annotations

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import class_average_precision, item_average_precision
from tests.evaluation import naive


def classes(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(5, 4, generator=generator).double()
    a = torch.randint(5, (40,), generator=generator)
    b = torch.randint(5, (60,), generator=generator)
    noise = torch.randn(100, 4, generator=generator).double()
    # Labels need not count from 0.
    return centres[a] + noise[:40], 10 * a - 7, centres[b] + noise[40:], 10 * b - 7


@pytest.mark.parametrize("k", [1, 7, 60])
def test_class_queries_equal_the_loop(k: int) -> None:
    x, a, y, b = classes()
    parts = [
        naive.precision_at(x[a == label].mean(0), int(label), y, b.tolist(), k)
        for label in a.unique()
    ]
    assert class_average_precision(x, a, y, b, k=k) == pytest.approx(100 * sum(parts) / len(parts))


def test_item_queries_equal_the_loop() -> None:
    x, a, y, b = classes(1)
    means = []
    for label in a.unique():
        rows = x[a == label]
        means.append(
            sum(naive.precision_at(q, int(label), y, b.tolist(), 5) for q in rows) / len(rows)
        )
    assert item_average_precision(x, a, y, b, k=5) == pytest.approx(100 * sum(means) / len(means))


def test_all_items_give_the_share_of_the_class() -> None:
    x, a, y, _ = classes()
    b = torch.tensor(sorted(a.unique().tolist() * 12))
    assert class_average_precision(x, a, y, b, k=60) == pytest.approx(20.0)


def test_bad_input_is_refused() -> None:
    x, a, y, b = classes()
    with pytest.raises(InputError, match="between 1 and the number of items, 60, got 61"):
        class_average_precision(x, a, y, b, k=61)
    with pytest.raises(InputError, match="1 classes have queries but no items, the first is 99"):
        item_average_precision(x, a.index_fill(0, torch.tensor([3]), 99), y, b)
    with pytest.raises(InputError, match="query_labels must have one entry for each of the 40"):
        class_average_precision(x, b, y, b)
    with pytest.raises(InputError, match="queries has 4 columns and items has 3"):
        class_average_precision(x, a, y[:, :3], b)
