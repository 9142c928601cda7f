"""Queries with what they found, for the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ccal.cli.embedded import Embedded
from ccal.training.zero_shot import Searched

if TYPE_CHECKING:
    from ccal.data import Pairs, Rows
    from ccal.evaluation import ClassReport, Report
    from ccal.model import DualEncoder
    from ccal.reports import Example

__all__ = ["find_examples"]


def find_examples(
    model: DualEncoder, pairs: Pairs, report: Report, classes: ClassReport | None
) -> list[Example]:
    """Classes and pairs as queries with what they found, if a person could read any of it."""
    from ccal.reports import pick_classes, pick_examples

    examples: list[Example] = []
    if classes is not None:
        found = Searched.of(model, pairs)
        examples += pick_classes(
            classes,
            found.queries,
            found.query_labels,
            found.items,
            found.item_labels,
            shows=_shown(found.rows),
            name=pairs.names[0],
        )
    if any(pairs.column(name).is_text for name in pairs.names):
        embedded = Embedded.of(model, pairs)
        x_items, y_items = map(_shown, embedded.rows)
        examples += pick_examples(
            embedded.x,
            embedded.y,
            x_items=x_items,
            y_items=y_items,
            groups=embedded.groups,
            ties=report.ties,
            names=embedded.names,
        )
    return examples


def _shown(rows: Rows) -> Rows | list[Path]:
    """Items as a page shows them: image files as paths."""
    return [Path(path) for path in rows[:]] if rows.files else rows
