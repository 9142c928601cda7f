"""What is chosen on validation classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ZeroShotOptions"]


@dataclass(frozen=True, kw_only=True)
class ZeroShotOptions:
    """What `train_zero_shot` chooses from, by AP@k on validation classes.

    Args:
        dims: of the common space.
        ridges: of CCA, for x and y, in units of the view's mean variance.
        powers: scores are multiplied by correlation^power.
        class_shares: the y of a training pair becomes (1 - share) y + share * mean y of its class.
        neighbours: over which the embedding of a candidate is averaged; 1 is none.
        pair_count: neighbouring words of y that occur so often together in the training texts are
            features of their own; 0 for none.
        root: square roots take the place of the features of x.
        k: of AP@k; if no class has so many candidates, the largest class sets it.

    `ZeroShotOptions.classic()` is linear CCA as in the books.
    """

    dims: tuple[int, ...] = (32, 64, 96)
    ridges: tuple[tuple[float, float], ...] = ((1.0, 0.1), (3.0, 1.0), (10.0, 3.0))
    powers: tuple[float, ...] = (0.0, 1.0, 2.0)
    class_shares: tuple[float, ...] = (0.0, 0.5)
    neighbours: tuple[int, ...] = (10, 20, 30, 40)
    pair_count: int = 100
    root: bool = True
    k: int = 50

    @classmethod
    def classic(cls, **changes: Any) -> ZeroShotOptions:
        """Linear CCA with 64 dimensions and nothing but its ridge to choose."""
        plain: dict[str, Any] = {
            "dims": (64,),
            "ridges": ((0.1, 0.1), (0.3, 0.3), (1.0, 0.1), (1.0, 1.0), (3.0, 1.0), (10.0, 3.0)),
            "powers": (0.0,),
            "class_shares": (0.0,),
            "neighbours": (1,),
            "pair_count": 0,
            "root": False,
        }
        return cls(**{**plain, **changes})
