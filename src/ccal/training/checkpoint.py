"""The state of a run in one file: whole or not there, and only for the run that it belongs to."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ccal.errors import InputError
from ccal.files import write_atomically

__all__ = ["Facts", "facts_of", "read_checkpoint", "write_checkpoint"]

_FORMAT = 1

Facts = dict[str, Any]
"""What must be the same for a run to go on: names and plain values."""


def facts_of(model: nn.Module, objective: nn.Module, **others: Any) -> Facts:
    """Shapes of all weights, and whatever else is given, as plain data.

    >>> facts_of(nn.Linear(3, 2), nn.Identity(), seed=0)
    {'seed': 0, 'shape of weight': [2, 3], 'shape of bias': [2]}
    """
    shapes = {
        f"shape of {name}": list(tensor.shape)
        for module in (model, objective)
        for name, tensor in module.state_dict().items()
    }
    return {**others, **shapes}


def write_checkpoint(path: Path, facts: Facts, content: dict[str, Any]) -> None:
    """Write tensors and plain data in one step."""
    buffer = io.BytesIO()
    torch.save({"format": _FORMAT, "facts": facts, **content}, buffer)
    write_atomically(path, buffer.getvalue())


def read_checkpoint(path: Path, facts: Facts) -> dict[str, Any]:
    """What `write_checkpoint` wrote, on the CPU; refused if damaged or of another run."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch does not look at the checksums that it writes.
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"{damaged} does not match its checksum")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        number, theirs = content["format"], content["facts"]
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
    ) as error:
        raise InputError(
            f"The checkpoint {str(path)!r} is damaged ({error}); nothing was loaded. Remove it "
            "to start anew, or put a copy in its place."
        ) from error
    if number != _FORMAT:
        raise InputError(
            f"The checkpoint {str(path)!r} has format {number}; this version reads {_FORMAT}."
        )
    for name in dict.fromkeys((*theirs, *facts)):
        old, new = (_word(source.get(name)) for source in (theirs, facts))
        if old != new:
            raise InputError(
                f"The checkpoint {str(path)!r} belongs to another run: its {name} is {old}, and "
                f"now it is {new}. Resume with the same settings and data, or choose another "
                "folder."
            )
    return content


def _word(value: object) -> str:
    return "not set" if value is None else repr(value)
