from __future__ import annotations

import pytest
import torch

from ccal.experiments.sheet_audio import sheet_audio_model
from ccal.training import Settings


@pytest.mark.parametrize("method", ["ccal", "dcca", "learned"])
def test_the_methods_share_their_towers(method: str) -> None:
    model = sheet_audio_model(Settings.preset("nottingham", method=method))
    reference = sheet_audio_model(Settings.preset("nottingham"))
    for name, weights in reference.towers.state_dict().items():
        assert torch.equal(model.towers.state_dict()[name], weights)
    assert model.projection_type == ("learned" if method == "learned" else "cca")
