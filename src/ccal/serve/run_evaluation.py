"""The measured quality of a model: the evaluation of its run, with plots and report."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccal.errors import InputError
from ccal.runs import Run
from ccal.serve.collection import UnknownItemError

_PLOTS = {
    "ranks": (
        "The share of queries whose counterpart is among the first k. The further up and left, the "
        "better.",
        "Line plot of the share of queries whose counterpart is among the first k, by k.",
    ),
    "correlation": (
        "How strongly each pair of directions of the two views is correlated, on training pairs "
        "(solid) and on held-out pairs (dashed); dotted is what CCA finds in noise.",
        "Line plot of the canonical correlations by dimension.",
    ),
    "training": (
        "Loss and validation MRR by epoch. The solid vertical line is the best epoch.",
        "Line plots of the training loss and of the validation MRR by epoch.",
    ),
}
_WAYS, _ABOUT = ("x_to_y", "y_to_x"), ("name", "queries", "candidates")
_ADDRESS = "/api/evaluation"
_TYPES = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass(frozen=True)
class RunEvaluation:
    """The folder of a finished run, its measures, and what is known of its dimensions.

    Runs of earlier versions know nothing of their dimensions.
    """

    folder: Path
    measures: dict[str, Any]
    dimensions: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Measures of both directions, facts, and addresses of the plots that exist."""
        known = self.measures
        return {
            "part": known.get("part"),
            "directions": [
                _direction(known[way], known.get("validation") or {}, way)
                for way in _WAYS
                if way in known
            ],
            "facts": {k: _named(str(v)) for k, v in known.get("facts", {}).items()},
            "correlations": known.get("correlations"),
            "reliability": known.get("reliability") or [],
            "warnings": known.get("warnings", []),
            "plots": [
                {"name": name, "caption": caption, "alt": alternative}
                | {type: f"{_ADDRESS}/plot?name={name}&type={type}" for type in _TYPES}
                for name, (caption, alternative) in _PLOTS.items()
                if self._plot(name, "svg").is_file()
            ],
            "report": f"{_ADDRESS}/report" if (self.folder / "report.html").is_file() else None,
        }

    def plot(self, name: str, kind: str, dark: bool) -> tuple[bytes, str]:
        """A plot as SVG or PNG with its type, or `UnknownItemError`."""
        missing = "There is no such plot."
        if name not in _PLOTS or kind not in _TYPES:
            raise UnknownItemError(missing)
        content = _read(self._plot(name, kind), missing)
        return (_darkened(content) if dark and kind == "svg" else content), _TYPES[kind]

    def report(self) -> bytes:
        """The report of the run, or `UnknownItemError`."""
        return _read(self.folder / "report.html", "The run has no report.")

    def _plot(self, name: str, kind: str) -> Path:
        return self.folder / "plots" / f"{name}.{kind}"


def find_run(model_folder: str | Path | None) -> RunEvaluation | None:
    """The evaluation of a model's run; `model_folder` is the folder of the run or of its model."""
    if model_folder is None:
        return None
    for folder in (Path(model_folder), Path(model_folder).parent):
        try:
            run = Run.open(folder)
            evaluation = RunEvaluation(folder, run.evaluation())
        except InputError:
            continue
        with suppress(InputError):
            evaluation = replace(evaluation, dimensions=run.dimensions())
        return evaluation
    return None


def _read(file: Path, missing: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UnknownItemError(missing) from error


def _direction(found: dict[str, Any], validation: dict[str, Any], way: str) -> dict[str, Any]:
    """One direction: its measures, their intervals if there are any, and the validation MRR.

    A run of an earlier version does not say of how many candidates its validation was; its MRR
    cannot be compared, and is left out.
    """
    before = validation.get(way)
    low, high = found.get("low") or {}, found.get("high") or {}
    measures = {k: v for k, v in found.items() if isinstance(v, int | float) and k not in _ABOUT}
    return {
        **{name: found.get(name) for name in _ABOUT},
        "measures": measures,
        "intervals": {name: [low[name], high[name]] for name in measures if name in low},
        "validation": before if isinstance(before, dict) and before.get("candidates") else None,
    }


def _named(fact: str) -> str:
    """Names in place of paths, so that the page does not tell where files lie.

    >>> _named("/home/me/a.npy, b/c.npy"), _named("8 train, 2/3 valid")
    ('a.npy, c.npy', '8 train, 2/3 valid')
    """
    return re.sub(r"(?<![^\s,])[^\s,]*[^\s,\d][^\s,]*/(?=[^\s,/])", "", fact)


def _darkened(svg: bytes) -> bytes:
    """The plot in the colours of a dark page."""
    from ccal.reports.style import DARK

    for light, dark in DARK.items():
        svg = svg.replace(light.encode(), dark.encode())
    return svg
