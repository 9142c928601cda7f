"""`ccal info`: what a run is, and how it went."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.errors import InputError

if TYPE_CHECKING:
    from ccal.runs import Run

__all__ = ["NAME", "command"]

NAME = "info"


def command(
    run: o.RunFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say what a run was trained on, how well it went, and what can be done with it.

    Needs the folder of a run, finished or not.

    Example:

    `ccal info runs/first`
    """
    from ccal.runs import Run

    facts = describe(Run.open(run, finished=False))
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    lines = _lines(facts)
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")


def describe(run: Run) -> dict[str, Any]:
    """All that is known of a run, as plain values."""
    facts: dict[str, Any] = {
        "run": str(run.path),
        "finished": run.finished,
        "method": run.settings.method,
        "seed": run.settings.seed,
        "data": run.source.as_dict(),
        **{name: run.found[name] for name in ("modalities", "pairs", "train", "valid", "test")},
        "stages": stages(run.metrics()),
        "made_with": dict(run.about),
        "bytes": sum(f.stat().st_size for f in run.path.rglob("*") if f.is_file()),
    }
    if run.finished:
        facts |= {"dim": _dim(run.model_folder), "evaluation": run.evaluation()}
    return facts


def _dim(model: Path) -> int:
    """Features of a saved model, without loading it."""
    try:
        return int(json.loads((model / "config.json").read_text())["dim"])
    except KeyError as error:
        raise InputError(f"The model in {str(model)!r} is damaged: no {error}") from error
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"The model in {str(model)!r} is damaged: {error}") from error


def stages(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Epochs of each stage of training, and the best with its validation measure in per cent.

    The measure is the MRR, or AP@k where a run chose by classes.

    >>> stages([{"stage": "all", "epoch": 1, "mrr_x_to_y": None, "mrr_y_to_x": None}])
    {'all': {'epochs': 1, 'best_epoch': None, 'measure': None, 'valid': None}}
    """
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        blank = {"epochs": 0, "best_epoch": None, "measure": None, "valid": None}
        stage = found.setdefault(str(record.get("stage", "train")), blank)
        epoch = int(record.get("epoch", 0))
        stage["epochs"] = max(stage["epochs"], epoch)
        measure, share = _validation(record)
        # Of equals the last, as in training; metrics.jsonl has shares.
        if share is not None and (stage["valid"] is None or 100 * share >= stage["valid"]):
            stage |= {"best_epoch": epoch, "measure": measure, "valid": 100 * share}
    return found


def _validation(record: dict[str, Any]) -> tuple[str, float | None]:
    """What decided about an epoch, and how good it was."""
    if record.get("score") is not None:
        return "AP@k", record["score"]
    forth, back = record.get("mrr_x_to_y"), record.get("mrr_y_to_x")
    return "MRR", None if forth is None or back is None else (forth + back) / 2


def _stage(name: str, stage: dict[str, Any]) -> str:
    text = f"{name} {stage['epochs']} epochs"
    if stage["valid"] is None:
        return text
    measure = f"validation {stage['measure']} {stage['valid']:.1f}%"
    return f"{text}, best {stage['best_epoch']} ({measure})"


def _lines(facts: dict[str, Any]) -> dict[str, str]:
    first, second = facts["modalities"]
    data = facts["data"]
    seed = f", seed {facts['seed']}"
    origin = f"{data['table']}: {data['x']}, {data['y']}" if "table" in data else None
    lines = {
        "run": facts["run"] + ("" if facts["finished"] else "  (not finished)"),
        "method": facts["method"] + seed,
        "modalities": f"{first} and {second}"
        + (f", {facts['dim']} common features" if "dim" in facts else ""),
        "data": origin or f"{data['x']}, {data['y']}",
        "pairs": f"{facts['pairs']:,}: {facts['train']:,} train, {facts['valid']:,} valid, "
        f"{facts['test']:,} test",
    }
    if facts["stages"]:
        lines["training"] = "; ".join(_stage(*item) for item in facts["stages"].items())
    if facts["finished"]:
        lines |= _result_lines(facts["evaluation"])
    made = facts["made_with"]
    lines["made with"] = f"ccal {made['ccal']}, torch {made['torch']}, {made['created']}"
    lines["on disk"] = f"{facts['bytes'] / 1e6:.1f} MB"
    lines["next"] = _next(facts)
    return lines


def _result_lines(evaluation: dict[str, Any]) -> dict[str, str]:
    lines = {}
    for key in ("x_to_y", "y_to_x"):
        way = evaluation[key]
        interval = f" [{way['low']['mrr']:.1f}, {way['high']['mrr']:.1f}]" if way["low"] else ""
        lines[way["name"]] = (
            f"{evaluation['part']} MRR {way['mrr']:.1f}%{interval}, R@1 {way['r1']:.1f}%, "
            f"R@10 {way['r10']:.1f}%, median rank {way['mr']:g} of {way['candidates']:,}"
        )
    if found := evaluation.get("classes"):
        lines["classes"] = (
            f"{evaluation['part']} AP@{found['k']} {found['ap']:.1f}% by class, "
            f"{found['ap_single']:.1f}% by single query; class of an item right for "
            f"{found['accuracy']:.1f}%; {len(found['precision'])} classes"
        )
    if found := evaluation.get("correlations"):
        held_out = found["held_out_mean"]
        lines["correlations"] = (
            f"mean {found['mean']:.2f} on training pairs (chance {found['chance']:.2f})"
            + ("" if held_out is None else f", {held_out:.2f} held out")
            + f", {found['dimensions']} dimensions"
        )
    if evaluation.get("warnings"):
        lines["warnings"] = " ".join(evaluation["warnings"])
    return lines


def _next(facts: dict[str, Any]) -> str:
    run = shlex.quote(facts["run"])
    if not facts["finished"]:
        return f"ccal train --resume -o {run}"
    report = Path(facts["run"]) / "report.html"
    see = f"open {shlex.quote(str(report))}; " if report.is_file() else ""
    return f"{see}ccal encode {run} {facts['modalities'][1]} INPUT -o embeddings.npy"
