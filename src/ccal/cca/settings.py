"""How a batch is projected, as plain numbers."""

from __future__ import annotations

from typing import NamedTuple

from ccal import distributed

__all__ = ["Settings"]


class Settings(NamedTuple):
    """How a batch is projected; `CCALayer` says what each means.

    All are numbers, since an operator takes nothing else.
    """

    ridge_x: float = 1e-3
    ridge_y: float = 1e-3
    relative_ridge: float = False
    momentum: float = 1.0
    aligned: float = False
    k: float = 1
    power: float = 0.0
    sync: float = True

    @property
    def shared(self) -> bool:
        """Whether other ranks take part."""
        return bool(self.sync) and distributed.world_size() > 1
