"""What a batch is trained for: a loss of the embeddings, or of the towers' outputs."""

from __future__ import annotations

from torch import Tensor, nn

from ccal.distributed import all_gather
from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss, TraceNormLoss
from ccal.model import DualEncoder
from ccal.training.settings import Settings

__all__ = ["CorrelationObjective", "EmbeddingObjective", "make_objective"]


class EmbeddingObjective(nn.Module):
    """A loss of cosines between the embeddings of the batches of all ranks together.

    Pairs of equal labels are no negatives of each other.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self, model: DualEncoder, x: Tensor, y: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Loss of a batch of features with labels (n,), or of this rank's share of one."""
        embedded_x, embedded_y = model(x, y)
        if labels is not None:
            labels = all_gather(labels)
        loss: Tensor = self.loss(all_gather(embedded_x), all_gather(embedded_y), labels)
        return loss


class CorrelationObjective(nn.Module):
    """DCCA: the trace norm of the towers' outputs; CCA's projections are fitted afterwards.

    It has no negatives, so labels change nothing.
    """

    def __init__(self, loss: TraceNormLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self, model: DualEncoder, x: Tensor, y: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Loss of a batch of features, or of this rank's share of one."""
        loss: Tensor = self.loss(*model.tower_outputs(x, y))
        return loss


def make_objective(settings: Settings) -> nn.Module:
    """The objective that the settings name."""
    if settings.method == "dcca":
        return CorrelationObjective(
            TraceNormLoss(ridge=settings.ridge, relative_ridge=settings.relative_ridge)
        )
    if settings.loss == "ranking":
        ranking = PairwiseRankingLoss(margin=settings.margin, direction=settings.direction)
        return EmbeddingObjective(ranking)
    if settings.loss == "infonce":
        return EmbeddingObjective(InfoNCELoss(temperature=settings.temperature))
    return EmbeddingObjective(SigmoidLoss(scale=1 / settings.temperature))
