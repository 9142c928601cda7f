"""`train`: from a source of pairs to the folder of a finished run.

A run is begun or continued, trained, measured on pairs that were kept back, and written down.
evaluation.json comes last, so that a run which is stopped at any moment can be resumed.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from ccal.data import Data, Source, leak_notes, read_source
from ccal.distributed import rank
from ccal.errors import InputError
from ccal.files import alone_in, write_document
from ccal.model import DualEncoder
from ccal.progress import Steps
from ccal.runs.dimensions import describe_dimensions
from ccal.runs.evaluation import Note, measure
from ccal.runs.folder import Run, check_free, differences, fingerprints
from ccal.runs.plan import expected_times, plan_of_run
from ccal.runs.run_page import write_page
from ccal.training import Callback, Settings, distributed_from_environment
from ccal.training import train as train_model
from ccal.training.hardware import keep_freed_memory
from ccal.training.parallel import from_rank_0
from ccal.training.unseen_classes import check_unseen


def train(
    source: Source | None = None,
    settings: Settings | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    report: bool = True,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    note: Note = lambda text: None,
) -> Run:
    """Learn a common space from pairs, and measure it on pairs that were kept back.

    This is what `ccal train` does: it writes config.toml, metrics.jsonl, model/, dimensions.json,
    evaluation.json, report.html and plots/. Under torchrun all processes call it and train
    together. Ctrl-C raises `ccal.training.Interrupted`; `resume=True` then goes on and ends where
    the unbroken run would.

    Args:
        source: where the pairs come from; needed unless `resume`.
        settings: how to train; `Settings()` if not given.
        folder: of the run, new or empty; runs/DATA-METHOD if not given.
        resume: go on with the run in `folder`. Source and settings need not be given, and must be
            those that the run began with; a finished run is returned as it is.
        report: write report.html and plots/ (extra `plots`).
        tensorboard: write curves for TensorBoard, too.
        callbacks: told the record of each epoch.
        progress: show on standard error how training goes.
        note: is given remarks for people; those that begin with "warning: " cast doubt.

    Returns the run; its `result` holds the measures, except on other ranks than the first and of a
    run that had finished before.
    """
    with distributed_from_environment(), ExitStack() as alone:
        if resume:
            if folder is None:
                raise InputError("resume needs the folder of the run to go on with (--out).")
            run, data = _reopen(Path(folder), source, settings, alone, note)
        else:
            if source is None:
                raise InputError("train needs a source of pairs.")
            run, data = _begin(folder, source, settings or Settings(), alone, note)
        if data is None:
            return run
        expected = expected_times(run.settings, data, report=report)
        for line in plan_of_run(run, data, expected, resume=resume):
            note(line)
        run = finish(
            run,
            data,
            expected,
            resume=resume,
            report=report,
            tensorboard=tensorboard,
            callbacks=callbacks,
            progress=progress,
            note=note,
        )
    if run.result is not None and run.result.part == "valid":
        note(
            "warning: there are no test pairs, so these are figures of the validation pairs, by "
            "which training chose; figures of new pairs may be lower."
        )
    return run


def finish(
    run: Run,
    data: Data,
    expected: Mapping[str, float],
    *,
    resume: bool,
    report: bool,
    progress: bool,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    note: Note = lambda text: None,
) -> Run:
    """Train the model of a run, measure it, and complete the folder; other ranks only train.

    `expected` are the seconds of its steps, those of `expected_times`.
    Without test pairs the validation pairs are measured, so that nothing is trained on them.
    """
    keep_freed_memory()
    part = "test" if len(data.split.test) else "valid"
    held_out, train_pairs, valid_pairs = (data.part(p) for p in (part, "train", "valid"))
    settings = run.settings if part == "test" else run.settings.changed(train_on_all=False)
    with closing(Steps(expected, enabled=progress and rank() == 0)) as steps:
        trained = train_model(
            settings,
            train_pairs,
            valid_pairs,
            folder=run.path,
            resume=resume,
            progress=steps,
            tensorboard=tensorboard,
            callbacks=callbacks,
        )
        if rank() != 0:
            return run
        trained.model.save(run.model_folder)
        steps.begin("evaluation")
        evaluation = measure(trained.model, held_out, part, train=trained.features)
        described = describe_dimensions(trained.model, trained.features, evaluation.embedded)
        write_document(run.path / "dimensions.json", described)
        facts = {**_facts(run, trained.model), **trained.facts}
        if settings != run.settings:
            facts["final training"] = "none: without test pairs the validation pairs are measured"
        if report:
            steps.begin("report")
            page = run.path / "report.html"
            write_page(page, run.path.name, evaluation, facts, run, plots=True, note=note)
    run.finish({**evaluation.as_dict(), "validation": trained.validation, "facts": facts})
    for checkpoint in run.path.glob("checkpoint-*.pt"):
        checkpoint.unlink()
    return replace(run, result=evaluation)


def read_pairs(source: Source, note: Note) -> Data:
    """The pairs of a source, which must include some to validate on; `note` gets what is odd."""
    data = read_source(source)
    for text in data.notes:
        note(f"warning: {text}")
    for text in leak_notes(data, source):
        note(text)
    if len(data.split.valid) == 0:
        raise InputError(
            "There are no validation pairs, which training needs; raise --valid, or Source(valid=)."
        )
    return data


def check_classes(settings: Settings, source: Source) -> None:
    """Refuse to choose by classes if the pairs have none, before anything is read."""
    if source.label is not None or source.layout == "reed":
        return
    if settings.method == "zero-shot":
        raise InputError(
            "The method zero-shot needs the classes of the pairs, and a split that keeps them "
            "whole: name the column of TABLE that has them with --label COLUMN --split-by label "
            '(Source(label=, split_by="label")), or take a published data set with --layout reed.'
        )
    if settings.select == "classes":
        raise InputError(
            "--select classes needs the classes of the pairs: name the column of TABLE that has "
            "them with --label COLUMN, or Source(label=)."
        )


def check_split(settings: Settings, data: Data) -> None:
    """Refuse classes that training and validation share, if the method needs unseen ones."""
    if settings.method == "zero-shot":
        check_unseen(data.part("train"), data.part("valid"))


def default_folder(source: Source, ending: str) -> Path:
    """runs/DATA-ENDING, named after the first file of the source."""
    return Path("runs", f"{Path(source.table or source.views[0].file or 'run').stem}-{ending}")


def _begin(
    folder: str | os.PathLike[str] | None,
    source: Source,
    settings: Settings,
    alone: ExitStack,
    note: Note,
) -> tuple[Run, Data]:
    """A new run and its data; until `alone` is closed, no other process works in its folder."""
    check_classes(settings, source)
    out = default_folder(source, settings.method) if folder is None else Path(folder)
    # Before the data are read, which may take long; ranks must all look before the first writes.
    from_rank_0(lambda: check_free(out))
    data = read_pairs(source, note)
    check_split(settings, data)

    def create() -> Run:
        alone.enter_context(alone_in(out))
        return Run.create(out, settings, source, data.facts())

    return from_rank_0(create), data


def _reopen(
    folder: Path, source: Source | None, settings: Settings | None, alone: ExitStack, note: Note
) -> tuple[Run, Data | None]:
    """The run to go on with, and its data unless it has finished."""
    run = Run.open(folder, finished=False)

    def finished() -> bool:
        alone.enter_context(alone_in(run.path))
        return run.finished  # perhaps by a process that had the folder until now

    if run.finished or from_rank_0(finished):
        return run, None
    changes: list[str] = []
    if settings is not None:
        changes += differences(run.settings.as_dict(), settings.as_dict())
    if source is not None:
        moved = differences(run.source.as_dict(), source.as_dict())
        changes += [change for change in moved if not change.startswith("folder ")]
    if changes:
        raise InputError(
            f"{run.path} was begun with other settings ({'; '.join(changes)}); "
            "leave these options out, or begin another run."
        )
    data = read_pairs(run.source, note)
    run.check_unchanged(data.facts())
    return run, data


def _facts(run: Run, model: DualEncoder) -> dict[str, str]:
    found = run.found
    names = " and ".join(model.modalities)
    return {
        "method": run.settings.method,
        "modalities": f"{names}, in a common space of {model.dim} dimensions",
        "pairs": f"{found['train']:,} train, {found['valid']:,} valid, {found['test']:,} test",
        "seed": str(run.settings.seed),
        "data": run.source.table or f"{run.source.x}, {run.source.y}",
        "fingerprints": fingerprints(found),
        "ccal": f"{run.about['ccal']}, torch {run.about['torch']}",
        "folder": os.fspath(run.path),
    }
