"""The models and objectives of the methods.

`build_model` makes the towers and the projection that a method starts from; `make_objective` makes
the loss that it trains by. "refined" and "linear" start from linear CCA: `choose_initialisation`
settles its ridges, weighting and square roots, and `LinearInitialisation` turns it into two towers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ccal.cca import CCA
from ccal.distributed import all_gather
from ccal.encoders import (
    VGG,
    DenseTower,
    FrontEnd,
    LinearTower,
    ResidualVGG,
    WordCNN,
    WordCRNN,
    pooled_pixels,
)
from ccal.encoders.dense import signed_root
from ccal.errors import InputError
from ccal.features import WordSequences
from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss, TraceNormLoss
from ccal.model import DualEncoder, LearnedProjection
from ccal.training.batches import Features, PairFeatures, relation
from ccal.training.scoring import clearly_better, reciprocal_ranks
from ccal.training.settings import Settings

_DIM = 128
_LINEAR_PAIRS = 30_000  # that linear CCA of pictures starts from
# `CCA` chooses no ridge by itself from fewer pairs, or groups of pairs.
_ENOUGH_TO_CHOOSE = 20
# Training pairs that show whether square roots help: with more, CCA takes long and says the same.
_ROOT_PAIRS = 1500


def build_model(
    settings: Settings,
    names: tuple[str, str],
    train: PairFeatures,
    front_ends: dict[str, FrontEnd],
    initial: LinearInitialisation | None,
    choose_on: tuple[PairFeatures, PairFeatures],
) -> DualEncoder:
    """An untrained model for these training pairs; that of "linear" needs no training.

    Only "linear" and "refined" have `initial`, and start from it. `choose_on` is that of
    `start_linear`.
    """
    torch.manual_seed(settings.seed)
    options: dict[str, Any] = {"front_ends": front_ends}
    towers: list[nn.Module]
    if initial is not None:
        towers = [*initial.towers(settings, train)]
        options |= {"projection": "none", "dim": towers[0].out_features}
    else:
        options |= projection_options(settings)
        towers = _array_towers(settings, names, train, options["dim"])
        for view, name in enumerate(names):
            front_end = front_ends.get(name)
            if isinstance(front_end, WordSequences):
                tower = WordCNN if settings.text == "word-cnn" else WordCRNN
                towers[view] = tower(front_end.size, options["dim"], length=front_end.length)
    options |= zip(names, towers, strict=True)
    model = DualEncoder(**options)
    if initial is None and settings.start == "linear":
        start_linear(model, train, choose_on, settings.power)
    return model


@torch.no_grad()
def start_linear(
    model: DualEncoder, train: Features, choose_on: tuple[Features, Features], power: float = 0.0
) -> None:
    """Let both towers, which must be `ResidualVGG`, start as linear CCA of the pooled pixels.

    `choose_on` are training and validation pairs, which choose the ridges. Of many pairs evenly
    spaced ones are taken. CCA layers weight their coordinates by correlation^power; learned
    projections start as these weights, so that they, too, begin at linear CCA.
    """
    linear = []
    for name, tower in model.towers.items():
        if not isinstance(tower, ResidualVGG):
            raise InputError(
                f'start = "linear" needs pictures, (n, height, width), in both modalities; {name} '
                'has none. Take start = "random", or the method "refined", which starts as linear '
                "CCA of any features."
            )
        linear.append(tower.linear)
    seen, valid = (_pooled_views(pairs) for pairs in choose_on)
    cca = CCA(model.dim, ridge="auto", power=power).fit(*seen, valid=valid)
    if train is not choose_on[0]:
        cca = CCA(model.dim, ridge=cca.ridge_, relative_ridge=False).fit(*_pooled_views(train))
    linear[0].initialise(cca.x_mean_, cca.x_projection_)
    linear[1].initialise(cca.y_mean_, cca.y_projection_)
    if isinstance(model.projection, LearnedProjection):
        weights = (cca.correlations_ / cca.correlations_[0]) ** power
        for side in (model.projection.x, model.projection.y):
            side.weight.copy_(torch.from_numpy(np.diag(weights)))


def _pooled_views(pairs: Features) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The pooled pixels (n, d) of both views, of evenly spaced pairs if there are many."""
    count = min(len(pairs), _LINEAR_PAIRS)
    rows = torch.linspace(0, len(pairs) - 1, count, dtype=torch.float64).long().numpy()
    views: tuple[list[Tensor], list[Tensor]] = ([], [])
    for some in np.array_split(rows, max(count // 1024, 1)):
        for view, batch in zip(views, pairs.batch(some), strict=True):
            view.append(pooled_pixels(batch))
    x, y = (torch.cat(view).numpy() for view in views)
    return x, y


def projection_options(settings: Settings) -> dict[str, Any]:
    """Arguments of `DualEncoder` for the projection of "ccal", "dcca" or "learned"."""
    options: dict[str, Any] = {"dim": settings.dim or _DIM}
    if settings.method == "learned":
        options["projection"] = "learned"
    else:
        cca = ("ridge", "relative_ridge", "power", "momentum")
        options["cca"] = {name: getattr(settings, name) for name in cca}
    return options


def _array_towers(
    settings: Settings, names: tuple[str, str], train: PairFeatures, dim: int
) -> list[nn.Module]:
    """The paper's towers: VGG for pictures, dense ones for features.

    Dense towers divide features by their largest value in training; VGG towers need no scale.
    """
    pictures = [len(shape) > 1 for shape in train.shapes]
    largest = np.zeros(2)
    for batch in () if all(pictures) else train.batches():
        largest = np.maximum(largest, [float(view.abs().max()) for view in batch])
    hidden = (settings.hidden_x, settings.hidden_y)
    dropout = (settings.dropout_x, settings.dropout_y)
    towers: list[nn.Module] = []
    for view, (name, shape) in enumerate(zip(names, train.shapes, strict=True)):
        if pictures[view]:
            towers.append(_picture_tower(settings, name, shape, dim))
        else:
            scale = float(largest[view]) or 1.0
            options: dict[str, Any] = {"hidden": hidden[view], "dropout": dropout[view]}
            towers.append(DenseTower(shape[0], dim, scale=scale, **options))
    return towers


def _picture_tower(
    settings: Settings, name: str, shape: tuple[int, ...], dim: int
) -> VGG | ResidualVGG:
    """A VGG tower for pictures (height, width) or (1, height, width)."""
    otherwise = 'or take a method that flattens them ("refined" or "linear")'
    if len(shape) > 3 or (len(shape) == 3 and shape[0] != 1):
        raise InputError(
            f"{name} is an array of shape {('n', *shape)}; the method {settings.method} takes "
            "features (n, d), or pictures of one channel, (n, height, width) or (n, 1, height, "
            f"width). Reshape them, {otherwise}."
        )
    height, width = shape[-2:]
    try:
        return picture_tower(settings)(height, width, dim, stride=settings.stride)
    except InputError as error:
        lower = "lower the stride (--set stride=1)" if settings.stride > 1 else "give larger ones"
        raise InputError(f"{name}: {error} For such pictures {lower}, {otherwise}.") from error


def picture_tower(settings: Settings) -> type[VGG | ResidualVGG]:
    """The class of towers for pictures."""
    return ResidualVGG if settings.start == "linear" else VGG


@dataclass(frozen=True)
class LinearInitialisation:
    """Builds both towers from linear CCA.

    Attributes:
        root_x: CCA sees square roots of the features of x.
        root_y: the same for y.
        ridge: absolute, one a view; None lets `CCA` choose it on held-out pairs.
        power: CCA's coordinates are weighted by correlation^power; None lets `CCA` choose it.
        held_out: if `CCA` chose them, its MRR on held-out training pairs, the mean of both
            directions, and the numbers of candidates in y and in x.
        fitted: the CCA that chose them, and the pairs that it was fitted to.
    """

    root_x: bool = False
    root_y: bool = False
    ridge: tuple[float, float] | None = None
    power: float | None = None
    held_out: tuple[float, tuple[int, int]] | None = None
    fitted: tuple[CCA, PairFeatures] | None = None

    def cca(
        self,
        settings: Settings,
        pairs: PairFeatures,
        *,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> CCA:
        """Linear CCA of these pairs; `progress` is that of `CCA.fit`."""
        dim = _dimension(settings, pairs)
        if self.ridge is None or self.power is None:
            cca = CCA(dim, ridge="auto", power="auto", random_state=settings.seed)
        else:
            cca = CCA(dim, ridge=self.ridge, relative_ridge=False, power=self.power)
        groups = pairs.groups
        if groups is not None and groups.max() + 1 < _ENOUGH_TO_CHOOSE:
            groups = None
        return cca.fit(*self.views(pairs), groups=groups, items=pairs.items, progress=progress)

    def towers(self, settings: Settings, pairs: PairFeatures) -> tuple[LinearTower, LinearTower]:
        """Towers that compute the two projections of linear CCA.

        Each is scaled to a mean variance of 1, which changes no cosine and gives a learning rate
        the same meaning on all data.
        """
        if self.fitted is not None and self.fitted[1] is pairs:
            cca = self.fitted[0]
        else:
            cca = self.cca(settings, pairs)
        X, Y = self.views(pairs)
        weights = cca.correlations_**cca.power_
        sides = (
            (X, cca.x_mean_, cca.x_projection_, self.root_x, settings.dropout_x),
            (Y, cca.y_mean_, cca.y_projection_, self.root_y, settings.dropout_y),
        )
        hidden = settings.residual if settings.tower == "residual" else 0
        towers = []
        for view, mean, projection, root, dropout in sides:
            weighted = projection * weights
            scale = float(((view - mean) @ weighted).std()) or 1.0
            spread = float(np.sqrt(view.var(axis=0, dtype=np.float64).mean())) or 1.0
            tower = LinearTower(*weighted.shape, hidden=hidden, root=root, dropout=dropout)
            tower.initialise(mean, weighted / scale, spread)
            towers.append(tower)
        return towers[0], towers[1]

    def views(self, pairs: PairFeatures) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All features of both views, or their square roots."""
        x, y = pairs.arrays()
        return _rooted(x, self.root_x), _rooted(y, self.root_y)

    def words(self, names: tuple[str, str]) -> str:
        """The choices, for people."""
        rooted = [n for n, root in zip(names, (self.root_x, self.root_y), strict=True) if root]
        ridge_x, ridge_y = self.ridge or (0.0, 0.0)
        words = f"ridge {ridge_x:.3g} and {ridge_y:.3g}, weighted by correlation^{self.power:g}"
        if rooted:
            words += f", square roots of {' and '.join(rooted)}"
        if self.held_out is not None:
            mrr, (y, x) = self.held_out
            words += (
                f"; MRR {100 * mrr:.1f} on held-out training pairs, the mean of both directions, "
                f"of {y:,} {names[1]} and {x:,} {names[0]} candidates"
            )
        return words


def choose_initialisation(
    settings: Settings,
    seen: PairFeatures,
    held: PairFeatures,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> LinearInitialisation:
    """Choose square roots, ridges and weighting of linear CCA for these pairs.

    With root_x = "auto", "refined" takes square roots of an array without negative numbers, such as
    activations or counts, unless CCA of some pairs then finds the pairs `held` worse by more than
    the standard error. `CCA` chooses ridges and weighting on held-out pairs of `seen`.
    """
    wanted = (settings.root_x, settings.root_y)
    initial = LinearInitialisation(root_x=wanted[0] == "yes", root_y=wanted[1] == "yes")
    if settings.method == "refined":
        for view, want in enumerate(wanted):
            if want == "auto" and seen.never_negative(view):
                rooted = replace(initial, root_y=True) if view else replace(initial, root_x=True)
                without, with_root = (_found(settings, i, seen, held) for i in (initial, rooted))
                if not clearly_better(without, with_root):
                    initial = rooted
    if len(seen) < _ENOUGH_TO_CHOOSE:
        return replace(initial, ridge=(1.0, 1.0), power=1.0)
    cca = initial.cca(settings, seen, progress=progress)
    best: Any = max(cca.search_, key=lambda trial: trial["mrr"])  # type: ignore[arg-type, return-value]
    held_out = best["mrr"], best["candidates"]
    return replace(
        initial, ridge=cca.ridge_, power=cca.power_, held_out=held_out, fitted=(cca, seen)
    )


def _found(settings: Settings, initial: LinearInitialisation, *data: PairFeatures) -> Tensor:
    """Reciprocal ranks of held-out pairs by CCA of some pairs, with settings for retrieval."""
    seen, held = (initial.views(features) for features in data)
    some = np.linspace(0, len(data[0]) - 1, min(len(data[0]), _ROOT_PAIRS)).astype(int)
    cca = CCA.for_retrieval(_dimension(settings, data[0])).fit(*(view[some] for view in seen))
    x, y = (torch.from_numpy(view) for view in cca.transform(*held))
    positives, (x_first, y_first) = relation(data[1])
    return reciprocal_ranks(x[x_first], y[y_first], positives)


def _dimension(settings: Settings, pairs: PairFeatures) -> int:
    """The dimension of the settings, at most the features and one less than the pairs."""
    default = 128 if settings.method == "linear" else 256
    return min(settings.dim or default, *pairs.widths, len(pairs) - 1)


def _rooted(view: NDArray[np.float32], root: bool) -> NDArray[np.float32]:
    return signed_root(torch.from_numpy(view)).numpy() if root else view


class EmbeddingObjective(nn.Module):
    """A loss of cosines between the embeddings of the batches of all ranks together.

    Pairs of equal labels are no negatives of each other. A loss of `ccal.losses` should have
    gather=True, so that each rank computes its own share; any other gets the gathered embeddings.
    `weight` times the trace norm loss of the towers' outputs is added.
    """

    def __init__(
        self, loss: nn.Module, trace_norm: TraceNormLoss | None = None, weight: float = 1.0
    ) -> None:
        super().__init__()
        self.loss, self.trace_norm, self.weight = loss, trace_norm, weight

    def forward(
        self, model: DualEncoder, x: Tensor, y: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Loss of a batch of features with labels (n,), or of this rank's share of one."""
        outputs = model.tower_outputs(x, y)
        embedded = outputs if model.projection is None else model.projection(*outputs)
        if not getattr(self.loss, "gather", False):
            embedded = [all_gather(view) for view in embedded]
            labels = None if labels is None else all_gather(labels)
        loss: Tensor = self.loss(*embedded, labels)
        if self.trace_norm is not None:
            loss = loss + self.weight * self.trace_norm(*outputs)
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
        return CorrelationObjective(_trace_norm(settings))
    loss, added = _loss_of_cosines(settings), None
    if settings.trace_norm > 0:
        added = _trace_norm(settings)
    return EmbeddingObjective(loss, added, settings.trace_norm)


def _trace_norm(settings: Settings) -> TraceNormLoss:
    return TraceNormLoss(
        ridge=settings.ridge, relative_ridge=settings.relative_ridge, reduction=settings.reduction
    )


def _loss_of_cosines(settings: Settings) -> nn.Module:
    if settings.loss == "ranking":
        return PairwiseRankingLoss(
            margin=settings.margin,
            direction=settings.direction,
            reduction=settings.reduction,
            negatives=settings.negatives,
            gather=True,
        )
    if settings.loss == "infonce":
        return InfoNCELoss(temperature=settings.temperature, gather=True)
    return SigmoidLoss(scale=1 / settings.temperature, gather=True)
