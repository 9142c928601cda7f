"""Speed of the CCA layer, alone and in a training step, against peers and against the limit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.formulations import by_svd, released
from benchmarks.timing import Row, medians, show
from ccal.cca import CCALayer
from ccal.losses import PairwiseRankingLoss

SIZES = ((32, 100), (32, 1000), (128, 1000), (256, 1000), (512, 2000))


def views(d: int, m: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(m, d, generator=generator)
    mixing = torch.randn(d, d, generator=generator) / d**0.5
    return x, x @ mixing + torch.randn(m, d, generator=generator)


def sample_products(d: int, m: int) -> Callable[[], object]:
    """The m x d products that forward and backward need, on matrices of their own.

    Three covariances, two projections, two for the gradient in the frames, six for the gradient of
    the samples.
    """
    (x, y), (gx, gy) = views(d, m), views(d, m)
    A, B = torch.randn(d, d), torch.randn(d, d)

    def run() -> object:
        covariances = x.mT @ x, y.mT @ y, x.mT @ y
        xs, ys = x @ A, y @ B
        rotations = xs.mT @ gx, ys.mT @ gy
        inner = gx @ A, xs @ A, ys @ B, gy @ B, ys @ A, xs @ B
        return covariances, rotations, inner

    return run


def all_products(d: int, m: int) -> Callable[[], object]:
    """Those, and the d x d products: T (2), T'T, U, Q, A and five of the backward."""
    samples, A = sample_products(d, m), torch.randn(d, d)

    def run() -> object:
        return samples(), [A @ A for _ in range(11)]

    return run


def forward_and_backward(
    function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], x: Tensor, y: Tensor
) -> Callable[[], object]:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    grads = torch.randn_like(x), torch.randn_like(y)
    return lambda: torch.autograd.grad(function(x, y), (x, y), grads)


def quiet(layer: CCALayer) -> CCALayer:
    """The layer without its warning about small batches, which (32, 100) would raise."""
    layer._warned = True
    return layer


def layer_rows(seconds: float = 10.0) -> list[Row]:
    """The layer alone, against peers and the products it needs."""
    rows: list[Row] = []
    for d, m in SIZES:
        x, y = views(d, m)
        times = medians(
            {
                "layer": forward_and_backward(quiet(CCALayer(d)), x, y),
                "released": forward_and_backward(released, x, y),
                "svd": forward_and_backward(by_svd, x, y),
                "sample_products": sample_products(d, m),
                "all_products": all_products(d, m),
            },
            seconds,
        )
        rows.append(
            {
                "d": d,
                "m": m,
                **{f"{name}_ms": round(value, 2) for name, value in times.items()},
                "released/layer": round(times["released"] / times["layer"], 2),
                "svd/layer": round(times["svd"] / times["layer"], 2),
                "layer/sample_products": round(times["layer"] / times["sample_products"], 2),
                "layer/all_products": round(times["layer"] / times["all_products"], 2),
            }
        )
    return rows


def coordinate_rows(seconds: float = 4.0) -> list[Row]:
    """The coordinates of the layer, and a batch with dead units."""
    rows: list[Row] = []
    for d, m in SIZES:
        x, y = views(d, m)
        layers = {"aligned": CCALayer(d), "canonical": CCALayer(d, coordinates="canonical")}
        variants = {
            name: forward_and_backward(quiet(layer), x, y) for name, layer in layers.items()
        }
        # Zero in both views, such as units of a rectifier that have died.
        dead = torch.arange(d) < d // 32
        dead_x, dead_y = x.masked_fill(dead, 0), y.masked_fill(dead, 0)
        variants["dead units"] = forward_and_backward(quiet(CCALayer(d)), dead_x, dead_y)
        times = medians(variants, seconds)
        rows.append(
            {"d": d, "m": m, **{f"{name} ms": round(value, 2) for name, value in times.items()}}
        )
    return rows


class Learned(nn.Module):
    """The paper's learned projections: one linear map a view, in place of the CCA layer."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.x, self.y = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.x(x), self.y(y)


def training_step(projection: nn.Module, batch: int = 1000) -> Callable[[], object]:
    """A step of the paper's Flickr30k network: 4096 -> 128 and 5793 -> 1024 -> 1024 -> 128."""
    torch.manual_seed(0)
    image = nn.Linear(4096, 128)
    text = nn.Sequential(
        nn.Linear(5793, 1024),
        nn.BatchNorm1d(1024),
        nn.ELU(),
        nn.Linear(1024, 1024),
        nn.BatchNorm1d(1024),
        nn.ELU(),
        nn.Linear(1024, 128),
    )
    modules = nn.ModuleList((image, text, projection))
    optimiser = torch.optim.Adam(modules.parameters(), lr=1e-3)
    loss = PairwiseRankingLoss()
    photos, captions = torch.rand(batch, 4096), torch.rand(batch, 5793)

    def step() -> None:
        optimiser.zero_grad()
        loss(*projection(image(photos), text(captions))).backward()
        optimiser.step()

    return step


def step_rows(seconds: float = 40.0) -> list[Row]:
    """A training step with CCAL and one with learned projections."""
    times = medians(
        {"ccal": training_step(CCALayer(128)), "learned": training_step(Learned(128))}, seconds
    )
    return [
        {
            **{f"{name}_ms": round(value, 1) for name, value in times.items()},
            "ccal/learned": round(times["ccal"] / times["learned"], 3),
        }
    ]


def main() -> dict[str, list[Row]]:
    """Run, print, and return the tables."""
    tables = {"layer": layer_rows(), "coordinates": coordinate_rows(), "training step": step_rows()}
    show("CCA layer, forward + backward, float32", tables["layer"])
    show("Its coordinates, and dead units", tables["coordinates"])
    show("Training step of the image-text network, batch 1000", tables["training step"])
    return tables


if __name__ == "__main__":
    main()
