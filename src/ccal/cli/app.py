"""The commands under one name."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ccal.cli import (
    compare,
    data,
    demo,
    encode,
    evaluate,
    identify,
    index,
    info,
    reproduce,
    search,
    serve,
    train,
)
from ccal.cli.console import quiet_errors, warn_plainly

__all__ = ["app"]


class Commands(TyperGroup):
    """The group of commands; what goes wrong in any of them is told in one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors a person can act on become a line on stderr and an exit code."""
        warn_plainly()
        debug = bool(ctx.params.get("debug")) or os.environ.get("CCAL_DEBUG") == "1"
        with quiet_errors(debug) as codes:
            result = super().invoke(ctx)
            # Here, where a reader that has gone away is no error; at exit it would be a loud one.
            if sys.stdout is not None:  # as after `>&-`
                sys.stdout.flush()
            return result
        raise typer.Exit(codes[0])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`ccal COMMAND --help` explains a command, with examples.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"ccal {version('ccal')}")
        except PackageNotFoundError:  # run from a clone that is not installed
            from ccal import __version__

            print(f"ccal {__version__}")
        raise typer.Exit


@app.callback()
def ccal(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (or CCAL_DEBUG=1).")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Learn one space for two kinds of things, in which each finds its counterpart.

    Give pairs (photos and captions, recordings and scores, any two arrays) to `ccal train`, and get
    a folder, the RUN, that the other commands work with.
    """


for _module in (
    *(train, evaluate, compare, encode, index, search, identify, serve, info),
    *(reproduce,),
):
    app.command(_module.NAME)(_module.command)
app.add_typer(data.app, name=data.NAME)


app.command(demo.NAME)(demo.command)
