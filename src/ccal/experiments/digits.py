"""The main job in half a minute: left halves of handwritten digits find their right halves.

Linear CCA, networks with a CCA layer, and our default learn a common space from the training digits
of scikit-learn; then every left half of a test digit looks for its right half among all of them,
and the reverse.
"""

import numpy as np
import torch

from ccal.data import Pairs, random_split
from ccal.runs import Comparison
from ccal.training import Settings, evaluate, train

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


def compare() -> Comparison:
    """Train by each method, and measure how the test halves find each other among all of them."""
    # Matrices this small gain nothing from a second thread, and lose much if its core is busy.
    torch.set_num_threads(1)
    training, valid, test = halves()
    reports = {
        name: [evaluate(train(settings, training, valid).model, test, bootstrap=0)]
        for name, settings in METHODS.items()
    }
    return Comparison.of(reports)
