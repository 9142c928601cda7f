"""The paper's Tables 4 and 5: sheet music and sound of the Nottingham folk tunes.

Its 270,705 training pairs come from MIDI files with an accompaniment and with repeats played out.
The same tunes in ABC notation are one melody, once through: 94,633 pairs in all. So the first 47
training tunes, its small set, have fewer pairs here (some 3,900, not 27,000).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.bounds import Options, check
from ccal.data.reading import split_hash
from ccal.data.splits import Split
from ccal.errors import InputError
from ccal.evaluation import CorrelationStructure, correlation_structure
from ccal.experiments.sheet_audio import evaluate_pairs, train_sheet_audio
from ccal.files import write_atomically
from ccal.model import DualEncoder
from ccal.music import SheetAudioPairs, SheetAudioStore, ThinnedPairs, split_tunes_by_melody
from ccal.runs.folder import differences
from ccal.training.scoring import embed
from ccal.training.settings import Settings

# In % except for the median rank.
_MEASURES = ("r1", "r5", "r10", "mr", "mrr")
# Dorfer et al., IJMIR 2018, Tables 4 and 5: sheet -> audio, then audio -> sheet.
PAPER: dict[str, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "nottingham": {
        "dcca": ((42.0, 88.2, 93.3, 2, 62.2), (44.6, 87.9, 93.2, 2, 63.5)),
        "learned": ((40.7, 89.6, 95.6, 2, 61.7), (41.4, 88.9, 95.4, 2, 61.9)),
        "ccal": ((44.1, 93.3, 97.7, 2, 65.3), (44.5, 91.6, 96.7, 2, 64.9)),
    },
    "nottingham-10pct": {
        "dcca": ((20.0, 53.6, 65.4, 5, 35.3), (22.7, 54.7, 65.8, 4, 37.3)),
        "learned": ((11.3, 35.2, 47.6, 12, 23.0), (12.6, 35.2, 47.2, 12, 23.7)),
        "ccal": ((22.2, 59.2, 70.7, 4, 38.8), (25.0, 59.3, 70.9, 4, 40.4)),
    },
}
METHODS = ("ccal", "dcca", "learned")
_SMALL_TUNES, _SMALL_PAIRS, _SEED = 47, 27_000, 0
_VALID, _CANDIDATES = 1000, 16_042


@dataclass(frozen=True)
class Budget:
    """What a machine can do, and what the small set is.

    Args:
        max_epochs: at most so many.
        batch_size: pairs a step; the paper has 1000.
        epoch_pairs: training pairs that an epoch visits; None for all.
        stride: of the first convolutions; the paper has 1.
        small: the small set is as the paper's in its "tunes", the first 47, or in its "pairs",
            those of as many tunes as make 27,000.
        margin: of the ranking loss; the paper has 0.7.
        momentum: weight of a batch in the CCA layer's covariances; the paper has 1.
        weight_decay: as torch counts it; 2e-4 is the paper's. DCCA's loss is the sum of the
            correlations here; their mean, as the authors' code has it, is the same as this times
            their number, 32.
    """

    max_epochs: int = 12
    batch_size: int = 250
    epoch_pairs: int | None = None
    stride: int = 1
    small: Literal["tunes", "pairs"] = "tunes"
    margin: float = 0.7
    momentum: float = 1.0
    weight_decay: float = 2e-4

    def facts(self) -> dict[str, Any]:
        """The values under the names that they have in results."""
        return {name.replace("_", " "): value for name, value in asdict(self).items()}


def reproduce(
    store: SheetAudioStore,
    experiment: str,
    folder: Path,
    budget: Budget,
    *,
    methods: Sequence[str] = METHODS,
    seed: int = 0,
    started: Callable[[str], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Train and measure each method; returns results by method, earlier ones of the folder too.

    Writes comparison.md, comparison.json and, if matplotlib is installed, correlation.svg, the
    figure of the paper's appendix. `started` is called with each method before its training.
    """
    check_names(experiment, methods)
    for method in methods:
        if started is not None:
            started(method)
        run_method(store, experiment, method, folder, budget, seed=seed)
    kept = {method: _kept(folder, method, seed) for method in METHODS}
    found = {method: run for method, run in kept.items() if run is not None}
    write_atomically(folder / "comparison.md", f"{comparison(experiment, found)}\n".encode())
    _write_json(folder / "comparison.json", found)
    if find_spec("matplotlib") is not None:
        from ccal.reports import correlation_plot
        from ccal.reports.style import render

        structures = {name: _structure(run["correlation"]) for name, run in found.items()}
        write_atomically(folder / "correlation.svg", render(correlation_plot(structures), "svg"))
    return found


def comparison(experiment: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Our results beside the paper's, as a Markdown table; `found` are results by method."""
    head = "R@1 | R@5 | R@10 | MR | MRR"
    lines = [f"| method | sheet -> audio: {head} | audio -> sheet: {head} |", "| --- " * 11 + "|"]
    for method in METHODS:
        if ours := found.get(method):
            ways = (ours["sheet -> audio"], ours["audio -> sheet"])
            lines.append(_line(f"{method}, ours", [[w[name] for name in _MEASURES] for w in ways]))
        lines.append(_line(f"{method}, paper", PAPER[experiment][method]))
    return "\n".join(lines)


def _line(name: str, rows: Sequence[Sequence[float]]) -> str:
    return "| " + " | ".join([name, *(f"{value:.1f}" for row in rows for value in row)]) + " |"


def check_names(experiment: str, methods: Sequence[str]) -> None:
    """Refuse an experiment or a method that the paper does not have."""
    check("experiment", experiment, Options(*PAPER))
    for method in methods:
        check("method", method, Options(*METHODS))
    if not methods:
        raise InputError(f"no method was named; there are {', '.join(METHODS)}.")


def nottingham_split(store: SheetAudioStore) -> Split:
    """Training, validation and test tunes; melodies that resemble each other are on one side."""
    return split_tunes_by_melody(store.groups, valid=0.06, test=0.17, seed=_SEED)


def run_method(
    store: SheetAudioStore,
    experiment: str,
    method: str,
    folder: Path,
    budget: Budget,
    *,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Train one method, or continue an interrupted training, and measure it on the test tunes.

    The result is kept in `folder`/METHOD-SEED.json and returned by later calls; another budget
    needs another folder.
    """
    check_names(experiment, [method])
    asked = {"experiment": experiment, **budget.facts()}
    found = _kept(folder, method, seed)
    if found is not None:
        if changes := differences({name: found.get(name) for name in asked}, asked):
            raise InputError(
                f"{folder} holds {method} of seed {seed} with another budget "
                f"({'; '.join(changes)}); name another folder."
            )
        return found
    split = nottingham_split(store)
    tunes = split.train
    if experiment == "nottingham-10pct":
        tunes = tunes[: _SMALL_TUNES if budget.small == "tunes" else _first_pairs(store, tunes)]
    seen, held, test = (SheetAudioPairs(store, part) for part in (tunes, split.valid, split.test))
    settings = Settings.preset(
        experiment,
        method=method,
        seed=seed,
        # The paper compares its methods with different directions of the loss; here they are equal.
        direction="both",
        select="both",
        epoch_pairs=budget.epoch_pairs,
        refit_pairs=min(len(seen), 1500),
        margin=budget.margin,
        momentum=budget.momentum,
        weight_decay=budget.weight_decay,
        max_epochs=budget.max_epochs,
        batch_size=min(budget.batch_size, len(seen)),
    )
    model, history = train_sheet_audio(
        settings,
        seen,
        ThinnedPairs(held, _VALID),
        stride=budget.stride,
        folder=folder / f"{method}-{seed}",
        progress=progress,
    )
    model.save(folder / f"{method}-{seed}" / "model")
    report = evaluate_pairs(model, ThinnedPairs(test, _CANDIDATES), bootstrap=0)
    found = {
        "method": method,
        "seed": seed,
        **asked,
        "training pairs": len(seen),
        "training tunes": len(tunes),
        "candidates": report.x_to_y.candidates,
        "epochs": history.epochs,
        "best epoch": history.best_epoch,
        "data": store.manifest["hash"][:16],
        "split": split_hash(Split(tunes, split.valid, split.test))[:16],
        "validation MRR": [
            round((r["mrr_x_to_y"] + r["mrr_y_to_x"]) / 2, 4) for r in history.records
        ],
        "sheet -> audio": report.x_to_y.measures.as_dict(),
        "audio -> sheet": report.y_to_x.measures.as_dict(),
        "correlation": _correlation(model, seen, held),
    }
    _write_json(folder / f"{method}-{seed}.json", found)
    return found


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def _kept(folder: Path, method: str, seed: int) -> dict[str, Any] | None:
    path = folder / f"{method}-{seed}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _first_pairs(store: SheetAudioStore, tunes: NDArray[np.int64]) -> int:
    """The number of tunes that it takes for 27,000 pairs."""
    counts = np.bincount(SheetAudioPairs(store, tunes).tune, minlength=len(store))[tunes]
    return int(np.searchsorted(np.cumsum(counts), _SMALL_PAIRS)) + 1


def _correlation(
    model: DualEncoder, seen: SheetAudioPairs, held: SheetAudioPairs
) -> dict[str, Any]:
    """The correlation structure of the embeddings, as plain data."""
    views = [embed(model, part, batch_size=256, at_most=4000) for part in (seen, held)]
    found = correlation_structure(*views[0], held_out=views[1])
    assert found.held_out is not None
    return {**asdict(found), "train": found.train.tolist(), "held_out": found.held_out.tolist()}


def _structure(kept: Mapping[str, Any]) -> CorrelationStructure:
    """The correlation structure of a result."""
    lists = {n: torch.tensor(kept[n], dtype=torch.float64) for n in ("train", "held_out")}
    return CorrelationStructure(**{**kept, **lists})
