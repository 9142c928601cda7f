"""Speed of `ccal serve` against the bare model and index it stands on.

A server in a process of its own answers clients that each wait for their answer before they ask
again, over kept connections on loopback. Bare is the same work without HTTP by `Index.search`, with
all hits read: of one query at a time, and of batches as large as the server's. The floor is what
HTTP itself allows: the same uvicorn, clients and sizes of requests and answers, without any search.
All take turns within one run. Run with `python -m benchmarks.serving`, which also saves the table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import Row, show
from ccal import DualEncoder
from ccal.encoders import LinearTower
from ccal.features import ImageFeatures, TfidfVectoriser
from ccal.model import load
from ccal.retrieval import Index

DIM, ITEMS, WORDS, K, BATCH = 128, 10_000, 3000, 10, 32
OUTPUT = Path("benchmarks/serving.json")


def make(folder: Path) -> None:
    """A linear model of 3,000 words and EfficientNet-Lite0, and an index of 10,000 vectors."""
    torch.manual_seed(0)
    words = [f"word{number}" for number in range(WORDS)]
    texts = TfidfVectoriser(min_count=1, lemmatise=False).fit([" ".join(words)])
    model = DualEncoder(
        dim=DIM,
        projection="none",
        front_ends={"text": texts, "image": ImageFeatures("efficientnet-lite0", cache=None)},
        image=LinearTower(1280, DIM),
        text=LinearTower(WORDS, DIM),
    )
    model.save(folder / "model")
    with Index.build(folder / "index", model, [], modality="image") as index:
        rows = torch.randn(ITEMS, DIM)
        facts = [{"year": number % 50, "title": f"photo {number}"} for number in range(ITEMS)]
        index.add_vectors("image", rows, metadata=facts)
        index.add_vectors("text", rows[:10])


def texts(count: int) -> list[str]:
    """Queries of eight words."""
    draws = np.random.default_rng(0).integers(WORDS, size=(count, 8))
    return [" ".join(f"word{number}" for number in row) for row in draws]


def photos(count: int) -> list[bytes]:
    """JPEGs of 400 x 300 pixels."""
    from PIL import Image

    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        coarse = rng.integers(255, size=(12, 16, 3), dtype=np.uint8)
        file = BytesIO()
        Image.fromarray(coarse).resize((400, 300)).save(file, "JPEG")
        found.append(file.getvalue())
    return found


def server(folder: Path, pipe: Connection) -> None:
    """Runs in a process of its own; sends its port, and its CPU seconds when asked."""
    import threading

    from ccal.serve import IndexCollection, create_app
    from ccal.serve.app import listen, run

    torch.set_num_threads(1)
    model = load(folder / "model")
    model.front_ends["image"] = ImageFeatures("efficientnet-lite0", cache=None)
    collection = IndexCollection(Index.open(folder / "index"), model)

    def report() -> None:
        while pipe.recv():
            pipe.send(time.process_time())

    with listen("127.0.0.1", 0) as listener:
        threading.Thread(target=report, daemon=True).start()
        port = listener.getsockname()[1]
        run(create_app(collection), listener, lambda: pipe.send(port))


def floor(pipe: Connection) -> None:
    """Runs in a process of its own; answers as many bytes as the query of the address says."""
    from starlette.types import Receive, Scope, Send

    from ccal.serve.app import listen, run

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        while (await receive()).get("more_body"):
            pass
        size = scope["query_string"]
        headers = [(b"content-type", b"application/json"), (b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(int(size))})

    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        run(app, listener, lambda: pipe.send(port))


def request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def clients(
    port: int, requests: Sequence[bytes], count: int, seconds: float
) -> tuple[float, list[float], int]:
    """Requests a second, the seconds that each took, and the bytes of the last answer."""
    end, times, length = time.perf_counter() + seconds, [], 0

    async def one(number: int) -> None:
        nonlocal length
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for asked in islice(cycle(requests), number, None):
            started = time.perf_counter()
            if started > end:
                break
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            times.append(time.perf_counter() - started)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    return len(times) / (time.perf_counter() - began), times, length


def bare(
    search: Callable[[list[Any]], Any], queries: list[Any], size: int, seconds: float
) -> tuple[float, float]:
    """Queries a second in batches of a size, and CPU seconds a query."""
    began, cpu, done = time.perf_counter(), time.process_time(), 0
    batches = cycle(range(0, len(queries) - size + 1, size))
    while time.perf_counter() - began < seconds:
        start = next(batches)
        search(queries[start : start + size])
        done += size
    return done / (time.perf_counter() - began), (time.process_time() - cpu) / done


def read(found: Any) -> Any:
    """All of the hits, as an answer has them: they are made when somebody looks at them."""
    return [[(hit.id, hit.score, hit.metadata, hit.file) for hit in hits] for hits in found]


def load_of(
    port: int, requests: Sequence[bytes], count: int, seconds: float
) -> tuple[float, list[float], int]:
    """As `clients`, on the fastest loop there is, since they share their cores with the server."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(clients(port, requests, count, seconds))


@dataclass
class Work:
    """What is asked: bare by `search`, served by `requests` of so many queries each."""

    kind: str
    search: Callable[[list[Any]], Any]
    queries: list[Any]
    requests: list[bytes]
    each: int = 1

    def plain(self, size: int) -> list[bytes]:
        """Requests as long as the real ones, for the floor, with answers of this many bytes."""
        bodies = [asked.partition(b"\r\n\r\n")[2] for asked in self.requests]
        return [request(f"/?{size}", body) for body in bodies]


def compare(
    work: Work, ports: tuple[int, int], pipe: Connection, count: int, turns: int, seconds: float
) -> Row:
    """Bare, floor and served in turns; medians over the turns, all times of answers together."""
    names = ("one", "batch", "floor", "served")
    found: dict[str, list[float]] = {name: [] for name in names}
    costs: dict[str, list[float]] = {name: [] for name in names}
    times: list[float] = []
    *_, size = load_of(ports[0], work.requests, count, 1.0)
    plain = work.plain(size)
    load_of(ports[1], plain, count, 0.5)
    for _ in range(turns):
        for name, several in (("one", 1), ("batch", BATCH)):
            rate, cost = bare(work.search, work.queries, several, seconds)
            found[name].append(rate)
            costs[name].append(cost)
        rate, *_ = load_of(ports[1], plain, count, seconds)
        found["floor"].append(rate * work.each)
        pipe.send(True)
        before = pipe.recv()
        rate, took, _ = load_of(ports[0], work.requests, count, seconds)
        pipe.send(True)
        found["served"].append(rate * work.each)
        costs["served"].append((pipe.recv() - before) / len(took) / work.each)
        times += took
    costs.pop("floor")
    rates = {name: statistics.median(values) for name, values in found.items()}
    cpu = {name: 1e3 * statistics.median(values) for name, values in costs.items()}
    middle, late = np.percentile(np.array(times) * 1e3, [50, 95])
    return {
        "query": work.kind,
        "clients": count,
        "bare one/s": round(rates["one"], 1),
        "bare batch/s": round(rates["batch"], 1),
        "floor/s": round(rates["floor"], 1),
        "served/s": round(rates["served"], 1),
        "of one": _share(found, "one"),
        "of batch": _share(found, "batch"),
        "of floor": _share(found, "floor"),
        "cpu ms: one": round(cpu["one"], 2),
        "batch": round(cpu["batch"], 2),
        "served": round(cpu["served"], 2),
        "p50_ms": round(float(middle), 1),
        "p95_ms": round(float(late), 1),
    }


def _share(found: dict[str, list[float]], name: str) -> str:
    """Served against bare, turn by turn."""
    shares = [s / b for s, b in zip(found["served"], found[name], strict=True)]
    return f"{statistics.median(shares):.0%}"


def main(turns: int = 5, seconds: float = 2.0) -> dict[str, object]:
    """Run, print, and return the table, with the load of the machine before and after."""
    torch.set_num_threads(1)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=server, args=(folder, other))
        plain_pipe, plain_other = context.Pipe()
        plain = context.Process(target=floor, args=(plain_other,))
        for one, end in ((process, other), (plain, plain_other)):
            one.start()
            # With it open here, a child that fails would be waited for without end.
            end.close()
        ports = pipe.recv(), plain_pipe.recv()
        model = load(folder / "model")
        model.front_ends["image"] = ImageFeatures("efficientnet-lite0", cache=None)
        rows = []
        with Index.open(folder / "index", model) as index:
            asked = texts(512)
            some = [asked[start : start + BATCH] for start in range(0, len(asked), BATCH)]
            by_words = lambda batch: read(index.search(text=batch, k=K, within="image"))  # noqa: E731
            by_photo = lambda batch: read(index.search(image=batch, k=K, within="image"))  # noqa: E731
            words = [_posted("/api/search", text=text) for text in asked]
            many = [_posted("/api/search/batch", texts=texts) for texts in some]
            pictures = photos(64)
            files = [request(f"/api/search/file?k={K}&to=image", body) for body in pictures]
            for work, counts in (
                (Work("words", by_words, asked, words), (1, 8, 32, 64)),
                (Work(f"words, {BATCH} a request", by_words, asked, many, BATCH), (1, 4, 8)),
                (Work("photo", by_photo, pictures, files), (1, 8, 32)),
            ):
                for count in counts:
                    rows.append(compare(work, ports, pipe, count, turns, seconds))
        for one in (process, plain):
            one.terminate()
            one.join()
    show("Serving: queries a second, of eight words or a photo, among 10,000 items", rows)
    busy = {"cores": os.cpu_count(), "before": load_before, "after": os.getloadavg()[0]}
    return {"load": busy, "serving": rows}


def _posted(path: str, **query: Any) -> bytes:
    return request(path, json.dumps({**query, "k": K}).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    OUTPUT.write_text(json.dumps(main(given.turns, given.seconds), indent=1) + "\n")
    print(f"\nsaved as {OUTPUT}")
