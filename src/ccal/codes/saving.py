"""Heads on disk: JSON and safetensors, never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccal.codes.heads import Head
from ccal.codes.packing import check_bits
from ccal.errors import CcalError, InputError
from ccal.files import intact, write_described
from ccal.optional import require

__all__ = ["read_heads", "write_heads"]

_CONFIG, _FORMAT = "codes.json", 1


def write_heads(
    folder: str | os.PathLike[str], config: Mapping[str, Any], heads: Mapping[str, Head]
) -> None:
    """Write heads and the configuration that names them, which is replaced last, in one step."""
    safetensors = require("safetensors.torch", extra="save", purpose="Saving codes")
    tensors = {
        f"{view}.{part}": getattr(head, part).contiguous().clone()
        for view, head in enumerate(heads.values())
        for part in ("weight", "bias")
    }
    about = {"format": _FORMAT, **config, "modalities": list(heads)}
    write_described(Path(folder), _CONFIG, about, "heads", safetensors.save(tensors))


def read_heads(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Head]]:
    """Configuration and heads; what is missing or damaged is named."""
    safetensors = require("safetensors.torch", extra="save", purpose="Loading codes")
    source = Path(folder)
    if not (source / _CONFIG).is_file():
        raise InputError(f"{str(source)!r} holds no saved codes: {_CONFIG} is missing.")
    try:
        config = json.loads((source / _CONFIG).read_text())
        if config.pop("format") != _FORMAT:
            raise InputError(f"{str(source)!r} has a format that this version cannot read.")
        tensors = safetensors.load_file(intact(source / config.pop("heads")))
        heads = {
            name: Head(tensors[f"{view}.weight"], tensors[f"{view}.bias"])
            for view, name in enumerate(config["modalities"])
        }
        config = {name: config[name] for name in ("kind", "bits", "model")}
        check_bits(config["bits"])
        widths = {head.weight.shape[1] for head in heads.values()}
        if widths != {config["bits"]}:
            raise InputError(f"{str(source)!r} says {config['bits']} bits, its heads {widths}.")
    except (CcalError, ImportError, OSError):
        # A missing package, or a file that may not be read, is no damage, and says so itself.
        raise
    # safetensors has an exception of its own, derived from nothing narrower.
    except Exception as error:
        raise InputError(f"The codes in {str(source)!r} are damaged: {error}") from error
    return config, heads
