"""Views as users hold them: NumPy arrays, memory maps and tensors, read in pieces.

`stream` computes the moments of two views in one pass without holding either in memory.
`SampleSpan` is the dual form, for a view with more features than samples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca.statistics import Moments
from ccal.errors import InputError

Float64 = NDArray[np.float64]

# Values read at a time: 32 MB of float64.
_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True)
class ArrayView:
    """An (n, d) array that is read in pieces, as float64.

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

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows as they are."""
        block = self.data[rows]
        return block.cpu().double().numpy() if isinstance(block, Tensor) else np.asarray(block)

    def chunks(self, size: int | None = None) -> Iterator[slice]:
        """Consecutive row slices of `size` rows, by default about 32 MB of float64 each."""
        size = size or chunk_size(self.dim)
        return (slice(i, min(i + size, self.rows)) for i in range(0, self.rows, size))

    def like_input(self, result: Float64) -> NDArray[Any] | Tensor:
        """`result` as the kind of array that was given.

        float64 and integer input gives float64, every other floating type float32.
        """
        if isinstance(self.data, Tensor):
            exact = self.data.dtype == torch.float64 or not self.data.is_floating_point()
            dtype = torch.float64 if exact else torch.float32
            return torch.from_numpy(result).to(self.data.device, dtype)
        single = self.data.dtype.kind == "f" and self.data.dtype.itemsize < 8
        return result.astype(np.float32) if single else result

    def refuse_values(self) -> NoReturn:
        """Raise the error that explains why the arithmetic failed on this view."""
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


class _NotNumbersError(InputError, TypeError):
    """An array holds objects that are no numbers."""


def open_view(data: Any, name: str, dim: int | None = None, *, column: bool = False) -> ArrayView:
    """Check that `data` is an (n, d) array of real numbers, with d = `dim` if given.

    Nothing is copied, so a memory-mapped array stays on disk. Lists, data frames and arrays of
    Python numbers are accepted. With `column`, an (n,) array is one column.
    """
    if data is None:
        raise InputError(
            f"{name} is missing. Expected array-like (array or non-string sequence), got None; "
            "pass a matrix of shape (samples, features)."
        )
    if np.ma.is_masked(data):
        raise InputError(f"{name} has masked values; fill them, or leave their samples out.")
    if hasattr(data, "toarray"):
        raise InputError(f"{name} is a sparse matrix; pass {name}.toarray().")
    if isinstance(data, Tensor):
        if data.layout != torch.strided:
            raise InputError(f"{name} is a sparse tensor; pass {name}.to_dense().")
        data = data.detach()
        kind = "c" if data.is_complex() else "f"
    else:
        data = _array(data, name)
        kind = data.dtype.kind
    if kind not in "fiub":
        reason = "Complex data not supported: " if kind == "c" else ""
        raise InputError(f"{reason}{name} must hold real numbers, got an array of {data.dtype}.")
    shape = tuple(data.shape)
    if column and len(shape) == 1:
        data = data[:, None]
    elif len(shape) != 2:
        hint = (
            f" Reshape your data: {name}.reshape(-1, 1) for a single feature, "
            f"{name}.reshape(1, -1) for a single sample."
        )
        raise InputError(
            f"{name} must be a matrix of shape (samples, features), got shape {shape}."
            f"{hint if len(shape) == 1 else ''}"
        )
    features = data.shape[1]
    if features == 0:
        raise InputError(
            f"{name} has 0 feature(s) (shape={shape}) while a minimum of 1 is required."
        )
    if dim is not None and features != dim:
        raise InputError(
            f"{name} has {features} features, but CCA is expecting {dim} features as input, as in "
            f"fit (got shape {shape})."
        )
    return ArrayView(data, name)


def _array(data: Any, name: str) -> NDArray[Any]:
    """`data` as NumPy has it; the columns of a data frame may differ in kind."""
    try:
        array = np.asarray(data)
        if array.dtype == object:
            frame = hasattr(data, "to_numpy")
            array = data.to_numpy(np.float64, na_value=np.nan) if frame else array.astype(float)
    except (TypeError, ValueError) as error:
        kind = _NotNumbersError if isinstance(error, TypeError) else InputError
        raise kind(f"{name} must be a matrix of real numbers: {error}.") from error
    return array


def open_pair(
    X: Any, Y: Any, dim_x: int | None = None, dim_y: int | None = None
) -> tuple[ArrayView, ArrayView]:
    """Check two views of the same samples; Y (n,) is one column."""
    x, y = open_view(X, "X", dim_x), open_view(Y, "Y", dim_y, column=True)
    if x.rows != y.rows:
        raise InputError(
            f"X and Y must be pairs, one row each, but X has {x.rows} rows and Y has {y.rows}."
        )
    return x, y


def project_view(
    view: ArrayView, mean: Float64, *factors: Float64, offset: Float64 | float = 0.0
) -> NDArray[Any] | Tensor:
    """(view - mean) @ factor @ ... + offset, in chunks, as the kind of array that the view is."""
    result = np.empty((view.rows, factors[-1].shape[1]))
    for rows in view.chunks():
        block = view.read(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            block -= mean
            for factor in factors:
                block = block @ factor
            result[rows] = block + offset
    if not np.isfinite(result).all():
        view.refuse_values()
    return view.like_input(result)


def stream(
    x: ArrayView,
    y: ArrayView,
    held_out: Sequence[NDArray[np.int64]] = (),
    *,
    chunk_rows: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Moments, list[tuple[Tensor, Tensor]]]:
    """Read both views once, `chunk_rows` rows at a time.

    Returns the moments of all rows outside of the sets `held_out`, and the samples of each of
    those sets, (h, d_x) and (h, d_y). `progress` is told how many rows are read, of how many.

    >>> X = np.arange(8.0).reshape(4, 2)
    >>> moments, [(held_x, held_y)] = stream(*open_pair(X, X), [np.array([3])])
    >>> moments.count, held_x
    (3, tensor([[6., 7.]], dtype=torch.float64))
    """
    size = chunk_rows or chunk_size(x.dim + y.dim)
    buffer = np.empty((min(size, x.rows), x.dim + y.dim))
    held = np.sort(np.concatenate([np.empty(0, np.int64), *held_out]))
    samples = np.empty((len(held), x.dim + y.dim))
    total: Moments | None = None
    for rows in x.chunks(size):
        z = buffer[: rows.stop - rows.start]
        x.read(rows, out=z[:, : x.dim])
        y.read(rows, out=z[:, x.dim :])
        first, last = np.searchsorted(held, (rows.start, rows.stop))
        if last > first:
            inside = held[first:last] - rows.start
            samples[first:last] = z[inside]
            z = np.delete(z, inside, axis=0)
        if len(z):
            moments = _moments_in_place(z, x, y)
            total = moments if total is None else total + moments
        if progress is not None:
            progress(rows.stop, x.rows)
    if total is None:
        raise InputError(f"CCA needs pairs to learn from, got {x.rows} rows.")
    _refuse(samples.sum(axis=0), x, y)
    folds = [torch.from_numpy(samples[np.searchsorted(held, rows)]) for rows in held_out]
    return total, [(fold[:, : x.dim], fold[:, x.dim :]) for fold in folds]


def _moments_in_place(z: Float64, x: ArrayView, y: ArrayView) -> Moments:
    """Moments of the rows `z` = [x, y], which are centred in place."""
    d = x.dim
    with np.errstate(invalid="ignore", over="ignore"):
        mean = z.mean(axis=0)
        z -= mean
        # z'z holds all three products, and NumPy computes only half of it (syrk), which is half the
        # work of three separate products in torch.
        products = z.T @ z
    _refuse(products.diagonal(), x, y)
    p, m = torch.from_numpy(products), torch.from_numpy(mean)
    return Moments(len(z), m[:d], m[d:], p[:d, :d], p[d:, d:], p[:d, d:])


def _refuse(totals: Float64, x: ArrayView, y: ArrayView) -> None:
    """Refuse the view whose features have totals, among (d_x + d_y,), that are not finite."""
    if not np.isfinite(totals).all():
        (y if np.isfinite(totals[: x.dim]).all() else x).refuse_values()


class SampleSpan:
    """Coordinates of n samples in the at most n - 1 directions that they span.

    The centred view is X = Z Q' with Q (d, r) orthonormal, so Z (n, r) has the same inner products
    and ridge CCA of Z is ridge CCA of X: projections of X lie in the span, A = Q A_z. Z and Q
    come from the n x n Gram matrix X X' = E diag(l) E' as Z = E diag(l)^1/2 and
    Q = X' E diag(l)^-1/2; neither Q nor a d x d matrix is ever built.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4, 50))
    >>> span = SampleSpan(open_view(X, "X"))
    >>> Z = span.coordinates.read()
    >>> Z.shape, bool(np.allclose(Z @ Z.T, (X - X.mean(0)) @ (X - X.mean(0)).T))
    ((4, 3), True)
    """

    def __init__(self, view: ArrayView) -> None:
        self.view = view
        self.mean = np.empty(view.dim)
        gram = np.zeros((view.rows, view.rows))
        for columns in self._blocks():
            block = view.read(columns=columns)
            with np.errstate(invalid="ignore", over="ignore"):
                self.mean[columns] = block.mean(axis=0)
                block -= self.mean[columns]
                gram += block @ block.T
        if not np.isfinite(gram.diagonal()).all():
            view.refuse_values()
        values, vectors = (t.numpy() for t in torch.linalg.eigh(torch.from_numpy(gram)))
        # Centring removes one dimension, whose eigenvalue is rounding error.
        kept = values > view.rows * np.finfo(np.float64).eps * values[-1]
        kept[0] = False
        kept[-1] = True
        root = np.sqrt(np.maximum(values[kept], np.finfo(np.float64).tiny))
        self._directions = vectors[:, kept] / root
        self.coordinates = open_view(vectors[:, kept] * root, view.name)

    def project(self, block: Float64) -> Float64:
        """Coordinates (m, r) of other rows (m, d): what of them lies in the span."""
        products = np.zeros((len(block), self.view.rows))
        for columns in self._blocks():
            samples = self.view.read(columns=columns) - self.mean[columns]
            products += (block[:, columns] - self.mean[columns]) @ samples.T
        coordinates: Float64 = products @ self._directions
        return coordinates

    def lift(self, projection: Float64) -> Float64:
        """Projection (r, k) of the coordinates as a projection (d, k) of the view."""
        weights = self._directions @ projection
        lifted = np.empty((self.view.dim, projection.shape[1]))
        for columns in self._blocks():
            block = self.view.read(columns=columns)
            block -= self.mean[columns]
            lifted[columns] = block.T @ weights
        return lifted

    def _blocks(self) -> list[slice]:
        size = max(512, _CHUNK_VALUES // self.view.rows)
        return [slice(i, i + size) for i in range(0, self.view.dim, size)]
