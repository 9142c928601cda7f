"""Heads on disk: JSON and safetensors, never pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ccal.codes.heads import Head
from ccal.codes.packing import check_bits
from ccal.errors import InputError
from ccal.files import load_part, save_part

__all__ = ["read_heads", "write_heads"]

_CONFIG, _FORMAT = "codes.json", 1


def write_heads(
    folder: str | os.PathLike[str], config: Mapping[str, Any], heads: Mapping[str, Head]
) -> None:
    """Write heads and their configuration, as `save_part` does."""
    tensors = {
        f"{view}.{part}": getattr(head, part).clone()
        for view, head in enumerate(heads.values())
        for part in ("weight", "bias")
    }
    about = {"format": _FORMAT, **config, "modalities": list(heads)}
    save_part(folder, _CONFIG, about, tensors, key="heads")


def read_heads(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Head]]:
    """Configuration and heads; missing or damaged files are named."""
    kind, formats = "set of binary codes", (_FORMAT,)
    with load_part(folder, _CONFIG, kind=kind, formats=formats, key="heads") as (config, tensors):
        heads = {
            name: Head(tensors[f"{view}.weight"], tensors[f"{view}.bias"])
            for view, name in enumerate(config["modalities"])
        }
        config = {name: config[name] for name in ("kind", "bits", "model")}
        check_bits(config["bits"])
        widths = {head.weight.shape[1] for head in heads.values()}
        if widths != {config["bits"]}:
            raise InputError(f"{str(folder)!r} says {config['bits']} bits, its heads {widths}.")
    return config, heads
