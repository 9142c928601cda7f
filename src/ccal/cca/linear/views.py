"""Arrays as people hold them: NumPy, memory-mapped files and tensors, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.errors import InputError

__all__ = ["Float64", "View", "open_pair", "open_view", "project"]

Float64 = NDArray[np.float64]

_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True)
class View:
    """An (n, d) array that is only ever read in pieces, as float64.

    >>> view = open_view(np.arange(6).reshape(3, 2), "X")
    >>> view.read(slice(1, 3))
    array([[2., 3.],
           [4., 5.]])
    """

    data: NDArray[Any] | Tensor
    name: str

    @property
    def rows(self) -> int:
        """Number of samples n."""
        return int(self.data.shape[0])

    @property
    def dim(self) -> int:
        """Number of features d."""
        return int(self.data.shape[1])

    def read(
        self, rows: slice = slice(None), columns: slice = slice(None), out: Float64 | None = None
    ) -> Float64:
        """A block as float64, written into `out` if given."""
        block = self.data[rows, columns]
        if out is None:
            out = np.empty(tuple(block.shape))
        if isinstance(block, Tensor):
            torch.from_numpy(out).copy_(block)
        else:
            np.copyto(out, block, casting="unsafe")
        return out

    def chunks(self, size: int | None = None) -> Iterator[slice]:
        """Consecutive row slices of `size` rows, by default about 32 MB of float64 each."""
        size = size or chunk_size(self.dim)
        return (slice(i, min(i + size, self.rows)) for i in range(0, self.rows, size))

    def like_input(self, result: Float64) -> NDArray[Any] | Tensor:
        """`result` as the kind of array that was given: float64 stays, all else but integers is
        float32."""
        if isinstance(self.data, Tensor):
            exact = self.data.dtype == torch.float64 or not self.data.is_floating_point()
            dtype = torch.float64 if exact else torch.float32
            return torch.from_numpy(result).to(self.data.device, dtype)
        single = self.data.dtype.kind == "f" and self.data.dtype.itemsize < 8
        return result.astype(np.float32) if single else result

    def refuse_values(self) -> NoReturn:
        """Say what in this view made the arithmetic fail."""
        bad = bad_rows = 0
        for rows in self.chunks():
            wrong = ~np.isfinite(self.read(rows))
            bad += int(wrong.sum())
            bad_rows += int(wrong.any(axis=1).sum())
        if bad:
            raise InputError(
                f"{self.name} contains {bad} NaN or infinite values in {bad_rows} of {self.rows} "
                "rows; remove those samples or fill the gaps."
            )
        raise InputError(
            f"{self.name} holds values so large that their products overflow; rescale it."
        )


def chunk_size(dim: int) -> int:
    """Rows to read at once: enough for efficient products, few enough for little memory."""
    return max(1024, _CHUNK_VALUES // max(dim, 1))


def open_view(data: Any, name: str, dim: int | None = None) -> View:
    """Check that `data` is an (n, d) array of real numbers, with d = `dim` if given.

    Nothing is copied, so a memory-mapped array stays on disk. Lists and data frames are accepted.
    """
    if data is None:
        raise InputError(f"{name} is missing: got None, expected a matrix (samples, features).")
    if np.ma.is_masked(data):
        raise InputError(f"{name} has masked values; fill them, or leave their samples out.")
    if hasattr(data, "toarray"):
        raise InputError(f"{name} is a sparse matrix; pass {name}.toarray().")
    if isinstance(data, Tensor):
        if data.layout != torch.strided:
            raise InputError(f"{name} is a sparse tensor; pass {name}.to_dense().")
        data = data.detach()
        real = not data.is_complex()
    else:
        data = _array(data, name)
        real = data.dtype.kind in "fiub"
    shape = tuple(data.shape)
    if not real:
        raise InputError(f"{name} must hold real numbers, got an array of {data.dtype}.")
    if len(shape) != 2:
        hint = f"; use {name}.reshape(-1, 1) for a single feature" if len(shape) == 1 else ""
        raise InputError(
            f"{name} must be a matrix of shape (samples, features), got shape {shape}{hint}."
        )
    if shape[1] == 0:
        raise InputError(f"{name} has no features: shape {shape}.")
    if dim is not None and shape[1] != dim:
        raise InputError(
            f"{name} has {shape[1]} features, but CCA was fitted with {dim} (got shape {shape})."
        )
    return View(data, name)


def _array(data: Any, name: str) -> NDArray[Any]:
    """`data` as NumPy has it; the columns of a data frame may differ in kind."""
    try:
        array = np.asarray(data)
        if array.dtype == object and hasattr(data, "to_numpy"):
            array = data.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a matrix of real numbers: {error}.") from error
    return array


def open_pair(
    X: Any, Y: Any, dim_x: int | None = None, dim_y: int | None = None
) -> tuple[View, View]:
    """Check two views of the same samples."""
    x, y = open_view(X, "X", dim_x), open_view(Y, "Y", dim_y)
    if x.rows != y.rows:
        raise InputError(
            f"X and Y must be pairs, one row each, but X has {x.rows} rows and Y has {y.rows}."
        )
    return x, y


def project(view: View, mean: Float64, projection: Float64) -> NDArray[Any] | Tensor:
    """(view - mean) @ projection, chunk by chunk, in the kind of array that the view is."""
    result = np.empty((view.rows, projection.shape[1]))
    for rows in view.chunks():
        block = view.read(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            block -= mean
            result[rows] = block @ projection
    if not np.isfinite(result).all():
        view.refuse_values()
    return view.like_input(result)
