"""`ccal fit-linear`: from shards of pairs to a model, by exact linear CCA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.errors import InputError
from ccal.progress import counting


def command(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help=f"Pairs, one a row: {o.DATASET}")
    ],
    out: Annotated[
        Path, o.out(metavar="MODEL", help="The folder of the model; new, unless `--force`.")
    ],
    x: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="The column with the features of the first modality. `NAME=COLUMN` also names "
            "it: `image=features`.",
        ),
    ] = "x",
    y: Annotated[
        str, typer.Option(metavar="COLUMN", help="The second modality, in the same way.")
    ] = "y",
    dim: Annotated[
        int, typer.Option(metavar="N", min=1, help="Dimensions of the common space, at most.")
    ] = 128,
    ridge: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            min=0,
            show_default="chosen on held-out rows",
            help="Ridge of both modalities, in units of their mean variance.",
        ),
    ] = None,
    power: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0,
            show_default="chosen on held-out rows",
            help="Each dimension counts by its correlation to this power.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Which rows are held out.")] = 0,
    engine: o.Engine = "local",
    workers: o.Workers = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model in `--out`.")] = False,
) -> None:
    """Fit linear CCA on shards of feature vectors, however many, in one pass by many workers.

    Needs features: a column of vectors for each modality. Statistics are exact and add up, so the
    model is that of one machine. It serves `ccal encode`, `index` and `search` as any other.

    Examples:

    `ccal fit-linear pairs/ --x image=photos --y text=captions -o linear`

    `ccal fit-linear "features/*.parquet" --dim 256 --engine ray -o linear`
    """
    if out.exists() and not (force and (out / "config.json").is_file()):
        problem = "add --force to replace the model" if out.is_dir() else "it is a file"
        raise InputError(f"{out} exists; {problem}, or name another folder.")
    from ccal.scale.engines import make_engine
    from ccal.scale.fitting import fit_linear
    from ccal.scale.shards import open_dataset

    pairs = open_dataset(dataset)
    (name_x, x), (name_y, y) = (_named(option) for option in (x, y))
    if name_x == name_y:
        raise InputError(f"--x and --y are both called {name_x!r}; name them, as --x image={x}.")
    rows, ridges = counting("reading"), counting("choosing ridges")

    def progress(what: str, done: int, total: int) -> None:
        (rows if what == "rows" else ridges)(done, total)

    given = {"ridge": ridge, "power": power}
    chosen: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
    found = fit_linear(
        pairs,
        x,
        y,
        make_engine(engine, workers),
        names=(name_x, name_y),
        dim=dim,
        seed=seed,
        progress=progress,
        **chosen,
    )
    found.model.save(out)
    cca = found.cca
    note(
        f"Fitted {pairs.rows:,} pairs of {len(cca.x_mean_):,} and {len(cca.y_mean_):,} features: "
        f"{found.model.dim} dimensions, correlations {cca.correlations_[0]:.3f} to "
        f"{cca.correlations_[-1]:.3f}, ridges {cca.ridge_[0]:.3g} and {cca.ridge_[1]:.3g}, power "
        f"{cca.power_:g}."
    )
    if cca.search_:
        best: Any = max(cca.search_, key=lambda trial: trial["mrr"])  # type: ignore[arg-type, return-value]
        note(
            f"Held-out pairs find their counterparts among {best['candidates'][0]:,} with a mean "
            f"reciprocal rank of {best['mrr']:.3f}."
        )
    note(f"Wrote {out}.")


def _named(option: str) -> tuple[str, str]:
    """A modality and its column.

    >>> _named("image=features"), _named("x")
    (('image', 'features'), ('x', 'x'))
    """
    name, equals, column = option.partition("=")
    return (name, column) if equals else (option, option)
