"""CCALayer: CCA's optimal projections as a layer between two networks and any loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ccal import distributed
from ccal.bounds import Number, Options, Whole, check
from ccal.cca.batch import BatchSettings
from ccal.cca.checks import check_pair, check_view, refuse_recomputation, ridge_pair
from ccal.cca.operators import batch_cca, project
from ccal.cca.solver import add_ridge, solve
from ccal.cca.statistics import Covariances, streamed
from ccal.errors import InputError, SmallBatchWarning

Coordinates = Literal["aligned", "canonical"]

# With fewer samples for each dimension of both views together, pure noise already shows canonical
# correlations of about one half.
_SAMPLES_PER_DIMENSION = 2

# Statistics that are averaged over batches if momentum < 1, each in a buffer running_<name>.
_RUNNING = ("mean_x", "mean_y", "xx", "yy", "xy")


class CCALayer(nn.Module):
    """Project two views with the CCA projections of the batch, or with stored ones.

    In training mode the layer computes CCA's projections A*, B* from the batch (Algorithm 1 of
    Dorfer et al., End-to-End Cross-Modality Retrieval with CCA Projections and Pairwise Ranking
    Loss, 2018), returns x* = (x - mean_x) A* and y* = (y - mean_y) B*, stores the projections, and
    passes gradients through means, covariances and projections. In evaluation mode it applies the
    stored projections. Call `refit` with all training pairs before you evaluate: projections of one
    batch are noisy.

    Shapes: x (m, dim_x), y (m, dim_y) -> (m, k), (m, k). Half precision is upcast to float32. Steps
    that are unsafe in float32 run in float64.

    Args:
        dim_x: features of view x.
        dim_y: features of view y; dim_x if not given.
        k: components to keep; min(dim_x, dim_y) if not given.
        coordinates: "canonical" gives component-wise correlated coordinates, sorted by correlation.
            "aligned" gives a rotation of them, common to both views, that depends smoothly on the
            batch; it needs k = dim_x = dim_y and power = 0, where it is the default. Cosines, and
            so retrieval and every loss of cosines, are the same in both.
        ridge: added to the diagonal of both covariances, or a pair (ridge_x, ridge_y).
        relative_ridge: the ridge counts in units of the view's mean variance.
        momentum: weight of the batch in exponentially averaged statistics; 1 (the paper's) takes
            the batch alone.
        power: coordinates are weighted by correlation^power, in units of the largest correlation;
            0 is the paper's.
        sync: compute statistics over all torch.distributed ranks, exactly and with gradients.

    >>> _ = torch.manual_seed(0)
    >>> layer = CCALayer(4)
    >>> x = torch.randn(100, 4, requires_grad=True)
    >>> xs, ys = layer(x, x.detach() + 0.1 * torch.randn(100, 4))
    >>> torch.nn.functional.cosine_similarity(xs, ys).mean().backward()
    >>> _ = layer.refit([(x.detach(), x.detach())]).eval()
    >>> layer.project_x(torch.randn(2, 4)).shape
    torch.Size([2, 4])
    """

    mean_x: Tensor
    mean_y: Tensor
    projection_x: Tensor
    projection_y: Tensor
    correlations: Tensor
    samples_seen: Tensor

    def __init__(
        self,
        dim_x: int,
        dim_y: int | None = None,
        *,
        k: int | None = None,
        coordinates: Coordinates | None = None,
        ridge: float | Sequence[float] = 1e-3,
        relative_ridge: bool = False,
        momentum: float = 1.0,
        power: float = 0.0,
        sync: bool = True,
    ) -> None:
        super().__init__()
        dim_y = dim_x if dim_y is None else dim_y
        check("dim_x", dim_x, Whole(at_least=1))
        check("dim_y", dim_y, Whole(at_least=1))
        k = min(dim_x, dim_y) if k is None else k
        check("k", k, Whole(at_least=1, at_most=min(dim_x, dim_y)))
        dim_x, dim_y, k = int(dim_x), int(dim_y), int(k)
        check("momentum", momentum, Number(above=0, at_most=1))
        check("power", power, Number(at_least=0))
        can_align = k == dim_x == dim_y and power == 0
        if coordinates is None:
            coordinates = "aligned" if can_align else "canonical"
        check("coordinates", coordinates, Options("aligned", "canonical"))
        if coordinates == "aligned" and not can_align:
            raise InputError(
                f'coordinates="aligned" needs k = dim_x = dim_y and power = 0, got k = {k}, '
                f'dim_x = {dim_x}, dim_y = {dim_y}, power = {power}; use coordinates="canonical".'
            )
        ridge_x, ridge_y = ridge_pair(ridge)
        self.dim_x, self.dim_y, self.k = dim_x, dim_y, k
        self.coordinates, self.momentum, self.power = coordinates, momentum, power
        self.ridge_x, self.ridge_y, self.relative_ridge = ridge_x, ridge_y, relative_ridge
        self.sync = sync
        self._warned = False
        self._register("mean_x", dim_x)
        self._register("mean_y", dim_y)
        self._register("projection_x", dim_x, k)
        self._register("projection_y", dim_y, k)
        self._register("correlations", k)
        self.register_buffer("samples_seen", torch.zeros((), dtype=torch.long))
        if momentum < 1:
            shapes = ((dim_x,), (dim_y,), (dim_x, dim_x), (dim_y, dim_y), (dim_x, dim_y))
            for name, shape in zip(_RUNNING, shapes, strict=True):
                self._register(f"running_{name}", *shape)
            self.register_buffer("running_batches", torch.zeros((), dtype=torch.long))

    def _register(self, name: str, *shape: int) -> None:
        self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def extra_repr(self) -> str:
        """The settings that matter, for `print(layer)`."""
        ridge = f"({self.ridge_x:g}, {self.ridge_y:g})" + " relative" * self.relative_ridge
        return (
            f"{self.dim_x}, {self.dim_y}, k={self.k}, coordinates={self.coordinates!r}, "
            f"ridge={ridge}, momentum={self.momentum:g}, power={self.power:g}"
        )

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Project pairs: `x` (m, dim_x) and `y` (m, dim_y) to two (m, k) matrices."""
        check_pair(x, y, self.dim_x, self.dim_y)
        if not self.training:
            return self.project_x(x), self.project_y(y)
        if not self._warned and not torch.compiler.is_compiling():
            self._warn_if_small(len(x))
        running = []
        if self.momentum < 1:
            refuse_recomputation()
            running = [self.get_buffer(f"running_{name}") for name in (*_RUNNING, "batches")]
        batch = batch_cca(x, y, self._settings(), running)
        d = batch.correlations.detach()
        self._store(batch.A, batch.B, d, batch.mean_x, batch.mean_y, len(x))
        if running:
            for name in _RUNNING:
                self.get_buffer(f"running_{name}").copy_(getattr(batch, name))
            self.get_buffer("running_batches").add_(1)
        xs, ys = batch.x, batch.y
        if self.k < max(self.dim_x, self.dim_y):
            xs, ys = xs[:, : self.k], ys[:, : self.k]
        if self.power == 0:
            return xs, ys
        weights = _weights(batch.correlations[: self.k], self.power).to(xs.dtype)
        return xs * weights, ys * weights

    def project_x(self, x: Tensor) -> Tensor:
        """Project samples of view x with the stored projection: (n, dim_x) -> (n, k)."""
        check_view(x, "x", self.dim_x)
        return project(x, self.mean_x, self.projection_x, self.samples_seen, "x")

    def project_y(self, y: Tensor) -> Tensor:
        """Project samples of view y with the stored projection: (n, dim_y) -> (n, k)."""
        check_view(y, "y", self.dim_y)
        return project(y, self.mean_y, self.projection_y, self.samples_seen, "y")

    @torch.no_grad()
    def refit(self, pairs: Iterable[Sequence[Tensor]] | Sequence[Tensor]) -> CCALayer:
        """Store the exact projections of all pairs, in one streaming pass.

        `pairs` is an iterable of batches (x, y), such as a DataLoader, or one pair of matrices.
        Under torch.distributed every rank passes its own share. Returns the layer.
        """
        one = isinstance(pairs, tuple | list) and len(pairs) == 2 and isinstance(pairs[0], Tensor)
        batches = cast("Iterable[Sequence[Tensor]]", [pairs] if one else pairs)
        total = streamed(batches, self.dim_x, self.dim_y, self.mean_x.device, sync=self.sync)
        if total.count < 2:
            raise InputError("refit needs at least 2 pairs; the iterable was empty or held one.")
        cov = total.covariances()
        xx = add_ridge(cov.xx, self.ridge_x, relative=self.relative_ridge)
        yy = add_ridge(cov.yy, self.ridge_y, relative=self.relative_ridge)
        aligned = self.coordinates == "aligned"
        found = solve(Covariances(xx, yy, cov.xy), k=None if aligned else self.k, aligned=aligned)
        self._store(found.A, found.B, found.d, total.mean_x, total.mean_y, total.count)
        return self

    def _settings(self) -> BatchSettings:
        return BatchSettings(
            ridge_x=self.ridge_x,
            ridge_y=self.ridge_y,
            relative_ridge=self.relative_ridge,
            momentum=self.momentum,
            aligned=self.coordinates == "aligned",
            k=self.k,
            power=self.power,
            sync=self.sync,
        )

    def _store(
        self, A: Tensor, B: Tensor, d: Tensor, mean_x: Tensor, mean_y: Tensor, samples: int
    ) -> None:
        if self.k < max(A.shape[1], B.shape[1]):
            A, B, d = A[:, : self.k], B[:, : self.k], d[: self.k]
        if self.power:
            weights = _weights(d, self.power)
            A, B = A * weights, B * weights
        self.projection_x.copy_(A)
        self.projection_y.copy_(B)
        self.correlations.copy_(d)
        self.mean_x.copy_(mean_x)
        self.mean_y.copy_(mean_y)
        # A rank without samples of its own stores projections too.
        self.samples_seen.fill_(max(1, samples))

    def _warn_if_small(self, samples: int) -> None:
        if self.sync:
            samples *= distributed.world_size()
        enough = _SAMPLES_PER_DIMENSION * (self.dim_x + self.dim_y)
        if samples < enough:
            self._warned = True
            warnings.warn(
                f"A batch of {samples} pairs is small for CCA of {self.dim_x} and {self.dim_y} "
                f"dimensions: the projections will mostly fit its noise. Use batches of {enough} "
                "or more, or momentum < 1 (statistics averaged over batches), or a larger ridge; "
                "and call refit with all training pairs before evaluating.",
                SmallBatchWarning,
                # Past nn.Module, to the line that calls the layer.
                stacklevel=5,
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CCALayer:
        """Follow the module to another device, but keep the statistics in float64."""

        def keep_precision(buffer: Tensor) -> Tensor:
            moved = fn(buffer)
            return moved if moved.dtype == buffer.dtype else buffer.to(moved.device)

        super()._apply(keep_precision, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Keep the statistics in float64, whatever was saved."""
        for name, buffer in self.named_buffers(recurse=False):
            if (saved := state_dict.get(prefix + name)) is not None:
                state_dict[prefix + name] = saved.to(buffer.dtype)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _weights(d: Tensor, power: float) -> Tensor:
    """(d / d_1)^power: cosines are those of d^power, and small correlations do not vanish."""
    share = d / d[:1].clamp_min(torch.finfo(d.dtype).tiny)
    weights: Tensor = share.clamp_min(1e-12) ** power
    return weights
