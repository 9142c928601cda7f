"""Rankings and judgements as TREC files, for trec_eval, ranx and other tools."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation.inputs import Array, group_rows, unit_pair
from ccal.files import write_atomically

__all__ = ["export_trec"]


def export_trec(
    folder: str | os.PathLike[str],
    x: Array,
    y: Array,
    *,
    groups: Array | None = None,
    k: int = 100,
    x_ids: Sequence[str] | None = None,
    y_ids: Sequence[str] | None = None,
    names: tuple[str, str] = ("x", "y"),
    tag: str = "ccal",
) -> list[Path]:
    """Write both directions to `folder`: the k best of each query by cosine, and what is right.

    `x` (n, k), `y` (m, k) and `groups` (m,) are those of `two_way_ranks`. The files are
    `x-to-y.run` (query Q0 item rank score tag), `x-to-y.qrels` (query 0 item 1) and the same for
    `y-to-x`, with `names` in place of x and y; each appears whole or not at all. Identifiers
    default to the name and row number, `x0`, `x1`, ...; they may not hold blanks.
    Returns the paths.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = export_trec(folder, torch.eye(2), torch.eye(2), k=1)
    ...     print([path.name for path in paths])
    ...     print(paths[0].read_text(), end="")
    ['x-to-y.run', 'x-to-y.qrels', 'y-to-x.run', 'y-to-x.qrels']
    x0 Q0 y0 1 1 ccal
    x1 Q0 y1 1 1 ccal
    """
    a, b = unit_pair(x, y)
    rows = group_rows(groups, a, b).tolist()
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}.")
    ids_a = _identifiers(x_ids, len(a), names[0], "x_ids")
    ids_b = _identifiers(y_ids, len(b), names[1], "y_ids")
    _identifiers([tag], 1, "", "tag")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    forth, back = f"{names[0]}-to-{names[1]}", f"{names[1]}-to-{names[0]}"
    pairs = sorted((row, column) for column, row in enumerate(rows))
    files: dict[Path, Iterable[str]] = {
        place / f"{forth}.run": _run(a, b, ids_a, ids_b, k, tag),
        place / f"{forth}.qrels": (f"{ids_a[i]} 0 {ids_b[j]} 1\n" for i, j in pairs),
        place / f"{back}.run": _run(b, a, ids_b, ids_a, k, tag),
        place / f"{back}.qrels": (f"{ids_b[j]} 0 {ids_a[i]} 1\n" for j, i in enumerate(rows)),
    }
    for path, lines in files.items():
        write_atomically(path, "".join(lines).encode())
    return list(files)


def _run(
    queries: Tensor,
    items: Tensor,
    query_ids: Sequence[str],
    item_ids: Sequence[str],
    k: int,
    tag: str,
) -> Iterator[str]:
    names = iter(query_ids)
    for part in queries.split(256):
        best = (part @ items.mT).topk(min(k, len(items)))
        for places, scores in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            query = next(names)
            for rank, (i, score) in enumerate(zip(places, scores, strict=True), 1):
                # 17 digits: evaluators sort by score, and rounding would make new ties.
                yield f"{query} Q0 {item_ids[i]} {rank} {score:.17g} {tag}\n"


def _identifiers(
    given: Sequence[str] | None, count: int, name: str, argument: str
) -> Sequence[str]:
    if given is None:
        given = [f"{name}{i}" for i in range(count)]
    if len(given) != count or len(set(given)) != count:
        raise InputError(
            f"{argument} must be {count} different identifiers, got {len(given)}, "
            f"of which {len(set(given))} differ."
        )
    bad = next((item for item in given if item.split() != [item]), None)
    if bad is not None:
        raise InputError(f"TREC files are split at blanks, but {argument} has {bad!r}.")
    return given
