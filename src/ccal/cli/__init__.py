"""The command line: `ccal --help` lists the commands.

app       the commands under one name, and how errors are shown
console   notes, progress and errors on stderr
options   options that several commands share
pictures  images in a terminal
The other modules are a command each: options in, a call to the library, words out.

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

        app(prog_name="ccal")
    except KeyboardInterrupt:  # before the command has begun
        print("stopped", file=sys.stderr)
        sys.exit(130)
