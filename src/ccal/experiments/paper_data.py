"""The data of the paper's tables: read, split as the paper splits them, and what differs from it.

Image-text and zero-shot tables are read in their published layout (`ccal.data`), or from a folder
with `pairs.jsonl` (file, captions, and split or class) and `image_features.npy`. Sheet music and
sound come from tunes that are rendered, or from a store of rendered ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccal.data import Data, Pairs, Source, Split, disjoint_split, random_split, read_source
from ccal.data.reading import content_hash, split_hash
from ccal.encoders import pooled_pixels
from ccal.errors import InputError
from ccal.experiments.paper_tables import PaperTable, Plan
from ccal.music import (
    SheetAudioPairs,
    SheetAudioStore,
    ThinnedPairs,
    Tune,
    read_tunes,
    split_tunes_by_melody,
)
from ccal.music.store import MANIFEST
from ccal.training.batches import Features

_TABLE, _FEATURES = "pairs.jsonl", "image_features.npy"
_SMALL_TUNES = 47
_POOLED_PAIRS = 200_000  # 1.5 GB


@dataclass(frozen=True)
class TableData:
    """Training, validation and test pairs of a table.

    `notes` say how they differ from the paper's. `hashes` are of data and split.
    """

    train: Any
    valid: Any
    test: Any
    notes: tuple[str, ...]
    hashes: dict[str, str]

    def sizes(self) -> dict[str, int]:
        """Numbers of pairs by part."""
        return {name: len(getattr(self, name)) for name in ("train", "valid", "test")}


def unrendered(table: PaperTable, data: Path) -> list[Tune] | None:
    """Tunes that must be rendered before `read_data` can read them; None for all other data.

    Refuses a folder that is missing, and one for sheet music and sound that has no tunes.
    """
    if not data.exists():
        raise InputError(f"{data} does not exist.\n{expected_files(table)}")
    if table.kind != "sheet-audio" or (data / MANIFEST).is_file():
        return None
    # The paper's tunes are MIDI: with accompaniment, and with repeats played out.
    tunes = data / "midi" if (data / "midi").is_dir() else data
    try:
        return list(read_tunes(tunes))
    except InputError as error:
        raise InputError(f"{error}\n{expected_files(table)}") from error


def expected_files(table: PaperTable) -> str:
    """The files that a table needs, and where they are published."""
    if table.kind == "sheet-audio":
        return (
            f"{table.name} needs the tunes of the Nottingham collection in one of these forms:\n"
            "  FOLDER/midi/*.mid or FOLDER/*.mid   the tunes as MIDI, as the paper has them\n"
            "  FOLDER/*.abc                        the same in ABC notation (easier: no "
            "accompaniment)\n"
            f"  STORE/{MANIFEST}                 tunes that `ccal data build` has rendered\n"
            "They are published as the Nottingham Music Database; the paper takes them from "
            "Boulanger-Lewandowski et al. 2012."
        )
    from ccal.data.published import describe_layout

    return f"{describe_layout(_layout(table))}\n{_own_files(table)}"


def _own_files(table: PaperTable) -> str:
    column = "class" if table.kind == "zero-shot" else "split (train, dev or valid, test)"
    return (
        f"Or, with features of your own:\n  FOLDER/{_TABLE}          a line a picture: file, "
        f"captions, {column}\n  FOLDER/{_FEATURES}   features, row i for line i"
    )


def read_data(table: PaperTable, place: Path, plan: Plan, features: Path | None) -> TableData:
    """The pairs of a table from the folder of its data, or from a store of rendered tunes."""
    if table.kind == "sheet-audio":
        return _sheet_audio(table, SheetAudioStore(place), plan)
    found = _image_text(table, place, features)
    return _checked(table, found, plan)


def _layout(table: PaperTable) -> Any:
    return "reed" if table.kind == "zero-shot" else table.name


def _image_text(table: PaperTable, folder: Path, features: Path | None) -> tuple[Data, list[str]]:
    zero_shot = table.kind == "zero-shot"
    options: dict[str, Any] = {"captions": "separate" if zero_shot else "concatenate"}
    if (folder / _TABLE).is_file():
        with (folder / _TABLE).open(encoding="utf-8") as lines:
            columns = json.loads(next(lines, "{}"))
        options |= {"table": _TABLE, "y": "text=captions", "folder": str(folder.absolute())}
        options["x"] = f"image={features.absolute() if features else _FEATURES}"
        if zero_shot:
            options["label"] = "class"
        if "split" in columns:
            options["split_column"] = "split"
        elif zero_shot:
            return _drawn_classes(Source(**options, split_by="label", valid=0, test=1))
    else:
        options |= {"table": str(folder.absolute()), "layout": _layout(table), "y": "text"}
        options["x"] = f"image={features.absolute()}" if features else "image"
        if table.name == "flowers":
            # 82 training classes: the published lists have 62 for training and 20 to validate.
            options["train_classes"] = "trainval"
        if table.name == "iapr-tc12":
            options |= {"valid": 1000, "test": 2000}
        if table.name == "flickr30k":
            options |= {"valid": 1000, "test": 1000}
    try:
        data = read_source(Source(**options))
    except InputError as error:
        if (folder / _TABLE).is_file():
            raise
        # A missing file is named with its layout.
        rest = _own_files(table) if "expected" in str(error) else expected_files(table)
        raise InputError(f"{error}\n{rest}") from error
    notes = []
    if not len(data.split.test):
        inner = random_split(len(data.split.train), valid=0.1, test=0)
        train = data.split.train
        split = Split(train[inner.train], train[inner.valid], data.split.valid)
        data = Data(data.pairs, split, data.notes)
        notes.append(
            "the data have no test pairs: the dev pairs are the test, and a tenth of the training "
            "pairs validates"
        )
    return data, notes


def _drawn_classes(source: Source) -> tuple[Data, list[str]]:
    """Classes without published lists: four in six train, one validates, one is the test."""
    data = read_source(source)
    label = data.pairs.label
    assert label is not None
    count = round(len(np.unique(label)) / 6)
    split = disjoint_split(label, valid=count, test=count, seed=0)
    return Data(data.pairs, split, data.notes), [
        "training, validation and test classes are drawn with seed 0"
    ]


def _checked(table: PaperTable, found: tuple[Data, list[str]], plan: Plan) -> TableData:
    data, notes = found
    parts = [data.part(name) for name in ("train", "valid", "test")]
    what = "pairs"
    sizes: list[int] = [len(part) for part in parts]
    if table.kind == "zero-shot":
        what, sizes = "classes", [len(set(_labels(part))) for part in parts]
        if table.name == "flowers":
            notes.append("validation classes are drawn from the 82 training classes")
    if tuple(sizes) != table.sizes and table.number is not None:
        theirs, mine = (" / ".join(f"{n:,}" for n in s) for s in (table.sizes, sizes))
        notes.append(f"{mine} training, validation and test {what} (paper: {theirs})")
    column = parts[0].column("image")
    if column.files:
        notes.append("image features by EfficientNet-Lite0 (paper: see docs/paper.md)")
    elif column.shape[1] != (1024 if table.kind == "zero-shot" else 4096):
        paper = "1,024" if table.kind == "zero-shot" else "4,096"
        notes.append(f"{column.shape[1]:,} image features of another network (paper: {paper})")
    hashes = {"data": content_hash(data.pairs)[:16], "split": split_hash(data.split)[:16]}
    return TableData(parts[0], parts[1], parts[2], tuple(notes), hashes)


def _labels(pairs: Pairs) -> list[str]:
    assert pairs.label is not None
    return list(map(str, pairs.label.tolist()))


def nottingham_split(store: SheetAudioStore) -> Split:
    """Training, validation and test tunes; melodies that resemble each other are on one side.

    Of the MIDI files, the test tunes have about as many pairs as the paper's.
    """
    return split_tunes_by_melody(store.groups, valid=0.06, test=0.095, seed=0)


def _sheet_audio(table: PaperTable, store: SheetAudioStore, plan: Plan) -> TableData:
    split = nottingham_split(store)
    tunes, notes = split.train, []
    if plan.pairs is not None:
        counts = np.bincount(SheetAudioPairs(store, tunes).tune, minlength=len(store))[tunes]
        tunes = tunes[: int(np.searchsorted(np.cumsum(counts), plan.pairs)) + 1]
    elif table.name == "nottingham-10pct":
        tunes = tunes[:_SMALL_TUNES]
    seen, held, test = (SheetAudioPairs(store, part) for part in (tunes, split.valid, split.test))
    deciding: Features = held
    limit = plan.valid_pairs(table)
    if limit is not None and limit < len(held):
        deciding = ThinnedPairs(held, limit)
    sizes = [len(seen), len(held), len(test)]
    theirs, mine = (" / ".join(f"{n:,}" for n in s) for s in (table.sizes, sizes))
    notes.append(
        f"the split of the tunes is ours, by melody; {len(tunes)} training tunes; {mine} training, "
        f"validation and test pairs (paper: {theirs})"
    )
    if len(deciding) < len(held):
        notes.append(f"{len(deciding):,} of the validation pairs decide (paper: all)")
    own = Split(tunes, split.valid, split.test)
    hashes = {"data": store.manifest["hash"][:16], "split": split_hash(own)[:16]}
    return TableData(seen, deciding, test, tuple(notes), hashes)


def pooled(pairs: Features, at_most: int = _POOLED_PAIRS) -> Pairs:
    """Sheets (n, 1000) and spectrograms (n, 850) as pooled pixels, for linear CCA.

    Of more than `at_most` pairs evenly spaced ones are taken.
    """
    some = ThinnedPairs(pairs, at_most)
    columns: dict[str, list[np.ndarray[Any, Any]]] = {"sheet": [], "audio": []}
    for start in range(0, len(some), 1024):
        rows = np.arange(start, min(start + 1024, len(some)))
        for column, view in zip(columns.values(), some.batch(rows), strict=True):
            column.append(pooled_pixels(view).numpy())
    return Pairs({name: np.concatenate(column) for name, column in columns.items()})


def first_pairs(pairs: Any, count: int) -> Any:
    """Some of the pairs, evenly spaced: as many as the test has, for retrieval in training."""
    if len(pairs) <= count:
        return pairs
    rows = torch.linspace(0, len(pairs) - 1, count, dtype=torch.float64).long().numpy()
    return pairs[rows] if isinstance(pairs, Pairs) else ThinnedPairs(pairs, count)
