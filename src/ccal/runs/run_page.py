"""The page of a run: its measures, plots, and queries with what they found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ccal.errors import CcalError, InputError
from ccal.runs.evaluation import Evaluation, Note
from ccal.runs.folder import Run

if TYPE_CHECKING:
    from ccal.data import Rows
    from ccal.reports import Example


def write_page(
    path: Path,
    title: str,
    evaluation: Evaluation,
    facts: Mapping[str, str],
    run: Run,
    *,
    plots: bool = False,
    note: Note = lambda text: None,
) -> None:
    """Write the page of an evaluation, with `plots` their files next to it.

    Without matplotlib `note` is told so and nothing is written.
    """
    structure = evaluation.structure
    structures = {} if structure is None else {str(run.settings.method): structure}
    records = run.metrics()
    with optional_page(path, note):
        from ccal.reports import save_plots, write_report

        write_report(
            path,
            title=title,
            facts={**facts, **_reliability(evaluation)},
            report=evaluation.report,
            records=records,
            structures=structures,
            examples=_examples(evaluation),
            classes=evaluation.classes,
            warnings=evaluation.warnings,
        )
        if plots:
            save_plots(
                path.parent / "plots",
                report=evaluation.report,
                records=records,
                structures=structures,
                classes=evaluation.classes,
            )


def _reliability(evaluation: Evaluation) -> dict[str, str]:
    """A fact for the page: how often hits called strong, fair and weak were right."""
    if not evaluation.reliability:
        return {}
    return {"hits (first 10)": "; ".join(map(str, evaluation.reliability))}


@contextmanager
def optional_page(path: Path, note: Note) -> Iterator[None]:
    """Go on without a page if a package is missing that only plots need."""
    try:
        yield
    except InputError:
        raise
    except CcalError as error:
        note(f"warning: no page was written. {error}")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}).") from error


def _examples(evaluation: Evaluation) -> list[Example]:
    """Classes and pairs as queries with what they found, if a person could read any of it."""
    from ccal.reports import pick_classes, pick_examples

    pairs, embedded = evaluation.pairs, evaluation.embedded
    items = [
        _shown(pairs.column(name).select(embedded.first_pairs(modality).numpy()))
        for modality, name in enumerate(pairs.names)
    ]
    examples: list[Example] = []
    if evaluation.classes is not None:
        queries = embedded.class_queries()
        examples += pick_classes(evaluation.classes, *queries, shows=items[0], name=pairs.names[0])
    if any(pairs.column(name).is_text for name in pairs.names):
        examples += pick_examples(
            embedded.x,
            embedded.y,
            x_items=items[0],
            y_items=items[1],
            groups=embedded.positives,
            ties=evaluation.report.ties,
            names=embedded.names,
        )
    return examples


def _shown(rows: Rows) -> Rows | list[Path]:
    """Items as a page shows them: image files as paths."""
    return [Path(path) for path in rows[:]] if rows.files else rows
