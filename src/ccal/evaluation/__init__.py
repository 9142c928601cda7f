"""How well embeddings of two modalities find each other; tensors in, numbers out.

- `evaluate_embeddings`: both directions, R@k, MR, MRR, mean rank, with intervals: a `Report`.
- `EmbeddedPairs`: pairs embedded once for all measures.
- `two_way_ranks`: the rank of each query's counterpart; `Measures`: R@k, MR, MRR of such ranks.
- `class_average_precision`, `class_precisions`, `item_average_precision`: AP@k over classes
  (zero-shot retrieval).
- `evaluate_classes`: how well classes find their items, and items their class: a `ClassReport`.
- `significance`: intervals over seeds, the paired randomisation test, Holm's correction.
- `correlation_structure`, `chance_correlation`, `effective_rank`, `collapse_warning`,
  `tie_warning`: diagnostics.
"""

from typing import TYPE_CHECKING

from ccal.optional import lazy_names

if TYPE_CHECKING:
    from ccal.evaluation.classes import (
        ClassReport,
        class_average_precision,
        class_means,
        class_precisions,
        evaluate_classes,
        item_average_precision,
        reachable_k,
    )
    from ccal.evaluation.diagnostics import (
        CorrelationStructure,
        chance_correlation,
        collapse_warning,
        correlation_structure,
        effective_rank,
        tie_warning,
    )
    from ccal.evaluation.embedded import EmbeddedPairs, evenly_spaced
    from ccal.evaluation.measures import Measures
    from ccal.evaluation.protocol import Direction, Report, Ties, evaluate_embeddings, two_way_ranks

__all__ = [
    "ClassReport",
    "CorrelationStructure",
    "Direction",
    "EmbeddedPairs",
    "Measures",
    "Report",
    "Ties",
    "chance_correlation",
    "class_average_precision",
    "class_means",
    "class_precisions",
    "collapse_warning",
    "correlation_structure",
    "effective_rank",
    "evaluate_classes",
    "evaluate_embeddings",
    "evenly_spaced",
    "item_average_precision",
    "reachable_k",
    "tie_warning",
    "two_way_ranks",
]

# A model needs the hub correction only; the rest is imported when first used.
__getattr__ = lazy_names(
    __name__,
    {
        "classes": (
            "ClassReport",
            "class_average_precision",
            "class_means",
            "class_precisions",
            "evaluate_classes",
            "item_average_precision",
            "reachable_k",
        ),
        "diagnostics": (
            "CorrelationStructure",
            "chance_correlation",
            "collapse_warning",
            "correlation_structure",
            "effective_rank",
            "tie_warning",
        ),
        "embedded": ("EmbeddedPairs", "evenly_spaced"),
        "measures": ("Measures",),
        "protocol": ("Direction", "Report", "Ties", "evaluate_embeddings", "two_way_ranks"),
        "significance": (),
    },
)
