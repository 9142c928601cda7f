"""Shared by the losses: checks of a batch, the batches of all ranks as one, and cosines."""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ccal.cca.checks import check_pair
from ccal.cca.precision import full_precision, upcast, working_dtype
from ccal.distributed import all_gather, all_reduce_sum, rank, world_size
from ccal.errors import InputError
from ccal.ranks import inverse_norms

Direction = Literal["x->y", "y->x", "both"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def check_embeddings(x: Tensor, y: Tensor, labels: Tensor | None) -> None:
    """Refuse embeddings that are not pairs in one space, and labels that do not fit them."""
    check_pair(x, y)
    if x.shape != y.shape:
        raise InputError(
            f"x and y must have the same number of dimensions to be compared by cosine, "
            f"got shapes {tuple(x.shape)} and {tuple(y.shape)}; project them to one space first."
        )
    if labels is None:
        return
    if not isinstance(labels, Tensor):
        raise InputError(
            f"labels must be a torch.Tensor, got {type(labels).__name__}; call torch.as_tensor."
        )
    if labels.shape != (len(x),):
        raise InputError(
            f"labels must hold one label a pair, shape ({len(x)},), got {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.is_complex():
        raise InputError(f"labels must be integers, got {labels.dtype}; call .long() first.")


class Batch(NamedTuple):
    """The pairs that are compared, and the rows whose terms of the loss are computed here."""

    x: Tensor
    y: Tensor
    labels: Tensor | None
    rows: slice | None  # None for all

    @property
    def first(self) -> int:
        """The first of `rows`."""
        return 0 if self.rows is None else int(self.rows.start)

    def own(self, view: Tensor) -> Tensor:
        """The rows of this rank."""
        return view if self.rows is None else view[self.rows]

    def total(self, part: Tensor) -> Tensor:
        """The loss, from the part of it that the rows of this rank have."""
        return part if self.rows is None else all_reduce_sum(part)

    def false_negatives(self) -> Tensor | None:
        """(rows, n): True where two different pairs share a label; None without labels."""
        if self.labels is None:
            return None
        same = self.own(self.labels)[:, None] == self.labels
        same.diagonal(self.first).fill_(False)
        return same


def join(x: Tensor, y: Tensor, labels: Tensor | None, *, gather: bool) -> Batch:
    """Check the pairs of a batch; with `gather`, also fetch those of all torch.distributed ranks.

    Each rank then computes the terms of its own `rows`: their queries among the candidates of all
    ranks. The sum of these parts over ranks is the loss. A batch that one rank refuses is
    refused on all, so that none waits for another.
    """
    if not gather or world_size() == 1:
        check_embeddings(x, y, labels)
        _refuse_empty(x)
        return Batch(x, y, labels, None)
    device = x.device if isinstance(x, Tensor) else torch.device("cpu")
    shape, refusal = [0, 0, 0, 0], None
    try:
        check_embeddings(x, y, labels)
        shape = [len(x), x.shape[1], working_dtype(x, y).itemsize, int(labels is not None)]
    except InputError as error:
        refusal = error
    told = torch.tensor([[int(refusal is not None), *shape]], device=device)
    shapes = all_gather(told, [1] * world_size()).tolist()
    if any(refused for refused, *_ in shapes):
        raise refusal or InputError("The batch of another rank was refused; see its error.")
    if len({tuple(others) for _, _, *others in shapes}) > 1:
        ways = "; ".join(
            f"rank {number}: {k} dimensions in float{8 * size}, {'' if labelled else 'no '}labels"
            for number, (_, _, k, size, labelled) in enumerate(shapes)
        )
        raise InputError(f"The batches of all ranks must agree, but they do not: {ways}.")
    counts = [n for _, n, *_ in shapes]
    first = sum(counts[: rank()])
    dtype = working_dtype(x, y)
    both = torch.cat((upcast(x, dtype), upcast(y, dtype)), dim=1)
    all_x, all_y = all_gather(both, counts).split(x.shape[1], dim=1)
    _refuse_empty(all_x)
    if labels is not None:
        labels = all_gather(labels.to(device, torch.int64), counts)
    return Batch(all_x.contiguous(), all_y.contiguous(), labels, slice(first, first + len(x)))


def _refuse_empty(x: Tensor) -> None:
    if x.numel() == 0:
        raise InputError(
            f"x and y are empty: got shape {tuple(x.shape)}, expected at least (1, 1)."
        )


class _Scores(torch.autograd.Function):
    """x @ y.T in full precision: autocast would reach the backward of a plain product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        with full_precision(x):
            return x @ y.T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        with full_precision(x):
            return gradient @ y, gradient.T @ x


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """(n, k), (m, k) -> (n, m): cosine of every row of x with every row of y, differentiable."""
    dtype = working_dtype(x, y)
    x, y = upcast(x, dtype), upcast(y, dtype)
    scores: Tensor = _Scores.apply(  # type: ignore[no-untyped-call]
        x * inverse_norms(x), y * inverse_norms(y)
    )
    return scores
