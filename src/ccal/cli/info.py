"""`ccal info`: what a run is, and how it went."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from ccal.cli import options as o


def command(
    run: o.RunFolder,
    dimensions: Annotated[
        bool,
        typer.Option("--dimensions", help="The words and features behind the dimensions, instead."),
    ] = False,
    first: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many dimensions to show.")
    ] = 5,
    as_json: o.Json = False,
) -> None:
    """Say what a run was trained on, how well it went, and what can be done with it.

    Needs the folder of a run, finished or not. With --dimensions, of a finished one: how much the
    two modalities correlate in each dimension of the common space, and the words (or the numbers of
    features, from 0) at its two ends, with their loadings. A loading is the correlation of a
    feature with the dimension on training pairs.

    Examples:

    `ccal info runs/first`

    `ccal info runs/photos --dimensions --first 3`
    """
    from ccal import runs

    if dimensions:
        described = runs.load(run).dimensions()
        described["dimensions"] = described["dimensions"][:first]
        if as_json:
            print(json.dumps(described, indent=1))
        else:
            print("\n".join(_dimension_lines(described)))
        return
    facts = runs.load(run, finished=False).describe()
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    lines = _lines(facts)
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")


def _dimension_lines(described: dict[str, Any]) -> list[str]:
    lines = [f"Loadings of {described['pairs']:,} training pairs, + and - for the two ends."]
    for found in described["dimensions"]:
        lines.append(
            f"dimension {found['dimension']}: correlation {found['correlation']:.2f} on training "
            f"pairs, {found['held_out']:.2f} on held-out pairs"
        )
        for name, ends in found["loadings"].items():
            kind = "feature " if described["features"][name] == "numbers" else ""
            for sign, end in (("+", "high"), ("-", "low")):
                words = ", ".join(f"{kind}{word} {value:.2f}" for word, value in ends[end])
                lines.append(f"  {name} {sign}  {words or 'nothing beyond noise'}")
    for name, kind in described["features"].items():
        if kind is None:
            lines.append(
                f"{name} has no words or features to list: its towers see pictures or "
                "words in order."
            )
    return lines


def _stage(name: str, stage: dict[str, Any]) -> str:
    from ccal.training.progress import STEP_OF_STAGE

    epochs = stage["epochs"]
    text = f"{STEP_OF_STAGE.get(name, name)}: {epochs} epoch{'' if epochs == 1 else 's'}"
    if stage["valid"] is None:
        return text
    measure = f"validation {stage['measure']} {stage['valid']:.1f}%"
    if stage["candidates"]:
        counts = dict.fromkeys(f"{count:,}" for count in stage["candidates"])
        measure += f" of {' and '.join(counts)} candidates"
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
        + (f", in a common space of {facts['dim']} dimensions" if "dim" in facts else ""),
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
            f"R@10 {way['r10']:.1f}%, median rank {way['mr']:g} of {way['candidates']:,} candidates"
        )
        if valid := evaluation.get("validation", {}).get(key):
            lines[way["name"]] += f"; validation MRR {valid['mrr']:.1f}% of {valid['candidates']:,}"
    if found := evaluation.get("classes"):
        lines["classes"] = (
            f"{evaluation['part']} AP@{found['k']} {found['ap']:.1f}% by class{_averaged(found)}, "
            f"{found['ap_single']:.1f}% by single query; class of an item right for "
            f"{found['accuracy']:.1f}%; {len(found['precision'])} classes"
        )
    if found := evaluation.get("correlations"):
        held_out = found["held_out_mean"]
        lines["correlations"] = (
            f"{found['mean']:.2f} on training pairs, where noise would have {found['chance']:.2f}"
            + ("" if held_out is None else f"; {held_out:.2f} on {evaluation['part']} pairs")
            + f"; means of {found['dimensions']} canonical correlations"
        )
    if evaluation.get("warnings"):
        lines["warnings"] = " ".join(evaluation["warnings"])
    return lines


def _averaged(classes: dict[str, Any]) -> str:
    """AP@k without averaging over neighbours, if the model averages."""
    if "ap_alone" not in classes:
        return ""
    return (
        f" with items averaged over {classes['neighbours']} neighbours "
        f"({classes['ap_alone']:.1f}% with each item by itself)"
    )


def _next(facts: dict[str, Any]) -> str:
    run = shlex.quote(facts["run"])
    if not facts["finished"]:
        return f"ccal train --resume -o {run}"
    report = Path(facts["run"]) / "report.html"
    see = f"open {shlex.quote(str(report))}; " if report.is_file() else ""
    return f"{see}ccal serve {run}; ccal encode {run} {facts['modalities'][1]} INPUT -o FILE.npy"
