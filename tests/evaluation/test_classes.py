"""Classes as queries, and the class of an item, against slow references."""

from __future__ import annotations

import json

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import (
    class_average_precision,
    class_means,
    evaluate_classes,
    item_average_precision,
)
from tests.evaluation import naive


def test_numbers_are_those_of_a_loop() -> None:
    x, a, y, b = classes()
    report = evaluate_classes(x, a, y, b, k=7)
    assert report.ap == class_average_precision(x, a, y, b, k=7)
    assert report.ap == pytest.approx(report.precision.mean().item())
    assert report.ap_single == item_average_precision(x, a, y, b, k=7)
    labels = a.unique().tolist()
    means = [x[a == label].mean(0) for label in labels]
    first = five = 0
    counts = torch.zeros(len(labels), len(labels))
    for item, label in zip(y, b.tolist(), strict=True):
        cosines = [float(torch.cosine_similarity(item, mean, dim=0)) for mean in means]
        order = sorted(range(len(labels)), key=lambda i: -cosines[i])
        first += labels[order[0]] == label
        five += label in [labels[i] for i in order[:5]]
        counts[labels.index(label), order[0]] += 1
    assert report.accuracy == pytest.approx(100 * first / len(y))
    assert report.accuracy_5 == pytest.approx(100 * five / len(y))
    expected = 100 * counts / counts.sum(1, keepdim=True)
    torch.testing.assert_close(report.confusion.float(), expected)
    assert report.names == tuple(map(str, labels))
    assert (report.queries, report.items) == (len(x), len(y))


def test_the_worst_confusions_come_first() -> None:
    report = evaluate_classes(*classes(3), k=3)
    wrong = report.confused(4)
    shares = [share for *_, share in wrong]
    assert shares == sorted(shares, reverse=True)
    true, taken, share = wrong[0]
    row, column = (report.names.index(label) for label in (true, taken))
    assert row != column
    assert report.confusion[row, column].item() == share
    assert len(report.confused(1000)) == int((report.confusion > 0).sum()) - int(
        (report.confusion.diagonal() > 0).sum()
    )


def test_class_means_are_means() -> None:
    x, a, _, _ = classes()
    means, labels = class_means(x, a)
    for mean, label in zip(means, labels, strict=True):
        torch.testing.assert_close(mean, x[a == label].mean(0))


def test_an_item_of_an_unknown_class_is_refused() -> None:
    x, a, y, b = classes()
    b[3] = 1000
    with pytest.raises(InputError, match=r"1 classes have items but no queries.*1000"):
        evaluate_classes(x, a, y, b, k=3)


def test_names_go_everywhere() -> None:
    x, a, y, b = classes(3)
    names = [f"bird {label}" for label in a.unique().tolist()]
    report = evaluate_classes(x, a, y, b, k=3, names=names)
    content = json.loads(json.dumps(report.as_dict()))
    assert list(content["precision"]) == names
    assert content["confused"][0] == list(report.confused(1)[0])
    assert set(content["confused"][0][:2]) < set(names)
    assert f"{len(names)} classes" in str(report)
    with pytest.raises(InputError, match="but 1 names"):
        evaluate_classes(x, a, y, b, k=3, names=["one"])


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
