"""Objectives: what the settings ask for is what is computed."""

from __future__ import annotations

import torch

from ccal.losses import PairwiseRankingLoss, TraceNormLoss
from ccal.training import EmbeddingObjective, Settings, make_objective
from tests.training.stand_ins import make_model, pairs


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    data = pairs()
    return torch.as_tensor(data.x), torch.as_tensor(data.y)


def test_the_trace_norm_is_added_with_its_weight() -> None:
    model, (x, y) = make_model(), batch()
    ranking, trace_norm = PairwiseRankingLoss(margin=1.0), TraceNormLoss(reduction="mean")
    both = EmbeddingObjective(ranking, trace_norm, 3.0)(model, x, y)
    alone = EmbeddingObjective(ranking)(model, x, y)
    outputs = model.tower_outputs(x, y)
    assert torch.allclose(alone, ranking(*model(x, y)))
    assert torch.allclose(both, alone + 3 * trace_norm(*outputs))


def test_settings_set_the_weight() -> None:
    objective = make_objective(Settings(method="ccal", loss="ranking", trace_norm=2.0, ridge=0.1))
    assert isinstance(objective, EmbeddingObjective)
    assert objective.weight == 2.0
    assert objective.trace_norm is not None
    x, y = batch()
    own = TraceNormLoss(ridge=0.1, reduction="mean")
    views = x[:, :4], y[:, :4]
    assert torch.equal(objective.trace_norm(*views), own(*views))
    without = make_objective(Settings(method="learned", trace_norm=0.0))
    assert isinstance(without, EmbeddingObjective)
    assert without.trace_norm is None
