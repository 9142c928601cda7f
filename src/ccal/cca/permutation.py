"""How many canonical correlations are more than chance: a permutation test.

Winkler, Renaud, Smith and Nichols, "Permutation inference for canonical correlation analysis",
NeuroImage 220 (2020); docs/mathematics.md has the procedure.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca.fitting import Parameters, regularised
from ccal.cca.selection import NEGLIGIBLE
from ccal.cca.solver import solve
from ccal.cca.views import ArrayView, Float64, SampleSpan, stream
from ccal.errors import InputError
from ccal.numbering import Integers, numbered

# Permutations that change nothing give the observed correlation, but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PermutationTest:
    """Canonical correlations and their p-values; `print` shows them as a table.

    Attributes:
        correlations: (k,) canonical correlations, descending.
        p_values: (k,) how likely a correlation as large as the i-th is if only the first i - 1 are
            real. They are corrected for testing k of them, and never descend.
        permutations: how many were drawn; the least p-value is 1 / (1 + permutations).

    >>> test = PermutationTest(np.array([0.9, 0.21]), np.array([0.001, 0.412]), 999)
    >>> test.significant()
    1
    >>> print(test)
    component  correlation  p-value
            1       0.9000   0.0010
            2       0.2100   0.4120
    1 of 2 correlations are significant at the level 0.05 (999 permutations).
    """

    correlations: Float64
    p_values: Float64
    permutations: int

    def significant(self, level: float = 0.05) -> int:
        """How many correlations, from the first on, have a p-value of at most `level`.

        The chance that there are fewer real ones is at most `level`.
        """
        return int((self.p_values <= level).sum())

    def __str__(self) -> str:
        rows = enumerate(zip(self.correlations, self.p_values, strict=True), 1)
        lines = ["component  correlation  p-value"]
        lines += [f"{i:9}  {correlation:11.4f}  {p:7.4f}" for i, (correlation, p) in rows]
        lines.append(
            f"{self.significant()} of {len(self.p_values)} correlations are significant at the "
            f"level 0.05 ({self.permutations} permutations)."
        )
        return "\n".join(lines)


def permutation_test(
    x: ArrayView,
    y: ArrayView,
    parameters: Parameters,
    permutations: int,
    groups: NDArray[Any] | None = None,
) -> PermutationTest:
    """Test the correlations of two views against those with the rows of Y permuted.

    Permuting rows leaves Sxx and Syy as they are, so both views are whitened once, and a
    permutation costs one product of the variates and small eigenproblems.
    """
    U, V, observed = _variates(x, y, parameters)
    V = V / (x.rows - 1)
    blocks = _exchangeable(groups, x.rows)
    rng, order = np.random.default_rng(parameters.random_state), np.arange(x.rows)
    exceeded = np.zeros(len(observed), dtype=np.int64)
    for _ in range(permutations):
        for block in blocks:
            order[block] = rng.permutation(block)
        cross = U.mT @ V[torch.from_numpy(order)]
        largest = inf
        for i, correlation in enumerate(observed * (1 - _ROUNDING)):
            # The blocks of `cross` are nested, so that their largest singular values descend.
            if largest >= correlation:
                largest = _largest_singular_value(cross[i:, i:])
                exceeded[i] += largest >= correlation
    p_values = np.maximum.accumulate((1 + exceeded) / (1 + permutations))
    return PermutationTest(observed, p_values, permutations)


def _variates(x: ArrayView, y: ArrayView, parameters: Parameters) -> tuple[Tensor, Tensor, Float64]:
    """All canonical variates, (n, d_x) and (n, d_y), and the correlations to test."""
    dims = x.dim, y.dim
    k = parameters.components(*dims, x.rows)
    x, y = (SampleSpan(view).coordinates if view.dim > view.rows else view for view in (x, y))
    moments, _ = stream(x, y, chunk_rows=parameters.chunk_rows)
    A, B, d, _ = solve(regularised(moments, parameters, dims)[0])
    U, V = (
        (torch.from_numpy(view.read()) - mean) @ projection
        for view, mean, projection in ((x, moments.mean_x, A), (y, moments.mean_y, B))
    )
    if parameters.n_components is None:
        k = max(1, int((d > NEGLIGIBLE * d[0]).sum()))
    return U, V, d[:k].clamp(max=1).numpy()


def _exchangeable(groups: NDArray[Any] | None, rows: int) -> list[Integers]:
    """Rows that may change places: for each size of groups, the rows (groups, size) of those."""
    if groups is None:
        return [np.arange(rows)[:, None]]
    numbers = numbered(groups)[1]
    sizes = np.bincount(numbers)
    order = np.argsort(numbers, kind="stable")
    size_of = sizes[numbers[order]]
    blocks = [order[size_of == size].reshape(-1, size) for size in np.unique(sizes)]
    if max(map(len, blocks)) < 2:
        raise InputError(
            f"groups allow no permutation: groups of the same size change places, and the "
            f"{len(sizes)} groups differ in size. Leave rows out until sizes agree."
        )
    return blocks


def _largest_singular_value(T: Tensor) -> float:
    gram = T @ T.mT if T.shape[0] <= T.shape[1] else T.mT @ T
    return float(torch.linalg.eigvalsh(gram)[-1].clamp(min=0).sqrt())
