"""The paper's results on sheet music and sound, to set ours beside them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAPER", "Row"]


@dataclass(frozen=True)
class Row:
    """R@1, R@5, R@10, MR and MRR, in % but for the median rank."""

    r1: float
    r5: float
    r10: float
    mr: float
    mrr: float


# Dorfer et al., IJMIR 2018, Tables 4 and 5: sheet -> audio, then audio -> sheet.
PAPER: dict[str, dict[str, tuple[Row, Row]]] = {
    "nottingham": {
        "dcca": (Row(42.0, 88.2, 93.3, 2, 62.2), Row(44.6, 87.9, 93.2, 2, 63.5)),
        "learned": (Row(40.7, 89.6, 95.6, 2, 61.7), Row(41.4, 88.9, 95.4, 2, 61.9)),
        "ccal": (Row(44.1, 93.3, 97.7, 2, 65.3), Row(44.5, 91.6, 96.7, 2, 64.9)),
    },
    "nottingham-10pct": {
        "dcca": (Row(20.0, 53.6, 65.4, 5, 35.3), Row(22.7, 54.7, 65.8, 4, 37.3)),
        "learned": (Row(11.3, 35.2, 47.6, 12, 23.0), Row(12.6, 35.2, 47.2, 12, 23.7)),
        "ccal": (Row(22.2, 59.2, 70.7, 4, 38.8), Row(25.0, 59.3, 70.9, 4, 40.4)),
    },
}
