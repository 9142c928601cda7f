"""DualEncoder: two named towers and the projection in which they meet."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ccal.cca import CCALayer
from ccal.encoders import build_tower, tower_config
from ccal.errors import InputError
from ccal.files import write_atomically
from ccal.optional import require

__all__ = ["DualEncoder", "LearnedProjection", "load"]

Projection = Literal["cca", "learned", "none"]

_CONFIG, _FORMAT = "config.json", 1


class LearnedProjection(nn.Module):
    """One trained matrix for each view, in place of CCA's projections.

    Shapes: (n, dim), (n, dim) -> (n, dim), (n, dim).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.x, self.y = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Project pairs."""
        return self.x(x), self.y(y)

    def project_x(self, x: Tensor) -> Tensor:
        """Project view x."""
        projected: Tensor = self.x(x)
        return projected

    def project_y(self, y: Tensor) -> Tensor:
        """Project view y."""
        projected: Tensor = self.y(y)
        return projected


class DualEncoder(nn.Module):
    """Two towers, one for each modality, that meet in one space.

    The keyword arguments name the modalities: the first is view x, the second view y.

    Args:
        projection: what stands between towers and space: "cca" (`CCALayer`), "learned" (a trained
            matrix a view) or "none".
        dim: features that both towers put out.
        cca: arguments for `CCALayer`, such as {"power": 1.0}.
        towers: two networks from (n, features) to (n, dim), by the names of their modalities.

    >>> from ccal.encoders import DenseTower
    >>> model = DualEncoder(dim=8, image=DenseTower(20, 8), text=DenseTower(30, 8, hidden=(16,)))
    >>> images, texts = torch.randn(100, 20), torch.randn(100, 30)
    >>> x, y = model(images, texts)                         # training: CCA of the batch
    >>> _ = model.refit([(images, texts)])                  # exact projections of all pairs
    >>> model.encode("text", texts[:5]).shape
    torch.Size([5, 8])
    """

    def __init__(
        self,
        *,
        dim: int,
        projection: Projection = "cca",
        cca: dict[str, Any] | None = None,
        **towers: nn.Module,
    ) -> None:
        super().__init__()
        if len(towers) != 2:
            raise InputError(
                "A DualEncoder joins two modalities, each given by its name, such as "
                f"image=..., text=...; got {list(towers) or 'none'}."
            )
        if projection not in ("cca", "learned", "none"):
            raise InputError(f'projection must be "cca", "learned" or "none", got {projection!r}.')
        if cca and projection != "cca":
            raise InputError(f'cca={cca} needs projection="cca", got {projection!r}.')
        self.dim, self.projection_type, self.cca_arguments = dim, projection, dict(cca or {})
        self.towers = nn.ModuleDict(towers)
        self.projection: CCALayer | LearnedProjection | None = None
        if projection == "cca":
            self.projection = CCALayer(dim, **self.cca_arguments)
        elif projection == "learned":
            self.projection = LearnedProjection(dim)

    @property
    def modalities(self) -> tuple[str, str]:
        """Names of view x and view y."""
        x, y = self.towers
        return x, y

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of pairs; in training mode with the CCA of this batch."""
        name_x, name_y = self.modalities
        x, y = self.towers[name_x](x), self.towers[name_y](y)
        if self.projection is None:
            return x, y
        projected: tuple[Tensor, Tensor] = self.projection(x, y)
        return projected

    @torch.no_grad()
    def encode(
        self,
        modality: str,
        data: Tensor,
        *,
        batch_size: int = 1024,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """Embeddings (n, k) of one modality, in evaluation mode, batch by batch.

        `progress` is called with the number of rows done and their total after each batch.
        """
        tower = self._tower(modality)
        was_training = self.training
        self.eval()
        try:
            parts = []
            for start in range(0, len(data), batch_size):
                parts.append(self._project(modality, tower(data[start : start + batch_size])))
                if progress is not None:
                    progress(min(start + batch_size, len(data)), len(data))
        finally:
            self.train(was_training)
        return torch.cat(parts) if parts else torch.empty(0, self.dim)

    @torch.no_grad()
    def refit(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> DualEncoder:
        """Store CCA's projections of all pairs, in one pass with the towers in evaluation mode.

        Models without CCA are left as they are.
        """
        if isinstance(self.projection, CCALayer):
            was_training = self.training
            self.eval()
            try:
                self.projection.refit(self._features(pairs))
            finally:
                self.train(was_training)
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration (JSON) and weights (safetensors) to a folder.

        The configuration names its weights file and is replaced last, in one step: whatever
        happens meanwhile, the folder holds the old model or the new one.
        """
        safetensors = require("safetensors.torch", extra="save", purpose="Saving a model")
        target = Path(folder)
        if target.exists() and not (target.is_dir() and _ours(target)):
            raise InputError(f"{str(target)!r} exists and is no saved model; nothing was written.")
        towers = {name: tower_config(tower) for name, tower in self.towers.items()}
        weights = safetensors.save({name: t.contiguous() for name, t in self.state_dict().items()})
        name = f"weights-{hashlib.sha256(weights).hexdigest()[:16]}.safetensors"
        config = {
            "format": _FORMAT,
            "dim": self.dim,
            "projection": self.projection_type,
            "cca": self.cca_arguments,
            "towers": towers,
            "weights": name,
        }
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(target / name, weights)
        write_atomically(target / _CONFIG, (json.dumps(config, indent=1) + "\n").encode())
        for stale in target.glob("weights-*.safetensors"):
            if stale.name != name:
                stale.unlink()

    def _features(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        name_x, name_y = self.modalities
        for x, y in pairs:
            yield self.towers[name_x](x), self.towers[name_y](y)

    def _tower(self, modality: str) -> nn.Module:
        if modality not in self.towers:
            raise InputError(
                f"This model joins {' and '.join(self.modalities)}; it has no {modality!r}."
            )
        return self.towers[modality]

    def _project(self, modality: str, features: Tensor) -> Tensor:
        if self.projection is None:
            return features
        is_x = modality == self.modalities[0]
        return self.projection.project_x(features) if is_x else self.projection.project_y(features)


def load(folder: str | os.PathLike[str]) -> DualEncoder:
    """Read a model that `DualEncoder.save` wrote; in evaluation mode, without pickle."""
    safetensors = require("safetensors.torch", extra="save", purpose="Loading a model")
    source = Path(folder)
    if not (source / _CONFIG).is_file():
        raise InputError(f"{str(source)!r} holds no saved model: {_CONFIG} is missing.")
    try:
        config = json.loads((source / _CONFIG).read_text())
        if config["format"] != _FORMAT:
            raise InputError(
                f"{str(source)!r} has format {config['format']!r}; this version reads {_FORMAT}."
            )
        towers = {name: build_tower(tower) for name, tower in config["towers"].items()}
        model = DualEncoder(
            dim=config["dim"], projection=config["projection"], cca=config["cca"], **towers
        )
        model.load_state_dict(safetensors.load_file(source / config["weights"]))
    except InputError:
        raise
    # safetensors has an exception of its own, derived from nothing narrower.
    except Exception as error:
        raise InputError(f"The model in {str(source)!r} is damaged: {error}") from error
    return model.eval()


def _ours(folder: Path) -> bool:
    """Whether a folder is empty or holds nothing but a model, perhaps half-written."""
    return all(f.name == _CONFIG or f.name.startswith(("weights-", ".")) for f in folder.iterdir())
