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

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
