"""Queries with what they found, for the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ccal.training import embed_pairs

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
    embedded = embed_pairs(model, pairs)
    rows = [
        _shown(pairs.column(name).select(embedded.first_pairs(view).numpy()))
        for view, name in enumerate(pairs.names)
    ]
    if classes is not None:
        found = embedded.class_queries()
        examples += pick_classes(classes, *found, shows=rows[0], name=pairs.names[0])
    if any(pairs.column(name).is_text for name in pairs.names):
        x, y, groups, names = embedded.shared_first()
        if embedded.shared == 1:
            rows.reverse()
        examples += pick_examples(
            x, y, x_items=rows[0], y_items=rows[1], groups=groups, ties=report.ties, names=names
        )
    return examples


def _shown(rows: Rows) -> Rows | list[Path]:
    """Items as a page shows them: image files as paths."""
    return [Path(path) for path in rows[:]] if rows.files else rows
