"""How well a model of sheet music and sound finds places in tunes that it has never seen.

    python -m benchmarks.folk_tunes STORES [--model FOLDER] [--other STORE]

STORES is the folder of the stores that `ccal.experiments.folk_tunes.build_stores` makes; the
tunes that training held out are measured, all of them together and each instrument among its own.
`--other` is a store of other tunes. The default model is that of the package.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ccal
from ccal.experiments.folk_tunes import build_stores, split_stores
from ccal.experiments.sheet_audio import evaluate_pairs
from ccal.music import (
    Augmentation,
    AugmentedPairs,
    JoinedPairs,
    SheetAudioPairs,
    SheetAudioStore,
    ThinnedPairs,
)
from ccal.retrieval import fingerprint
from ccal.training.batches import Features

RESULTS = Path(__file__).with_name("folk_tunes.json")
_CANDIDATES = 16_042


def _at_its_tempo(pairs: SheetAudioPairs) -> AugmentedPairs:
    """The pairs at the tempo that the model knows, and otherwise as they are."""
    return AugmentedPairs(pairs, Augmentation.none())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--other", type=Path)
    arguments = parser.parse_args()
    model = ccal.load(arguments.model) if arguments.model else ccal.pretrained("folk-tunes")
    stores = build_stores(arguments.stores)
    parts: dict[str, Features] = {
        store.folder.name: _at_its_tempo(SheetAudioPairs(store, split.test, centred=True))
        for store, split in zip(stores, split_stores(stores), strict=True)
    }
    parts = {"all": JoinedPairs(list(parts.values())), **parts}
    if arguments.other:
        pairs = SheetAudioPairs(SheetAudioStore(arguments.other), centred=True)
        parts["other"] = ThinnedPairs(pairs, _CANDIDATES)
    found: dict[str, object] = {
        "model": fingerprint(model),
        "data": {store.folder.name: store.manifest["hash"][:16] for store in stores},
    }
    for name, part in parts.items():
        report = evaluate_pairs(model, part)
        found[name] = report.as_dict()
        print(f"{name}:\n{report}\n", flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
