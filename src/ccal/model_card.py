"""The card of a model in a folder of the Hugging Face hub: Markdown with a head in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccal.model import DualEncoder


def model_card(model: DualEncoder, metadata: Mapping[str, Any]) -> str:
    """What the model joins and how to open it; `metadata` goes to the head, as the hub reads it."""
    head: dict[str, Any] = {
        "library_name": "ccal",
        "tags": ["cross-modal-retrieval", "canonical-correlation-analysis", *model.modalities],
        **metadata,
    }
    lines = [f"{name}: {_yaml(value)}" for name, value in head.items()]
    x, y = model.modalities
    reads = [f"{n} by {type(f).__name__}" for n, f in model.front_ends.items()] or ["arrays"]
    return "\n".join(
        [
            "---",
            *lines,
            "---",
            "",
            f"# {x} and {y}",
            "",
            f"A `ccal.DualEncoder` that joins {x} and {y} in a space of {model.dim} dimensions",
            f"(projection: {model.projection_type}). It reads {', '.join(reads)}.",
            "",
            "```python",
            "import ccal",
            "",
            'model = ccal.DualEncoder.from_pretrained("OWNER/NAME")',
            f'model.encode("{y}", items)',
            "```",
            "",
        ]
    )


def _yaml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "".join(f"\n- {entry}" for entry in value)
    return str(value)
