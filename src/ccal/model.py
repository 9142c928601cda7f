"""`DualEncoder`: front ends, two named towers, and the projection in which they meet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ccal.bounds import Options, Whole, check
from ccal.cca import CCALayer
from ccal.encoders import FrontEnd, build_front_end, build_tower, front_end_config, tower_config
from ccal.encoders.dense import initialised
from ccal.errors import InputError
from ccal.evaluation.calibration import Calibration
from ccal.evaluation.hubs import HubCorrection, NeighbourMean
from ccal.files import load_part, save_part
from ccal.model_card import model_card
from ccal.optional import require

Module = TypeVar("Module", bound=nn.Module)
Projection = Literal["cca", "learned", "none"]

_CONFIG, _FORMAT = "config.json", 2


class Items(Protocol):
    """n items to encode, in order; its slices are tensors, arrays or lists of raw items."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class LearnedProjection(nn.Module):
    """One trained matrix for each view, in place of CCA's projections.

    Matrices start as the towers' do (He, gain 1).

    Shapes: (n, dim), (n, dim) -> (n, dim), (n, dim).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.x, self.y = (initialised(nn.Linear(dim, dim, bias=False)) for _ in range(2))

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
        projection: from the towers to the common space: "cca" (`CCALayer`), "learned" (a trained
            matrix a view) or "none".
        dim: number of features that each tower returns.
        cca: arguments for `CCALayer`, such as {"power": 1.0}.
        front_ends: by modality, from raw items, such as texts, to features for its tower.
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
        front_ends: Mapping[str, FrontEnd] | None = None,
        **towers: nn.Module,
    ) -> None:
        super().__init__()
        if len(towers) != 2:
            raise InputError(
                "A DualEncoder joins two modalities, each given by its name, such as "
                f"image=..., text=...; got {list(towers) or 'none'}."
            )
        for name, tower in towers.items():
            if not isinstance(tower, nn.Module):
                raise InputError(f"{name} must be a torch module, got a {type(tower).__name__}.")
            if "." in name or hasattr(nn.ModuleDict(), name):
                raise InputError(f"A modality cannot be called {name!r}; give it another name.")
        check("dim", dim, Whole(at_least=1))
        for option, value in (("cca", cca), ("front_ends", front_ends)):
            if not isinstance(value or {}, Mapping):
                raise InputError(f"{option} must be a dictionary, got {value!r}.")
        check("projection", projection, Options(*get_args(Projection)))
        if cca and projection != "cca":
            raise InputError(f'cca={cca} needs projection="cca", got {projection!r}.')
        self.front_ends = dict(front_ends or {})
        if unknown := set(self.front_ends) - set(towers):
            raise InputError(f"front_ends names {sorted(unknown)}, the towers are {list(towers)}.")
        self.hubs: HubCorrection | None = None
        self.neighbours: NeighbourMean | None = None
        # By the modality of the query; training estimates them on validation pairs.
        self.calibrations: dict[str, Calibration] = {}
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
        x, y = self.tower_outputs(x, y)
        if self.projection is None:
            return x, y
        projected: tuple[Tensor, Tensor] = self.projection(x, y)
        return projected

    def tower_outputs(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs (m, dim), (m, dim) before the projection."""
        name_x, name_y = self.modalities
        return self.towers[name_x](x), self.towers[name_y](y)

    def features(self, modality: str, data: Any) -> Tensor:
        """Input of a tower: tensors and arrays as they are, raw items through the front end."""
        self._tower(modality)
        if isinstance(data, Tensor):
            return data
        if not isinstance(data, np.ndarray):
            if modality not in self.front_ends:
                raise InputError(
                    f"{modality} has no front end that could turn a {type(data).__name__} into "
                    "features; pass an array (n, features) or a tensor."
                )
            data = self.front_ends[modality].transform(data)
        if data.dtype.kind not in "fiub":
            raise InputError(f"{modality} must be an array of numbers, got {data.dtype}.")
        return torch.from_numpy(np.array(data, dtype=np.float32))

    @torch.no_grad()
    def encode(
        self,
        modality: str,
        data: Items,
        *,
        batch_size: int = 1024,
        corrected: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """Embeddings (n, k) of one modality, as in evaluation mode, batch by batch.

        The mode of the model neither matters nor changes, so that threads may share it.

        `data` is a tensor or array (n, features), memory-mapped or not, or a list of n raw items
        such as texts if the modality has a front end. `corrected=False` leaves out the model's hub
        correction, if it has one. `progress` is called with the number of rows done and their total
        after each batch.
        """
        check("batch_size", batch_size, Whole(at_least=1))
        if not hasattr(data, "__len__") or isinstance(data, dict | set):
            raise InputError(f"{modality} must be items to encode, got a {type(data).__name__}.")
        model = _in_evaluation(self)
        tower = model._tower(modality)
        device = next((p.device for p in self.parameters()), None)
        parts = []
        for start in range(0, max(len(data), 1), batch_size):
            batch = model.features(modality, data[start : start + batch_size]).to(device)
            embedded = model._project(modality, tower(batch))
            parts.append(model.correct(modality, embedded) if corrected else embedded)
            if progress is not None:
                progress(min(start + batch_size, len(data)), len(data))
        return torch.cat(parts)

    @torch.no_grad()
    def candidates(self, items: Items) -> Tensor:
        """Embeddings (n, k) of all x of a collection, to be searched with a y.

        A model with `neighbours` averages each over its nearest among `items`, so that a collection
        is embedded as a whole; others embed each by itself, as `encode` does.
        """
        name = self.modalities[0]
        if self.neighbours is None:
            return self.encode(name, items)
        # Both maps share the features, since those of raw images take long.
        features = self.features(name, items[:])
        embedded = self.encode(name, features, corrected=False)
        neighbours = _in_evaluation(self.neighbours)
        averaged: Tensor = neighbours(embedded, features.to(embedded.device))
        return self.correct(name, averaged)

    @torch.no_grad()
    def correct_hubs(
        self, pairs: tuple[Tensor, Tensor], *, neighbours: int = 10, weight: float = 0.5
    ) -> DualEncoder:
        """Let `encode` correct for hubs from now on, by embeddings (m, k) of training pairs."""
        self.hubs = HubCorrection.of(*pairs, neighbours=neighbours, weight=weight)
        return self

    @torch.no_grad()
    def refit(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> DualEncoder:
        """Store CCA's projections of all pairs, in one pass with the towers in evaluation mode.

        Models without CCA are left as they are.
        """
        if isinstance(self.projection, CCALayer):
            model = _in_evaluation(self)
            self.projection.refit(model.tower_outputs(x, y) for x, y in pairs)
        return self

    def config(self, tower: Callable[[nn.Module], dict[str, Any]] = tower_config) -> dict[str, Any]:
        """Plain data from which `DualEncoder.from_config` makes a model with fresh weights.

        `tower` describes a tower; by default, one that cannot be saved is refused.
        """
        config = {
            "dim": self.dim,
            "projection": self.projection_type,
            "cca": self.cca_arguments,
            "towers": {name: tower(network) for name, network in self.towers.items()},
            "front_ends": {n: front_end_config(f) for n, f in self.front_ends.items()},
            "hubs": self.hubs and self.hubs.config(),
            "calibrations": {name: c.as_dict() for name, c in self.calibrations.items()},
        }
        if self.neighbours is not None:
            found = self.neighbours
            config["neighbours"] = {"discriminant": tower(found.discriminant), "count": found.count}
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that `config` described, with fresh weights."""
        if config["front_ends"]:
            import ccal.features  # noqa: F401 - registers the front ends

        model = cls(
            dim=config["dim"],
            projection=config["projection"],
            # Earlier versions let a person choose a solver.
            cca={name: v for name, v in config["cca"].items() if name != "solver"},
            front_ends={n: build_front_end(f) for n, f in config["front_ends"].items()},
            **{name: build_tower(tower) for name, tower in config["towers"].items()},
        )
        if config["hubs"]:
            model.hubs = HubCorrection(**config["hubs"])
        if "neighbours" in config:
            averaging = config["neighbours"]
            discriminant = build_tower(averaging["discriminant"])
            model.neighbours = NeighbourMean(discriminant, averaging["count"])
        # Models of earlier versions have none.
        found = config.get("calibrations", {})
        model.calibrations = {name: Calibration(**values) for name, values in found.items()}
        return model

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration (JSON) and weights (safetensors) to a folder, as `save_part` does."""
        save_part(folder, _CONFIG, {"format": _FORMAT, **self.config()}, self.state_dict())

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Write the model and its card, as `push_to_hub` uploads them.

        `metadata` goes to the head of the card beside library and tags: `license`, `datasets`, ...
        with texts or lists of texts.
        """
        card = Path(folder) / "README.md"
        # `save` refuses a folder with other files.
        card.unlink(missing_ok=True)
        self.save(folder)
        card.write_text(model_card(self, metadata or {}))

    def push_to_hub(
        self, repo_id: str, *, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> str:
        """Upload the model to the Hugging Face hub; returns the address of the commit.

        `options` are those of `huggingface_hub.HfApi.upload_folder`, such as `commit_message`.
        """
        api = _hub().HfApi()
        api.create_repo(repo_id, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, metadata=metadata)
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder, **options))

    @staticmethod
    def from_pretrained(name: str | os.PathLike[str], **options: Any) -> DualEncoder:
        """The model of a folder, or of a repository on the hub, in evaluation mode.

        `options` are those of `huggingface_hub.snapshot_download`, such as `revision`.
        """
        if Path(name).is_dir():
            return load(name)
        patterns = ["config.json", "*.safetensors"]
        return load(_hub().snapshot_download(os.fspath(name), allow_patterns=patterns, **options))

    def _tower(self, modality: str) -> nn.Module:
        if not isinstance(modality, str) or modality not in self.towers:
            raise InputError(
                f"This model joins {' and '.join(self.modalities)}; it has no {modality!r}."
            )
        return self.towers[modality]

    def _project(self, modality: str, features: Tensor) -> Tensor:
        if self.projection is None:
            return features
        is_x = modality == self.modalities[0]
        return self.projection.project_x(features) if is_x else self.projection.project_y(features)

    def correct(self, modality: str, embedded: Tensor) -> Tensor:
        """Raw embeddings (n, k) with the model's hub correction, if it has one."""
        if self.hubs is None:
            return embedded
        is_x = modality == self.modalities[0]
        return self.hubs.correct_x(embedded) if is_x else self.hubs.correct_y(embedded)


def _in_evaluation(module: Module) -> Module:
    """The same module in evaluation mode: a second tree of objects over the same tensors.

    `module.eval()` would switch the module for every thread that uses it.
    """
    # What torch.compile returns would run the very module that it was given.
    module = cast(Module, module._modules.get("_orig_mod", module))
    if isinstance(module, torch.jit.ScriptModule):
        # The mode of compiled code is no attribute of the object.
        return deepcopy(module).eval() if module.training else module
    twin = object.__new__(type(module))
    parts = {name: part and _in_evaluation(part) for name, part in module._modules.items()}
    changed = {"training": False, "_modules": parts, "_compiled_call_impl": None}
    # Not by copy.copy, which takes three times as long.
    twin.__dict__.update(module.__dict__, **changed)
    forward = module.__dict__.get("forward")
    if isinstance(forward, partial) and forward.args[:1] == (module,):
        # One that training has put on the object, such as batch norm over ranks.
        twin.__dict__["forward"] = partial(forward.func, twin, *forward.args[1:])
    return twin


def load(folder: str | os.PathLike[str]) -> DualEncoder:
    """Read a model that `DualEncoder.save` wrote; in evaluation mode, without pickle."""
    with load_part(folder, _CONFIG, kind="model", formats=(_FORMAT,)) as (config, weights):
        model = DualEncoder.from_config(config)
        model.load_state_dict(weights)
    return model.eval()


def _hub() -> Any:
    return require("huggingface_hub", package="huggingface_hub", purpose="The hub")
