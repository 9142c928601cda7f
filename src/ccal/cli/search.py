"""`ccal search`: a query in, its nearest items out."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.columns import align, printable
from ccal.errors import InputError
from ccal.progress import counting

if TYPE_CHECKING:
    from ccal.model import DualEncoder
    from ccal.retrieval import Hit, Index


_FILTER = re.compile(r"([^<>=]+)(>=|<=|>|<|=)(.*)", re.DOTALL)


def command(
    location: Annotated[
        str,
        typer.Argument(
            metavar="LOCATION",
            help="What `ccal index` wrote to: a folder, `postgresql://...` or `milvus://...`. Or a "
            "run, whose own items are indexed the first time.",
        ),
    ],
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            show_default=False,
            help="Words, an image file, a .txt file with a query a line, `-` for lines from stdin, "
            "or a .npy file: of embeddings, or of features with `--modality`.",
        ),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="ID", help="Search by an item of the index instead.")
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option(
            "--modality", "-m", metavar="NAME", help="What the query is, if it is not clear."
        ),
    ] = None,
    k: Annotated[
        int, typer.Option("--k", "-k", metavar="N", min=1, help="How many items to find.")
    ] = 10,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="MODALITY",
            show_default="the other modality",
            help="Which items to search among; `both` ranks each modality by itself.",
        ),
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="KEY=VALUE",
            help="Only items with such metadata: `colour=red`, `colour=red,blue` for any of them, "
            '`"year>=1990"`, `bird.name=robin` for nested ones; all of several must hold.',
        ),
    ] = None,
    model: o.ModelOfIndex = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare the query with every item.")
    ] = False,
    as_json: o.Json = False,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures/--no-pictures",
            help="Show images that were found, if stdout is a terminal that can.",
        ),
    ] = True,
) -> None:
    """Find the items of an index that are nearest to a query, the best first.

    Examples:

    `ccal search photos.index "a small yellow bird" --filter "year>=1990"`

    `ccal search runs/first "a small yellow bird"`

    `ccal search photos.index robin.jpg --k 5 --json`

    `ccal search photos.index --like photos/1.jpg --within image`

    `ccal search milvus://localhost:19530/photos "a small yellow bird"`
    """
    from ccal.retrieval.models import bound_model

    if (query is None) == (like is None):
        raise InputError('Give one QUERY, such as "a small yellow bird", or --like ID.')
    options: dict[str, Any] = {"k": k, "within": within, "exact": exact}
    options["where"] = parse_filters(filters or [])
    index, known = _open(location, model)
    with index:
        if like is not None:
            answers: list[tuple[str, Sequence[Hit]]] = [(like, index.search_like(like, **options))]
            several = False
        else:
            assert query is not None
            found_model = partial(bound_model, index, model) if known is None else lambda: known
            answers, several = _answers(index, query, modality, found_model, options)
        meaning = next(filter(None, (_meaning(index, hits) for _, hits in answers)), "")
        texts = {} if as_json else _counterpart_texts(index, answers)
    if as_json:
        found = [{"query": name, "hits": [asdict(hit) for hit in hits]} for name, hits in answers]
        print(json.dumps(found if several else found[0], indent=1))
        return
    graphics = None
    if pictures and sys.stdout and sys.stdout.isatty():
        from ccal.cli.pictures import picture, terminal_graphics

        graphics = terminal_graphics()
    for number, (name, hits) in enumerate(answers):
        if several:
            print(f"{'' if number == 0 else chr(10)}{printable(name)}")
        header, *lines = _table(hits, texts)
        print(header if hits else "nothing found")
        for hit, line in zip(hits, lines, strict=True):
            print(line)
            if graphics and (shown := picture(hit.file, graphics)):
                print(shown)
    if meaning:
        print(f"\n{meaning}")


def _open(location: str, folder: Path | None) -> tuple[Index, DualEncoder | None]:
    """The index at a location; that of a run, which is made if it is missing, with its model."""
    from ccal.retrieval import Index
    from ccal.retrieval.run_index import build_index, existing_index, is_run
    from ccal.runs import Run

    if not is_run(location):
        return Index.open(location), None
    if folder is not None:
        raise InputError(f"{location} is a run and has its model; leave --model out.")
    run = Run.open(location)
    model = run.model()
    found = existing_index(run, model)
    if found is None:
        note(f"The first time, the items of {location} are indexed.")
        found = build_index(run, model, progress=counting("indexing items"))
    return found, model


def parse_filters(texts: list[str]) -> dict[str, Any]:
    """Conditions as `Index.search` takes them.

    >>> parse_filters(["colour=red,blue", "year>=1990", "year<2000"])
    {'colour': ['red', 'blue'], 'year': {'>=': 1990, '<': 2000}}
    """
    where: dict[str, Any] = {}
    for text in texts:
        match = _FILTER.fullmatch(text)
        if match is None:
            raise InputError(f"--filter {text}: expected KEY=VALUE, KEY>=VALUE or the like.")
        key, sign, value = match.group(1).strip(), match.group(2), match.group(3).strip()
        values = [_value(part) for part in value.split(",")]
        before = where.setdefault(key, [] if sign == "=" else {})
        if sign == "=" and isinstance(before, list):
            before += values
        elif sign != "=" and isinstance(before, dict) and len(values) == 1:
            before[sign] = values[0]
        else:
            raise InputError(f"--filter {text}: a key takes values or one range, not both.")
    return where


def _answers(
    index: Index,
    query: str,
    modality: str | None,
    load: Callable[[], DualEncoder],
    options: dict[str, Any],
) -> tuple[list[tuple[str, Sequence[Hit]]], bool]:
    """Each query, by name, with its hits; and whether the query is a file of several."""
    from ccal.features import reads_images
    from ccal.features.text import word_check

    path = Path(query)
    _refuse_missing_file(path)
    is_array = path.suffix.lower() == ".npy" and path.is_file()
    items: Any = [query]
    several = query == "-" or (path.suffix.lower() in (".npy", ".txt") and path.is_file())
    if several:
        from ccal.data.items import read_items

        given = read_items(path)
        items = given.items
        for text in given.notes:
            note(text)
    names = [f"row {n}" for n in range(len(items))] if is_array else items
    if is_array and modality is None:
        return list(zip(names, index.search_vectors(items, **options), strict=True)), True
    model = load()
    if modality is None:
        modality = _guess(model, query)
    if not is_array and not reads_images(model.front_ends.get(modality)):
        _check_words(items, word_check(model.front_ends.get(modality)))
    found = index.search(**{modality: items}, **options)
    return list(zip(names, found, strict=True)), several


def _refuse_missing_file(path: Path) -> None:
    """Refuse the name of a file that is not there; nobody means it as words to search for."""
    from ccal.features.scan import SUFFIXES

    if path.is_dir() and str(path) != ".":
        raise InputError(f"{path} is a folder; search with words or with a file.")
    named = path.suffix.lower() in {".npy", ".txt", *SUFFIXES} and " " not in path.name
    if named and not path.is_file():
        raise InputError(f"{path}: no such file.")


def _check_words(texts: Sequence[str], knows: Callable[[str], bool]) -> None:
    """Refuse a query without a known word; of several queries, count those without one."""
    from ccal.features.text import refuse_unknown

    unknown = sum(not knows(text) for text in texts)
    if len(texts) == 1:
        refuse_unknown(texts[0], knows)
    elif unknown:
        note(
            f"warning: {unknown:,} of {len(texts):,} queries have no word that the model knows; "
            "their hits mean nothing."
        )


def _guess(model: DualEncoder, query: str) -> str:
    """The modality of a query: images by their files, words by the front end that reads them."""
    from ccal.features import reads_images
    from ccal.features.scan import SUFFIXES

    path = Path(query)
    image = path.suffix.lower() in SUFFIXES and path.is_file()
    fitting = [
        name for name, front_end in model.front_ends.items() if reads_images(front_end) == image
    ]
    if len(fitting) != 1:
        what = "an image" if image else "words"
        x, y = model.modalities
        if not fitting:
            raise InputError(
                f"{query!r} is {what}, and neither modality of this model takes that: it was "
                "trained on arrays of features. Search by a .npy file of features with --modality "
                f"{x} or --modality {y}, or by an item of the index with --like ID."
            )
        raise InputError(
            f"{query!r} is {what}, and several modalities of this model take that; say which with "
            f"--modality {x} or --modality {y}."
        )
    return fitting[0]


def _counterpart_texts(
    index: Index, answers: Sequence[tuple[str, Sequence[Hit]]]
) -> dict[str, str]:
    """A caption of each hit that has such, by the hit's id, and how many more there are."""
    from ccal.retrieval.items import counterparts

    texts: dict[str, str] = {}
    for hit in (hit for _, hits in answers for hit in hits):
        ids, count = counterparts(hit)
        # A counterpart may have been removed since.
        with suppress(InputError):
            if ids and isinstance(text := index.get(ids[:1])[0].metadata.get("text"), str):
                texts[hit.id] = f"{text}  (and {count - 1:,} more)" if count > 1 else text
    return texts


def _table(hits: Sequence[Hit], texts: Mapping[str, str]) -> list[str]:
    """Rank, match, score, id, caption, file and metadata of each hit, in aligned columns."""
    from ccal.retrieval.items import COUNTERPARTS

    judged = any(hit.match for hit in hits)
    rows = [["rank", *(("match", "chance") if judged else ()), "score", "id", ""]]
    for rank, hit in enumerate(hits, start=1):
        words = [str(hit.match), _percent(hit.chance or 0.0)] if judged else []
        facts = [f"{k}={_shown(value)}" for k, value in hit.metadata.items() if k != COUNTERPARTS]
        said = [texts[hit.id]] if hit.id in texts else []
        file = [hit.file] if hit.file and not hit.file.endswith(hit.id) else []
        about = "  ".join([*said, *file, *facts]).replace("\n", " ")
        rows.append([str(rank), *words, f"{hit.score:.4f}", hit.id, about])
    return align(rows, left=(1, 4, 5) if judged else (2, 3))


def _meaning(index: Index, hits: Sequence[Hit]) -> str:
    """A sentence that explains the words strong, fair and weak; empty if the hits have none."""
    if not hits or hits[0].match is None:
        return ""
    found = hits[0].modality
    (query_modality,) = (name for name in index.binding.modalities if name != found)
    calibration, candidates = index.chances.calibration(query_modality, [found]), index.count(found)
    assert calibration is not None
    return (
        f"chance: that a hit is exactly the right one of {candidates:,}, estimated on "
        f"{calibration.queries:,} validation queries; strong: at least 1 in 2, fair: at least 1 in "
        f"{1 / calibration.fair(candidates):.0f}, weak: less."
    )


def _percent(chance: float) -> str:
    return "<1%" if chance < 0.01 else f"{int(100 * chance)}%"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(text: str) -> Any:
    """A number, true, false, null, text in quotes, or text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, list | dict) else value
