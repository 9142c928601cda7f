from __future__ import annotations

import pytest
import torch

from ccal.losses import indicator


@pytest.mark.parametrize("usual", [None, 0, "top"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("top", [1, 2])
def test_products_equal_the_dense_ones(
    top: int, share: float, usual: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indicator, "_usual", lambda *_: top if usual == "top" else usual)
    hits = (torch.rand(top, 30, 50, dtype=torch.float64) < share).double().sum(0)
    x, y = torch.randn(30, 9, dtype=torch.float64), torch.randn(50, 9, dtype=torch.float64)
    total = hits.sum()
    to_x, to_y = indicator.indicator_products(hits, total, top, x, y)
    torch.testing.assert_close(to_x, hits @ y)
    torch.testing.assert_close(to_y, hits.T @ x)
    only_x, none = indicator.indicator_products(hits, total, top, None, y)
    torch.testing.assert_close(only_x, hits @ y)
    assert none is None


def test_lists_only_a_nearly_empty_or_nearly_full_matrix() -> None:
    hits = torch.zeros(1000, 1000)
    few, half, most = (torch.tensor(share * 1e6) for share in (0.01, 0.5, 0.99))
    assert indicator._usual(hits, few, 1, 128) == 0
    assert indicator._usual(hits, most, 1, 128) == 1
    assert indicator._usual(hits, 2 * most, 2, 128) == 2
    assert indicator._usual(hits, half, 1, 128) is None
    assert indicator._usual(hits, few, 1, 32) is None
    assert indicator._usual(hits.double(), few, 1, 128) is None
