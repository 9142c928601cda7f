"""Training on sheet music and sound: pairs a second of `fit` against a bare loop.

    python -m benchmarks.music STORE

STORE is a folder that `ccal data build` made. The bare loop runs the same towers, layer, loss and
optimiser on one batch of tensors in memory; both run in turns, and what counts is the median ratio.
The parts of the towers are then measured with and without what makes them fast on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ccal.encoders import VGG
from ccal.experiments.sheet_audio import sheet_audio_model
from ccal.music import AugmentedPairs, SheetAudioPairs, SheetAudioStore
from ccal.training import Settings, fit
from ccal.training.batches import Features
from ccal.training.hardware import keep_freed_memory
from ccal.training.methods import make_objective

RESULTS = Path(__file__).with_name("music.json")
_BATCH, _STEPS, _TURNS = 200, 2, 3


def settings(stride: int) -> Settings:
    return Settings.preset(
        "nottingham", stride=stride, batch_size=_BATCH, epoch_pairs=_BATCH * _STEPS, refit_pairs=2
    )


def fitted(pairs: Features, stride: int) -> float:
    """Pairs a second of the training steps of one epoch, as `fit` records them."""
    how = settings(stride)
    model = sheet_audio_model(how)
    history = fit(model, make_objective(how), pairs, None, how, epochs=1, progress=False)
    return float(history.records[0]["pairs_per_second"])


def bare(pairs: Features, stride: int) -> float:
    """Pairs a second of forward, backward and step on tensors in memory."""
    how = settings(stride)
    model, objective = sheet_audio_model(how), make_objective(how)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = pairs.batch(np.arange(_BATCH))
    model.train()
    started = time.perf_counter()
    for _ in range(_STEPS):
        optimiser.zero_grad()
        objective(model, x, y).backward()
        optimiser.step()
    return _BATCH * _STEPS / (time.perf_counter() - started)


def turns(runs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Median of each, measured in turns."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(_TURNS):
        for name, run in runs.items():
            found[name].append(run())
    return {name: round(statistics.median(values), 1) for name, values in found.items()}


def inference(fused: bool) -> float:
    tower = VGG(136).eval()
    tower = tower.fused() if fused else tower
    pictures = torch.rand(_BATCH, 136, 100)
    with torch.inference_mode():
        started = time.perf_counter()
        tower(pictures)
        return _BATCH / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    store = SheetAudioStore(parser.parse_args().store)
    pairs = SheetAudioPairs(store, range(min(len(store), 60)), centred=True)
    augmented = AugmentedPairs(pairs)
    found: dict[str, object] = {"threads": torch.get_num_threads(), "batch": _BATCH}
    before = turns({"bare, stride 1": partial(bare, pairs, 1)})
    found["freed memory kept"] = keep_freed_memory()
    runs: dict[str, Callable[[], float]] = {}
    for stride in (1, 2):
        runs[f"bare, stride {stride}"] = partial(bare, pairs, stride)
        runs[f"fit, stride {stride}"] = partial(fitted, pairs, stride)
        runs[f"fit, augmented, stride {stride}"] = partial(fitted, augmented, stride)
    after = turns(runs)
    found["pairs a second, default allocator"] = before
    found["pairs a second"] = after
    found["fit / bare"] = {
        f"stride {stride}{kind}": round(
            after[f"fit,{kind} stride {stride}"] / after[f"bare, stride {stride}"], 3
        )
        for stride in (1, 2)
        for kind in ("", " augmented,")
    }
    found["spectrograms a second, inference"] = turns(
        {"plain": partial(inference, False), "fused": partial(inference, True)}
    )
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
