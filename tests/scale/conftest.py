"""A small linear model, and the servers of the backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ccal import DualEncoder
from ccal.encoders import LinearTower
from tests.retrieval.conftest import backend, milvus, place, server

__all__ = ["backend", "milvus", "place", "server"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that embeds 20 and 15 features; not to be changed."""
    torch.manual_seed(0)
    towers: dict[str, Any] = {"image": LinearTower(20, 4), "text": LinearTower(15, 4)}
    folder = tmp_path_factory.mktemp("linear") / "model"
    DualEncoder(dim=4, projection="none", **towers).save(folder)
    return folder
