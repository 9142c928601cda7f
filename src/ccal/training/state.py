"""Everything that a training step changes, to be copied and brought back as one."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.training.settings import Settings

__all__ = ["Snapshot", "State"]

Snapshot = dict[str, Any]
"""Copies of tensors and plain data, safe to keep and to write."""


class State:
    """Weights of model and objective, the running mean of the model's, and the optimiser.

    Attributes:
        kept: the model that is validated and kept: the running mean if there is one, else the
            model that is trained.
        parameters: what is trained.
    """

    def __init__(self, model: DualEncoder, objective: nn.Module, settings: Settings) -> None:
        self.model, self.objective = model, objective
        self.averaging, self.steps = settings.averaging, 0
        self.kept = model
        if self.averaging:
            self.kept = copy.deepcopy(model).requires_grad_(False)
        # An objective may hold the model, or share parameters with it.
        both = nn.ModuleList((model, objective))
        self.parameters = [p for p in both.parameters() if p.requires_grad]
        if not self.parameters:
            raise InputError("There is nothing to train: no parameter has requires_grad.")
        self.optimiser = _optimiser(self.parameters, settings)

    def step(self) -> None:
        """Move the weights along their gradients, and the running mean towards the weights."""
        self.optimiser.step()
        self.steps += 1
        if self.averaging:
            decay = min(self.averaging, (1 + self.steps) / (10 + self.steps))
            with torch.no_grad():
                for mean, new in zip(self.kept.parameters(), self.model.parameters(), strict=True):
                    mean.lerp_(new, 1 - decay)

    def prepare_kept(self) -> None:
        """Bring the buffers of the running mean, such as batch norm's statistics, up to date."""
        if self.averaging:
            for mine, new in zip(self.kept.buffers(), self.model.buffers(), strict=True):
                mine.copy_(new)

    def set_learning_rate(self, rate: float) -> None:
        """From the next step on."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def snapshot(self) -> Snapshot:
        """A copy of everything, on the same device."""
        return {
            "model": _copies(self.model),
            "kept": _copies(self.kept) if self.averaging else None,
            "objective": _copies(self.objective),
            "optimiser": copy.deepcopy(self.optimiser.state_dict()),
            "steps": self.steps,
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Bring everything back as it was."""
        self.model.load_state_dict(snapshot["model"])
        if self.averaging:
            self.kept.load_state_dict(snapshot["kept"])
        self.objective.load_state_dict(snapshot["objective"])
        # The optimiser would go on in the very tensors that it is given.
        self.optimiser.load_state_dict(copy.deepcopy(snapshot["optimiser"]))
        self.steps = snapshot["steps"]


def _copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _optimiser(parameters: list[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """Adam with an L2 penalty, or AdamW.

    Only matrices and kernels decay. The paper writes its penalty as a sum over all weights; biases
    and the scales of batch norm are left out of it here, since shrinking them keeps no network
    from overfitting, and a temperature must not drift to 1.
    """
    groups: list[dict[str, Any]] = [
        {
            "params": [p for p in parameters if p.ndim >= 2],
            "weight_decay": settings.weight_decay,
        },
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    kind = torch.optim.Adam if settings.optimiser == "adam" else torch.optim.AdamW
    return kind(groups, lr=settings.learning_rate)
