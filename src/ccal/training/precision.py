"""Half precision in the towers, where it is safe."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from ccal.errors import InputError
from ccal.training.settings import Settings

__all__ = ["check_precision", "tower_precision"]

_CPU_FACTS = Path("/proc/cpuinfo")
_LIMIT = "ONEDNN_MAX_CPU_ISA"


def check_precision(settings: Settings, device: torch.device) -> None:
    """Refuse bf16 where it could kill the process.

    Virtual machines advertise AMX that they do not pass on; oneDNN then dies of an illegal
    instruction. It reads its limit once, so it must be set before torch starts.
    """
    if settings.precision != "bf16" or device.type != "cpu" or os.environ.get(_LIMIT):
        return
    try:
        advertised = "amx_bf16" in _CPU_FACTS.read_text()
    except OSError:
        return
    if advertised:
        raise InputError(
            'precision="bf16" on this CPU may kill the process, since it advertises AMX. Set '
            f"{_LIMIT}=AVX512_CORE_BF16 in the environment before Python starts, or use "
            'precision="float32".'
        )


def tower_precision(settings: Settings, device: torch.device) -> AbstractContextManager[object]:
    """Around the computation of a loss: autocast if asked for. CCA and losses stay precise."""
    if settings.precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
