"""The command line: `ccal train`, `evaluate`, `compare`, `encode`, `info` and `demo`.

app        the commands under one name, and how errors are shown
options    what several commands can be told
config     settings and data from TOML files, `--set` and flags, in one order of precedence
sources    where the pairs of a command come from
work       train, evaluate and write down one run
train, evaluate, compare, encode, info   one command each

Nothing here imports torch before a command needs it: `ccal --help` answers at once.
"""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that `sys.argv` asks for, and exit."""
    # bf16 kernels kill the process on machines that advertise AMX wrongly; torch reads this once.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    try:
        from ccal.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print("error: The commands need typer: pip install 'ccal[cli]'", file=sys.stderr)
        sys.exit(2)

    app(prog_name="ccal")
