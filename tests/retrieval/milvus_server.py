"""A Milvus server of our own, from PyPI, in an environment of its own.

The package is kept in the user's cache (or where CCAL_TEST_MILVUS says), since it is 60 MB. Run as
a program, with a folder for data as its argument, this file serves until its stdin ends: so a
server never outlives the tests, however those end.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = "milvus==2.3.5"


class NoServerError(Exception):
    """Why there is none."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CCAL_TEST_MILVUS") or Path(base) / "ccal" / PACKAGE)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time: two would install over each other, or choose the same ports."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(folder: Path) -> None:
    """Install the package and unpack its programs, unless they are there."""
    if (folder / ".complete").exists():
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    unpack = "import sys, milvus; milvus._initialize_data_files(sys.argv[1])"
    steps = [
        [*pip, "--target", str(folder / "packages"), PACKAGE],
        [sys.executable, "-c", unpack, str(folder)],
    ]
    for step in steps:
        done = subprocess.run(
            step, env=environment(folder), capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            raise NoServerError(f"{' '.join(step)}: {done.stderr.strip()[-500:]}")
    (folder / ".complete").touch()


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder / "packages")}


@contextmanager
def running(data: Path) -> Iterator[str]:
    """Start a server; gives its address as host:port."""
    folder = cache()
    try:
        with alone(folder):
            install(folder)
            process, address = start(folder, data)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoServerError(str(error)) from error
    try:
        yield address
    finally:
        stop(process)


def start(folder: Path, data: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    """A new server, or one that was killed, with its data, at the port that it had."""
    data.mkdir(parents=True, exist_ok=True)
    if not (data / "bin").exists():
        (data / "bin").symlink_to(folder / "bin")
    process = subprocess.Popen(
        [sys.executable, __file__, str(data), str(port)],
        env={**environment(folder), "ETCD_CONFIG_PATH": str(data / "etcd.yaml")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A signal to all of the tests must not end it before it has stopped the server.
        start_new_session=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if not said:
        stop(process)
        raise NoServerError("the server did not start")
    return process, f"127.0.0.1:{said}"


def stop(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=60)


def kill(process: subprocess.Popen[str]) -> None:
    """End a server at once, by kill -9."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve(data: str, port: int) -> None:
    """Start the server, say its port, and wait for the end of stdin."""
    import milvus  # type: ignore[import-not-found, unused-ignore]

    server = milvus.MilvusServer()
    server.set_base_dir(data)
    client, peer = free_port(), free_port()
    server.config.update(etcd_port=client)
    if port:
        server.listen_port = port
    # Else the server's etcd takes its default ports, and no second server could run.
    urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
    Path(data, "etcd.yaml").write_text(
        f"""name: default
data-dir: {data}/data/etcd.data
listen-client-urls: {urls["client"]}
advertise-client-urls: {urls["client"]}
listen-peer-urls: {urls["peer"]}
initial-advertise-peer-urls: {urls["peer"]}
initial-cluster: default={urls["peer"]}
"""
    )
    # Whoever wants to see the latest waits for the next tick of the log, by default 200 ms.
    server.config.set("proxy.timeTickInterval", 20)
    # Otherwise a segment that was just sealed is searched by an index of Milvus' own choice.
    server.config.set("queryNode.segcore.interimIndex.enableIndex", "false")
    try:
        server.start()
        print(server.listen_port, flush=True)
        sys.stdin.read()
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
