"""A reproduced table as text, Markdown, JSON and HTML, with the figures beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.columns import align
from ccal.data import Pairs
from ccal.encoders import VGG, ResidualVGG
from ccal.evaluation import CorrelationStructure
from ccal.experiments.cells import Task, structure_of
from ccal.experiments.paper_tables import MEASURES, PaperTable
from ccal.files import write_atomically
from ccal.model import load
from ccal.music import SheetAudioPairs, ThinnedPairs
from ccal.optional import require
from ccal.runs.paired_tests import PairedTest, paired_tests
from ccal.training.scoring import embed, embed_pairs

if TYPE_CHECKING:
    from ccal.reports import Example

_SHOWN = 500  # test pairs that the examples of sheet music and sound are drawn from
_LABELS = ("R@1", "R@5", "R@10", "MR", "MRR")
_MISSING = "-"


@dataclass(frozen=True)
class Reproduction:
    """Results by row, one a seed, beside the published rows; print it for a table.

    `chosen` are margin and learning rate of each row if a grid chose them among `grid_values`.
    """

    task: Task
    found: Mapping[str, Sequence[Mapping[str, Any]]]
    chosen: Mapping[str, Mapping[str, float]]
    grid_values: Mapping[str, Sequence[float]]

    @property
    def paper(self) -> PaperTable:
        """The table of the paper."""
        return self.task.paper

    def first_line(self) -> str:
        """Which settings and data differ from the paper's."""
        by_row = {
            row: self.task.plan.differences(self.paper, row, **self.chosen.get(row, {}))
            for row in self.found
            if not self.paper.is_ours(row)
        }
        first = next(iter(by_row.values()), [])
        common = [text for text in first if all(text in own for own in by_row.values())]
        parts = list(common)
        for row, own in by_row.items():
            rest = [d for d in own if d not in common]
            parts += [f"{row}: {', '.join(rest)}"] if rest else []
        seeds = max((len(r) for r in self.found.values()), default=0)
        if seeds != 10:
            parts.append(f"{seeds} repeat{'' if seeds == 1 else 's'} (paper: 10)")
        settings = "; ".join(parts) if parts else "none"
        data = "; ".join(self.task.data.notes) or "none"
        return f"Settings that differ from the paper's: {settings}. Data that differ: {data}."

    def blocks(self, part: str = "test") -> dict[str, list[list[str]]]:
        """The table of each direction below its head, by title.

        Our rows stand above the published ones; first come published rows without one of ours.
        """
        if self.paper.kind == "zero-shot":
            return {"text -> image": [["method", "AP@50"], *self._lines(part, None)]}
        (x, y), head = self.paper.names, ["method", *_LABELS]
        return {
            f"{x} -> {y}": [head, *self._lines(part, 0)],
            f"{y} -> {x}": [head, *self._lines(part, 1)],
        }

    def _lines(self, part: str, way: int | None) -> list[list[str]]:
        published = self.paper.published if part == "test" else {}
        below = self.paper.published_for if part == "test" else {}
        own = slice(None) if way is None else slice(5 * way, 5 * way + 5)
        cells = [
            [f"{name}, published", *map(_published, values[own])]
            for name, values in published.items()
            if name not in below.values()
        ]
        for row, title in self.paper.rows.items():
            if row in self.found:
                cells.append([f"{title}, here", *self._means(row, part, way)])
            if row in below:
                cells.append([f"{title}, paper", *map(_published, published[below[row]][own])])
        return cells

    def _means(self, row: str, part: str, way: int | None) -> list[str]:
        results = self.found[row]
        if way is None:
            return [_spread([r[part]["ap"] for r in results])]
        name = ("x_to_y", "y_to_x")[way]
        return [_spread([r[part][name][measure] for r in results]) for measure in MEASURES]

    @cached_property
    def tests(self) -> list[PairedTest]:
        """Paired tests of all pairs of rows, over test queries or test classes."""
        tests: list[PairedTest] = []
        if self.paper.kind == "zero-shot":
            found = {r: self._scores(r, "precision") for r in self.found}
            return paired_tests("AP@50", "text -> image", found, None, {}) if found else []
        x, y = self.paper.names
        for way, title in (("x_to_y", f"{x} -> {y}"), ("y_to_x", f"{y} -> {x}")):
            found = {r: 100 / self._scores(r, way) for r in self.found}
            tests += paired_tests("MRR", title, found, None, {})
        return tests

    def _scores(self, row: str, name: str) -> torch.Tensor:
        """The mean over seeds of a number for each query; of ranks the harmonic mean."""
        arrays = []
        for result in self.found[row]:
            with np.load(self.task.out / f"{row}-{result['seed']}.npz") as file:
                arrays.append(torch.from_numpy(file[name]).double())
        if name == "precision":
            return torch.stack(arrays).mean(0)
        return 1 / torch.stack([1 / ranks for ranks in arrays]).mean(0)

    def grid(self) -> list[list[str]]:
        """Validation scores of the grid below a head, with a star at what was chosen."""
        rates = self.grid_values["learning_rate"]
        cells = [["method", "margin", *(f"rate {rate:g}" for rate in rates)]]
        for row, chosen in self.chosen.items():
            for margin in self.grid_values["margin"] if "margin" in chosen else (None,):
                line = [row, _MISSING if margin is None else f"{margin:g}"]
                for rate in rates:
                    point = {} if margin is None else {"margin": margin}
                    point["learning_rate"] = rate
                    values = "-".join(f"{name}-{value:g}" for name, value in point.items())
                    path = self.task.out / "grid" / f"{row}-{values}.json"
                    score = json.loads(path.read_text())["validation"]
                    text = _MISSING if score is None else f"{score:.1f}"
                    line.append(f"{text} *" if point == dict(chosen) else text)
                cells.append(line)
        return cells

    def structures(self) -> dict[str, CorrelationStructure]:
        """The correlation structure of the first seed of each row."""
        return {
            self.paper.rows[row]: structure_of(results[0]["correlation"])
            for row, results in self.found.items()
        }

    def __str__(self) -> str:
        return "\n\n".join(
            [
                self.first_line(),
                *(
                    "\n".join([f"{title}. {caption}", *align(cells, left=(0,))])
                    for title, cells, caption in self.sections()
                ),
            ]
        )

    def sections(self) -> list[tuple[str, list[list[str]], str]]:
        """All tables: title, cells below their head, and what they show."""
        found = [
            (f"{self.title()}, {way}", cells, self._cells_mean())
            for way, cells in self.blocks().items()
        ]
        found += [
            (f"In training, {way}", cells, "Among as many training pairs as the test has.")
            for way, cells in self.blocks("train").items()
        ]
        if self.chosen:
            found.append(("Grid", self.grid(), "Scores in % on the validation pairs; * chosen."))
        if len(self.found) > 1 and (tests := [_test_cells(test) for test in self._of_ccal()]):
            head = ["measure", "direction", "method", "against", "difference", "95%", "p (Holm)"]
            words = "Paired randomisation tests over test queries or classes."
            found.append(("CCAL against the others", [head, *tests], words))
        return found

    def title(self) -> str:
        """The table in words."""
        number = "" if self.paper.number is None else f"Table {self.paper.number}: "
        return f"{number}{self.paper.title}"

    def _cells_mean(self) -> str:
        seeds = {row: len(results) for row, results in self.found.items()}
        counts = ", ".join(f"{row} {count}" for row, count in seeds.items())
        first = next(iter(self.found.values()))[0] if self.found else {}
        candidates = ""
        if "x_to_y" in first.get("test", {}):
            count = first["test"]["x_to_y"]["candidates"]
            candidates = f" {count:,} candidates; equal scores count against the right one."
        return f"Means over seeds ± their standard deviation; seeds: {counts}.{candidates}"

    def _of_ccal(self) -> list[PairedTest]:
        """The tests of CCAL, with the paper's settings and with ours, against the other methods."""
        rows = [row for row in self.found if row.endswith(("ccal", "tuned"))]
        tests = [t.seen_from(row) for row in rows for t in self.tests if row in (t.one, t.other)]
        # With two text networks, methods are compared on the same one.
        return [t for t in tests if _network(t.other) in ("", _network(t.one))]

    def to_markdown(self) -> str:
        """Everything that the text has, as Markdown."""
        parts = [self.first_line()]
        for title, cells, caption in self.sections():
            parts += [f"## {title}", _markdown(cells), caption]
        return "\n\n".join(parts) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; what differs from the paper comes first."""
        shown = ("row", "seed", "epochs", "validation", "test", "train", "seconds", "settings")
        return {
            "differs": self.first_line(),
            "table": self.paper.name,
            "hashes": self.task.data.hashes,
            "pairs": self.task.data.sizes(),
            "published": {name: list(cells) for name, cells in self.paper.published.items()},
            "chosen by grid": {row: dict(values) for row, values in self.chosen.items()},
            "runs": [
                {
                    **{name: result[name] for name in shown if name in result},
                    "validation by epoch": _by_epoch(result["records"]),
                }
                for results in self.found.values()
                for result in results
            ],
            "tests": [asdict(test) for test in self.tests] if len(self.found) > 1 else [],
        }

    def write(self, folder: Path) -> None:
        """Write table.txt, table.md and table.json; with matplotlib table.html and figures, too."""
        write_atomically(folder / "table.txt", f"{self}\n".encode())
        write_atomically(folder / "table.md", self.to_markdown().encode())
        text = json.dumps(self.as_dict(), indent=1) + "\n"
        write_atomically(folder / "table.json", text.encode())
        if find_spec("matplotlib") is None or find_spec("jinja2") is None or not self.found:
            return
        from ccal.reports import write_reproduction

        curves = {
            self.paper.rows[row]: [r["records"] for r in results if r["records"]]
            for row, results in self.found.items()
        }
        write_reproduction(
            folder,
            title=self.title(),
            differs=self.first_line(),
            tables=self.sections(),
            curves={name: runs for name, runs in curves.items() if runs},
            structures=self.structures(),
            examples=_examples(self),
        )


def _examples(result: Reproduction) -> list[Example]:
    """Test queries of CCAL, or of another trained row, with what they find."""
    from ccal.reports import pick_classes, pick_examples

    rows = sorted(result.found, key=lambda row: (not row.endswith("ccal"), row == "linear"))
    task, test = result.task, result.task.data.test
    model = load(task.out / f"{rows[0]}-0" / "model")
    if isinstance(test, SheetAudioPairs):
        if not isinstance(model.towers["sheet"], VGG | ResidualVGG):
            return []
        some = ThinnedPairs(test, _SHOWN)
        pictures = [
            _pictures(task.out / "examples", name, view)
            for name, view in zip(model.modalities, some.batch(np.arange(len(some))), strict=True)
        ]
        x, y = embed(model, some, batch_size=256)
        items: dict[str, Any] = dict(zip(("x_items", "y_items"), pictures, strict=True))
        return pick_examples(x, y, names=model.modalities, **items)
    embedded = embed_pairs(model, test)
    shown = [
        _readable(test, name, embedded.first_pairs(modality).numpy())
        for modality, name in enumerate(test.names)
    ]
    if task.paper.kind == "zero-shot":
        queries = embedded.class_queries()
        return pick_classes(embedded.evaluate_classes(), *queries, shows=shown[0], name="image")
    return pick_examples(
        embedded.x,
        embedded.y,
        x_items=shown[0],
        y_items=shown[1],
        groups=embedded.positives,
        names=test.names,
    )


def _readable(pairs: Pairs, name: str, rows: NDArray[np.int64]) -> Any:
    """Items as a page shows them: texts, image files as paths."""
    column = pairs.column(name).select(rows)
    return [Path(path) for path in column[:]] if column.files else column


def _pictures(folder: Path, name: str, view: Tensor) -> list[Path]:
    """Sheets or spectrograms (n, 1, height, width) as grey PNG files, low notes at the bottom."""
    image = require("PIL.Image", extra="music", purpose="Drawing examples")
    folder.mkdir(exist_ok=True)
    paths = []
    for number, picture in enumerate(view[:, 0]):
        shown = picture if name == "sheet" else picture.flip(0)
        grey = (255 * (1 - shown / shown.max().clamp(min=1e-6))).to(torch.uint8)
        paths.append(folder / f"{name}-{number}.png")
        image.fromarray(grey.numpy()).resize((300, 3 * len(grey))).save(paths[-1])
    return paths


def _by_epoch(records: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """The validation score of each epoch in %: AP@50, or the mean MRR of both directions."""
    found = [[r["score"]] if "score" in r else [r["mrr_x_to_y"], r["mrr_y_to_x"]] for r in records]
    # An epoch that diverged has no score.
    return [None if None in values else round(100 * fmean(values), 2) for values in found]


def _published(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{fmean(values):.1f} ± {stdev(values):.1f}"


def _markdown(cells: Sequence[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([rows[0], "| --- " * len(cells[0]) + "|", *rows[1:]])


def _network(row: str) -> str:
    """The text network of a row of a zero-shot table; nothing for other rows."""
    return row.rpartition("-")[0]


def _test_cells(test: PairedTest) -> list[str]:
    return [
        test.measure,
        test.direction,
        test.one,
        test.other,
        f"{test.difference:+.1f}",
        f"[{test.low:+.1f}, {test.high:+.1f}]",
        f"{test.p_holm:.4f}",
    ]
