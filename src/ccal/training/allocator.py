"""Memory that a training step frees is kept for the next."""

from __future__ import annotations

import ctypes
import platform

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Tell glibc not to hand large blocks back to the system; whether it was there to be told.

    By default every large tensor is memory of its own from the system, which clears each page
    again: without that a step of convolutional towers takes about two thirds of the time on the
    CPU. It holds for the whole process, so that a program decides, not the library; `ccal train`
    does.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 256 * 2**20))
    return all(libc.mallopt(parameter, value) == 1 for parameter, value in settings)
