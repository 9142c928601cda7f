"""Error of the float32 gradient against float64, on ordinary and degenerate batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.formulations import by_svd, released
from benchmarks.layer import views
from benchmarks.timing import Row, show
from ccal.cca.batch import BatchSettings
from ccal.cca.operators import batch_cca
from ccal.losses import PairwiseRankingLoss

D, M = 32, 500


def _whiten(x: Tensor) -> Tensor:
    white: Tensor = torch.linalg.qr(x - x.mean(0)).Q * (len(x) - 1) ** 0.5
    return white


def batches() -> dict[str, tuple[Tensor, Tensor]]:
    """Batches, named by what is awkward about them."""
    generator = torch.Generator().manual_seed(0)

    def noise(d: int = D) -> Tensor:
        return torch.randn(M, d, generator=generator, dtype=torch.float64)

    x, mixing = noise(), torch.randn(D, D, generator=generator, dtype=torch.float64)
    y = x @ mixing / D**0.5 + noise()
    basis = _whiten(noise(2 * D))
    rho = torch.tensor([0.9, 0.4]).double().repeat_interleave(D // 2)
    tied = basis[:, :D] * rho + basis[:, D:] * (1 - rho**2).sqrt()
    copied_x, copied_y = x.clone(), y.clone()
    copied_x[:, 20:], copied_y[:, 20:] = x[:, :12], y[:, :12]
    # Three axes of y are left without partner: along what x lacks, the loss has no derivative.
    unequal_x, unequal_y = x.clone(), y.clone()
    unequal_x[:, -8:], unequal_y[:, -5:] = x[:, :8], y[:, :5]
    constant_x, constant_y = x.clone(), y.clone()
    constant_x[:, :4], constant_y[:, :4] = 1.0, 2.0
    # Half of the axes have a variance of 1e-8, where the ridge is 1e-3.
    half = D // 2
    flat_x, flat_y = (
        view[:, :half] @ view[:half] / half**0.5 + 1e-4 * noise() for view in (x, x + noise())
    )
    return {
        "ordinary": (x, y),
        "identical views": (x, x.clone()),
        "repeated correlations": (basis[:, :D], tied),
        "copied columns": (copied_x, copied_y),
        "copied columns, 8 and 5": (unequal_x, unequal_y),
        "constant columns": (constant_x, constant_y),
        "axes far below the ridge": (flat_x, flat_y),
        "ill-conditioned (1e8)": (x * torch.logspace(0, -4, D).double(), y),
        "scale 1000": (1000 * x, 1000 * y),
        "mean 1000": (1000 + x, 1000 + y),
        "d = 128, m = 1000": views(128, 1000),
        "d = 512, m = 2000": views(512, 2000),
    }


Project = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def gradient(project: Project, x: Tensor, y: Tensor) -> Tensor:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    try:
        loss = PairwiseRankingLoss()(*project(x, y))
        return torch.cat(torch.autograd.grad(loss, (x, y))).double()
    except RuntimeError:  # LinAlgError, which torch does not export for type checkers
        return torch.full((2 * len(x), x.shape[1]), torch.nan).double()


def ours(k: int | None = None, **options: bool) -> Project:
    def project(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        batch = batch_cca(x, y, BatchSettings(k=k or x.shape[1], **options))
        return batch.x[:, :k], batch.y[:, :k]

    return project


def part(project: Project, columns: slice) -> Project:
    def kept(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = project(x, y)
        return x[:, columns], y[:, columns]

    return kept


def errors(variants: dict[str, Project], reference: Project, x: Tensor, y: Tensor) -> Row:
    x, y = x.float(), y.float()
    exact = gradient(reference, x.double(), y.double())
    return {
        name: f"{((gradient(project, x, y) - exact).norm() / exact.norm()).item():.1e}"
        for name, project in variants.items()
    }


def accuracy_rows() -> list[Row]:
    """Relative error of each formulation's float32 gradient; the float64 layer is the reference,
    which the tests compare with Algorithm 1 to 1e-10."""
    variants: dict[str, Project] = {
        "layer (aligned)": ours(aligned=True),
        "layer (canonical)": ours(),
        "released": released,
        "autograd svd": by_svd,
    }
    rows: list[Row] = [
        {"batch": name, **errors(variants, ours(aligned=True), x, y)}
        for name, (x, y) in batches().items()
    ]
    # Fewer components than dimensions; only canonical coordinates can leave some away.
    k = 64
    some: dict[str, Project] = {
        "layer (canonical)": ours(k),
        "released": part(released, slice(-k, None)),
        "autograd svd": part(by_svd, slice(k)),
    }
    found = errors(some, ours(k), *views(128, 1000))
    nothing = dict.fromkeys(variants, "-")
    return [*rows, {"batch": f"d = 128, m = 1000, k = {k}", **nothing, **found}]


def main() -> dict[str, list[Row]]:
    """Run, print, and return the table."""
    rows = accuracy_rows()
    show(f"Relative error of the float32 gradient, d = {D}, m = {M}", rows)
    return {"gradient error": rows}


if __name__ == "__main__":
    main()
