"""Train one run, judge it on held-out pairs, and write down what came out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ccal.cli.console import StoppedError, note
from ccal.cli.examples import find_examples
from ccal.distributed import rank
from ccal.errors import CcalError, InputError
from ccal.evaluation import (
    ClassReport,
    CorrelationStructure,
    Report,
    collapse_warning,
    correlation_structure,
    tie_warning,
)
from ccal.runs import fingerprints
from ccal.training import evaluate, evaluate_zero_shot, train
from ccal.training.hardware import keep_freed_memory
from ccal.training.scoring import shared_view

if TYPE_CHECKING:
    from torch import Tensor

    from ccal.data import Data, Pairs, Source
    from ccal.model import DualEncoder
    from ccal.runs import Run
    from ccal.training import Settings

__all__ = ["Judgement", "check_classes", "judge", "train_run", "write_page"]

_ROWS = 10_000


@dataclass(frozen=True)
class Judgement:
    """How good a model is on some pairs, and what the embeddings look like; print it for a table.

    `classes` says how classes are found, if the pairs have labels.
    """

    part: str
    report: Report
    structure: CorrelationStructure | None
    warnings: tuple[str, ...]
    classes: ClassReport | None = None

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


def check_classes(settings: Settings, source: Source) -> None:
    """Refuse to choose by classes where pairs have none, before anything is read."""
    if settings.select == "classes" and source.label is None and source.layout is None:
        raise InputError(
            "--select classes needs the classes of the pairs: name the column of TABLE that has "
            "them with --label COLUMN."
        )


def train_run(
    run: Run,
    data: Data,
    *,
    resume: bool,
    progress: bool,
    go_on: str,
    report: bool,
    tensorboard: bool = False,
) -> Judgement | None:
    """Train what `run` describes and finish its folder; None on all ranks but the first.

    `go_on` tells a person who stops it how to continue. `report` asks for report.html and plots/.
    Without test pairs the validation pairs are judged on, and so are not trained on at the end.
    """
    keep_freed_memory()
    part = "test" if len(data.split.test) else "valid"
    # Before hours of training, not after them.
    shared_view(data.part(part))
    settings = run.settings if part == "test" else run.settings.changed(train_on_all=False)
    try:
        trained = train(
            settings,
            data.part("train"),
            data.part("valid"),
            folder=run.path,
            resume=resume,
            progress=progress,
            tensorboard=tensorboard,
        )
        if rank() != 0:
            return None
        trained.model.save(run.model_folder)
        judgement = judge(trained.model, data.part(part), part, train=data.part("train"))
        facts = {**_facts(run, trained.model), **trained.facts}
        if settings != run.settings:
            facts["final training"] = "none: there are no test pairs, so the validation pairs judge"
        if report:
            write_page(
                run.path / "report.html",
                run.path.name,
                judgement,
                facts,
                run,
                shown=(trained.model, data.part(part)),
                plots=True,
            )
    except KeyboardInterrupt as error:
        raise StoppedError(go_on, getattr(error, "signal", 2)) from error
    except InputError as error:
        if "lower min_count" in str(error):
            raise InputError(f"{error} Here: --set min_count=1") from error
        raise
    run.finish({**judgement.as_dict(), "facts": facts})
    for checkpoint in run.path.glob("checkpoint-*.pt"):
        checkpoint.unlink()  # for going on, which is over
    return judgement


def judge(
    model: DualEncoder,
    pairs: Pairs,
    part: str,
    *,
    train: Pairs | None = None,
    ties: Literal["optimistic", "pessimistic"] = "optimistic",
    bootstrap: int = 1000,
) -> Judgement:
    """Evaluate a model on pairs; with training pairs also its canonical correlations.

    Pairs with labels say how classes are found, too.
    """
    x, y = _embed(model, pairs)
    problem = collapse_warning(x, y, names=model.modalities)
    if problem:
        ties = "pessimistic"  # with ties in their favour, embeddings all alike would look perfect
    elif ties == "optimistic" and shared_view(pairs)[0] is None:
        problem = tie_warning(x, y, names=model.modalities)
    report = evaluate(model, pairs, ties=ties, bootstrap=bootstrap)
    structure = None
    if train is not None and len(train) > x.shape[1] + 1 and len(pairs) > 1:
        structure = correlation_structure(*_embed(model, train), held_out=(x, y))
    classes = None if pairs.label is None else evaluate_zero_shot(model, pairs)
    return Judgement(part, report, structure, (problem,) if problem else (), classes)


def write_page(
    path: Path,
    title: str,
    judgement: Judgement,
    facts: Mapping[str, str],
    run: Run,
    *,
    shown: tuple[DualEncoder, Pairs],
    plots: bool = False,
) -> None:
    """Write the report as a page, and the plots next to it; say so if matplotlib is missing.

    Examples of what was found are of the model and pairs `shown`.
    """
    structure = judgement.structure
    structures: dict[str, CorrelationStructure] = {}
    if structure is not None:
        structures[run.settings.method] = structure
    records = run.metrics()
    try:
        from ccal.reports import save_plots, write_report

        path.parent.mkdir(parents=True, exist_ok=True)
        write_report(
            path,
            title=title,
            facts=facts,
            report=judgement.report,
            records=records,
            structures=structures,
            examples=find_examples(*shown, judgement.report, judgement.classes),
            classes=judgement.classes,
            warnings=judgement.warnings,
        )
        if plots:
            save_plots(
                path.parent / "plots",
                report=judgement.report,
                records=records,
                structures=structures,
                classes=judgement.classes,
            )
    except InputError:
        raise
    except CcalError as error:  # a package that only plots need
        note(f"warning: no report was written. {error}")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}).") from error


def _facts(run: Run, model: DualEncoder) -> dict[str, str]:
    found = run.found
    names = " and ".join(model.modalities)
    return {
        "method": run.settings.method,
        "modalities": f"{names}, {model.dim} common features",
        "pairs": f"{found['train']:,} train, {found['valid']:,} valid, {found['test']:,} test",
        "seed": str(run.settings.seed),
        "data": run.source.table or f"{run.source.x}, {run.source.y}",
        "fingerprints": fingerprints(found),
        "ccal": f"{run.about['ccal']}, torch {run.about['torch']}",
        "folder": os.fspath(run.path),
    }


def _embed(model: DualEncoder, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Embeddings of both modalities without hub correction, of evenly spaced pairs if many."""
    rows = np.linspace(0, len(pairs) - 1, min(len(pairs), _ROWS)).astype(np.int64)
    x, y = (model.encode(n, pairs.column(n).select(rows)[:], corrected=False) for n in pairs.names)
    return x, y
