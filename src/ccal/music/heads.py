"""Note heads on a straightened staff line, and their places on the staff.

A small convolutional network says for every second column and each of 20 steps of the staff whether
a head has its centre there.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ccal.music.engraving import ROWS

# Lines and spaces within the 40 rows, two rows each; the lowest is 9 below the middle line.
STEPS, LOWEST = ROWS // 2, -9
# Columns of a line for one of the network.
STRIDE = 2
_WIDTH = 24
_WEIGHTS = Path(__file__).parents[1] / "models" / "note-heads.safetensors"
# Heads are at least so probable, and so many of the network's columns apart.
_LIKELY, _APART = 0.5, 2

HEAD = np.dtype([("column", "<f4"), ("step", "<i4"), ("probability", "<f4")])


class HeadFinder(nn.Module):
    """From staff lines (n, 1, 40, columns) to logits (n, 20, columns / 2), highest step first."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(2, _WIDTH, 5, stride=2, padding=2), nn.ReLU()]
        for spread in (1, 1, 2, 1):
            layers += [
                nn.Conv2d(_WIDTH, _WIDTH, 3, padding=spread, dilation=spread, bias=False),
                nn.BatchNorm2d(_WIDTH),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers, nn.Conv2d(_WIDTH, 1, 1))

    def forward(self, ink: Tensor) -> Tensor:
        """Logits of a head's centre."""
        # The second channel is the height, since a staff is always at the same one.
        height = torch.linspace(-1, 1, ROWS, device=ink.device).view(1, 1, ROWS, 1)
        both = torch.cat([ink, height.expand_as(ink)], dim=1)
        logits: Tensor = self.layers(both)
        return logits[:, 0]


@cache
def head_finder() -> HeadFinder:
    """The trained network that comes with the package."""
    from safetensors.torch import load_file

    finder = HeadFinder()
    finder.load_state_dict(load_file(_WEIGHTS))
    return finder.eval()


def find_heads(ink: NDArray[np.float32], finder: HeadFinder | None = None) -> NDArray[Any]:
    """The heads (n,) of `HEAD` on a staff line (columns, 40), from left to right.

    A `step` counts lines and spaces up from the middle line. Of heads above each other only the
    highest is kept.
    """
    finder = finder or head_finder()
    line = torch.from_numpy(np.ascontiguousarray(ink.T))[None, None]
    with torch.no_grad():
        likely = finder(line)[0].sigmoid()
    around = nn.functional.max_pool2d(likely[None], (3, 2 * _APART + 1), 1, (1, _APART))[0]
    steps, columns = torch.nonzero((likely == around) & (likely > _LIKELY), as_tuple=True)
    heads = np.empty(len(steps), dtype=HEAD)
    heads["column"] = STRIDE * (columns.numpy() + 0.5)
    heads["step"] = STEPS - 1 + LOWEST - steps.numpy()
    heads["probability"] = likely[steps, columns].numpy()
    heads = heads[np.lexsort((-heads["step"], heads["column"]))]
    kept = np.diff(heads["column"], prepend=-np.inf) > STRIDE * _APART
    return heads[kept]
