"""Retrieval on Flickr8k by other methods on the same features, each tuned on validation pairs.

    python -m benchmarks.peers FOLDER --sizes 6000,1500 --seeds 0

FOLDER, the split and the sizes are those of `benchmarks.flickr8k`. Both views go through the front
ends that `ccal train` would use, and every method gets the same arrays. A method is tuned on the
validation pairs by the grid in `PEERS`, fitted again with the best values on training and
validation pairs together, and measured once on the test pairs. Seconds are CPU time of one thread,
for tuning and fitting.

Finished cells are kept in benchmarks/peers.json and not repeated; without FOLDER the table is
shown. A method whose package is not installed is skipped, and the script says so; run it again with
an interpreter that has the package, and the cells go to the same file.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.flickr8k import rows_of
from benchmarks.hashes import hash_of
from ccal.cca import CCA
from ccal.data import Pairs, read_table
from ccal.evaluation import evaluate_embeddings
from ccal.evaluation.hubs import HubCorrection
from ccal.losses import InfoNCELoss
from ccal.ranks import mean_reciprocal_ranks
from ccal.training import Settings, evaluate, train
from ccal.training.batches import PairFeatures
from ccal.training.front_ends import make_front_ends
from ccal.training.refined import choose_hub_weight

RESULTS = Path(__file__).with_name("peers.json")
TEXTS: dict[str, dict[str, Any]] = {
    "tfidf": {"text": "tfidf"},
    "joined": {"text": "tfidf+sentences"},
}
"""Features of the texts: changes of `Settings` that give a front end."""

Array = NDArray[np.float32]
Views = tuple[Array, Array]
Values = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
Embed = Callable[[Array, Array], tuple[Tensor, Tensor]]
Candidates = Iterator[tuple[dict[str, Any], Embed]]

_BATCH, _RATE, _EPOCHS, _PATIENCE, _DIM, _HIDDEN = 500, 1e-3, 100, 8, 256, 512


@dataclass(frozen=True)
class Peer:
    """A method to compare with.

    `candidates(seen, grid, held, seed)` yields values of the grid with maps of both views to
    embeddings, whose cosines are the scores. The pairs `held` are for early stopping alone; without
    them the grid says how many epochs to train.
    """

    candidates: Callable[[Views, Grid, Views | None, int], Candidates]
    grid: Grid
    package: str | None = None
    one_by_one: bool = False
    """Choose one value after the other, in the order of the grid, instead of trying all."""


def scikit_learn(seen: Views, grid: Grid, held: Views | None, seed: int) -> Candidates:
    """scikit-learn's CCA of principal components.

    It finds one component after the other, so the first of many are those of a smaller fit.
    """
    pca_class = import_module("sklearn.decomposition").PCA
    cca_class = import_module("sklearn.cross_decomposition").CCA
    for size in grid["principal components"]:
        reduced = [pca_class(size, random_state=seed).fit(view) for view in seen]
        x, y = (pca.transform(view) for pca, view in zip(reduced, seen, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that power iterations have not converged
            cca = cca_class(max(grid["dim"])).fit(x, y)

        def variates(x: Array, y: Array, reduced: Any = reduced, cca: Any = cca) -> Any:
            return cca.transform(reduced[0].transform(x), reduced[1].transform(y))

        for dim in grid["dim"]:
            yield {"principal components": size, "dim": dim}, _first(variates, dim)


def ridge_cca(seen: Views, grid: Grid, held: Views | None, seed: int) -> Candidates:
    """cca_zoo's CCA with a ridge; views are scaled to a mean variance of 1 for it."""
    scale = [_scale(view) for view in seen]
    x, y = (view / s for view, s in zip(seen, scale, strict=True))
    for shrinkage in grid["shrinkage"]:
        model = import_module("cca_zoo.linear").RidgeCCA(max(grid["dim"]), shrinkage=shrinkage)
        model.fit([x, y])

        def variates(x: Array, y: Array, model: Any = model) -> Any:
            return model.transform([x / scale[0], y / scale[1]])

        for dim in grid["dim"]:
            yield {"shrinkage": shrinkage, "dim": dim}, _first(variates, dim)


def similarity_analysis(seen: Views, grid: Grid, held: Views | None, seed: int) -> Candidates:
    """CSA (Li et al. 2025): the sum of correlation * x * y over a few canonical variates.

    Each vector of variates has length 1. A further coordinate a view makes the weighted vectors
    unit vectors again, so that their cosine is that sum.
    """
    for ridge in grid["ridge"]:
        cca = CCA(max(grid["dim"]), ridge=ridge).fit(*seen)
        for dim in grid["dim"]:
            weights = torch.from_numpy(cca.correlations_[:dim]).clamp(0, 1).sqrt()

            def embed(
                x: Array, y: Array, cca: CCA = cca, dim: int = dim, weights: Tensor = weights
            ) -> tuple[Tensor, Tensor]:
                sides = []
                for place, view in enumerate(cca.transform(x, y)):
                    unit = nn.functional.normalize(torch.from_numpy(view).double()[:, :dim], dim=1)
                    unit = unit * weights
                    more = torch.zeros(len(unit), 2, dtype=torch.float64)
                    more[:, place] = (1 - unit.square().sum(1)).clamp(min=0).sqrt()
                    sides.append(torch.cat((unit, more), dim=1))
                return sides[0], sides[1]

            yield {"ridge": ridge, "dim": dim}, embed


def relative_representations(seen: Views, grid: Grid, held: Views | None, seed: int) -> Candidates:
    """ASIF (Norelli et al. 2023): similarities to the training pairs, the largest k to a power."""
    mean = [view.mean(0) for view in seen]

    def similarities(views: Sequence[Array], centred: bool) -> list[Tensor]:
        found = []
        for view, anchors, middle in zip(views, seen, mean, strict=True):
            shift = middle if centred else 0
            units = [
                nn.functional.normalize(torch.from_numpy(v - shift), dim=1) for v in (view, anchors)
            ]
            found.append((units[0] @ units[1].T).clamp(min=0))
        return found

    for centred, k, power in product(grid["centred"], grid["k"], grid["power"]):

        def embed(
            x: Array, y: Array, centred: bool = centred, k: int = k, power: float = power
        ) -> tuple[Tensor, Tensor]:
            sides = []
            for found in similarities((x, y), centred):
                top = found.topk(min(k, found.shape[1]), dim=1)
                sparse = torch.zeros_like(found)
                sides.append(sparse.scatter_(1, top.indices, top.values**power))
            return sides[0], sides[1]

        yield {"centred": centred, "k": k, "power": power}, embed


def contrastive_heads(hidden: int) -> Callable[[Views, Grid, Views | None, int], Candidates]:
    """CLIP-style heads on frozen features: linear, or with one hidden layer; InfoNCE and AdamW."""

    def candidates(seen: Views, grid: Grid, held: Views | None, seed: int) -> Candidates:
        for values in _products(grid):
            torch.manual_seed(seed)
            towers = _towers(seen, hidden, _DIM, values["dropout"])
            loss = InfoNCELoss(temperature=values["temperature"])
            optimiser = torch.optim.AdamW(
                towers.parameters(), lr=_RATE, weight_decay=values["weight decay"]
            )
            epochs = _train(towers, loss, optimiser, seen, held, values)
            yield {**values, "epochs": epochs}, _outputs(towers)

    return candidates


def deep_cca(seen: Views, grid: Grid, held: Views | None, seed: int) -> Candidates:
    """cca_zoo's DCCA with the towers of the MLP heads; CCA of their outputs as its docs advise."""
    for values in _products(grid):
        torch.manual_seed(seed)
        towers = _towers(seen, _HIDDEN, values["dim"], values["dropout"])
        model = import_module("cca_zoo.deep").DCCA(
            n_components=values["dim"],
            encoders=list(towers),
            learning_rate=_RATE,
            reg_covar=values["ridge"],
        )

        def loss(x: Tensor, y: Tensor, model: Any = model) -> Tensor:
            value: Tensor = model.objective([x, y])
            return value

        def finish(towers: nn.ModuleList, dim: int = values["dim"]) -> Embed:
            outputs = _outputs(towers)
            trained = [view.numpy() for view in outputs(*seen)]
            cca = import_module("cca_zoo.linear").CCA(dim).fit(trained)

            def embed(x: Array, y: Array) -> tuple[Tensor, Tensor]:
                a, b = cca.transform([view.numpy() for view in outputs(x, y)])
                return torch.from_numpy(a), torch.from_numpy(b)

            return embed

        epochs = _train(
            towers, loss, model.configure_optimizers(), seen, held, values, finish=finish
        )
        yield {**values, "epochs": epochs}, finish(towers)


_HEADS = {"temperature": (0.1, 0.05, 0.2), "weight decay": (0.1, 1.0, 10.0), "dropout": (0.0, 0.5)}

PEERS = {
    "scikit-learn CCA": Peer(
        scikit_learn,
        {"principal components": (64, 128, 256), "dim": (16, 32, 64)},
        package="sklearn",
    ),
    "cca_zoo rCCA": Peer(
        ridge_cca,
        {"shrinkage": (0.3, 0.5, 0.7, 0.9, 0.97), "dim": (32, 64, 128, 256)},
        package="cca_zoo",
    ),
    "cca_zoo DCCA": Peer(
        deep_cca,
        {"ridge": (1e-3, 1e-1), "dim": (64, 32), "dropout": (0.0, 0.5)},
        package="cca_zoo",
        one_by_one=True,
    ),
    "ASIF": Peer(
        relative_representations,
        {"centred": (False, True), "k": (25, 50, 100, 200, 400, 800), "power": (1, 2, 4, 6, 8)},
    ),
    "CSA": Peer(
        similarity_analysis,
        {"ridge": (0.0, 0.1, 1.0, 3.0, 10.0, 30.0), "dim": (16, 32, 64, 128, 256)},
    ),
    "linear heads, InfoNCE": Peer(contrastive_heads(0), _HEADS, one_by_one=True),
    "MLP heads, InfoNCE": Peer(contrastive_heads(_HIDDEN), _HEADS, one_by_one=True),
}
CLOSED, DEFAULT = "ccal, closed form", "ccal train"
METHODS = (*PEERS, CLOSED, DEFAULT)


def _first(variates: Callable[[Array, Array], Any], dim: int) -> Embed:
    """The first `dim` columns of both."""

    def embed(x: Array, y: Array) -> tuple[Tensor, Tensor]:
        a, b = variates(x, y)
        return torch.from_numpy(a[:, :dim].copy()), torch.from_numpy(b[:, :dim].copy())

    return embed


def _scale(view: Array) -> float:
    """The root of the mean variance of the features."""
    return float(np.sqrt(view.var(0, dtype=np.float64).mean())) or 1.0


class _Standard(nn.Module):
    """Subtract the mean of the training rows, and divide by one number."""

    mean: Tensor

    def __init__(self, view: Array) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(view.mean(0)))
        self.scale = _scale(view)

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.scale


def _towers(seen: Views, hidden: int, dim: int, dropout: float) -> nn.ModuleList:
    towers = []
    for view in seen:
        layers = [_Standard(view), nn.Dropout(dropout)]
        if hidden:
            layers += [nn.Linear(view.shape[1], hidden), nn.ReLU(), nn.Dropout(dropout)]
        layers.append(nn.Linear(hidden or view.shape[1], dim))
        towers.append(nn.Sequential(*layers))
    return nn.ModuleList(towers)


def _outputs(towers: nn.ModuleList) -> Embed:
    @torch.no_grad()
    def embed(x: Array, y: Array) -> tuple[Tensor, Tensor]:
        towers.eval()
        a, b = (tower(torch.from_numpy(view)) for tower, view in zip(towers, (x, y), strict=True))
        towers.train()
        return a, b

    return embed


def _train(
    towers: nn.ModuleList,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    seen: Views,
    held: Views | None,
    values: Values,
    finish: Callable[[nn.ModuleList], Embed] = _outputs,
) -> int:
    """Train on batches of pairs, and leave the towers as after the epoch with the best MRR.

    Without `held`, train as many epochs as `values` say. Returns the number of epochs.
    """
    x, y = (torch.from_numpy(view) for view in seen)
    best, best_epoch, kept = -1.0, 0, deepcopy(towers.state_dict())
    for epoch in range(1, values.get("epochs", _EPOCHS) + 1):
        towers.train()
        # Some pairs of an epoch are left out, so that all batches are of one size.
        order = torch.randperm(len(x))[: len(x) // _BATCH * _BATCH or len(x)]
        for rows in order.split(_BATCH):
            optimiser.zero_grad()
            loss(towers[0](x[rows]), towers[1](y[rows])).backward()
            optimiser.step()
        if held is None:
            best_epoch = epoch
            continue
        score = _score(finish(towers), held)
        if score > best:
            best, best_epoch, kept = score, epoch, deepcopy(towers.state_dict())
        elif epoch - best_epoch >= _PATIENCE:
            break
    if held is not None:
        towers.load_state_dict(kept)
    return best_epoch


def _products(grid: Grid) -> Iterator[dict[str, Any]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _score(embed: Embed, held: Views) -> float:
    """The mean MRR of both directions; embeddings that are not finite count as the worst."""
    x, y = embed(*held)
    if not (x.isfinite().all() and y.isfinite().all()):
        return 0.0
    return sum(mean_reciprocal_ranks(x, y, pessimistic=True)) / 2


def tune(peer: Peer, seen: Views, held: Views, seed: int) -> tuple[dict[str, Any], Embed, float]:
    """The best values for the validation pairs, the map with them, and its score."""
    if not peer.one_by_one:
        found = ((v, e, _score(e, held)) for v, e in peer.candidates(seen, peer.grid, held, seed))
        return max(found, key=lambda candidate: candidate[2])
    chosen = {name: values[:1] for name, values in peer.grid.items()}
    best: tuple[dict[str, Any], Embed, float] | None = None
    for name, values in peer.grid.items():
        # The first values of all come with the first name.
        for value in values if best is None else values[1:]:
            values_now, embed = next(peer.candidates(seen, {**chosen, name: (value,)}, held, seed))
            score = _score(embed, held)
            if best is None or score > best[2]:
                best = values_now, embed, score
        assert best is not None
        chosen[name] = (best[0][name],)
    assert best is not None
    return best


def run_peer(peer: Peer, seen: Views, held: Views, test: Views, seed: int) -> dict[str, Any]:
    """Tune, fit again on all pairs, and measure; without and with our hub correction."""
    started = time.process_time()
    values, embed, score = tune(peer, seen, held, seed)
    everything = tuple(np.concatenate(views) for views in zip(seen, held, strict=True))
    again = {name: (value,) for name, value in values.items()}
    _, final = next(peer.candidates((everything[0], everything[1]), again, None, seed))
    seconds = time.process_time() - started
    weight = choose_hub_weight(_floats(embed(*seen)), _floats(embed(*held)))
    return {
        "seconds": round(seconds, 1),
        "chosen": values,
        "valid": round(100 * score, 2),
        **_corrected(final, (everything[0], everything[1]), test, weight),
    }


def _floats(views: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return views[0].float(), views[1].float()


def _corrected(embed: Embed, bank: Views, test: Views, weight: float) -> dict[str, Any]:
    """Measures of the test pairs, and those with the hub correction of this weight."""
    x, y = _floats(embed(*test))
    measured = {"test": _measures(x, y), "hub weight": weight}
    if weight:
        hubs = HubCorrection.of(*_floats(embed(*bank)), weight=weight)
        x, y = hubs.correct_x(x), hubs.correct_y(y)
    return {**measured, "with hub correction": _measures(x, y)}


def _measures(x: Tensor, y: Tensor) -> dict[str, Any]:
    report = evaluate_embeddings(x, y, ties="pessimistic", bootstrap=0)
    return {
        "image -> text": report.x_to_y.measures.as_dict(),
        "text -> image": report.y_to_x.measures.as_dict(),
    }


def run_closed(seen: Views, held: Views, test: Views, seed: int) -> dict[str, Any]:
    """Our linear CCA; it holds pairs out by itself, so it gets training and validation pairs."""
    x, y = (np.concatenate(views) for views in zip(seen, held, strict=True))

    def fitted(x: Array, y: Array) -> CCA:
        return CCA(_DIM, ridge="auto", power="auto", random_state=seed).fit(x, y)

    def embedding(cca: CCA) -> Embed:
        def embed(x: Array, y: Array) -> tuple[Tensor, Tensor]:
            a, b = cca.transform(x, y)
            return torch.from_numpy(a), torch.from_numpy(b)

        return embed

    started = time.process_time()
    cca = fitted(x, y)
    seconds = time.process_time() - started
    choosing = embedding(fitted(*seen))
    weight = choose_hub_weight(_floats(choosing(*seen)), _floats(choosing(*held)))
    return {
        "seconds": round(seconds, 1),
        "chosen": {"ridge": cca.ridge_, "power": cca.power_},
        **_corrected(embedding(cca), (x, y), test, weight),
    }


def run_default(settings: Settings, training: Pairs, valid: Pairs, test: Pairs) -> dict[str, Any]:
    """`ccal train` without options, front ends included."""
    started = time.process_time()
    trained = train(settings, training, valid, progress=False)
    seconds = time.process_time() - started
    report = evaluate(trained.model, test, bootstrap=0)
    measured = {
        "image -> text": report.x_to_y.measures.as_dict(),
        "text -> image": report.y_to_x.measures.as_dict(),
    }
    return {
        "seconds": round(seconds, 1),
        "chosen": trained.facts,
        "test": measured,
        "with hub correction": measured,
    }


def table(found: dict[str, Any]) -> str:
    """Means over the seeds as Markdown, by text features and number of pairs."""
    measures = "MRR | R@1 | R@5 | R@10"
    lines = [
        f"| text | pairs | method | image -> text: {measures} | text -> image: {measures} "
        "| with hub correction: MRR | CPU seconds | seeds |",
        "| --- " * 14 + "|",
    ]
    cells: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for key, cell in found.items():
        method, text, size, _ = key.rsplit(maxsplit=3)
        cells.setdefault((text, int(size), method), []).append(cell)
    ways = ("image -> text", "text -> image")

    def mean(runs: list[dict[str, Any]], part: str, way: str, name: str) -> float:
        return float(np.mean([run[part][way][name] for run in runs]))

    order = sorted(cells.items(), key=lambda c: (c[0][0], -c[0][1], METHODS.index(c[0][2])))
    for (text, pairs, method), runs in order:
        row = [text, f"{pairs:,}", method]
        for way in ways:
            row += [f"{mean(runs, 'test', way, m):.1f}" for m in ("mrr", "r1", "r5", "r10")]
        corrected = (mean(runs, "with hub correction", way, "mrr") for way in ways)
        row.append(" / ".join(f"{value:.1f}" for value in corrected))
        row.append(f"{np.mean([run['seconds'] for run in runs]):,.0f}")
        lines.append("| " + " | ".join([*row, str(len(runs))]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--methods", default="; ".join(METHODS), help="separated by semicolons")
    parser.add_argument("--texts", default="tfidf", help=f"of {', '.join(TEXTS)}, with commas")
    parser.add_argument("--sizes", default="6000,1500")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.folder is None:
        print(table(json.loads(arguments.output.read_text())))
        return
    torch.set_num_threads(1)
    features = np.load(arguments.folder / "image_features.npy")
    source = arguments.folder / "pairs.jsonl"
    pairs = read_table(
        source, {"image": features, "text": "captions"}, split="split", captions="concatenate"
    )
    data = hash_of(source.read_bytes(), features.tobytes())
    methods = [name.strip() for name in arguments.methods.split(";")]
    for name in [n for n in methods if n in PEERS]:
        package = PEERS[name].package
        if package is not None and find_spec(package) is None:
            print(f"{name}: skipped, since {package} is not installed", flush=True)
            methods.remove(name)
    cells = product(
        arguments.texts.split(","),
        map(int, arguments.sizes.split(",")),
        map(int, arguments.seeds.split(",")),
    )
    for text, size, seed in cells:
        rows = rows_of(pairs, size, seed)
        parts = [pairs.pairs[part] for part in rows]
        settings = Settings(**TEXTS[text], seed=seed)
        front_ends = make_front_ends(settings, parts[0])
        seen, held, test = (
            PairFeatures(part, front_ends, fit=place == 0, progress=_quiet).arrays()
            for place, part in enumerate(parts)
        )
        for name in methods:
            key = f"{name} {text} {size} {seed}"
            found = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
            if key in found:
                continue
            if name == DEFAULT:
                cell = run_default(settings, *parts)
            elif name == CLOSED:
                cell = run_closed(seen, held, test, seed)
            else:
                cell = run_peer(PEERS[name], seen, held, test, seed)
            package = PEERS[name].package if name in PEERS else None
            cell |= {
                "data": data,
                "split": hash_of(*(part.tobytes() for part in rows)),
                "features": hash_of(*(np.ascontiguousarray(v).tobytes() for v in seen)),
                "threads": torch.get_num_threads(),
            }
            if package is not None:
                cell["version"] = version({"sklearn": "scikit-learn"}.get(package, package))
            # Another process may have finished a cell meanwhile.
            found = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
            arguments.output.write_text(json.dumps({**found, key: cell}, indent=1) + "\n")
            ways = (cell["test"][way]["mrr"] for way in cell["test"])
            shown = " / ".join(f"{mrr:.1f}" for mrr in ways)
            print(f"{key}: MRR {shown}, {cell['seconds']} s, {cell['chosen']}", flush=True)


def _quiet(title: str) -> Callable[[int, int], None]:
    return lambda done, total: None


if __name__ == "__main__":
    main()
