from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ccal.cca import CCA
from ccal.encoders import pooled_pixels
from ccal.experiments.sheet_audio import sheet_audio_model
from ccal.training import Settings
from ccal.training.batches import RowNumbers
from ccal.training.methods import start_linear


@pytest.mark.parametrize("method", ["ccal", "dcca", "learned"])
def test_the_methods_share_their_towers(method: str) -> None:
    model = sheet_audio_model(Settings.preset("nottingham", method=method))
    reference = sheet_audio_model(Settings.preset("nottingham"))
    for name, weights in reference.towers.state_dict().items():
        assert torch.equal(model.towers.state_dict()[name], weights)
    assert model.projection_type == ("learned" if method == "learned" else "cca")


@pytest.mark.parametrize("power", [0.0, 2.0])
def test_learned_projections_start_as_weighted_linear_cca(power: float) -> None:
    rng = np.random.default_rng(0)
    meaning = torch.from_numpy(rng.normal(size=(80, 4)) * [2.0, 1.5, 1.0, 0.5]).float()

    class Pictures:
        """Each pixel is a mix of four hidden numbers, and noise."""

        def __init__(self, rows: slice) -> None:
            shapes = ((40, 100), (136, 100))
            noisy = [
                meaning[rows] @ torch.from_numpy(rng.normal(size=(4, h * w))).float()
                + torch.from_numpy(rng.normal(size=(len(meaning[rows]), h * w))).float()
                for h, w in shapes
            ]
            self.views = [v.reshape(-1, *shape) for v, shape in zip(noisy, shapes, strict=True)]

        def __len__(self) -> int:
            return len(self.views[0])

        def batch(self, rows: RowNumbers) -> tuple[Tensor, Tensor]:
            return self.views[0][rows], self.views[1][rows]

    seen, held = Pictures(slice(50)), Pictures(slice(50, 80))
    model = sheet_audio_model(Settings.preset("ccal", method="learned", dim=4, stride=2))
    start_linear(model, seen, (seen, held), power)
    flat = [[pooled_pixels(view).numpy() for view in part.views] for part in (seen, held)]
    cca = CCA(4, ridge="auto", power=power).fit(*flat[0], valid=(flat[1][0], flat[1][1]))
    found = [model.encode(name, v) for name, v in zip(model.modalities, held.views, strict=True)]
    expected = [torch.from_numpy(np.asarray(view)).float() for view in cca.transform(*flat[1])]
    cosines = [normalize(x) @ normalize(y).T for x, y in (found, expected)]
    torch.testing.assert_close(*cosines, rtol=0, atol=1e-4)
