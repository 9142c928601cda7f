"""`evaluate`: how well the model of a run finds counterparts, and what its space looks like."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ccal.bounds import Options, check
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
from ccal.model import DualEncoder
from ccal.runs.folder import Run
from ccal.runs.trec import export_trec
from ccal.training import PairFeatures, embed, embed_pairs

__all__ = ["Evaluation", "Note", "evaluate", "measure"]

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
    """

    part: str
    report: Report
    structure: CorrelationStructure | None
    warnings: tuple[str, ...]
    classes: ClassReport | None
    pairs: Pairs = field(repr=False, compare=False)
    embedded: EmbeddedPairs = field(repr=False, compare=False)

    def __str__(self) -> str:
        return str(self.report) if self.classes is None else f"{self.report}\n\n{self.classes}"

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
        return {**content, "warnings": list(self.warnings)}

    def export_trec(self, folder: str | os.PathLike[str], *, k: int = 100) -> list[Path]:
        """Write rankings and judgements for trec_eval and its kin; returns the paths."""
        x, y, groups, names = self.embedded.shared_first()
        return export_trec(folder, x, y, groups=groups, k=k, names=names)


def measure(
    model: DualEncoder,
    pairs: Pairs,
    part: str,
    *,
    train: PairFeatures | None = None,
    ties: Ties = "optimistic",
    bootstrap: int = 1000,
) -> Evaluation:
    """Embed pairs once, and measure all that can be said about them.

    With features of training pairs, canonical correlations are measured, too. Where embeddings have
    collapsed, ties count against the right candidate: in its favour they would look perfect.
    """
    embedded = embed_pairs(model, pairs)
    x, y = embedded.raw_pairs(_ROWS)
    problem = collapse_warning(x, y, names=model.modalities)
    if problem:
        ties = "pessimistic"
    elif ties == "optimistic" and embedded.shared is None:
        problem = tie_warning(x, y, names=model.modalities)
    structure = None
    if train is not None and len(train) > x.shape[1] + 1 and len(pairs) > 1:
        structure = correlation_structure(*embed(model, train, at_most=_ROWS), held_out=(x, y))
    return Evaluation(
        part,
        embedded.evaluate(ties=ties, bootstrap=bootstrap),
        structure,
        (problem,) if problem else (),
        None if pairs.label is None else embedded.evaluate_classes(),
        pairs,
        embedded,
    )


def evaluate(
    run: Run | str | os.PathLike[str],
    source: Source | None = None,
    *,
    split: Part | None = None,
    classes: str | None = None,
    ties: Ties = "optimistic",
    bootstrap: int = 1000,
    force: bool = False,
    note: Note = lambda text: None,
) -> Evaluation:
    """Measure how well each modality of a run finds the other; what `ccal evaluate` does.

    Args:
        run: a finished run, or its folder.
        source: other pairs of the same two modalities; None for the run's own.
        split: which of the pairs: "test" (the default for the run's own pairs), "valid", "train" or
            "all" (the default for others, which have parts only with a `split_column`).
        classes: column of classes in the run's own table, if it was trained without labels.
        ties: equal scores count for the right candidate ("optimistic") or against it.
        bootstrap: draws for the 95% intervals; 0 for none.
        force: accept data that have changed since the run was trained.
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
            note(f"warning: training has used {part} pairs; new ones may do worse.")
        data = data if classes is None else _with_classes(opened, data, classes)
        train = data.part("train")
    else:
        data, part = _others(opened, source, split, note)
    pairs = data.pairs if part == "all" else data.part(part)
    if len(pairs) == 0:
        raise InputError(f"There are no {part} pairs in the data of {opened.path}.")
    model = opened.model()
    features = None
    if train is not None and len(train):
        some = train[evenly_spaced(len(train), _ROWS).numpy()]
        features = PairFeatures(some, model.front_ends)
    return measure(model, pairs, part, train=features, ties=ties, bootstrap=bootstrap)


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
