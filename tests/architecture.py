"""The imports of the package as a graph, and the picture of its rooms.

`python -m tests.architecture` draws docs/images/architecture.svg from the imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/architecture.svg"

ROOMS = {
    "base": "errors, bounds of arguments, files, ranks, collectives",
    "cca": "statistics, one solver, CCALayer, linear CCA",
    "losses": "one file a loss",
    "encoders": "towers: dense, linear, VGG, words",
    "evaluation": "measures, intervals, significance, hubs",
    "features": "front ends: TF-IDF, word numbers, images",
    "model": "DualEncoder, and the bundled models",
    "data": "pairs, tables, splits, published data sets",
    "training": "settings, the loop, checkpoints, methods",
    "reports": "plots and pages",
    "runs": "train, evaluate and compare, in a folder",
    "retrieval": "Index and its backends, binary codes",
    "scale": "fit, encode and index shards by many workers",
    "music": "notation, sound, pairs, the tune library",
    "adapters": "ONNX, LangChain, LlamaIndex, MLflow, rows of data sets",
    "serve": "the HTTP API and the web page",
    "experiments": "the paper's tables, the demos",
    "cli": "one file a command",
}
"""The rooms and what is in them; a room imports only from those before it."""

_ROOMS_OF_FILES = {
    "model": "model",
    "model_card": "model",
    "bundled": "model",
    "codes": "retrieval",
}
_ENTRANCES = {"ccal", "ccal.__main__"}


@dataclass(frozen=True)
class Import:
    """That `module` imports `target`, both modules of the package."""

    module: str
    target: str
    when: str
    """`top` when the module is loaded, `call` in a function, `types` for type checkers only."""


def room(module: str) -> str:
    """The room of a module: its folder, or where a file beside the folders belongs."""
    parts = module.split(".")
    return parts[1] if parts[1] in ROOMS else _ROOMS_OF_FILES.get(parts[1], "base")


@cache
def modules() -> dict[str, Path]:
    """The files of all modules of the package, by dotted name."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """All imports within the package, but for those of its entrances."""
    found = []
    for module, path in modules().items():
        if module not in _ENTRANCES:
            tree = ast.parse(path.read_text())
            found += [
                Import(module, target, when)
                for target, when in _targets(tree, "top")
                if target not in _ENTRANCES
            ]
    return tuple(dict.fromkeys(found))


def _targets(node: ast.AST, when: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            target = inner if inner in modules() else node.module
            if target in modules():
                yield target, when
    elif isinstance(node, ast.Import):
        yield from ((alias.name, when) for alias in node.names if alias.name in modules())
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        when = "call" if when == "top" else when
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        when = "types"
    for child in ast.iter_child_nodes(node):
        yield from _targets(child, when)


def room_imports() -> set[tuple[str, str]]:
    """Pairs of rooms (importer, imported), of different rooms and outside of type checking."""
    found = {(room(i.module), room(i.target)) for i in imports() if i.when != "types"}
    return {(a, b) for a, b in found if a != b}


def draw() -> str:
    """The rooms in their order, each with what it imports that no room between imports for it."""
    edges = room_imports()
    reach = _closure(edges)
    direct = sorted(
        (a, b) for a, b in edges if not any((a, c) in reach and (c, b) in reach for c in ROOMS)
    )
    names = list(ROOMS)
    top, step, left, width = 24, 44, 16, 440
    middle = {name: top + step * place + 17 for place, name in enumerate(names)}
    height = top + step * len(names) + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>The rooms of ccal and their imports</title>",
        f'<rect width="620" height="{height}" rx="8" fill="#fbfaf8"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#7a8699"/></marker></defs>',
    ]
    for importer, imported in direct:
        span = names.index(importer) - names.index(imported)
        start, end, bend = middle[importer] - 6, middle[imported] + 6, left + width + 22 * span**0.9
        out.append(
            f'<path d="M{left + width} {start}C{bend:.0f} {start} {bend:.0f} {end} '
            f'{left + width + 2} {end}" fill="none" stroke="#7a8699" stroke-width="1.2" '
            'marker-end="url(#tip)"/>'
        )
    for name in names:
        y = middle[name] - 17
        out += [
            f'<rect x="{left}" y="{y}" width="{width}" height="34" rx="6" fill="#fff" '
            'stroke="#c9ced6"/>',
            f'<text x="{left + 12}" y="{y + 22}" font-weight="600" fill="#1d2733">{name}</text>',
            f'<text x="{left + 112}" y="{y + 22}" fill="#4a5563">{escape(ROOMS[name])}</text>',
        ]
    return "\n".join([*out, "</svg>", ""])


def _closure(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    reach = set(edges)
    for middle in ROOMS:
        reach |= {(a, d) for a, b in reach for c, d in reach if b == c == middle}
    return reach


if __name__ == "__main__":
    PICTURE.write_text(draw())
