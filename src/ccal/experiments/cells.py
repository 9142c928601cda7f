"""One row and seed of a table of the paper: trained, measured, and kept as files.

A cell keeps ROW-SEED.json (settings, validation curve, measures), ROW-SEED.npz (the rank of every
test query, or the precision of every test class) and ROW-SEED/model. It is trained once: a second
call returns what is kept, and an interrupted training goes on.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.data import Pairs
from ccal.encoders import VGG, ResidualVGG
from ccal.errors import InputError
from ccal.evaluation import (
    ClassReport,
    CorrelationStructure,
    correlation_structure,
    evaluate_embeddings,
)
from ccal.experiments.paper_data import TableData, first_pairs, pooled, read_data
from ccal.experiments.paper_tables import PaperTable, Plan, table_of
from ccal.experiments.sheet_audio import train_sheet_audio
from ccal.files import write_atomically
from ccal.model import DualEncoder, load
from ccal.runs.folder import differences
from ccal.training import Settings, ZeroShotOptions, train, train_zero_shot
from ccal.training.scoring import embed, embed_pairs

_EMBEDDED = 4000  # pairs of the correlation figure


@dataclass(frozen=True)
class Task:
    """A table, its data and the plan: what all cells share. It can be sent to another process."""

    table: str
    place: Path
    plan: Plan
    out: Path
    features: Path | None = None

    @cached_property
    def paper(self) -> PaperTable:
        """The table of the paper."""
        return table_of(self.table)

    @cached_property
    def data(self) -> TableData:
        """The pairs, read once in a process."""
        return read_data(self.paper, self.place, self.plan, self.features)

    def __getstate__(self) -> dict[str, Any]:
        fields = ("table", "place", "plan", "out", "features")
        return {name: self.__dict__[name] for name in fields}


@dataclass(frozen=True)
class Cell:
    """A row and a seed with the settings that the grid has chosen for the row.

    A `trial` is a point of the grid: it is trained and validated, not tested. The chosen point is
    not trained again: its cell of seed 0 takes the model of the trial.
    """

    row: str
    seed: int
    chosen: tuple[tuple[str, float], ...] = ()
    trial: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        if not self.trial:
            return f"{self.row}-{self.seed}"
        values = "-".join(f"{name}-{value:g}" for name, value in self.chosen)
        return f"grid/{self.row}-{values}"


def kept_result(task: Task, cell: Cell) -> dict[str, Any] | None:
    """The result of a finished cell, which must be of the same settings and data; else None."""
    path = task.out / f"{cell.name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    asked = {**_settings(task, cell).as_dict(), **task.data.hashes}
    # A setting that is newer than the result had its default.
    settings = Settings.from_mapping(found["settings"]).as_dict()
    if changes := differences({**settings, **found["hashes"]}, asked):
        raise InputError(
            f"{path} was made with other settings or data ({'; '.join(changes)}); name another "
            "folder with --out."
        )
    return found


def run_cell(task: Task, cell: Cell, *, progress: bool = True) -> dict[str, Any]:
    """Train and measure a cell, unless it is kept already."""
    found = kept_result(task, cell)
    if found is not None:
        return found
    started = time.perf_counter()
    folder = task.out / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    trained = _trained_in_grid(task, cell) or _train(task, cell, folder, progress)
    result: dict[str, Any] = {
        "table": task.table,
        "row": cell.row,
        "seed": cell.seed,
        "settings": _settings(task, cell).as_dict(),
        "hashes": task.data.hashes,
        "pairs": task.data.sizes(),
        "epochs": len(trained.records),
        "validation": trained.validation,
        "records": trained.records,
        "facts": trained.facts,
    }
    if not cell.trial:
        result |= _measure(task, trained, task.out / f"{cell.name}.npz")
    trained.model.save(folder / "model")
    result |= {
        "seconds": round(time.perf_counter() - started, 1),
        "threads": torch.get_num_threads(),
    }
    text = json.dumps(result, indent=1) + "\n"
    write_atomically(task.out / f"{cell.name}.json", text.encode())
    for checkpoint in folder.glob("checkpoint-*.pt"):
        checkpoint.unlink()
    return result


@dataclass(frozen=True)
class _Trained:
    """A model, the records of its epochs, and its validation score in %."""

    model: DualEncoder
    records: list[dict[str, Any]]
    validation: float | None
    facts: dict[str, Any]
    candidates: Any = None  # embeds all x of a collection together


def _trained_in_grid(task: Task, cell: Cell) -> _Trained | None:
    """What the grid trained with the settings and the seed of this cell."""
    trial = replace(cell, trial=True)
    if cell.trial or not cell.chosen or cell.seed:
        return None
    found, folder = kept_result(task, trial), task.out / trial.name / "model"
    # A training that diverged has no score, and trials of earlier versions kept no model.
    if found is None or found["validation"] is None or not folder.exists():
        return None
    return _Trained(load(folder), found["records"], found["validation"], found["facts"])


def _settings(task: Task, cell: Cell) -> Settings:
    return task.plan.settings(task.paper, cell.row, cell.seed, **dict(cell.chosen))


def _train(task: Task, cell: Cell, folder: Path, progress: bool) -> _Trained:
    settings, data, kind = _settings(task, cell), task.data, task.paper.kind
    closed_form = task.paper.closed_form(cell.row)
    if kind == "zero-shot" and closed_form:
        options = ZeroShotOptions.classic() if cell.row == "linear" else ZeroShotOptions()
        found = train_zero_shot(data.train, data.valid, options)
        score = float(next(v for n, v in found.facts.items() if n.startswith("validation")))
        return _Trained(found.model, [], score, found.facts, found.candidates)
    with_files: dict[str, Any] = {"folder": folder, "progress": progress}
    if kind == "sheet-audio" and not settings.starts_linear:
        model, history = train_sheet_audio(settings, data.train, data.valid, **with_files)
        best = history.best_mrr
        return _Trained(model, history.records, None if best is None else 100 * best, {})
    pairs = [data.train, data.valid]
    if kind == "sheet-audio":
        pairs = [pooled(part) for part in pairs]
    trained = train(settings, *pairs, resume=True, **with_files)
    return _Trained(trained.model, trained.history, _score(settings, trained), trained.facts)


def _score(settings: Settings, trained: Any) -> float | None:
    """The deciding validation score in %: AP@50, or the MRR of the direction that chooses."""
    if settings.select == "classes":
        scores: list[float] = [r["score"] for r in trained.history if r.get("score") is not None]
        return 100 * max(scores) if scores else None
    ways = {n: trained.validation[n]["mrr"] for n in ("x_to_y", "y_to_x")}
    if settings.select == "both":
        return float(sum(ways.values()) / 2)
    return float(ways["x_to_y" if settings.select == "x->y" else "y_to_x"])


def _measure(task: Task, trained: _Trained, ranks: Path) -> dict[str, Any]:
    """Test measures, the same in training, and the correlations; ranks go to a file."""
    test, some = task.data.test, first_pairs(task.data.train, len(task.data.test))
    if task.paper.kind == "zero-shot":
        report = embed_pairs(trained.model, test, candidates=trained.candidates).evaluate_classes()
        seen = embed_pairs(trained.model, some).evaluate_classes(k=report.k)
        _write_arrays(ranks, precision=report.precision.numpy())
        measures = {"test": _classes(report), "train": _classes(seen)}
    else:
        measures = {"test": _retrieval(task, trained, test)}
        _write_arrays(ranks, **{n: r.numpy() for n, r in measures["test"].pop("ranks").items()})
        measures["train"] = _retrieval(task, trained, some)
        measures["train"].pop("ranks")
    return {**measures, "correlation": _correlation(task, trained)}


def _classes(report: ClassReport) -> dict[str, Any]:
    names = ("k", "ap", "ap_single", "accuracy", "accuracy_5")
    return {name: round(getattr(report, name), 4) for name in names}


def _retrieval(task: Task, trained: _Trained, pairs: Any) -> dict[str, Any]:
    """Measures of both directions, and the ranks."""
    protocol: dict[str, Any] = {"ties": "pessimistic", "bootstrap": 0}
    if isinstance(pairs, Pairs):
        report = embed_pairs(trained.model, pairs).evaluate(**protocol)
    else:
        views = _views(trained.model, pairs)
        report = evaluate_embeddings(*views, names=task.paper.names, **protocol)
    ways = {"x_to_y": report.x_to_y, "y_to_x": report.y_to_x}
    measures = {n: {**w.measures.as_dict(), "candidates": w.candidates} for n, w in ways.items()}
    return {**measures, "ranks": {n: w.ranks for n, w in ways.items()}}


def _views(model: DualEncoder, pairs: Any) -> tuple[Any, Any]:
    """Embeddings (n, k) of both modalities, pair by pair."""
    if isinstance(pairs, Pairs):
        embedded = embed_pairs(model, pairs)
        return embedded.x[embedded.x_rows], embedded.y[embedded.y_rows]
    if isinstance(model.towers["sheet"], VGG | ResidualVGG):
        return embed(model, pairs, batch_size=256)
    flat = pooled(pairs, len(pairs))
    x, y = (model.encode(name, flat.column(name)[:]) for name in flat.names)
    return x, y


def _correlation(task: Task, trained: _Trained) -> dict[str, Any]:
    """The correlation structure of the embeddings, as plain data."""
    views = [
        _views(trained.model, first_pairs(part, _EMBEDDED))
        for part in (task.data.train, task.data.valid)
    ]
    found = correlation_structure(*views[0], held_out=views[1])
    assert found.held_out is not None
    return {**asdict(found), "train": found.train.tolist(), "held_out": found.held_out.tolist()}


def structure_of(kept: Mapping[str, Any]) -> CorrelationStructure:
    """The correlation structure of a result."""
    lists = {n: torch.tensor(kept[n], dtype=torch.float64) for n in ("train", "held_out")}
    return CorrelationStructure(**{**kept, **lists})


def _write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())
