"""`evaluate`: how well the model of a run finds counterparts, and what its space looks like.

`export_trec` writes rankings and judgements as TREC files, for trec_eval, ranx and other tools.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ccal.bounds import Options, Whole, check
from ccal.data import Data, Pairs, Source, read_source
from ccal.errors import InputError
from ccal.evaluation import (
    ClassReport,
    CorrelationStructure,
    EmbeddedPairs,
    Report,
    Ties,
    collapse_warning,
    correlation_structure,
    evenly_spaced,
    tie_warning,
)
from ccal.evaluation.calibration import Reliability
from ccal.evaluation.inputs import Array, positives_of, unit_pair
from ccal.files import write_atomically
from ccal.model import DualEncoder
from ccal.positives import Positives
from ccal.runs.folder import Run
from ccal.training import PairFeatures, embed, embed_pairs

Note = Callable[[str], None]
Part = Literal["test", "valid", "train", "all"]

_ROWS = 10_000  # pairs that the diagnostics look at


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on some pairs; print it for a table.

    Attributes:
        part: which pairs: "test", "valid", "train" or "all".
        report: both directions, with intervals.
        structure: canonical correlations on training pairs and on these; None if unknown.
        warnings: reasons to doubt the measures.
        classes: how classes are found, if the pairs have labels.
        pairs: the pairs.
        embedded: their embeddings.
        reliability: of each direction, how often hits called strong, fair and weak were right; none
            if the model has no calibrations.
    """

    part: str
    report: Report
    structure: CorrelationStructure | None
    warnings: tuple[str, ...]
    classes: ClassReport | None
    pairs: Pairs = field(repr=False, compare=False)
    embedded: EmbeddedPairs = field(repr=False, compare=False)
    reliability: tuple[Reliability, ...] = ()

    def __str__(self) -> str:
        parts = [str(self.report)]
        if self.reliability:
            title = "Of the first 10 hits of each query, as a search calls them:"
            parts.append("\n".join([title, *map(str, self.reliability)]))
        if self.classes is not None:
            parts.append(str(self.classes))
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Numbers and names only, ready for JSON."""
        content: dict[str, Any] = {"part": self.part, **self.report.as_dict()}
        if self.structure is not None:
            held_out = self.structure.held_out
            content["correlations"] = {
                "mean": float(self.structure.train.mean()),
                "held_out_mean": None if held_out is None else float(held_out.mean()),
                "chance": self.structure.chance,
                "dimensions": len(self.structure.train),
                "pairs": self.structure.samples,
            }
        if self.classes is not None:
            content["classes"] = self.classes.as_dict()
        content["reliability"] = [direction.as_dict() for direction in self.reliability]
        return {**content, "warnings": list(self.warnings)}

    def export_trec(self, folder: str | os.PathLike[str], *, k: int = 100) -> list[Path]:
        """Write rankings and judgements for trec_eval and its kin; returns the paths."""
        pairs = self.embedded
        return export_trec(folder, pairs.x, pairs.y, groups=pairs.positives, k=k, names=pairs.names)


def measure(
    model: DualEncoder,
    pairs: Pairs,
    part: str,
    *,
    train: Pairs | PairFeatures | None = None,
    ties: Ties = "pessimistic",
    bootstrap: int = 1000,
) -> Evaluation:
    """Embed pairs once, and measure all that can be said about them.

    With training pairs, or their features if there are any by now, canonical correlations are
    measured, too. Where embeddings have collapsed, ties count against the right candidate in any
    case: in its favour they would look perfect.
    """
    embedded = embed_pairs(model, pairs)
    x, y = embedded.raw_pairs(_ROWS)
    problem = collapse_warning(x, y, names=model.modalities)
    if problem:
        ties = "pessimistic"
    else:
        some_x, some_y, positives = embedded.raw_items(_ROWS)
        problem = tie_warning(some_x, some_y, groups=positives, names=model.modalities)
    structure = None
    if train is not None and len(train) > x.shape[1] + 1 and len(pairs) > 1:
        if isinstance(train, Pairs):
            some = train[evenly_spaced(len(train), _ROWS).numpy()]
            train = PairFeatures(some, model.front_ends)
        structure = correlation_structure(*embed(model, train, at_most=_ROWS), held_out=(x, y))
    return Evaluation(
        part,
        embedded.evaluate(ties=ties, bootstrap=bootstrap),
        structure,
        (problem,) if problem else (),
        None if pairs.label is None else embedded.evaluate_classes(),
        pairs,
        embedded,
        embedded.reliability(model.calibrations),
    )


def evaluate(
    run: Run | str | os.PathLike[str],
    source: Source | None = None,
    *,
    split: Part | None = None,
    classes: str | None = None,
    ties: Ties = "pessimistic",
    bootstrap: int = 1000,
    force: bool = False,
    report: str | os.PathLike[str] | None = None,
    note: Note = lambda text: None,
) -> Evaluation:
    """Measure how well each modality of a run finds the other; what `ccal evaluate` does.

    Args:
        run: a finished run, or its folder.
        source: other pairs of the same two modalities; None for the run's own.
        split: which of the pairs: "test" (the default for the run's own pairs), "valid", "train" or
            "all" (the default for others, which have parts only with a `split_column`).
        classes: column of classes in the run's own table, if it was trained without labels.
        ties: equal scores count against the right candidate, or for it ("optimistic").
        bootstrap: draws for the 95% intervals; 0 for none.
        force: accept data that have changed since the run was trained.
        report: an HTML file to write with plots and examples (extra `plots`).
        note: is given remarks for people; those that begin with "warning: " cast doubt.
    """
    check("split", split, Options(None, "test", "valid", "train", "all"))
    opened = run if isinstance(run, Run) else Run.open(run)
    if source is not None and classes is not None:
        raise InputError(
            "--classes is for the run's own pairs; for others there is --label, or Source(label=)."
        )
    train = None
    if source is None:
        data = read_source(opened.source)
        try:
            opened.check_unchanged(data.facts())
        except InputError as error:
            if not force:
                raise InputError(f"{error} Go on with --force, or force=True.") from error
            note(f"warning: {error}")
        part = split or ("test" if len(data.split.test) else "valid")
        if part != "test":
            # Training chooses by validation pairs, and may train on them in the end.
            note(f"warning: training has used the {part} pairs; figures of new pairs may be lower.")
        data = data if classes is None else _with_classes(opened, data, classes)
        train = data.part("train")
    else:
        data, part = _others(opened, source, split, note)
    pairs = data.pairs if part == "all" else data.part(part)
    if len(pairs) == 0:
        raise InputError(f"There are no {part} pairs in the data of {opened.path}.")
    found = measure(opened.model(), pairs, part, train=train, ties=ties, bootstrap=bootstrap)
    if report is not None:
        from ccal.runs.run_page import write_page

        facts = {"run": str(opened.path), "method": opened.settings.method, "pairs": part}
        write_page(Path(report), f"{opened.path.name}: {part}", found, facts, opened, note=note)
    return found


def _others(run: Run, source: Source, split: Part | None, note: Note) -> tuple[Data, Part]:
    """Pairs that are not the run's own, and the part of them to evaluate."""
    # Nothing is trained, so only a column can split them.
    data = read_source(replace(source, valid=0, test=0))
    for text in data.notes:
        note(f"warning: {text}")
    names = tuple(run.found["modalities"])
    if data.pairs.names != names:
        raise InputError(
            f"{run.path} joins {' and '.join(names)}, these pairs are of "
            f"{' and '.join(data.pairs.names)}; name them, as in --x {names[0]}=WHAT."
        )
    part: Part = split or ("all" if source.split_column is None else "test")
    if part != "all" and source.split_column is None:
        raise InputError(
            f"--split {part} of other data needs --split-column, or Source(split_column=)."
        )
    return data, part


def _with_classes(run: Run, data: Data, column: str) -> Data:
    """The same pairs and split, with the labels in a column of the run's table."""
    if run.source.table is None or run.source.layout is not None:
        raise InputError(f"--classes {column}: the pairs of {run.path} come from no table.")
    labelled = read_source(replace(run.source, label=column)).pairs
    if len(labelled) != len(data.pairs):
        raise InputError(
            f"--classes {column}: {len(data.pairs) - len(labelled):,} of {len(data.pairs):,} pairs "
            "have no class in this column."
        )
    columns = {name: data.pairs.column(name) for name in data.pairs.names}
    pairs = Pairs(columns, label=labelled.label, group=data.pairs.group)
    return replace(data, pairs=pairs)


def export_trec(
    folder: str | os.PathLike[str],
    x: Array,
    y: Array,
    *,
    groups: Array | Positives | None = None,
    k: int = 100,
    x_ids: Sequence[str] | None = None,
    y_ids: Sequence[str] | None = None,
    names: tuple[str, str] = ("x", "y"),
) -> list[Path]:
    """Write both directions to `folder`: the k best of each query by cosine, and what is right.

    `x` (n, k), `y` (m, k) and `groups` (m,) are those of `two_way_ranks`. The files are
    `x-to-y.run` (query Q0 item rank score ccal), `x-to-y.qrels` (query 0 item 1) and the same for
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
    links = torch.stack(positives_of(groups, a, b).links(), 1).unique(dim=0).tolist()
    check("k", k, Whole(at_least=1))
    ids_a = _identifiers(x_ids, len(a), names[0], "x_ids")
    ids_b = _identifiers(y_ids, len(b), names[1], "y_ids")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    forth, back = f"{names[0]}-to-{names[1]}", f"{names[1]}-to-{names[0]}"
    files: dict[Path, Iterable[str]] = {
        target / f"{forth}.run": _run(a, b, ids_a, ids_b, k),
        target / f"{forth}.qrels": (f"{ids_a[i]} 0 {ids_b[j]} 1\n" for i, j in links),
        target / f"{back}.run": _run(b, a, ids_b, ids_a, k),
        target / f"{back}.qrels": (
            f"{ids_b[j]} 0 {ids_a[i]} 1\n" for i, j in sorted(links, key=lambda link: link[1])
        ),
    }
    for path, lines in files.items():
        write_atomically(path, "".join(lines).encode())
    return list(files)


def _run(
    queries: Tensor, items: Tensor, query_ids: Sequence[str], item_ids: Sequence[str], k: int
) -> Iterator[str]:
    names = iter(query_ids)
    for part in queries.split(256):
        best = (part @ items.mT).topk(min(k, len(items)))
        for rows, scores in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            query = next(names)
            for rank, (i, score) in enumerate(zip(rows, scores, strict=True), 1):
                # 17 digits: evaluators sort by score, and rounding would make new ties.
                yield f"{query} Q0 {item_ids[i]} {rank} {score:.17g} ccal\n"


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
