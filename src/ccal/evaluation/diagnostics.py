"""Is there correlation, is it real, and do the embeddings use their space?"""

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from ccal.cca import Moments, add_ridge, canonical_projections
from ccal.errors import InputError
from ccal.evaluation.inputs import Array, embeddings
from ccal.evaluation.protocol import Ties, two_way_ranks
from ccal.positives import Positives
from ccal.ranks import unit_rows


@dataclass(frozen=True)
class CorrelationStructure:
    """Canonical correlations of paired embeddings, each (k,) float64, k = min(d_x, d_y).

    `train` descends. `held_out` is what the same k pairs of directions correlate on other pairs,
    None if none were given. `chance` is the mean that `train` would have if the views were
    independent; the mean of `held_out` would be 0.
    """

    train: Tensor
    held_out: Tensor | None
    chance: float
    samples: int

    def __str__(self) -> str:
        text = (
            f"mean canonical correlation {self.train.mean():.3f} on {self.samples:,} pairs "
            f"(chance {self.chance:.3f})"
        )
        if self.held_out is not None:
            text += f", {self.held_out.mean():.3f} held out"
        return text


def correlation_structure(
    x: Array, y: Array, held_out: tuple[Array, Array] | None = None
) -> CorrelationStructure:
    """Canonical correlations of pairs x (n, d_x), y (n, d_y), and of `held_out` pairs.

    >>> noise = torch.Generator().manual_seed(0)
    >>> x, y = torch.randn(300, 8, generator=noise), torch.randn(300, 8, generator=noise)
    >>> print(correlation_structure(x[:100], y[:100], held_out=(x[100:], y[100:])))
    mean canonical correlation 0.2... on 100 pairs (chance 0.243), -0.0... held out
    """
    a, b = _pair(x, y, "x", "y")
    covariances = Moments.of(a, b).covariances()
    A, B, correlations = canonical_projections(
        add_ridge(covariances.xx, 0.0), add_ridge(covariances.yy, 0.0), covariances.xy
    )
    found = None
    if held_out is not None:
        c, d = _pair(*held_out, "held-out x", "held-out y")
        if (c.shape[1], d.shape[1]) != (a.shape[1], b.shape[1]):
            raise InputError(
                f"held_out has {c.shape[1]} and {d.shape[1]} columns, but x and y have "
                f"{a.shape[1]} and {b.shape[1]}."
            )
        found = _pearson(c.double() @ A, d.double() @ B)
    chance = chance_correlation(len(a), a.shape[1], b.shape[1])
    return CorrelationStructure(correlations.clamp(0, 1), found, chance, len(a))


def chance_correlation(n: int, d_x: int, d_y: int | None = None) -> float:
    """Mean canonical correlation of n pairs of independent noise of dimensions d_x and d_y.

    CCA of few pairs finds correlation where there is none. The squared correlations l of noise
    follow Wachter's law (1980): with c = p/(n-1) and s = q/(n-1), p <= q the dimensions, their
    density is sqrt((l - low)(high - l)) / (2 pi c l (1 - l)) between low, high =
    (sqrt(c (1 - s)) -+ sqrt(s (1 - c)))^2, and a share (c + s - 1) / c of them is 1 if c + s > 1.
    This is the mean of sqrt(l), by quadrature; a limit for large dimensions, within .01 from 8 on.

    >>> [round(chance_correlation(n, 32), 2) for n in (33, 100, 1000)]
    [1.0, 0.5, 0.15]
    """
    p, q = sorted((d_x, d_x if d_y is None else d_y))
    if p < 1 or n < 2:
        raise InputError(f"n must be at least 2 and dimensions at least 1, got {n}, {p} and {q}.")
    c, s = p / (n - 1), q / (n - 1)
    if s >= 1:
        return min(1.0, 1 / c)
    # c > 1 cannot be, as c <= s < 1.
    spread = sqrt(c * (1 - s)), sqrt(s * (1 - c))
    low, high = (spread[0] - spread[1]) ** 2, min(1.0, (spread[0] + spread[1]) ** 2)
    angle = (torch.arange(20_000, dtype=torch.float64) + 0.5) * (pi / 20_000)
    half = (high - low) / 2
    value = (low + high) / 2 + half * angle.cos()
    density = (half * angle.sin()) ** 2 / (2 * pi * c * value * (1 - value)) * (pi / 20_000)
    certain = max(0.0, (c + s - 1) / c)
    return float((density * value.sqrt()).sum()) + certain


def effective_rank(view: Array) -> float:
    """How many dimensions embeddings (n, k) really use: from 1 (a line, or a point) to k.

    The exponential of the entropy of the singular values of the centred rows, scaled to add up to
    1 (Roy and Vetterli 2007).

    >>> round(effective_rank(torch.cat((torch.eye(4), -torch.eye(4)))), 3)
    4.0
    """
    z = embeddings(view, "embeddings").double()
    z = z - z.mean(0)
    eigenvalues = torch.linalg.eigvalsh(z.mT @ z if len(z) > z.shape[1] else z @ z.mT)
    floor = len(eigenvalues) * torch.finfo(torch.float64).eps * eigenvalues[-1]
    singular = eigenvalues[eigenvalues > floor].sqrt()
    share = singular / singular.sum()
    return float(torch.special.entr(share).sum().exp())


def collapse_warning(x: Array, y: Array, *, names: tuple[str, str] = ("x", "y")) -> str | None:
    """What is wrong if embeddings x (n, k) or y (m, k) have collapsed, else None.

    Collapsed: zero rows; two rows have a cosine above .9 on average; or fewer than a tenth of the
    dimensions (and fewer than 2) are in use, by `effective_rank`. Retrieval measures with
    optimistic ties look perfect on such embeddings.

    >>> print(collapse_warning(torch.ones(9, 4), torch.eye(4), names=("image", "text")))
    image embeddings have collapsed: two of them have a cosine of 1.00 on average.
    """
    found = (_collapse(view, name) for view, name in zip((x, y), names, strict=True))
    return " ".join(text for text in found if text) or None


def tie_warning(
    x: Array,
    y: Array,
    *,
    groups: Array | Positives | None = None,
    names: tuple[str, str] = ("x", "y"),
) -> str | None:
    """What is wrong if the measures of x (n, k) and y (m, k) hang on equal scores, else None.

    They do if MRR falls by more than 3 points when ties go against the right candidate: different
    items have one embedding, such as texts without a known word, or the space has so few
    dimensions that many cosines are the same. `groups` are those of `two_way_ranks`.

    >>> twice = torch.eye(2)[[0, 0, 1, 1]]
    >>> tie_warning(twice, twice).partition("), ")[2]
    'with ties against it 50.0 and 50.0. Items have equal embeddings, or dimensions are too few.'
    """
    extremes: tuple[Ties, Ties] = ("optimistic", "pessimistic")
    best, worst = (
        [100 * float(r.double().reciprocal().mean()) for r in ranks]
        for ranks in (two_way_ranks(x, y, groups=groups, ties=t) for t in extremes)
    )
    if max(b - w for b, w in zip(best, worst, strict=True)) <= 3:
        return None
    forth, back = f"{names[0]} -> {names[1]}", f"{names[1]} -> {names[0]}"
    return (
        f"Many scores are equal: with ties in favour of the right candidate MRR is {best[0]:.1f} "
        f"({forth}) and {best[1]:.1f} ({back}), with ties against it {worst[0]:.1f} and "
        f"{worst[1]:.1f}. Items have equal embeddings, or dimensions are too few."
    )


def _collapse(view: Array, name: str) -> str | None:
    z = embeddings(view, name)
    zero = int((z == 0).all(1).sum())
    problem = None
    if zero:
        problem = f"{zero} of {len(z)} are zero."
    elif len(z) > 1:
        total = unit_rows(z, name).double().sum(0)
        # The square of the sum holds n products of a row with itself: left out.
        cosine = (float(total @ total) - len(z)) / (len(z) * (len(z) - 1))
        dimensions = effective_rank(z)
        if cosine > 0.9:
            problem = f"two of them have a cosine of {cosine:.2f} on average."
        elif min(z.shape[1], len(z) - 1) >= 4 and dimensions < max(
            2, 0.1 * min(z.shape[1], len(z) - 1)
        ):
            problem = f"they use about {dimensions:.1f} of their {z.shape[1]} dimensions."
    return problem and f"{name} embeddings have collapsed: {problem}"


def _pair(x: Array, y: Array, name_x: str, name_y: str) -> tuple[Tensor, Tensor]:
    a, b = embeddings(x, name_x), embeddings(y, name_y)
    if len(a) != len(b) or len(a) < 2:
        raise InputError(
            f"{name_x} and {name_y} must be at least 2 pairs, one row each, "
            f"got {len(a)} and {len(b)} rows."
        )
    return a, b


def _pearson(a: Tensor, b: Tensor) -> Tensor:
    """Correlation of each column of `a` with that of `b`; 0 where one is constant."""
    a, b = a - a.mean(0), b - b.mean(0)
    scale = a.norm(dim=0) * b.norm(dim=0)
    return (a * b).sum(0) / torch.where(scale > 0, scale, 1)
