"""One pair of each group an epoch, labels that mask negatives, and scores of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.errors import InputError
from ccal.losses import InfoNCELoss, PairwiseRankingLoss
from ccal.model import DualEncoder
from ccal.training import EmbeddingObjective
from ccal.training.batches import one_of_each
from ccal.training.checkpoint import Interrupted
from tests.training.stand_ins import Arrays, Contrast, make_model, pairs, quick, run, untimed

GROUPS = np.arange(200) // 4
LABELS = np.arange(200) // 20


class Captions(Arrays):
    """Fifty groups of four pairs, in ten classes; remembers which rows were asked for."""

    groups: NDArray[np.int64] | None = GROUPS

    def __init__(self, data: Arrays | None = None, *, labelled: bool = True) -> None:
        data = pairs() if data is None else data
        super().__init__(data.x, data.y)
        self.labelled = labelled
        self.asked: list[NDArray[np.int64]] = []

    def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        self.asked.append(rows)
        return super().batch(rows)

    def labels(self, rows: NDArray[np.int64]) -> Tensor | None:
        return torch.from_numpy(LABELS[rows]) if self.labelled else None


class Ungrouped(Captions):
    groups = None


def masked() -> EmbeddingObjective:
    return EmbeddingObjective(InfoNCELoss(temperature=0.1))


def test_one_pair_of_each_group() -> None:
    groups = np.array([7, 7, 3, 9, 7, 3])
    draws = {tuple(one_of_each(groups, seed=0, stage="a", epoch=e)) for e in range(60)}
    assert all(groups[list(rows)].tolist() == [3, 7, 9] for rows in draws)
    assert len(draws) == 2 * 3
    again = one_of_each(groups, seed=0, stage="a", epoch=5)
    assert np.array_equal(again, one_of_each(groups, seed=0, stage="a", epoch=5))


def test_an_epoch_takes_one_pair_of_each_group_and_another_the_next_time() -> None:
    data = Captions()
    run(quick(batch_size=25, max_epochs=3), train=data, objective=masked())
    # After the look at the door, an epoch is two batches of 25, and a pass over all to fit CCA.
    epochs = [data.asked[i : i + 3] for i in range(1, len(data.asked), 3)]
    assert len(epochs) == 3
    drawn = [np.concatenate(epoch[:2]) for epoch in epochs]
    assert all(sorted(GROUPS[rows]) == list(range(50)) for rows in drawn)
    assert len({tuple(sorted(rows)) for rows in drawn}) == 3
    assert all(sorted(epoch[2]) == list(range(200)) for epoch in epochs)


def test_one_per_group_can_be_switched_off() -> None:
    data = Captions()
    run(quick(one_per_group=False, max_epochs=1), train=data, objective=masked())
    assert set(np.concatenate(data.asked[1:])) == set(range(200))


def test_one_group_only_is_refused() -> None:
    data = Captions()
    data.groups = np.zeros(200, dtype=np.int64)
    with pytest.raises(InputError, match="one_per_group"):
        run(train=data)


class Watching(EmbeddingObjective):
    """Keeps the labels that it is given."""

    def __init__(self) -> None:
        super().__init__(PairwiseRankingLoss())
        self.seen: list[Tensor | None] = []

    def forward(
        self, model: DualEncoder, x: Tensor, y: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        self.seen.append(labels)
        return super().forward(model, x, y, labels)


@pytest.mark.parametrize(("mask", "labelled"), [(True, True), (False, True), (True, False)])
def test_labels_reach_the_objective(mask: bool, labelled: bool) -> None:
    objective, data = Watching(), Captions(labelled=labelled)
    run(quick(mask_labels=mask, max_epochs=1, batch_size=25), train=data, objective=objective)
    if not (mask and labelled):
        assert objective.seen == [None, None]
        return
    for labels, rows in zip(objective.seen, data.asked[1:3], strict=True):
        assert labels is not None
        assert labels.tolist() == LABELS[rows].tolist()


def test_the_masked_loss_is_that_of_the_labels() -> None:
    model, data = make_model("none"), pairs(30)
    labels = torch.arange(30) // 3
    expected = InfoNCELoss(temperature=0.1)(*model(data.x, data.y), labels=labels)
    assert torch.equal(masked()(model, data.x, data.y, labels), expected)
    assert masked()(model, data.x, data.y) > expected


def test_objectives_without_labels_still_work() -> None:
    run(quick(mask_labels=False), train=Captions(), objective=Contrast())


def test_a_resumed_run_draws_the_same_pairs(tmp_path: Path) -> None:
    settings = quick(max_epochs=4, batch_size=25)
    model, history = run(settings, train=Captions(), objective=masked())

    class Stopping(Captions):
        def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            if len(self.asked) == 8:
                raise Interrupted("stop", 2)
            return super().batch(rows)

    with pytest.raises(Interrupted):
        run(settings, train=Stopping(), objective=masked(), folder=tmp_path, checkpoint_seconds=0)
    other, again = run(settings, train=Captions(), objective=masked(), folder=tmp_path, resume=True)
    assert untimed(again.records) == untimed(history.records)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


def test_a_custom_score_chooses_the_best_epoch() -> None:
    values = iter([1.0, 5.0, 2.0, 5.5, 3.0, 4.0])
    model, history = run(quick(max_epochs=6, patience=6), score=lambda _: next(values))
    assert history.best_epoch == 4
    assert history.best_mrr == 5.5
    assert [record["score"] for record in history.records] == [1.0, 5.0, 2.0, 5.5, 3.0, 4.0]
    assert history.records[0]["mrr_x_to_y"] is None
    assert not model.training


def labelled_run(rank: int = 0) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    data = Captions(pairs().double())
    model, history = run(
        quick(max_epochs=2, batch_size=25),
        model=make_model().double(),
        objective=masked().double(),
        train=data,
        valid=pairs(60, start=900).double(),
    )
    return model.state_dict(), history.records


def test_two_ranks_mask_and_draw_like_one(on_two_ranks: Callable[..., list[Any]]) -> None:
    weights, records = labelled_run()
    for theirs, their_records in on_two_ranks(labelled_run):
        torch.testing.assert_close(theirs, weights, rtol=1e-6, atol=1e-7)
        assert their_records[0]["loss"] == pytest.approx(records[0]["loss"], rel=1e-6)
