"""`reproduce`: a table of the paper, trained here, with ours beside the published rows.

Rows and seeds are cells (`cells.py`) that several processes train side by side. `--grid` first
tries margins and learning rates, the same for every method, and the validation pairs choose.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ccal.bounds import Options, Whole, check
from ccal.errors import InputError
from ccal.experiments.cells import Cell, Task, kept_result, run_cell
from ccal.experiments.paper_data import unrendered
from ccal.experiments.paper_tables import BUDGETS, GRID, TABLES, PaperTable, Plan, table_of
from ccal.experiments.reproduction_report import Reproduction
from ccal.files import alone_in
from ccal.music import build_store
from ccal.progress import StatusLine, about, clock_time, counting
from ccal.training.hardware import keep_freed_memory
from ccal.training.plan import operations_per_second

Note = Callable[[str], None]

# Of `operations_per_second` where `Plan.minutes` was measured, with one thread.
_MEASURED_SPEED = 4.8e10


def reproduce(
    table: str,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    plan: Plan | None = None,
    *,
    rows: Sequence[str] | None = None,
    repeats: int = 1,
    grid: bool | Mapping[str, Sequence[float]] = False,
    jobs: int | None = None,
    features: str | os.PathLike[str] | None = None,
    progress: bool = True,
    note: Note = lambda text: None,
) -> Reproduction:
    """Repeat a table of the paper; what `ccal reproduce` does.

    Args:
        table: a name in `TABLES`.
        data: the folder of the data set.
        out: the folder for the runs and the table. The same call goes on after a stop, and later
            calls with more rows or repeats add to it.
        plan: budget, variant and changed settings; the paper's own by default.
        rows: of `table.rows`; all by default.
        repeats: trainings of each row with the seeds 0, 1, ...; the paper has 10.
        grid: choose margin and learning rate of each method on the validation pairs, among the
            values of `GRID`; a mapping such as {"margin": (0.7, 1)} has values of its own.
        jobs: trainings side by side; as many as there are cores by default, or fewer cells.
        features: an array (n, d) in place of the image files of a published layout.
        progress: show on standard error how training goes.
        note: is given remarks for people.
    """
    paper, plan = table_of(table), plan or Plan()
    wanted = list(paper.rows) if rows is None else list(dict.fromkeys(rows))
    for row in wanted:
        check("row", row, Options(*paper.rows))
    if not wanted:
        raise InputError(f"no row was named; there are {', '.join(paper.rows)}.")
    check("repeats", repeats, Whole(at_least=1))
    check("jobs", jobs, Whole(at_least=1), Options(None))
    for row in wanted:
        plan.settings(paper, row, 0)  # refuses wrong settings before anything is read
    place, source = Path(out), Path(data)
    tunes, store = unrendered(paper, source), place / "store"
    given = None if features is None else Path(features)
    task = Task(paper.name, source if tunes is None else store, plan, place, given)
    if tunes is None:
        task.data  # noqa: B018 (reads the pairs before a folder is made)
    with alone_in(place):
        if tunes is not None:
            show = counting("rendering tunes")
            build_store(tunes, store, processes=os.cpu_count() or 1, progress=show)
        for text in task.data.notes:
            note(f"note: {text}")
        chosen: dict[str, dict[str, float]] = {}
        values = _values(grid)
        if values:
            # Rows of an earlier call are shown, too, with what the grid chose for them.
            known = [r for r in paper.rows if r in wanted or (place / f"{r}-0.json").exists()]
            trained = [row for row in known if not paper.is_ours(row)]
            chosen = _grid(task, trained, values, jobs, progress)
        cells = [
            Cell(row, seed, tuple(chosen.get(row, {}).items()))
            for seed in range(repeats)
            for row in wanted
            if seed == 0 or not paper.closed_form(row)
        ]
        _run(task, cells, jobs, progress)
        found = _kept(task, chosen)
        result = Reproduction(task, found, chosen, values)
        result.write(place)
    return result


def list_tables() -> str:
    """The tables in words: what each needs, how large it is, how long it takes on this machine."""
    slower = _MEASURED_SPEED / operations_per_second(threads=1)
    cores = os.cpu_count() or 1
    lines = []
    for table in TABLES.values():
        number = "ours" if table.number is None else f"Table {table.number}"
        what = "classes" if table.kind == "zero-shot" else "pairs"
        sizes = " / ".join(f"{n:,}" for n in table.sizes)
        trained = len(table.rows) - 1
        rounds = math.ceil(trained / cores)  # each core trains one network at a time
        minutes = [Plan(budget).minutes(table) for budget in BUDGETS]
        times = [about(60 * each * slower * rounds) for each in minutes]
        lines += [
            f"{table.name}  ({number})  {table.title}",
            f"    needs: {table.needs}",
            f"    {sizes} training, validation and test {what}; {trained} networks and linear CCA",
            f"    takes {times[0]} here; with --budget medium {times[1]}, with --budget small "
            f"{times[2]}",
        ]
    lines += [
        "",
        "Times are guesses for one training of each network (--repeats 1, without --grid), from",
        "measured speeds, as if the 20th epoch were the best. A table says which settings are not",
        "the paper's. `--repeats 10` is what the paper does.",
    ]
    return "\n".join(lines)


def _values(grid: bool | Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    """The values that a grid tries, by setting; none without a grid."""
    if isinstance(grid, bool):
        return dict(GRID) if grid else {}
    for name, values in grid.items():
        check("grid", name, Options(*GRID))
        if not values:
            raise InputError(f"The grid has no values of {name}.")
    own = {name: tuple(map(float, dict.fromkeys(grid[name]))) for name in GRID if name in grid}
    return {**GRID, **own}


def _grid(
    task: Task,
    rows: Sequence[str],
    values: Mapping[str, tuple[float, ...]],
    jobs: int | None,
    progress: bool,
) -> dict[str, dict[str, float]]:
    """Margin and learning rate of each row that find the validation pairs best, by seed 0."""
    trials = []
    for row in rows:
        # The trace norm has no margin.
        tried = {n: v for n, v in values.items() if n != "margin" or not row.endswith("dcca")}
        trials += [
            Cell(row, 0, tuple(zip(tried, point, strict=True)), trial=True)
            for point in product(*tried.values())
        ]
    _run(task, trials, jobs, progress)
    chosen: dict[str, dict[str, float]] = {}
    for row in rows:
        own = [trial for trial in trials if trial.row == row]
        results = [kept_result(task, trial) or {} for trial in own]
        # A training that diverged has no score.
        scores = [-1.0 if r.get("validation") is None else r["validation"] for r in results]
        chosen[row] = dict(own[scores.index(max(scores))].chosen)
    return chosen


def _kept(task: Task, chosen: dict[str, dict[str, float]]) -> dict[str, list[dict[str, Any]]]:
    """The finished cells of the folder by row, in the order of the table and of the seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in task.paper.rows:
        seed = 0
        while True:
            result = kept_result(task, Cell(row, seed, tuple(chosen.get(row, {}).items())))
            if result is None:
                break
            found.setdefault(row, []).append(result)
            seed += 1
    return found


def _run(task: Task, cells: Sequence[Cell], jobs: int | None, progress: bool) -> None:
    """Train the cells that are not kept yet, several at a time."""
    left = [cell for cell in cells if kept_result(task, cell) is None]
    cores = os.cpu_count() or 1
    count = min(jobs or cores, max(len(left), 1))
    if count == 1:
        keep_freed_memory()
        for number, cell in enumerate(left, start=1):
            line = StatusLine()
            if progress:
                line.write(f"{cell.name} ({number} of {len(left)})\n")
            run_cell(task, cell, progress=progress)
        return
    # A process that trains with all cores slows its neighbour more than it gains itself.
    pool = ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(max(1, cores // count), os.getpid()),
    )
    waiting = list(left)
    running: dict[Future[dict[str, Any]], Cell] = {}
    try:
        line, begun, done = StatusLine(), time.monotonic(), 0
        while waiting or running:
            while waiting and len(running) < count:
                cell = waiting.pop(0)
                running[pool.submit(run_cell, task, cell, progress=False)] = cell
            finished, _ = wait(running, timeout=2.0, return_when=FIRST_COMPLETED)
            for future in finished:
                running.pop(future)
                future.result()
                done += 1
            if progress and running and line.due():
                line.show(_status(task, list(running.values()), done, len(left), begun))
        if progress:
            line.erase()
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


def _status(task: Task, running: Sequence[Cell], done: int, total: int, begun: float) -> str:
    """What the processes do, from the last lines of their metrics."""
    parts = []
    for cell in running:
        path = task.out / cell.name / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        try:
            last = json.loads(lines[-1]) if lines else {}
        except ValueError:
            last = {}
        scores = [last.get(n) for n in ("mrr_x_to_y", "mrr_y_to_x")]
        known = [s for s in scores if s is not None]
        best = f", MRR {100 * sum(known) / len(known):.1f}" if known else ""
        parts.append(f"{cell.name} epoch {last.get('epoch', 0)}{best}")
    seconds = time.monotonic() - begun
    left = f", about {clock_time(seconds / done * (total - done))} left" if done else ""
    return f"{done} of {total} trainings done; {'; '.join(parts)}{left}"


def _begin_worker(threads: int, parent: int) -> None:
    """Use some of the cores, and stop training when the parent is gone."""
    torch.set_num_threads(threads)
    keep_freed_memory()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def default_folder(table: PaperTable, plan: Plan) -> Path:
    """runs/TABLE, or runs/TABLE-BUDGET."""
    return Path("runs", table.name if plan.budget == "paper" else f"{table.name}-{plan.budget}")
