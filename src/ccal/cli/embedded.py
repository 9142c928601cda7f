"""Pairs as embeddings in which an item that several pairs share appears once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccal.training.scoring import shared_view

if TYPE_CHECKING:
    from torch import Tensor

    from ccal.data import Pairs, Rows
    from ccal.model import DualEncoder

__all__ = ["Embedded"]


@dataclass(frozen=True)
class Embedded:
    """Embeddings x (n, k) and y (m, k), and the row of x that each row of y belongs to.

    x is the side that pairs of a group share, which need not be the model's first modality. `rows`
    are the items behind both.
    """

    x: Tensor
    y: Tensor
    groups: Tensor | None
    names: tuple[str, str]
    rows: tuple[Rows, Rows]

    @classmethod
    def of(cls, model: DualEncoder, pairs: Pairs) -> Embedded:
        """Embed pairs as the evaluation does."""
        shared, groups, first = shared_view(pairs)
        views = []
        for view, name in enumerate(pairs.names):
            rows = pairs.column(name).select(first) if view == shared else pairs.column(name)
            views.append((name, rows, model.encode(name, rows)))
        if shared == 1:
            views.reverse()
        (name_x, rows_x, x), (name_y, rows_y, y) = views
        return cls(x, y, groups, (name_x, name_y), (rows_x, rows_y))
