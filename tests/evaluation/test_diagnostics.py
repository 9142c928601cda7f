from __future__ import annotations

import numpy as np
import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import (
    chance_correlation,
    collapse_warning,
    correlation_structure,
    effective_rank,
    tie_warning,
)


def canonical_by_qr(
    x: torch.Tensor, y: torch.Tensor
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Correlations as cosines of the angles between the spans (Björck and Golub)."""
    a, b = (np.linalg.qr((v - v.mean(0)).double().numpy())[0] for v in (x, y))
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.linalg.svd(
        a.T @ b, compute_uv=False
    )
    return values


def test_correlations_are_the_angles_between_the_spans() -> None:
    x = torch.randn(200, 6)
    y = x[:, :4] @ torch.randn(4, 4) + torch.randn(200, 4)
    found = correlation_structure(x, y, held_out=(x, y))
    assert found.train.numpy() == pytest.approx(canonical_by_qr(x, y), abs=1e-6)
    assert found.held_out is not None
    # On the training pairs the held-out correlations are the training ones.
    assert found.held_out.numpy() == pytest.approx(found.train.numpy(), abs=1e-6)


def test_held_out_noise_does_not_correlate() -> None:
    x, y = torch.randn(4000, 20), torch.randn(4000, 20)
    found = correlation_structure(x[:100], y[:100], held_out=(x[100:], y[100:]))
    assert found.held_out is not None
    assert found.train.mean() == pytest.approx(found.chance, abs=0.03)
    assert abs(float(found.held_out.mean())) < 0.02
    assert "held out" in str(found)


@pytest.mark.parametrize(
    ("n", "p", "q"),
    [
        (33, 32, 32),
        (50, 32, 32),
        (100, 32, 32),
        (1000, 32, 32),
        (200, 10, 60),
        (100, 60, 70),
        (200, 128, 128),
        (60, 8, 8),
        (30, 40, 10),
        (20, 30, 40),
    ],
)
def test_chance_is_what_noise_gives(n: int, p: int, q: int) -> None:
    generator = torch.Generator().manual_seed(n)
    means = []
    for _ in range(20):
        x, y = (torch.randn(n, d, generator=generator).double() for d in (p, q))
        # The centred rows span n - 1 dimensions at most.
        a, b = (
            torch.linalg.svd(v - v.mean(0), full_matrices=False).U[:, : min(n - 1, v.shape[1])]
            for v in (x, y)
        )
        means.append(float(torch.linalg.svdvals(a.mT @ b).sum()) / min(p, q))
    assert chance_correlation(n, p, q) == pytest.approx(np.mean(means), abs=0.012)
    assert chance_correlation(n, q, p) == chance_correlation(n, p, q)


def test_effective_rank_counts_dimensions() -> None:
    directions = torch.linalg.qr(torch.randn(50, 50)).Q[:, :3]
    z = torch.linalg.qr(torch.randn(400, 3)).Q @ directions.mT
    assert effective_rank(z - z.mean(0)) == pytest.approx(3, abs=0.05)
    assert effective_rank(torch.randn(2, 30)) == pytest.approx(1)
    assert effective_rank(torch.ones(5, 3)) == 1
    assert effective_rank(torch.randn(5000, 10)) == pytest.approx(10, abs=0.05)


def test_collapse_is_named() -> None:
    good = torch.randn(100, 32)
    assert collapse_warning(good, good) is None
    assert collapse_warning(good[:1], good[:2]) is None
    same = good * 0.1 + 1
    thin = torch.randn(100, 1) @ torch.randn(1, 32)
    assert "y embeddings have collapsed: two of them have a cosine" in str(
        collapse_warning(good, same)
    )
    assert "use about 1.0 of their 32 dimensions" in str(collapse_warning(thin, good))
    both = collapse_warning(torch.zeros(3, 2), same, names=("audio", "sheet"))
    assert "audio embeddings have collapsed: 3 of 3 are zero. sheet" in str(both)


def test_equal_scores_are_named() -> None:
    good = torch.randn(60, 32)
    assert tie_warning(good, good) is None
    # On a line all cosines are 1 or -1.
    line = torch.randn(60, 1)
    warning = str(tie_warning(line, line, names=("image", "text")))
    assert "MRR is 100.0 (image -> text)" in warning
    assert tie_warning(good[:4].repeat(15, 1), good) is not None


def test_bad_input_is_refused() -> None:
    x = torch.randn(10, 3)
    with pytest.raises(InputError, match="at least 2 pairs, one row each, got 10 and 9"):
        correlation_structure(x, x[1:])
    with pytest.raises(InputError, match="held_out has 3 and 2 columns"):
        correlation_structure(x, x, held_out=(x, x[:, 1:]))
    with pytest.raises(InputError, match="n must be at least 2"):
        chance_correlation(1, 3)
    with pytest.raises(InputError, match="embeddings must be a matrix"):
        effective_rank(torch.ones(3))
