"""Where the time of a whole `ccal train` goes, stage by stage.

    python -m benchmarks.stages FOLDER [--fast] [--output FILE]

FOLDER is that of `benchmarks.flickr8k`: pairs.jsonl and image_features.npy, split at random into
600 validation pairs, 1,000 test pairs and the rest to train on. The run is written to a temporary
folder. Every few milliseconds a timer looks which stage is at work. Processor seconds are those of
all threads, so that other programs change them little; shares are of the seconds on the clock. The
tables are kept in benchmarks/stages.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from benchmarks.timing import Row, show
from ccal.data import Source, leak_notes, read_source
from ccal.evaluation.calibration import calibrate
from ccal.model import DualEncoder
from ccal.runs import Run, train
from ccal.runs.evaluation import measure
from ccal.runs.run_page import write_page
from ccal.training import Settings
from ccal.training.batches import PairFeatures
from ccal.training.front_ends import choose_weights
from ccal.training.loop import fit
from ccal.training.methods import LinearInitialisation, choose_initialisation
from ccal.training.progress import STEP_OF_STAGE
from ccal.training.refined import _correct_hubs, choose_hub_weight

RESULTS = Path(__file__).with_name("stages.json")
OTHER, TRAINING = "all else", "training"

# No function of one stage calls one of another.
STAGES: dict[str, tuple[Callable[..., Any], ...]] = {
    "reading, hashing, looking for leaks": (read_source, leak_notes),
    "features of texts (sentences from the cache, if it has them)": (PairFeatures.__init__,),
    "weights of joined features": (choose_weights,),
    "square roots, ridges and weighting of linear CCA": (choose_initialisation,),
    "towers from linear CCA": (LinearInitialisation.towers,),
    TRAINING: (fit,),
    "hub correction": (choose_hub_weight, _correct_hubs),
    "calibration": (calibrate,),
    "evaluation": (measure,),
    "report": (write_page,),
    "saving": (DualEncoder.save, Run.finish),
}
_STAGE_OF: dict[CodeType, str] = {
    function.__code__: stage for stage, functions in STAGES.items() for function in functions
}
_EVERY = 0.005  # seconds


@contextmanager
def stage_seconds() -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Processor seconds and seconds on the clock by stage, filled while the block runs.

    A signal that comes within a long call of the libraries is handled after it, so each stage gets
    the time since the last one.
    """
    busy = dict.fromkeys((*STAGES, OTHER), 0.0)
    clock = dict.fromkeys((*STAGES, OTHER), 0.0)
    last = [time.process_time(), time.perf_counter()]

    def look(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code not in _STAGE_OF:
            frame = frame.f_back
        stage = OTHER if frame is None else _STAGE_OF[frame.f_code]
        now = [time.process_time(), time.perf_counter()]
        busy[stage] += now[0] - last[0]
        clock[stage] += now[1] - last[1]
        last[:] = now

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _EVERY, _EVERY)
    try:
        yield busy, clock
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
    with tempfile.TemporaryDirectory() as out:
        with stage_seconds() as (busy, clock):
            run = train(source, settings, Path(out) / "run", progress=False)
        epochs = run.metrics()
    found: dict[str, tuple[float, float]] = {}
    for name in (*STAGES, OTHER):
        took = busy[name], clock[name]
        if name != TRAINING:
            found[name] = took
            continue
        # The records of epochs say how long each stage took on the clock.
        total = sum(epoch["seconds"] for epoch in epochs)
        for stage in dict.fromkeys(epoch["stage"] for epoch in epochs):
            own = [epoch["seconds"] for epoch in epochs if epoch["stage"] == stage]
            share = sum(own) / total
            found[f"{STEP_OF_STAGE[stage]}, {len(own)} epochs"] = share * took[0], share * took[1]
    found[f"all, {torch.get_num_threads()} threads"] = sum(busy.values()), sum(clock.values())
    return [
        {
            "stage": name,
            "processor seconds": round(took, 1),
            "seconds": round(on_clock, 1),
            "share": f"{on_clock / sum(clock.values()):.0%}",
        }
        for name, (took, on_clock) in found.items()
    ]


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
