"""The main job in half a minute: left halves of handwritten digits find their right halves.

Linear CCA, networks with a CCA layer, and our default learn a common space from the training digits
of scikit-learn; then every left half of a test digit looks for its right half among all of them,
and the reverse.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from ccal.data import Pairs, random_split
from ccal.evaluation import Report
from ccal.training import Settings, evaluate, train

__all__ = ["halves", "main"]

METHODS = {
    "linear CCA": Settings(method="linear", dim=24),
    "CCAL + ranking loss": Settings.preset(
        "paper",
        dim=24,
        hidden_x=[128],
        hidden_y=[128],
        direction="both",
        margin=0.3,
        power=1.0,
        batch_size=500,
        max_epochs=60,
        patience=20,
        refinements=1,
    ),
    "refined CCA (default)": Settings(),
}


def halves() -> tuple[Pairs, Pairs, Pairs]:
    """Training, validation and test pairs: left and right half (n, 32) of 8 x 8 digits."""
    from sklearn.datasets import load_digits

    pixels = load_digits().images.astype(np.float32) / 16
    left, right = (view.reshape(-1, 32) for view in (pixels[:, :, :4], pixels[:, :, 4:]))
    return random_split(len(pixels), valid=200, test=500).of(Pairs({"left": left, "right": right}))


def main() -> None:
    """Train by each method, and print a table."""
    # Matrices this small gain nothing from a second thread, and lose much if its core is busy.
    torch.set_num_threads(1)
    training, valid, test = halves()
    print(
        f"{len(training)} training pairs and {len(valid)} for validation; "
        f"each test half looks for its other half among {len(test)}.\n"
    )
    started = time.perf_counter()
    reports = {
        name: evaluate(train(settings, training, valid).model, test, bootstrap=0)
        for name, settings in METHODS.items()
    }
    print(f"\n{'':<24}{'':<16}  R@1    R@5   R@10    MRR   (%)")
    for name, report in reports.items():
        print("\n".join(rows(name, report)))
    print(f"\n{time.perf_counter() - started:.0f} s. Your own pairs: ccal train --help")


def rows(name: str, report: Report) -> list[str]:
    """One line a direction."""
    return [
        f"{name:<24}{way.name:<16}{m.r1:5.1f}  {m.r5:5.1f}  {m.r10:5.1f}  {m.mrr:5.1f}"
        for way in (report.x_to_y, report.y_to_x)
        for m in [way.measures]
    ]
