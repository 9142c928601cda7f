from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import evaluate_embeddings
from ccal.runs import export_trec
from tests.evaluation import naive


def read(path: Path) -> list[list[str]]:
    return [line.split(" ") for line in path.read_text().splitlines()]


def test_round_trip(tmp_path: Path) -> None:
    x, y, groups = naive.captions(20, 50, 4)
    paths = export_trec(tmp_path / "new", x, y, groups=groups, k=50, names=("image", "text"))
    assert [p.name for p in paths] == [
        "image-to-text.run",
        "image-to-text.qrels",
        "text-to-image.run",
        "text-to-image.qrels",
    ]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(p.name for p in paths)
    report = evaluate_embeddings(x, y, groups=groups, bootstrap=0)
    for run, qrels, direction in (
        (paths[0], paths[1], report.x_to_y),
        (paths[2], paths[3], report.y_to_x),
    ):
        right = {
            (query, item) for query, zero, item, one in read(qrels) if (zero, one) == ("0", "1")
        }
        assert len(right) == 50
        first: dict[str, int] = {}
        for query, q0, item, rank, _, tag in read(run):
            assert (q0, tag) == ("Q0", "ccal")
            if (query, item) in right:
                first.setdefault(query, int(rank))
        ranks = [first[q] for q in dict.fromkeys(line[0] for line in read(run))]
        if direction is report.y_to_x:
            assert ranks == direction.ranks.tolist()
        else:  # the first right candidate has no right ones before it
            assert ranks == direction.ranks.tolist()


def test_scores_and_ranks_descend_to_k(tmp_path: Path) -> None:
    x, y, groups = naive.captions(20, 50, 4)
    lines = read(export_trec(tmp_path, x, y, groups=groups, k=7)[0])
    scores = naive.cosines(x, y)
    for i in range(20):
        part = lines[7 * i : 7 * i + 7]
        assert [int(line[3]) for line in part] == list(range(1, 8))
        assert [float(line[4]) for line in part] == pytest.approx(sorted(scores[i])[:-8:-1])
        assert all(
            float(line[4]) == pytest.approx(scores[i][int(line[2].removeprefix("y"))])
            for line in part
        )


def test_ranx_reads_it(tmp_path: Path) -> None:
    ranx = pytest.importorskip("ranx")
    x, y, groups = naive.captions(20, 50, 4)
    ids = [f"Bild-{i}" for i in range(20)]
    paths = export_trec(tmp_path, x, y, groups=groups, k=50, x_ids=ids)
    report = evaluate_embeddings(x, y, groups=groups, bootstrap=0)
    for run, qrels, d in ((paths[0], paths[1], report.x_to_y), (paths[2], paths[3], report.y_to_x)):
        truth = ranx.Qrels.from_file(str(qrels), kind="trec")
        found = ranx.evaluate(truth, ranx.Run.from_file(str(run), kind="trec"), "mrr")
        assert 100 * found == pytest.approx(d.measures.mrr)


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.eye(3)
    old = {p: p.read_text() for p in export_trec(tmp_path, x, x)}

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        export_trec(tmp_path, x.roll(1, 0), x)
    assert {p: p.read_text() for p in tmp_path.iterdir()} == old


def test_bad_input_is_refused(tmp_path: Path) -> None:
    x = torch.eye(2)
    with pytest.raises(InputError, match=r"split at blanks, but x_ids has 'a b'"):
        export_trec(tmp_path, x, x, x_ids=["a b", "c"])
    with pytest.raises(InputError, match="y_ids must be 2 different identifiers"):
        export_trec(tmp_path, x, x, y_ids=["a", "a"])
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        export_trec(tmp_path, x, x, k=0)
    assert not list(tmp_path.iterdir())
