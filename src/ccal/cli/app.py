"""The commands under one name; a command's module is imported when it is called."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ccal.cli.console import quiet_errors, warn_plainly

_PANELS = {
    "Train and measure": ("train", "fit-linear", "evaluate", "compare", "info"),
    "Search": ("index", "search", "serve", "encode"),
    "Sheet music and sound": ("identify", "data", "reproduce", "demo"),
}
"""Commands as `ccal --help` lists them. Each is a module with `command`, or `app` if several."""
_COMMANDS = {name: panel for panel, names in _PANELS.items() for name in names}


class _PlainFlags:
    """Shows flags as flags, `--resume` and not `--resume <bool>`; `--help` comes last."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as the help shows them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        *options, help_option = [p for p in params if p.param_type_name == "option"]
        for option in (*options, help_option):
            if option.is_flag:
                option.metavar = ""
        panels = [getattr(option, "rich_help_panel", None) for option in options]
        if panels and None not in panels:
            # A panel of its own would come first.
            help_option.rich_help_panel = panels[-1]
        return params


class _Command(_PlainFlags, TyperCommand):
    """One command."""


class _Group(_PlainFlags, TyperGroup):
    """A command that has several of its own."""


class Commands(_PlainFlags, TyperGroup):
    """The group of commands; it reports errors of any of them in one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, made from its module."""
        if cmd_name not in _COMMANDS:
            # Typer suggests names that are close to a wrong one, of those in `self.commands`.
            for name in _COMMANDS:
                self.get_command(ctx, name)
            return None
        if cmd_name not in self.commands:
            module = import_module(f"ccal.cli.{cmd_name.replace('-', '_')}")
            group = getattr(module, "app", None)
            if group is None:
                group = typer.Typer(add_completion=False, rich_markup_mode="markdown")
                group.command(cmd_name, context_settings=_HELP)(module.command)
            group.info.cls = _Group
            for info in group.registered_commands:
                info.cls = _Command
            command: Any = typer.main.get_command(group)
            command.name, command.rich_help_panel = cmd_name, _COMMANDS[cmd_name]
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

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


_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings=_HELP,
    epilog="`ccal COMMAND --help` explains a command, with examples.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from ccal import __version__

        print(f"ccal {__version__}")
        raise typer.Exit


@app.callback()
def ccal(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (or CCAL_DEBUG=1).")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Learn one space for two kinds of things, in which each finds its counterpart.

    Give pairs (photos and captions, recordings and scores, any two arrays) to `ccal train`, and get
    a folder, the RUN, that the other commands work with.
    """
