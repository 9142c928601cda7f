"""The machine under a training step: half precision where it is safe, and freed memory reused."""

import ctypes
import os
import platform
from pathlib import Path

import torch

from ccal.errors import InputError
from ccal.training.settings import Settings

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


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next step; returns False without glibc.

    By default glibc asks the system for every large tensor and gives it back afterwards, and the
    system clears each page again. Without that, a step of convolutional towers takes about two
    thirds of the time on the CPU. The option holds for the whole process, so programs such as
    `ccal train` set it and the library does not.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 256 * 2**20))
    return all(libc.mallopt(parameter, value) == 1 for parameter, value in settings)
