from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccal.errors import CcalError, InputError
from ccal.files import FileLock, LockedError, alone_in, new_file, write_atomically


def test_rights_are_those_of_any_new_file(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"content")
    finally:
        os.umask(old)
    assert (tmp_path / "file").read_bytes() == b"content"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "file", "text")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_failure_names_the_file_and_not_its_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError) as caught:
        write_atomically(tmp_path / "a" / "b", b"")
    assert caught.value.filename == str(tmp_path / "a" / "b")
    with pytest.raises(OSError, match="full") as full, new_file(tmp_path / "c"):
        raise OSError(28, "full")
    assert full.value.filename == str(tmp_path / "c")
    with pytest.raises(FileNotFoundError) as other, new_file(tmp_path / "c"):
        (tmp_path / "other").read_bytes()
    assert other.value.filename == str(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for _ in range(2):  # the first leaves its file, but no lock
        with (
            alone_in(folder),
            pytest.raises(CcalError, match="another process is at work in"),
            alone_in(folder),
        ):
            pass


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ccal.files import FileLock; "
        "FileLock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "lock"
    command = [sys.executable, "-c", code, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"held\n"
        lock = FileLock(path)
        with pytest.raises(LockedError, match=f"process {process.pid}") as caught:
            lock.acquire()
        assert caught.value.holder == f"process {process.pid}"
        assert not lock.held
        process.kill()
        process.wait()
        lock.acquire()
    assert lock.held
    lock.release()
    lock.release()


def test_a_lock_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none: cannot be written \(No such file"):
        FileLock(tmp_path / "none" / "lock").acquire()
