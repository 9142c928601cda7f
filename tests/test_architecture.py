"""The rooms of the package: imports go one way, and the mathematics knows tensors only."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture import PICTURE, ROOMS, ROOT, draw, imports, modules, room

ORDER = list(ROOMS)
TENSOR_ROOMS = ("cca", "losses", "encoders", "evaluation")
NO_TENSORS = {"io", "json", "logging", "os", "pathlib", "shutil", "sqlite3", "tempfile", "typer"}


def test_a_room_imports_only_from_the_rooms_before_it() -> None:
    wrong = [
        f"{i.module} imports {i.target} ({i.when})"
        for i in imports()
        if ORDER.index(room(i.target)) > ORDER.index(room(i.module))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for i in imports():
        if i.when == "top":
            graph.setdefault(i.module, set()).add(i.target)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for target in graph.get(module, ()):
                visit(target, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("name", TENSOR_ROOMS)
def test_the_mathematics_reads_no_file_and_prints_nothing(name: str) -> None:
    for module, path in modules().items():
        if module == "ccal" or room(module) != name:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & NO_TENSORS, module
            elif (
                isinstance(node, ast.ImportFrom) and ast.unparse(node) != "from os import PathLike"
            ):
                assert (node.module or "").split(".")[0] not in NO_TENSORS, module
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "open"), f"{module}:{node.lineno}"


def test_no_file_is_longer_than_400_lines() -> None:
    long = {m: n for m, path in modules().items() if (n := len(path.open().readlines())) > 400}
    assert not long


def test_the_picture_shows_the_imports_of_today() -> None:
    assert PICTURE.read_text() == draw(), "run: python -m tests.architecture"


def test_the_guide_names_files_that_exist() -> None:
    guide = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`([a-z_/0-9]+\.py)`", guide)
    assert len(named) > 40
    assert not [n for n in named if not ((ROOT / "src/ccal" / n).exists() or (ROOT / n).exists())]
