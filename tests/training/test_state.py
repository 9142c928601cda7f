from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ccal.training.checkpoint import State
from tests.training.stand_ins import Contrast, make_model, pairs, quick


def walk(state: State, steps: int) -> list[Tensor]:
    """Some steps on one batch; copies of all that they changed."""
    data = pairs(50)
    for _ in range(steps):
        state.optimiser.zero_grad()
        state.objective(state.model, data.x, data.y).backward()
        state.step()
    state.copy_buffers()
    modules = (state.model, state.kept, state.objective)
    return [t.clone() for module in modules for t in module.state_dict().values()]


@pytest.mark.parametrize("averaging", [0.0, 0.8])
@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_from_a_snapshot_the_same_way_can_be_gone_again(averaging: float, optimiser: str) -> None:
    state = State(make_model(), Contrast(), quick(averaging=averaging, optimiser=optimiser))
    walk(state, 3)
    snapshot = state.snapshot()
    expected = walk(state, 4)
    for _ in range(2):
        # Twice: the first way back must not have changed the snapshot.
        state.restore(snapshot)
        for one, other in zip(walk(state, 4), expected, strict=True):
            assert torch.equal(one, other)


def test_the_optimiser_has_a_part_in_it() -> None:
    state = State(make_model(), Contrast(), quick())
    walk(state, 3)
    snapshot = state.snapshot()
    expected = walk(state, 1)
    fresh = State(make_model(), Contrast(), quick())
    fresh.restore({**snapshot, "optimiser": fresh.optimiser.state_dict()})
    assert any(not torch.equal(a, b) for a, b in zip(walk(fresh, 1), expected, strict=True))


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_only_matrices_decay(optimiser: str) -> None:
    state = State(make_model(), Contrast(), quick(weight_decay=0.3, optimiser=optimiser))
    decays = {
        id(p): group["weight_decay"]
        for group in state.optimiser.param_groups
        for p in group["params"]
    }
    assert len(decays) == len(state.parameters)
    for parameter in state.parameters:
        assert decays[id(parameter)] == (0.3 if parameter.ndim >= 2 else 0.0)


def test_what_is_frozen_stays() -> None:
    model = make_model()
    model.towers["text"].requires_grad_(False)
    before = [p.clone() for p in model.towers["text"].parameters()]
    state = State(model, Contrast(), quick(averaging=0.5))
    walk(state, 2)
    for owner in (model, state.kept):
        after = list(owner.towers["text"].parameters())
        assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
