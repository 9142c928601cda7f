"""What is done to a folder while its file system fails, and how the outcome is looked at.

Run as a program with the shim preloaded, this file forks a process for each line of its input: a
case, a folder, the number of the operation that fails, and how.
"""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
import sys
import warnings
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccal import CCA, DualEncoder, InputError
from ccal.array_files import ArrayFolder
from ccal.encoders import DenseTower
from ccal.errors import CcalError
from ccal.model import load
from ccal.retrieval import Index
from ccal.retrieval.backends.folder import compaction
from tests.training.stand_ins import quick
from tests.training.stand_ins import run as train

MODES = ("once", "from now on", "kill")


def encoder(seed: int) -> DualEncoder:
    torch.manual_seed(seed)
    return DualEncoder(
        dim=4, projection="none", image=DenseTower(4, 4), text=DenseTower(4, 4)
    ).eval()


class Case(ABC):
    """Something that is saved. After `act` fails, `look` sees what was before, or what is after."""

    def prepare(self, folder: Path) -> None:  # noqa: B027
        """What is there before."""

    @abstractmethod
    def act(self, folder: Path) -> None:
        """What may fail."""

    @abstractmethod
    def look(self, folder: Path) -> Any:
        """What is there; it can be compared. `InputError` if nothing is there."""

    def repeat(self, folder: Path) -> None:
        """The same once more, after a failure; nothing is left of the failure."""
        self.act(folder)

    def unlisted(self, folder: Path) -> list[str]:
        """Segments that the next writer left although its database does not list them."""
        return []


class SavedModel(Case):
    """A model that is saved over another."""

    def prepare(self, folder: Path) -> None:
        encoder(0).save(folder / "model")

    def act(self, folder: Path) -> None:
        encoder(1).save(folder / "model")

    def look(self, folder: Path) -> Any:
        model = load(folder / "model").eval()
        return [t.tolist() for t in (model.encode("image", torch.eye(4)),)]


class NewModel(SavedModel):
    """A model that is saved where there is none."""

    def prepare(self, folder: Path) -> None:
        pass


class SavedCCA(Case):
    """Projections in an archive."""

    def _fit(self, seed: int) -> CCA:
        random = np.random.default_rng(seed)
        return CCA().fit(random.normal(size=(40, 3)), random.normal(size=(40, 2)))

    def prepare(self, folder: Path) -> None:
        self._fit(0).save(folder / "one.cca")

    def act(self, folder: Path) -> None:
        self._fit(1).save(folder / "one.cca")

    def look(self, folder: Path) -> Any:
        return CCA.load(folder / "one.cca").transform(np.eye(3)).tolist()


class Arrays(Case):
    """Arrays under a manifest, as in stores and libraries of tunes."""

    def _write(self, folder: Path, seed: int) -> None:
        arrays = self._open(folder)
        parts = [np.full((2, 3), seed, np.float32)] * 3
        entry = arrays.write_array("rows", np.float32, (6, 3), parts)
        arrays.finish({"files": {"rows": entry}})

    def _open(self, folder: Path) -> ArrayFolder:
        return ArrayFolder(folder, "manifest.json", 1, kind="store")

    def prepare(self, folder: Path) -> None:
        self._write(folder, 0)

    def act(self, folder: Path) -> None:
        self._write(folder, 1)

    def look(self, folder: Path) -> Any:
        arrays = self._open(folder)
        return arrays.array(arrays.read(["files"]), "rows", np.float32, (6, 3)).tolist()


class Checkpoints(Case):
    """Training; what is there is the model in which it ends when it is resumed."""

    SETTINGS = quick(max_epochs=3, batch_size=100)

    def act(self, folder: Path) -> None:
        train(self.SETTINGS, folder=folder, checkpoint_seconds=0.0, resume=True)

    def look(self, folder: Path) -> Any:
        model, _ = train(self.SETTINGS, folder=folder, checkpoint_seconds=0.0, resume=True)
        return [t.tolist() for t in model.state_dict().values()]


class NewIndex(Case):
    """A folder index that is built."""

    def _build(self, folder: Path, seed: int, *, replace: bool = False) -> None:
        random = np.random.default_rng(seed)
        rows = torch.from_numpy(random.normal(size=(30, 4)).astype(np.float32))
        facts = [{"n": seed * 100 + n} for n in range(30)]
        model = encoder(0)
        Index.build(
            folder / "index", model, rows, modality="image", metadata=facts, replace=replace
        ).close()

    def act(self, folder: Path) -> None:
        self._build(folder, 1)

    def repeat(self, folder: Path) -> None:
        with suppress(InputError):  # it happened the first time
            self.act(folder)

    def look(self, folder: Path) -> Any:
        with Index.open(folder / "index") as index:
            index.check()
            ids, queries = index.ids(), np.eye(4, dtype=np.float32)
            items = [(item.id, dict(item.metadata)) for item in index.get(ids)]
            found = [[hit.id for hit in hits] for hits in index.search_vectors(queries, k=50)]
            assert index.count() == len(ids)
            return items, found, index.vectors(ids).tolist()

    def unlisted(self, folder: Path) -> list[str]:
        with Index.open(folder / "index") as index:
            index.update(index.ids()[:1], metadata=[{"n": -1}])
        with closing(sqlite3.connect(folder / "index" / "items.sqlite")) as database:
            listed = {name for (name,) in database.execute("SELECT name FROM segments")}
        segments = (folder / "index").glob("*segment-*")
        return [path.name for path in segments if path.stem not in listed]


class ReplacedIndex(NewIndex):
    """A folder index that is built anew in place of another."""

    def prepare(self, folder: Path) -> None:
        self._build(folder, 0)

    def act(self, folder: Path) -> None:
        self._build(folder, 1, replace=True)

    def repeat(self, folder: Path) -> None:
        self.act(folder)


class GrowingIndex(ReplacedIndex):
    """Items that are added, with compaction."""

    def act(self, folder: Path) -> None:
        with Index.open(folder / "index") as index:
            index.add_vectors("text", 1 + np.eye(12, 4), ids=[f"new-{n}" for n in range(12)])

    def repeat(self, folder: Path) -> None:
        with suppress(InputError):  # the items are there, and the error says so
            self.act(folder)


class ShrinkingIndex(ReplacedIndex):
    """Items that are removed, with compaction."""

    def act(self, folder: Path) -> None:
        with Index.open(folder / "index") as index:
            index.remove([f"image-{n}" for n in range(5, 20)])

    def repeat(self, folder: Path) -> None:
        with suppress(InputError):  # there are no such items, and the error says so
            self.act(folder)


CASES: dict[str, Case] = {
    "model": SavedModel(),
    "new model": NewModel(),
    "cca": SavedCCA(),
    "arrays": Arrays(),
    "checkpoints": Checkpoints(),
    "new index": NewIndex(),
    "replaced index": ReplacedIndex(),
    "growing index": GrowingIndex(),
    "shrinking index": ShrinkingIndex(),
}


def run(shim: Any, case: Case, folder: Path, at: int, mode: int, log: int) -> dict[str, Any]:
    """Act in a process of its own: how it ended, and how many operations there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said: dict[str, Any] = {"error": None, "expected": True}
        try:
            warnings.simplefilter("ignore")
            shim.fault_arm(os.fsencode(folder), at, mode, log)
            try:
                case.act(folder)
            finally:
                said["count"] = shim.fault_disarm()
        except (CcalError, OSError) as error:
            said["error"] = str(error)
        except BaseException as error:
            said |= {"error": repr(error), "expected": False}
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"code": code, **(json.loads(text) if text else {})}


def main() -> None:
    """Serve until the input ends."""
    torch.set_num_threads(1)
    compaction.TAIL = 8
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.fault_disarm.restype = ctypes.c_long
    shim.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    for line in sys.stdin:
        asked = json.loads(line)
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if asked["log"] else -1
        place = Path(asked["folder"])
        outcome = run(shim, CASES[asked["case"]], place, asked["at"], asked["mode"], log)
        if log >= 0:
            os.close(log)
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
