"""The hash that binds an index to the model that made it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import nn

from ccal.encoders import front_end_config, tower_config
from ccal.errors import InputError
from ccal.model import DualEncoder

__all__ = ["fingerprint"]


def fingerprint(model: DualEncoder) -> str:
    """SHA-256 of all that a model's embeddings depend on, as 64 hexadecimal digits.

    Covers the configuration, the front ends with their vocabularies, and every weight and buffer:
    towers, projections, the bank of the hub correction. A saved and loaded model keeps its
    fingerprint, on any device.

    >>> from ccal.encoders import DenseTower
    >>> model = DualEncoder(dim=2, projection="none", a=DenseTower(3, 2), b=DenseTower(3, 2))
    >>> before = fingerprint(model)
    >>> _ = model.towers["a"].apply(lambda m: [p.data.add_(1) for p in m.parameters()])
    >>> before == fingerprint(model), len(before)
    (False, 64)
    """
    config = {
        "dim": model.dim,
        "projection": model.projection_type,
        "cca": model.cca_arguments,
        "towers": {name: _tower(tower) for name, tower in model.towers.items()},
        "order": list(model.modalities),
        "front_ends": {n: front_end_config(f) for n, f in model.front_ends.items()},
        "hubs": model.hubs and model.hubs.config(),
    }
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(values.dtype), list(values.shape)]).encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _tower(tower: nn.Module) -> dict[str, Any]:
    """The configuration of a registered tower; one that cannot be saved is known by its structure.

    Its fingerprint holds all the same while the process, or the code that makes it, lives.
    """
    try:
        return tower_config(tower)
    except InputError:
        return {"structure": repr(tower)}
