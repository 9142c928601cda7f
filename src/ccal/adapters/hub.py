"""Models as folders of the Hugging Face hub: configuration, safetensors, and a model card.

A folder on disk needs no other package; the hub itself needs `huggingface_hub` and the network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccal.model import DualEncoder, load
from ccal.optional import require

_CARD = "README.md"


def save_pretrained(
    model: DualEncoder, folder: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a model and its card, as `push_to_hub` uploads them.

    `metadata` goes to the head of the card beside library and tags: `license`, `datasets`, ...
    with texts or lists of texts.
    """
    card = Path(folder) / _CARD
    # `save` refuses a folder with other files.
    card.unlink(missing_ok=True)
    model.save(folder)
    card.write_text(model_card(model, metadata or {}))


def push_to_hub(
    model: DualEncoder, repo_id: str, *, metadata: Mapping[str, Any] | None = None, **options: Any
) -> str:
    """Upload a model to the hub; returns the address of the commit.

    `options` are those of `huggingface_hub.HfApi.upload_folder`, such as `commit_message`.
    """
    api = _hub().HfApi()
    api.create_repo(repo_id, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder, metadata=metadata)
        return str(api.upload_folder(repo_id=repo_id, folder_path=folder, **options))


def from_pretrained(name: str | os.PathLike[str], **options: Any) -> DualEncoder:
    """The model of a folder, or of a repository on the hub, in evaluation mode.

    `options` are those of `huggingface_hub.snapshot_download`, such as `revision`.
    """
    if Path(name).is_dir():
        return load(name)
    patterns = ["config.json", "*.safetensors"]
    return load(_hub().snapshot_download(os.fspath(name), allow_patterns=patterns, **options))


def model_card(model: DualEncoder, metadata: Mapping[str, Any]) -> str:
    """Markdown with a head in YAML, as the hub reads it."""
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
            "from ccal.adapters.hub import from_pretrained",
            "",
            'model = from_pretrained("OWNER/NAME")',
            f'model.encode("{y}", items)',
            "```",
            "",
        ]
    )


def _yaml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "".join(f"\n- {entry}" for entry in value)
    return str(value)


def _hub() -> Any:
    return require("huggingface_hub", package="huggingface_hub", purpose="The hub")
