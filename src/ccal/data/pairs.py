"""Two named modalities side by side: row i of one belongs to row i of the other."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.data.duplicates import item_numbers
from ccal.errors import InputError

Index: TypeAlias = "slice | Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]"


class Rows:
    """Chosen rows of an array (n, ...) or of a list of n texts, read only when asked for.

    `rows[index]` with a slice, an index array or a mask gives an array, or a list of texts;
    with a whole number it gives one row. `rows.select(index)` chooses again and reads nothing.
    Texts may be the paths of `files`, whose content is meant.

    >>> rows = Rows(np.arange(8).reshape(4, 2), [3, 1])
    >>> len(rows), rows.shape, rows[0]
    (2, (2, 2), array([6, 7]))
    >>> Rows(["a dog", "a cat", "a bird"]).select([2, 0])[:]
    ['a bird', 'a dog']
    """

    def __init__(
        self,
        source: NDArray[Any] | Sequence[str],
        index: Index | None = None,
        *,
        files: bool = False,
    ) -> None:
        self.source, self.files = source, files
        # Of the whole source, once it was asked for; rows chosen from these share the list.
        self._items: list[NDArray[np.int64]] = []
        self.index: NDArray[np.int64] | None = None
        if index is not None:
            self.index = np.arange(len(source))[_as_index(index)]

    @property
    def is_text(self) -> bool:
        """Whether the rows are texts (or paths) rather than numbers."""
        return not isinstance(self.source, np.ndarray)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, ...) of an array, (n,) of texts."""
        rest = self.source.shape[1:] if isinstance(self.source, np.ndarray) else ()
        return (len(self), *rest)

    def select(self, index: Index) -> Rows:
        """Choose among these rows; the source stays where it is."""
        chosen = np.arange(len(self)) if self.index is None else self.index
        rows = Rows(self.source, chosen[_as_index(index)], files=self.files)
        rows._items = self._items
        return rows

    def items(self) -> NDArray[np.int64]:
        """Numbers (n,) that are equal for rows of identical content; see `Pairs.items`."""
        if not self._items:
            self._items.append(item_numbers(self.source, files=self.files))
        return self._items[0] if self.index is None else self._items[0][self.index]

    def __len__(self) -> int:
        return len(self.source) if self.index is None else len(self.index)

    def __getitem__(self, index: int | Index) -> Any:
        if not isinstance(index, slice) and np.ndim(index) == 0:
            number = operator.index(index)  # type: ignore[arg-type]
            return self.source[number if self.index is None else int(self.index[number])]
        if self.index is None and isinstance(index, slice):
            return self.source[index]
        chosen = self.select(index).index  # type: ignore[arg-type]
        assert chosen is not None
        if isinstance(self.source, np.ndarray):
            return np.asarray(self.source[chosen])
        return [self.source[i] for i in chosen.tolist()]


class Pairs:
    """A data set of two modalities, each an array of n rows or a list of n texts.

    `label` (n,) says which class a pair belongs to, `group` (n,) which pairs show the same thing,
    such as the captions of one picture. Indexing with a slice, an index array or a mask gives a
    subset that shares the columns, memory-maps included; a whole number gives one pair.

    >>> pairs = Pairs({"image": np.eye(3), "text": ["a dog", "a cat", "a bird"]}, label=[0, 0, 1])
    >>> pairs
    Pairs(3 rows: image (3, 3) float64, text; label)
    >>> some = pairs[[2, 0]]
    >>> some.column("text")[:], some.label
    (['a bird', 'a dog'], array([1, 0]))
    >>> pairs[1]
    (array([0., 1., 0.]), 'a cat')
    """

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any] | Sequence[str] | Rows],
        *,
        label: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> None:
        if len(columns) != 2:
            raise InputError(f"Pairs have two modalities, got {len(columns)}: {list(columns)}.")
        first, second = columns
        self.names = (first, second)
        self._columns = {name: _rows(name, column) for name, column in columns.items()}
        n, m = (len(column) for column in self._columns.values())
        if n != m:
            raise InputError(
                f"{first} and {second} must be pairs, one row each, "
                f"but {first} has {n} rows and {second} has {m}."
            )
        self.label = _keys("label", label, n)
        self.group = _keys("group", group, n)

    def column(self, name: str) -> Rows:
        """The rows of one modality; `column(name)[:]` reads them all."""
        if name not in self._columns:
            raise InputError(f"No modality {name!r}; there are {list(self.names)}.")
        return self._columns[name]

    def items(self, name: str) -> NDArray[np.int64]:
        """Which item of a modality each row holds: numbers (n,), equal for identical content.

        Identical are equal texts, equal rows of an array, and files of the same bytes. Items are
        compared once, when they are first asked for; subsets share the numbers of their whole.

        >>> pairs = Pairs({"image": np.eye(3)[[0, 0, 1]], "text": ["a dog", "a cat", "a dog"]})
        >>> pairs.items("image"), pairs[1:].items("text")
        (array([0, 0, 1]), array([1, 0]))
        """
        return self.column(name).items()

    def __len__(self) -> int:
        return len(self._columns[self.names[0]])

    @overload
    def __getitem__(self, index: int) -> tuple[Any, Any]: ...

    @overload
    def __getitem__(self, index: Index) -> Pairs: ...

    def __getitem__(self, index: Any) -> Any:
        first, second = (self._columns[name] for name in self.names)
        if not isinstance(index, slice) and np.ndim(index) == 0:
            return first[index], second[index]
        index = _as_index(index)
        return Pairs(
            {name: column.select(index) for name, column in self._columns.items()},
            label=None if self.label is None else self.label[index],
            group=None if self.group is None else self.group[index],
        )

    def __repr__(self) -> str:
        columns = [
            name if column.is_text else f"{name} {column.shape} {column.source.dtype}"  # type: ignore[union-attr]
            for name, column in self._columns.items()
        ]
        keys = [key for key in ("label", "group") if getattr(self, key) is not None]
        return f"Pairs({len(self)} rows: {'; '.join([', '.join(columns), *keys])})"


def _as_index(index: Any) -> Any:
    """An index as NumPy takes it; an empty list is an empty choice, not an array of floats."""
    if isinstance(index, slice):
        return index
    array = np.asarray(index)
    return array.astype(np.int64) if array.size == 0 else array


def _rows(name: str, column: object) -> Rows:
    if isinstance(column, Rows):
        return column
    if isinstance(column, np.ndarray) and column.ndim >= 1 and column.dtype.kind in "fiub":
        return Rows(column)
    if isinstance(column, list | tuple) and all(isinstance(text, str) for text in column):
        return Rows(column)
    raise InputError(
        f"{name} must be a numeric NumPy array or a list of texts, got {type(column).__name__}"
        + (f" of {column.dtype}." if isinstance(column, np.ndarray) else ".")
    )


def _keys(name: str, values: ArrayLike | None, n: int) -> NDArray[Any] | None:
    if values is None:
        return None
    keys = np.asarray(values)
    if keys.shape != (n,):
        raise InputError(f"{name} must have one value a row, shape ({n},), got {keys.shape}.")
    return keys
