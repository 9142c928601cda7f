"""Plots and pages that show how a training or a comparison went. Needs the extra `plots`.

- `training_curves`, `validation_curves`, `correlation_plot`, `rank_plot`, `confusion_plot`,
  `comparison_plot`: figures.
- `pick_examples`, `Example`, `ExampleHit`: the best, typical and worst queries with their hits.
- `pick_classes`: the same with classes as queries.
- `save_plots`: the figures as PNG and SVG files.
- `write_report`, `write_comparison`: one self-contained HTML file.
- `write_reproduction`: a table of the paper with its figures, as HTML and SVG.
"""

from ccal.reports.curves import training_curves, validation_curves
from ccal.reports.examples import Example, ExampleHit, pick_classes, pick_examples
from ccal.reports.pages import save_plots, write_comparison, write_report, write_reproduction
from ccal.reports.plots import comparison_plot, confusion_plot, correlation_plot, rank_plot

Hit = ExampleHit  # its former name

__all__ = [
    "Example",
    "ExampleHit",
    "Hit",
    "comparison_plot",
    "confusion_plot",
    "correlation_plot",
    "pick_classes",
    "pick_examples",
    "rank_plot",
    "save_plots",
    "training_curves",
    "validation_curves",
    "write_comparison",
    "write_report",
    "write_reproduction",
]
