"""`compare`: methods and seeds on the same pairs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccal.bounds import Options, Whole, check
from ccal.data import Data, Source
from ccal.errors import InputError
from ccal.evaluation import ClassReport, CorrelationStructure, Report
from ccal.files import alone_in, write_atomically
from ccal.numbering import Integers
from ccal.runs.evaluation import Evaluation, Note, measure
from ccal.runs.folder import Run, differences, fingerprints, hashes, only_planned
from ccal.runs.plan import expected_times, plan_of_comparison
from ccal.runs.run_page import optional_page
from ccal.runs.table import Comparison
from ccal.runs.training import check_classes, check_split, default_folder, finish, read_pairs
from ccal.training import METHODS, Settings


def compare(
    source: Source,
    settings: Settings | Mapping[str, Settings] | None = None,
    *,
    methods: Sequence[str] = ("linear", "dcca", "learned", "ccal", "refined"),
    seeds: Iterable[int] = range(3),
    folder: str | os.PathLike[str] | None = None,
    report: bool = True,
    progress: bool = True,
    note: Note = lambda text: None,
) -> Comparison:
    """Train several methods with several seeds on the same pairs; what `ccal compare` does.

    Every method and seed is a run of its own, METHOD-SEED in the folder. Finished runs are not
    repeated, so that the same call goes on after a stop, and methods or seeds can be added later.
    The folder also gets comparison.json, comparison.csv, comparison.html and plots/.

    Args:
        source: where the pairs come from.
        settings: of all runs, apart from their method and seed; or those of each method, by name.
        methods: those of `ccal.training.METHODS` to compare.
        seeds: of weights, order and dropout.
        folder: new, empty or that of an earlier comparison; runs/DATA-compare if not given.
        report: write comparison.html and plots/ (extra `plots`).
        progress: show on standard error how training goes.
        note: is given remarks for people; those that begin with "warning: " cast doubt.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("`ccal compare` runs in one process; torchrun is for `ccal train`.")
    wanted, numbers = list(dict.fromkeys(methods)), list(dict.fromkeys(seeds))
    for method in wanted:
        check("method", method, Options(*METHODS))
    for seed in numbers:
        check("seed", seed, Whole(at_least=0))
    if not wanted or not numbers:
        raise InputError("A comparison needs at least one method and one seed.")
    settings = settings or Settings()
    if isinstance(settings, Settings):
        settings = dict.fromkeys(wanted, settings)
    if lacking := [method for method in wanted if method not in settings]:
        raise InputError(f"settings has none for {lacking[0]!r}; it has {', '.join(settings)}.")
    plans = {(m, s): settings[m].changed(method=m, seed=s) for m in wanted for s in numbers}
    for plan in plans.values():
        check_classes(plan, source)
    place = default_folder(source, "compare") if folder is None else Path(folder)
    _check_folder(place)
    data = read_pairs(source, note)
    for plan in plans.values():
        check_split(plan, data)
    facts = data.facts()
    for line in plan_of_comparison(source, data, list(plans.values()), place):
        note(line)
    collected = _Collected()
    for number, ((method, seed), plan) in enumerate(plans.items(), start=1):
        note(f"{method}, seed {seed} (run {number} of {len(plans)})")
        where = place / f"{method}-{seed}"
        with alone_in(where):
            run, begun = _open(where, plan, source, facts)
            collected.add(method, _measured(run, data, begun, progress=progress, note=note))
    table = collected.table(about=hashes(facts), folder=place)
    write_atomically(place / "comparison.json", table.to_json().encode())
    write_atomically(place / "comparison.csv", table.to_csv().encode())
    if report:
        collected.write_page(table, source, facts, note)
    return table


@dataclass
class _Collected:
    """The measures of all runs, without their embeddings."""

    reports: dict[str, list[Report]] = field(default_factory=dict)
    classes: dict[str, list[ClassReport]] = field(default_factory=dict)
    structures: dict[str, CorrelationStructure] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    units: tuple[Integers, Integers] | None = None

    def add(self, method: str, one: Evaluation) -> None:
        self.reports.setdefault(method, []).append(one.report)
        if one.classes is not None:
            self.classes.setdefault(method, []).append(one.classes)
        if one.structure is not None:
            self.structures.setdefault(method, one.structure)
        self.warnings |= dict.fromkeys(f"{method}: {text}" for text in one.warnings)
        self.units = one.embedded.positives.units()

    def table(self, **more: Any) -> Comparison:
        warnings = tuple(self.warnings)
        return Comparison.of(
            self.reports, self.classes, units=self.units, warnings=warnings, **more
        )

    def write_page(
        self, table: Comparison, source: Source, found: Mapping[str, Any], note: Note
    ) -> None:
        assert table.folder is not None
        facts = {
            "data": source.table or f"{source.x}, {source.y}",
            "fingerprints": fingerprints(found),
            "pairs": f"{found['train']:,} train, {found['valid']:,} valid, {found['test']:,} test",
            "seeds": str(max(map(len, self.reports.values()))),
        }
        page = table.folder / "comparison.html"
        with optional_page(page, note):
            from ccal.reports import save_plots, write_comparison

            write_comparison(
                page,
                title=table.folder.name,
                facts=facts,
                reports_by_method=self.reports,
                structures=self.structures,
                table=table.to_html(),
                warnings=table.warnings,
            )
            save_plots(
                table.folder / "plots", structures=self.structures, reports_by_method=self.reports
            )


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but a comparison."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; name another folder.")
    ours = {"comparison.html", "comparison.csv", "comparison.json", "plots"}
    for entry in folder.iterdir():
        method, _, seed = entry.name.rpartition("-")
        run = entry.is_dir() and method in METHODS and seed.isdecimal()
        if not run and entry.name not in ours and not entry.name.startswith("."):
            raise InputError(
                f"{folder} holds {entry.name}, which is of no comparison; name another folder."
            )


def _open(
    place: Path, settings: Settings, source: Source, found: Mapping[str, Any]
) -> tuple[Run, bool]:
    """The run of one method and seed, and whether it had begun before."""
    if not (place / "config.toml").is_file() or only_planned(place):
        return Run.create(place, settings, source, found), False
    run = Run.open(place, finished=False)
    run.check_unchanged(found)
    if changes := differences(run.settings.as_dict(), settings.as_dict()):
        raise InputError(
            f"{place} was made with other settings ({'; '.join(changes)}); compare with the "
            "same ones, or name another folder."
        )
    return run, True


def _measured(run: Run, data: Data, begun: bool, *, progress: bool, note: Note) -> Evaluation:
    """Train a run, or go on with it, or measure it if it has finished."""
    if not run.finished:
        # The comparison has a page of all runs together.
        expected = expected_times(run.settings, data, report=False)
        run = finish(run, data, expected, resume=begun, report=False, progress=progress, note=note)
        assert run.result is not None
        return run.result
    part = run.evaluation()["part"]
    return measure(run.model(), data.part(part), part, train=data.part("train"))
