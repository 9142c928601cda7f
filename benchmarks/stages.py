"""Where the time of a whole `ccal train` goes: processor seconds and the share of each stage.

    python -m benchmarks.stages FOLDER [--fast] [--output FILE]

FOLDER is that of `benchmarks.flickr8k`: pairs.jsonl and image_features.npy, split at random into
600 validation pairs, 1,000 test pairs and the rest to train on. The run is written to a temporary
folder. Seconds are those of the processor, over all threads, so that other programs change them
little. The tables are kept in benchmarks/stages.json.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Row, show
from ccal.data import Source, leak_notes, read_source
from ccal.evaluation.calibration import calibrate
from ccal.model import DualEncoder
from ccal.runs import Run, train
from ccal.runs.evaluation import measure
from ccal.runs.pages import write_page
from ccal.training import Settings
from ccal.training.batches import PairFeatures
from ccal.training.front_ends import choose_weights
from ccal.training.loop import fit
from ccal.training.methods import LinearInitialisation, choose_initialisation
from ccal.training.progress import STEP_OF_STAGE
from ccal.training.refined import _correct_hubs, choose_hub_weight

RESULTS = Path(__file__).with_name("stages.json")

# No function of one stage calls one of another.
STAGES: dict[str, tuple[Callable[..., Any], ...]] = {
    "reading, hashing, looking for leaks": (read_source, leak_notes),
    "features of texts (sentences from the cache, if it has them)": (PairFeatures.__init__,),
    "weights of joined features": (choose_weights,),
    "square roots, ridges and weighting of linear CCA": (choose_initialisation,),
    "towers from linear CCA": (LinearInitialisation.towers,),
    "training": (fit,),
    "hub correction": (choose_hub_weight, _correct_hubs),
    "calibration": (calibrate,),
    "evaluation": (measure,),
    "report": (write_page,),
    "saving": (DualEncoder.save, Run.finish),
}


def stages(folder: Path, settings: Settings) -> list[Row]:
    """One row a stage, those of training apart, and one for all."""
    source = Source(
        table=str(folder / "pairs.jsonl"),
        x=f"image={folder / 'image_features.npy'}",
        y="text=captions",
        captions="concatenate",
        valid=600,
        test=1000,
    )
    profile = cProfile.Profile(time.process_time)
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        with profile:
            run = train(source, settings, Path(out) / "run", progress=False)
        wall = time.perf_counter() - started
        epochs = run.metrics()
    stats: Any = pstats.Stats(profile)
    seconds = {name: sum(_seconds(stats, f) for f in of) for name, of in STAGES.items()}
    found: dict[str, float] = {}
    for name, took in seconds.items():
        if name != "training":
            found[name] = took
            continue
        # The records of epochs say how long each stage took on the clock.
        clock = sum(epoch["seconds"] for epoch in epochs)
        for stage in dict.fromkeys(epoch["stage"] for epoch in epochs):
            own = [epoch["seconds"] for epoch in epochs if epoch["stage"] == stage]
            found[f"{STEP_OF_STAGE[stage]}, {len(own)} epochs"] = took * sum(own) / clock
    found["all else"] = stats.total_tt - sum(found.values())
    rows: list[Row] = [
        {"stage": name, "seconds": round(took, 1), "share": f"{took / stats.total_tt:.0%}"}
        for name, took in found.items()
    ]
    whole = f"all, {wall:.0f} s on the clock, {torch.get_num_threads()} threads"
    return [*rows, {"stage": whole, "seconds": round(stats.total_tt, 1), "share": "100%"}]


def _seconds(stats: Any, function: Any) -> float:
    code = function.__code__
    entry = stats.stats.get((code.co_filename, code.co_firstlineno, code.co_name))
    return 0.0 if entry is None else float(entry[3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fast", action="store_true", help="closed form alone")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    name = "fast" if arguments.fast else "default"
    table = stages(arguments.folder, Settings.preset(name))
    show(f"ccal train, {name}", table)
    kept = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    arguments.output.write_text(json.dumps({**kept, name: table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
