"""Engines: a function applied to many shards by workers that may die."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, TypeVar

from ccal.errors import CcalError, InputError
from ccal.optional import require

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W")

Work = Callable[[T], Generator[int, None, R]]
"""Does a task: yields numbers of rows as they are done, and returns the result."""
Start = Callable[[], Work[T, R]]
"""Called once in each worker, as to load a model. It is pickled, and so is every task."""
EngineName = Literal["local", "ray"]

_MOST_DEATHS = 3
# "rows" a number, "done" a result, "failed" an error; "died" how, from the engine.
_Message = tuple[str, Any]


class Engine(ABC, Generic[W]):
    """Workers that do tasks; those of one that dies are done again by another.

    Attributes:
        workers: how many work at a time.
    """

    workers: int

    def map(
        self, start: Start[T, R], tasks: Sequence[T], progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, R]]:
        """The number of each task and its result, in the order in which they are done.

        Each result is given once, although a task whose worker died is begun again. `progress` is
        told how many more rows are done; fewer when a worker has died.
        """
        waiting = deque(range(len(tasks)))
        deaths: Counter[int] = Counter()
        rows: Counter[int] = Counter()
        at_work: dict[W, int] = {}
        report = progress or (lambda _: None)
        try:
            while waiting or at_work:
                while waiting and len(at_work) < self.workers:
                    worker = self._hire(start)
                    at_work[worker] = waiting.popleft()
                    self._give(worker, tasks[at_work[worker]])
                worker, (kind, content) = self._hear(list(at_work))
                number = at_work[worker]
                if kind == "rows":
                    rows[number] += content
                    report(content)
                elif kind == "done":
                    if waiting:
                        at_work[worker] = waiting.popleft()
                        self._give(worker, tasks[at_work[worker]])
                    else:
                        del at_work[worker]
                        self._dismiss(worker)
                    yield number, content
                elif kind == "failed":
                    raise content
                else:
                    del at_work[worker]
                    if lost := rows.pop(number, 0):
                        report(-lost)
                    waiting.appendleft(number)
                    deaths[number] += 1
                    if deaths[number] == _MOST_DEATHS:
                        raise CcalError(
                            f"{tasks[number]}: {_MOST_DEATHS} workers died of it ({content}), as "
                            "when memory runs out. Take smaller shards or fewer workers."
                        )
        finally:
            for worker in at_work:
                self._dismiss(worker)

    @abstractmethod
    def _hire(self, start: Start[T, R]) -> W:
        """A new worker."""

    @abstractmethod
    def _give(self, worker: W, task: Any) -> None:
        """Let an idle worker begin a task."""

    @abstractmethod
    def _hear(self, workers: Sequence[W]) -> tuple[W, _Message]:
        """The next message of any of them."""

    @abstractmethod
    def _dismiss(self, worker: W) -> None:
        """End a worker, whatever it does."""


class _Process:
    """A worker process, and the pipe to it."""

    def __init__(self, start: Start[Any, Any], threads: int) -> None:
        # A forked process would inherit locks and the threads' half of them.
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, start), daemon=True)
        # Libraries of linear algebra read these when they are imported, which is before `_serve`.
        before = {name: os.environ.get(name) for name in _THREADS}
        os.environ.update({name: value or str(threads) for name, value in before.items()})
        try:
            self.process.start()
        finally:
            for name in (name for name, value in before.items() if value is None):
                del os.environ[name]
        other.close()


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LocalEngine(Engine[_Process]):
    """Processes of this machine, which end with the one that started them.

    Args:
        workers: how many; as many as this process has processors by default.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or processors()

    def _hire(self, start: Start[T, R]) -> _Process:
        return _Process(start, max(1, processors() // self.workers))

    def _give(self, worker: _Process, task: Any) -> None:
        with suppress(OSError):  # it has died, which `_hear` finds
            worker.pipe.send(task)

    def _hear(self, workers: Sequence[_Process]) -> tuple[_Process, _Message]:
        by_pipe = {worker.pipe: worker for worker in workers}
        pipe: Any = wait(list(by_pipe))[0]
        worker = by_pipe[pipe]
        try:
            return worker, pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            return worker, ("died", f"exit code {worker.process.exitcode}")

    def _dismiss(self, worker: _Process) -> None:
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()


class RayEngine(Engine[Any]):
    """Actors of a Ray cluster: that of RAY_ADDRESS, or one of this machine.

    Workers elsewhere need ccal, and see data, model and results under the same paths.

    Args:
        workers: how many; as many as the cluster has processors by default.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._ray = ray = require("ray", extra="ray", purpose="The engine ray")
        if not ray.is_initialized():
            elsewhere = "RAY_ADDRESS" in os.environ
            own: dict[str, Any] = {"address": "local", "num_cpus": workers or processors()}
            ray.init(include_dashboard=False, log_to_driver=False, **({} if elsewhere else own))
        self.workers = workers or int(ray.cluster_resources().get("CPU", 1))
        self._actor = ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        self._answers: dict[Any, Any] = {}

    def _hire(self, start: Start[T, R]) -> Any:
        return self._actor.remote(start)

    def _give(self, worker: Any, task: Any) -> None:
        self._answers[worker] = worker.work.options(num_returns="streaming").remote(task)

    def _hear(self, workers: Sequence[Any]) -> tuple[Any, _Message]:
        by_answer = {self._answers[worker]: worker for worker in workers}
        (answer, *_), _ = self._ray.wait(list(by_answer), num_returns=1)
        try:
            return by_answer[answer], self._ray.get(next(answer))
        except (self._ray.exceptions.RayError, StopIteration) as error:
            return by_answer[answer], ("died", type(error).__name__)

    def _dismiss(self, worker: Any) -> None:
        self._ray.kill(worker)
        self._answers.pop(worker, None)


class _Actor:
    """A worker of Ray."""

    def __init__(self, start: Start[T, R]) -> None:
        self._start = start
        self._work: Any = None

    def work(self, task: Any) -> Iterator[_Message]:
        if self._work is None:
            self._work = _begun(self._start)
        yield from _messages(self._work, task)


def make_engine(name: EngineName, workers: int | None = None) -> Engine[Any]:
    """The engine of this name.

    >>> make_engine("local", 2).workers
    2
    """
    return RayEngine(workers) if name == "ray" else LocalEngine(workers)


def processors() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _serve(pipe: Connection, start: Start[Any, Any]) -> None:
    """A worker process: does tasks until the pipe is closed."""
    # Ctrl-C reaches all processes of a terminal; this one's parent ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work = _begun(start)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        for message in _messages(work, task):
            pipe.send(message)


def _end_with_parent() -> None:
    """Leave at once when the parent has died, as by kill -9: another may begin its work anew."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _begun(start: Start[T, R]) -> Work[T, R]:
    """The work; a start that failed becomes work that says so."""
    try:
        return start()
    except Exception as error:
        failure = error

    def fail(_: T) -> Generator[int, None, R]:
        raise failure
        yield 0

    return fail


def _messages(work: Work[Any, Any], task: Any) -> Iterator[_Message]:
    """What a worker says of one task."""
    doing = work(task)
    try:
        while True:
            yield "rows", next(doing)
    except StopIteration as end:
        yield "done", end.value
    except CcalError as error:
        kind = InputError if isinstance(error, InputError) else CcalError
        yield "failed", kind(str(error))
    except Exception as error:
        # The traceback would be lost between processes.
        yield "failed", RuntimeError(f"{task}: {error!r}\n{traceback.format_exc()}")
