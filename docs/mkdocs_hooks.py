"""The site of mkdocs: the reference, notebooks, links into the sources, examples in docstrings."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Page

MODULES = [
    "ccal",
    *(
        f"ccal.{name}"
        for name in (
            "cca",
            "losses",
            "encoders",
            "features",
            "data",
            "evaluation",
            "training",
            "runs",
            "retrieval",
            "codes",
            "music",
            "reports",
            "adapters",
            "serve",
        )
    ),
]
"""The packages with public names, in the order of the menu."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each package, with every name that it exports, and one for each notebook."""
    for name in MODULES:
        module = import_module(name)
        first = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        parts = [f"# {name}", first, *(f"::: {name}.{public}" for public in module.__all__)]
        path = f"reference/{name.rpartition('.')[2]}.md"
        files.append(File.generated(config, path, content="\n\n".join(parts) + "\n"))
    for notebook in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        path = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, path, content=notebook_page(notebook)))
    return files


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, with its stored outputs."""
    title, *cells = json.loads(path.read_text())["cells"]
    parts = ["".join(title["source"]), f"This page is a [notebook to run]({path.name})."]
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += map(_output, cell.get("outputs", ()))
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = data["image/png"].replace("\n", "")
        return f'<img alt="The plot of the code above" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        return "".join(data["text/html"])
    text = "".join(output.get("text") or data["text/plain"]).rstrip()
    return f"```text\n{text}\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show links to files outside of docs/ as their text, and notebooks as their pages."""
    markdown = re.sub(r"(notebooks/[\w-]+)\.ipynb\)", r"\1.md)", markdown)
    depth = page.file.src_uri.count("/") + 1
    return re.sub(rf"\[([^\]]+)\]\((?:\.\./){{{depth}}}[^)]*\)", r"\1", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that lacks a public name, or that loads something from elsewhere."""
    site = Path(config.site_dir)
    for name in MODULES:
        page = (site / f"reference/{name.rpartition('.')[2]}.html").read_text()
        missing = [n for n in import_module(name).__all__ if f'id="{name}.{n}"' not in page]
        if missing:
            raise PluginError(f"{name} has no entry for {', '.join(missing)}.")
    # Opened as a file, the theme would fetch a part of its search from a server.
    for script in site.glob("assets/javascripts/bundle.*.js"):
        script.write_text(script.read_text().replace("https://unpkg.com/", ""))
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]* src=[\"']?(?:https?:)?//[^>]*>")
    linked = re.compile(r"<link[^>]* rel=[\"']?(?:stylesheet|preconnect|icon|preload)[^>]*//[^>]*>")
    for path in site.rglob("*.html"):
        for pattern in (loaded, linked):
            if found := pattern.search(path.read_text()):
                raise PluginError(f"{path.relative_to(site)} loads {found[0]}")


class FencedExamples(griffe.Extension):
    """Doctests at the end of a docstring become blocks of code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fence the examples of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    """Put doctests between fences, and keep Markdown off the rest."""
    parts = re.split(r"(^[ ]*>>> (?:.+\n?)+)", text, flags=re.MULTILINE)
    # Every second part is an example. A* is a matrix; Markdown would see emphasis.
    parts[::2] = [re.sub(r"(?<=\w)\*(?=[\s,.;)])", r"\\*", part) for part in parts[::2]]
    parts[1::2] = map(_fenced, parts[1::2])
    return "".join(parts)


def _fenced(example: str) -> str:
    block = example.rstrip("\n")
    indent = " " * (len(block) - len(block.lstrip(" ")))
    end = "\n" if example.endswith("\n") else ""
    return f"{indent}```pycon\n{block}\n{indent}```{end}"
