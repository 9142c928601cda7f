"""Python code in new processes that have torch and NumPy already, and nothing of ccal.

Importing torch takes seconds. So one process imports it, and forks a child for each piece of code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache

_PARENT = """
import json, os, sys, tempfile, traceback
import numpy, torch

for line in sys.stdin:
    code, arguments = json.loads(line)
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if child == 0:
            status, sys.argv, sys.stdin = 1, ["-c", *arguments], open(os.devnull)
            os.dup2(out.fileno(), 1)
            try:
                exec(code, {"__name__": "__main__"})
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        print(json.dumps([status, out.read()]), flush=True)
"""


@lru_cache
def _parent() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PARENT]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(code: str, *arguments: object) -> str:
    """What some code prints; `sys.argv` has the arguments after its first entry."""
    process = _parent()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([code, [str(argument) for argument in arguments]]) + "\n")
    process.stdin.flush()
    status, out = json.loads(process.stdout.readline())
    assert status == 0, f"exit {status}: {code}"
    return str(out)


def loaded(code: str) -> set[str]:
    """Names of the modules that a process has after running some code."""
    return set(run(f"import sys; {code}; print(*sys.modules)").split())
