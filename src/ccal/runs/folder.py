"""`Run`: the folder of a training run, which a person can read.

config.toml      the settings, where the pairs came from, their sizes and fingerprints
metrics.jsonl    one line an epoch
model/           the model, for `ccal.load`
dimensions.json  words and features behind each dimension of the common space
evaluation.json  measures on the held-out pairs; written last, so it also says "finished"
report.html      the same with plots, for a browser
plots/           the plots as files
.lock            keeps a second process out while one trains
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ccal.errors import InputError
from ccal.files import file_hash, read_document, write_atomically, write_document
from ccal.runs.config import FORMER_DATA, read_toml, to_toml

if TYPE_CHECKING:
    from ccal.data import Source
    from ccal.model import DualEncoder
    from ccal.runs.evaluation import Evaluation
    from ccal.training import Settings


_FORMAT = 1
_TABLES = ("run", "train", "data", "found")
# evaluation.json has the hashes of these files; the model has its own.
_SIGNED = ("config.toml", "metrics.jsonl")


def hashes(found: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of data and split among the facts of `Data.facts`, for files of results."""
    return {name: found[name] for name in ("data_sha256", "split_sha256")}


def fingerprints(found: Mapping[str, Any]) -> str:
    """The beginning of these hashes, for people.

    >>> fingerprints({"data_sha256": "6522a4c77e54eb9b0", "split_sha256": "601041599e084a231"})
    'data 6522a4c77e54eb9b, split 601041599e084a23'
    """
    return f"data {found['data_sha256'][:16]}, split {found['split_sha256'][:16]}"


@dataclass(frozen=True)
class Run:
    """A run's folder with its settings, its source of pairs and the facts about these pairs.

    Attributes:
        path: the folder.
        settings: how it was trained.
        source: where its pairs come from.
        found: modalities, sizes and hashes of the pairs (`Data.facts`).
        about: versions and time.
        result: the measures, of a run that this process has trained; `evaluation()` reads those of
            any finished run.
    """

    path: Path
    settings: Settings
    source: Source
    found: Mapping[str, Any]
    about: Mapping[str, Any]
    result: Evaluation | None = field(default=None, compare=False, repr=False)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        settings: Settings,
        source: Source,
        found: Mapping[str, Any],
    ) -> Self:
        """Begin a run in a new or empty folder by writing its config.toml.

        The config.toml of a run that never came to its first epoch is replaced.
        """
        import torch

        import ccal

        folder = Path(path)
        check_free(folder)
        about = {
            "format": _FORMAT,
            "ccal": ccal.__version__,
            "torch": str(torch.__version__),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        run = cls(folder, settings, source, dict(found), about)
        tables = (about, settings.as_dict(), source.as_dict(), found)
        again = f"ccal train --config {shlex.quote(f'{folder.name}/config.toml')}"
        comment = f"Written by ccal. To repeat this run: {again}"
        text = to_toml(dict(zip(_TABLES, tables, strict=True)), comment)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "config.toml", text.encode())
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror}).") from error
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, finished: bool = True) -> Self:
        """Read a run back; one whose training has not ended is refused unless `finished=False`."""
        from ccal.data import Source
        from ccal.training.settings import Settings

        folder = Path(path)
        if not folder.is_dir():
            problem = "is a file" if folder.exists() else "there is no such folder"
            raise InputError(f"{folder}: {problem}; expected the folder of a run.")
        if not (folder / "config.toml").is_file():
            raise InputError(f"{folder} is no run: config.toml is missing.{_elsewhere(folder)}")
        tables = read_toml(folder / "config.toml")
        if "compare" in tables:
            raise InputError(f"{folder} is a comparison, not a run.{_elsewhere(folder)}")
        lacking = [name for name in _TABLES if not isinstance(tables.get(name), dict)]
        if lacking:
            raise InputError(f"{folder / 'config.toml'} is not of a run: no table [{lacking[0]}].")
        if (form := tables["run"].get("format")) != _FORMAT:
            raise InputError(f"{folder} has format {form!r}; this version reads {_FORMAT}.")
        try:
            settings = Settings.from_mapping(tables["train"])
            source = Source.from_mapping({**FORMER_DATA, **tables["data"]})
        except InputError as error:
            raise InputError(f"{folder / 'config.toml'}: {error}") from error
        run = cls(folder, settings, source, tables["found"], tables["run"])
        if finished and not run.finished:
            raise InputError(
                f"The training of {folder} has not finished; continue it with: "
                f"ccal train --resume -o {shlex.quote(str(folder))}"
            )
        if run._changed("config.toml"):
            # A person may have changed it, as when the data moved.
            text = f"{folder / 'config.toml'} has changed since the run finished."
            warnings.warn(text, stacklevel=2)
        return run

    @property
    def finished(self) -> bool:
        """Whether training and evaluation came to their end."""
        return (self.path / "evaluation.json").is_file() and self.model_folder.is_dir()

    @property
    def model_folder(self) -> Path:
        """The folder of the model."""
        return self.path / "model"

    def model(self) -> DualEncoder:
        """The trained model, in evaluation mode."""
        from ccal.model import load

        return load(self.model_folder)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, one an epoch; a last line cut short is left out."""
        if self._changed("metrics.jsonl"):
            raise InputError(
                f"{self.path / 'metrics.jsonl'} is missing or has changed since the run finished; "
                "put a copy in its place."
            )
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError as error:
                if number < len(lines):
                    raise InputError(
                        f"{self.path / 'metrics.jsonl'}: line {number} is not JSON ({error})."
                    ) from error
                break
            if (record.get("score") or 0) > 1:
                record["score"] /= 100  # earlier versions wrote AP@k in per cent
            records.append(record)
        return records

    def evaluation(self) -> dict[str, Any]:
        """The content of evaluation.json."""
        content = self._document("evaluation.json")
        content.pop("files", None)
        return content

    def dimensions(self) -> dict[str, Any]:
        """Words and features behind the dimensions: what `describe_dimensions` found."""
        if not (self.path / "dimensions.json").exists():
            raise InputError(
                f"{self.path} has no dimensions.json: it was trained by an earlier version. Train "
                "it again to see the words behind its dimensions."
            )
        return self._document("dimensions.json")

    def _document(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            return read_document(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not readable ({error}).") from error

    def finish(self, evaluation: Mapping[str, Any]) -> None:
        """Write evaluation.json with the hashes of data and files; the run is finished then."""
        present = (self.path / name for name in _SIGNED)
        files = {path.name: file_hash(path) for path in present if path.is_file()}
        content = {**hashes(self.found), **evaluation, "files": files}
        write_document(self.path / "evaluation.json", content)

    def _changed(self, name: str) -> bool:
        """Whether a file differs from when the run finished; False for runs without hashes."""
        if not self.finished:
            return False
        expected = self._document("evaluation.json").get("files", {}).get(name)
        path = self.path / name
        return expected is not None and not (path.is_file() and file_hash(path) == expected)

    def check_unchanged(self, found: Mapping[str, Any]) -> None:
        """Refuse data that differ from those which the run began with."""
        if found["data_sha256"] != self.found.get("data_sha256"):
            raise InputError(
                f"The data have changed since {self.path} was trained: {self.found.get('pairs')} "
                f"pairs then, {found['pairs']} now, and other content."
            )
        if found["split_sha256"] != self.found.get("split_sha256"):
            former = " with leaks (--allow-leaks), as by all earlier versions"
            raise InputError(
                f"The split of the data has changed since {self.path} was trained"
                f"{former if self.source.allow_leaks else ''}."
            )

    def describe(self) -> dict[str, Any]:
        """All that is known about the run, as plain values."""
        facts: dict[str, Any] = {
            "run": str(self.path),
            "finished": self.finished,
            "method": self.settings.method,
            "seed": self.settings.seed,
            "data": self.source.as_dict(),
            **{n: self.found[n] for n in ("modalities", "pairs", "train", "valid", "test")},
            "stages": stages(self.metrics()),
            "made_with": dict(self.about),
            "bytes": sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file()),
        }
        if self.finished:
            facts |= {"dim": _dim(self.model_folder), "evaluation": self.evaluation()}
        return facts


def load(path: str | os.PathLike[str], *, finished: bool = True) -> Run:
    """The run in a folder; one that has not finished only with `finished=False`."""
    return Run.open(path, finished=finished)


def load_model(folder: str | os.PathLike[str]) -> DualEncoder:
    """The model of a finished run, or of a folder that `DualEncoder.save` wrote."""
    from ccal.model import load

    path = Path(folder)
    if (path / "config.json").is_file():
        return load(path)
    if (path / "evaluation.json").is_file() and (path / "model").is_dir():
        # Settings and data stay unread: they would import all of training.
        return load(path / "model")
    return Run.open(path).model()


def check_free(folder: Path) -> None:
    """Refuse a folder that holds anything but a run which never began."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; name another folder.")
    # A lock, and what `Run.create` leaves if its process is killed, do not count.
    names = {entry.name for entry in folder.iterdir()}
    there = {name for name in names if name != ".lock" and not name.startswith(".config.toml.")}
    ours = _is_of_a_run(folder / "config.toml")
    if there and not (ours and there == {"config.toml"}):
        hint = "continue it with --resume, or name" if ours else "name"
        raise InputError(f"{folder} is not empty; {hint} another folder.")


def only_planned(folder: Path) -> bool:
    """Whether a folder holds the config.toml of a run that never began, and nothing else."""
    try:
        check_free(folder)
    except InputError:
        return False
    return (folder / "config.toml").is_file()


def _is_of_a_run(config: Path) -> bool:
    """Whether a config.toml was written by `Run.create`, and not by a person."""
    try:
        return config.is_file() and all(name in read_toml(config) for name in _TABLES)
    except InputError:
        return False


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The values in which two tables differ, in words.

    >>> differences({"dim": 8, "seed": 0}, {"dim": 9, "seed": 0})
    ['dim was 8, now it is 9']
    """
    names = dict.fromkeys([*then, *now])
    return [
        f"{name} was {then.get(name)!r}, now it is {now.get(name)!r}"
        for name in names
        if then.get(name) != now.get(name)
    ]


def _elsewhere(folder: Path) -> str:
    """A hint for a folder that is no run: runs inside it, or one beside it of a similar name."""
    inside = sorted(path.parent.name for path in folder.glob("*/config.toml"))
    if inside:
        return f" It holds {', '.join(inside[:5])}{', ...' if len(inside) > 5 else ''}."
    siblings = [p.parent.name for p in folder.parent.glob("*/config.toml")]
    near = difflib.get_close_matches(folder.name, siblings, n=1)
    return f" Did you mean {folder.parent / near[0]}?" if near else ""


def _dim(model: Path) -> int:
    """Features of a saved model, without loading it."""
    try:
        return int(read_document(model / "config.json")["dim"])
    except KeyError as error:
        raise InputError(f"The model in {str(model)!r} is damaged: no {error}") from error
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"The model in {str(model)!r} is damaged: {error}") from error


def stages(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Epochs of each stage of training, and the best with its validation measure in per cent.

    The measure is the MRR, the mean of both directions, or AP@k if the run chose by classes. Of how
    many `candidates` it is, x -> y and y -> x, is None for AP@k and in runs of earlier versions.

    >>> stages([{"stage": "all", "epoch": 1, "mrr_x_to_y": None, "mrr_y_to_x": None}])["all"]
    {'epochs': 1, 'best_epoch': None, 'measure': None, 'valid': None, 'candidates': None}
    """
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        blank = dict.fromkeys(("epochs", "best_epoch", "measure", "valid", "candidates"))
        stage = found.setdefault(str(record.get("stage", "train")), {**blank, "epochs": 0})
        epoch = int(record.get("epoch", 0))
        stage["epochs"] = max(stage["epochs"], epoch)
        measure, share = _validation(record)
        # The last of equal epochs is the best, as in training; metrics.jsonl holds shares.
        if share is not None and (stage["valid"] is None or 100 * share >= stage["valid"]):
            stage |= {"best_epoch": epoch, "measure": measure, "valid": 100 * share}
            counts = [record.get(f"candidates_{way}") for way in ("x_to_y", "y_to_x")]
            stage["candidates"] = None if None in counts else counts
    return found


def _validation(record: dict[str, Any]) -> tuple[str, float | None]:
    """The measure that training chose an epoch by, and its value."""
    if record.get("score") is not None:
        return "AP@k", record["score"]
    forth, back = record.get("mrr_x_to_y"), record.get("mrr_y_to_x")
    return "MRR", None if forth is None or back is None else (forth + back) / 2
