"""What benchmarks.codes found, as tables in Markdown and as a drawing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ccal.reports.style import WIDE, arrow, drawing, label_legend, look, new_figure, panel, render

NAMES = {
    "sign": "signs",
    "itq": "ITQ",
    "ranking": "ranking loss",
    "through": "ranking loss, through the towers",
}
Runs = dict[str, list[dict[str, Any]]]


def grouped(found: dict[str, Any]) -> Runs:
    """Runs of the same data and method, by their name without the seed."""
    groups: Runs = {}
    for key, run in found.items():
        groups.setdefault(key.rsplit(" ", 1)[0], []).append(run)
    return groups


def tables(found: dict[str, Any]) -> str:
    parts = []
    for name, runs in grouped(found).items():
        first = runs[0]
        seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
        parts.append(
            f"## {name}: {first['pairs']:,} training pairs, {first['candidates']:,} candidates, "
            f"{first['dim']} dimensions, {seeds}"
        )
        parts.append(table(runs, "codes", "form | bytes", partial(code_cells, run=first)))
        parts.append(table(runs, "dims", "dimensions | bytes", dims_cells))
        parts.append(table(runs, "hubs", "correction", partial(hub_cells, run=first)))
    return "\n\n".join(parts)


def table(
    runs: list[dict[str, Any]], section: str, heading: str, cells: Callable[[str], list[str]]
) -> str:
    """Means over the runs, and the spread of MRR over them."""
    rows = list(dict.fromkeys(row for run in runs for row in run[section]))
    ways = list(runs[0][section][rows[0]])
    measures = " | ".join(f"{way}: MRR | R@10" for way in ways)
    lines = [f"| {heading} | {measures} |"]
    lines.append("| --- " * (lines[0].count("|") - 1) + "|")
    for row in rows:
        line, having = cells(row), [run[section][row] for run in runs if row in run[section]]
        if len(having) < len(runs):
            line[0] += f" (seeds: {len(having)})"
        for way in ways:
            mrr, r10 = (np.array([found[way][name] for found in having]) for name in ("mrr", "r10"))
            spread = f" ± {mrr.std(ddof=1):.1f}" if len(having) > 1 else ""
            line += [f"{mrr.mean():.1f}{spread}", f"{r10.mean():.1f}"]
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def code_cells(row: str, run: dict[str, Any]) -> list[str]:
    words = row.split()
    if words[0] == "float32":
        corrected = run["hub weight"] is not None and len(words) == 1
        size = 4 * (run["dim"] + (4 if corrected else 0))
        return [f"float32{', hub correction' if corrected else ''}", f"{size:,}"]
    again = f", first {words[3]} ranked anew" if len(words) > 2 else ""
    return [NAMES[words[0]] + again, words[1]]


def dims_cells(row: str) -> list[str]:
    kind, dims = row.split()
    return [f"{dims}, {kind}", f"{int(dims) * (4 if kind == 'float32' else 2):,}"]


def hub_cells(row: str, run: dict[str, Any]) -> list[str]:
    weight = run["hub weight"]
    if row == "HubCorrection":
        chosen = "not chosen" if weight is None else "chosen on validation pairs"
        return [f"`HubCorrection`, weight {0.5 if weight is None else weight:g} ({chosen})"]
    return [row.replace(", training", " of training queries").replace(", batch", " of the batch")]


def draw(found: dict[str, Any], path: Path) -> None:
    """MRR, the mean of both directions, against bytes per item; a panel for each data set."""
    groups = grouped(found)
    with drawing():
        figure = new_figure(WIDE, 3.4)
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        lines: dict[str, Any] = {}
        # A form looks the same in every panel, also where another is missing.
        labels = list(dict.fromkeys(label for runs in groups.values() for label in _series(runs)))
        for axes, (name, runs) in zip(panels, groups.items(), strict=True):
            panel(axes, arrow(name), x="bytes per item to search in", y="MRR (%), both directions")
            axes.set_xscale("log", base=2)
            for label, points in _series(runs).items():
                colour, marker = look(labels.index(label))
                style = "--" if "anew" in label else "-"
                x, y = zip(*sorted(points), strict=True)
                (lines[label],) = axes.plot(
                    x, y, color=colour, marker=marker, markersize=4.5, linestyle=style
                )
            ticks = [8, 16, 32, 64, 128, 256, 512, 1024]
            axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
        label_legend(figure, list(lines.values()), list(lines), loc="outside lower center", ncols=3)
    path.write_bytes(render(figure, "svg"))


def _series(runs: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Points (bytes, MRR) of each line."""
    found: dict[str, list[tuple[int, float]]] = {}
    for section in ("dims", "codes"):
        for row in runs[0][section]:
            if not all(row in run[section] for run in runs):
                continue  # a mean over fewer seeds is no point of the same line
            words = row.split()
            # Ranked anew, all kinds of codes are as good as float32: one line tells it.
            anew = section == "codes" and len(words) > 2 and words[0] != "itq"
            if anew or (section == "codes" and words[0] in ("float32", "through")):
                continue
            cells = dims_cells(row) if section == "dims" else code_cells(row, runs[0])
            label = f"leading dimensions, {words[0]}" if section == "dims" else cells[0]
            mrr = np.mean([[way["mrr"] for way in run[section][row].values()] for run in runs])
            found.setdefault(label, []).append((int(cells[1].replace(",", "")), float(mrr)))
    return found
