"""Files for tools that the tests cannot run: containers, CI of a forge, citations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import ccal
from ccal.cli.app import app

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def check_arguments(command: list[str]) -> None:
    """Refuse a command of `ccal` whose options do not exist."""
    group = typer.main.get_command(app)
    name, *arguments = command
    found = group.get_command(None, name)  # type: ignore[attr-defined]
    found.make_context(name, arguments)


def test_the_services_of_compose_call_ccal_as_it_is() -> None:
    compose = read("compose.yaml")
    own = {n: s for n, s in compose["services"].items() if s.get("image") == "ccal"}
    assert len(own) == 4
    for name, service in own.items():
        check_arguments(service["command"])
        (server,) = service["depends_on"]
        assert server in compose["services"]
        assert f"@{server}/" in service["command"][-1] or f"//{server}:" in service["command"][-1]
        assert (service["profiles"] == ["fill"]) == name.startswith("fill")
        # Reached from this machine only, and behind a token.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert "CCAL_TOKEN" in service["environment"]
    mounted = {
        volume.split(":")[0] for s in compose["services"].values() for volume in s["volumes"]
    }
    assert {volume for volume in mounted if "/" not in volume} == set(compose["volumes"])


def test_the_image_copies_what_is_there_and_starts_ccal() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [
        name
        for line in lines
        if line.startswith("COPY") and "--from" not in line
        for name in line.split()[1:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored, name
    (command,) = (line for line in lines if line.startswith("CMD"))
    check_arguments(yaml.safe_load(command.removeprefix("CMD ")))


def test_the_forge_runs_what_ci_runs() -> None:
    steps = read(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    (step,) = (step for step in steps if "run" in step)
    assert (ROOT / step["run"]).stat().st_mode & 0o100


def test_the_citation_has_the_version_and_the_paper() -> None:
    citation = read("CITATION.cff")
    assert str(citation["version"]) == ccal.__version__
    doi = citation["preferred-citation"]["doi"]
    for name in ("README.md", "docs/paper.md", "pyproject.toml"):
        assert doi in (ROOT / name).read_text(), name


def test_the_site_has_a_page_of_reference_for_every_package() -> None:
    stub = (ROOT / "src/ccal/__init__.pyi").read_text()
    packages = re.findall(r"^from ccal import (\w+)", stub, flags=re.MULTILINE)
    # The hooks fill these pages with every public name, and check that none is missing.
    menu = re.findall(r"^      - reference/(\w+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(menu) == sorted(["ccal", *packages])
    hooks = (ROOT / "docs/mkdocs_hooks.py").read_text()
    assert [name for name in menu[1:] if f'"{name}"' not in hooks] == []
