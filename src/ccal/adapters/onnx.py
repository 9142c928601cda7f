"""A tower with its projection in one graph: for `torch.export`, and for ONNX."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccal.cca import CCALayer
from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.optional import require

_ROWS = 2  # of the example that is traced; 1 would be taken for a constant


class Embedder(nn.Module):
    """Features of one modality to embeddings, as `DualEncoder.encode` makes them, without checks.

    The projection of CCA, or the learned one, is folded in, and so is the hub correction.

    >>> from ccal.encoders import DenseTower
    >>> towers = {"image": DenseTower(6, 4), "text": DenseTower(5, 4)}
    >>> model = DualEncoder(dim=4, projection="learned", **towers).eval()
    >>> texts = torch.randn(3, 5)
    >>> torch.allclose(Embedder(model, "text")(texts), model.encode("text", texts), atol=1e-6)
    True
    """

    projection: Tensor | None
    mean: Tensor | None

    def __init__(self, model: DualEncoder, modality: str) -> None:
        super().__init__()
        if modality not in model.modalities:
            raise InputError(
                f"This model joins {' and '.join(model.modalities)}; it has no {modality!r}."
            )
        is_x = modality == model.modalities[0]
        self.tower, self.hubs, self.is_x = model.towers[modality], model.hubs, is_x
        projection = mean = None
        layer = model.projection
        if isinstance(layer, CCALayer):
            if not layer.samples_seen:
                raise InputError("The CCA layer has no projections yet; train or refit the model.")
            projection = layer.projection_x if is_x else layer.projection_y
            mean = layer.mean_x if is_x else layer.mean_y
        elif layer is not None:
            projection = (layer.x if is_x else layer.y).weight.detach().T
        self.register_buffer("projection", projection)
        self.register_buffer("mean", mean)
        self.eval()

    def forward(self, features: Tensor) -> Tensor:
        """(n, ...) -> (n, k)."""
        rows: Tensor = self.tower(features)
        if self.projection is not None:
            centred = rows.to(self.projection.dtype)
            centred = centred if self.mean is None else centred - self.mean
            rows = (centred @ self.projection).to(rows.dtype)
        return rows if self.hubs is None else self._corrected(rows)

    def _corrected(self, rows: Tensor) -> Tensor:
        """As `HubCorrection` does, without its checks of the values."""
        assert self.hubs is not None
        rows = functional.normalize(rows)
        bank = self.hubs.bank_y if self.is_x else self.hubs.bank_x
        count = min(self.hubs.neighbours, len(bank))
        hubness = (rows @ bank.to(rows.dtype).mT).topk(count).values.mean(1)
        return self.hubs.corrected(rows, hubness, is_x=self.is_x)


def to_program(model: DualEncoder, modality: str, example: Tensor) -> torch.export.ExportedProgram:
    """A program of `torch.export` from features (n, ...) to embeddings (n, k), for any n.

    `example` is a batch of features of the modality, such as `model.features(modality, items)`.
    """
    rows = example[:1].expand(_ROWS, *example.shape[1:]).contiguous()
    n = {0: torch.export.Dim("n", min=1)}
    with torch.no_grad():
        return torch.export.export(Embedder(model, modality), (rows,), dynamic_shapes=(n,))


def to_onnx(
    model: DualEncoder, modality: str, example: Tensor, path: str | os.PathLike[str]
) -> None:
    """Write an ONNX file with the input `features` (n, ...) and the output `embeddings` (n, k).

    Front ends stay in Python: give it `model.features(modality, items)`.
    """
    require("onnxscript", package="onnxscript", purpose="Writing ONNX")
    program: Any = torch.onnx.export(
        to_program(model, modality, example),
        input_names=["features"],
        output_names=["embeddings"],
        dynamo=True,
        verbose=False,
    )
    program.save(os.fspath(path))
