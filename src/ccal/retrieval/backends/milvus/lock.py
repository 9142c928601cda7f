"""One writer at a time, where the server knows no locks.

Making a collection is the one thing in Milvus of which two who try see one succeed. A lock is an
empty collection NAME_lock_G whose schema holds a secret: G, the generation, counts writers, and the
highest one has the lock. A lock is never taken over by removing it, which a second one could do to
the wrong one, but by making that of the next generation.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from ccal.errors import CcalError
from ccal.retrieval.backends.milvus.server import Server
from ccal.retrieval.items import in_use

__all__ = ["WriterLock"]


class WriterLock:
    """The lock of an index; one whose process is gone, as far as can be seen, is free."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.generation = 0

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self.generation > 0

    def acquire(self, after: int) -> bool:
        """Take the lock with a generation above `after`; whether it was left by one that died."""
        address = self._server.address
        known = self._known()
        left = bool(known)
        if known:
            owner = self._owner(max(known))
            if owner is None or (_is_alive(owner) and not address.takeover):
                raise self._in_use(owner)
        generation = max([after, *known]) + 1
        try:
            self._make(generation)
        except CcalError as error:
            if "different parameters" in str(error):
                raise self._in_use(self._owner(generation)) from error
            raise
        self.generation = generation
        for old in known:
            self._server.call("drop_collection", self._name(old))
        return left

    def is_current(self) -> bool:
        """Whether nobody has taken the lock over."""
        return max(self._known(), default=0) == self.generation

    def release(self) -> None:
        """Let others write."""
        if self.held:
            generation, self.generation = self.generation, 0
            self._server.call("drop_collection", self._name(generation))

    def _known(self) -> list[int]:
        pattern = re.compile(re.escape(self._name("")) + r"(\d+)")
        names = map(pattern.fullmatch, self._server.call("list_collections"))
        return sorted(int(match.group(1)) for match in names if match)

    def _name(self, generation: object) -> str:
        return f"{self._server.address.name}_lock_{generation}"

    def _make(self, generation: int) -> None:
        pymilvus = self._server.pymilvus
        schema = self._server.client.create_schema(description=json.dumps(_this_process()))
        schema.add_field("row", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field(f"secret_{secrets.token_hex(8)}", pymilvus.DataType.BOOL)
        schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=2)
        self._server.call("create_collection", self._name(generation), schema=schema)

    def _owner(self, generation: int) -> dict[str, Any] | None:
        with suppress(CcalError, ValueError):
            about = self._server.call("describe_collection", self._name(generation))
            return dict(json.loads(about["description"]))
        return None

    def _in_use(self, owner: dict[str, Any] | None) -> CcalError:
        who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        return in_use(self._server.address.shown, who)


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "boot": _boot(), "pid": pid, "began": _began(pid)}


def _is_alive(owner: dict[str, Any]) -> bool:
    """Whether a process runs; one on another machine is taken to."""
    if owner["host"] != socket.gethostname():
        return True
    return bool(owner["boot"] == _boot() and owner["began"] == _began(owner["pid"]))


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _began(pid: int) -> str:
    """When a process began, since numbers come back; "" if there is none."""
    with suppress(OSError):
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else others[18]
    with suppress(OSError):
        if not Path("/proc/self").exists():
            os.kill(pid, 0)
            return "running"
    return ""
