from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.data import Table, read_table
from ccal.errors import CcalError, InputError

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")

ROWS: list[dict[str, Any]] = [
    {"image": "a.jpg", "text": "a dog", "class": "dog", "part": "train"},
    {"image": "b.jpg", "text": 'a "big", brown\ndog', "class": "dog", "part": "dev"},
    {"image": "c.jpg", "text": "ein Vögelchen", "class": "bird", "part": "test"},
]
XY = {"image": "image", "text": "text"}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The same rows in the format of the suffix, written by hand where that is possible."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        comma = "\t" if path.suffix == ".tsv" else ","
        cells = [list(rows[0])] + [list(row.values()) for row in rows]
        quoted = [['"' + cell.replace('"', '""') + '"' for cell in line] for line in cells]
        path.write_text("".join(comma.join(line) + "\n" for line in quoted), encoding="utf-8")
    return path


def _numbered(reason: str) -> tuple[int, str]:
    """'line 7: text is empty' -> (7, 'text is empty')."""
    place, _, words = reason.partition(": ")
    return int(place.split()[1]), words


def lines_of(path: Path, **options: Any) -> tuple[Table, dict[int, str]]:
    """The table without its bad rows, and the reasons by line."""
    options = {"modalities": XY, **options}
    with pytest.raises(InputError) as error:
        read_table(path, **options)
    table = read_table(path, **options, strict=False)
    assert str(table.bad) == str(error.value)
    return table, dict(_numbered(reason) for reason in table.bad.shown)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".CSV"])
def test_every_format_gives_the_same_pairs(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"pairs{suffix.lower()}", ROWS).rename(tmp_path / f"pairs{suffix}")
    table = read_table(path, XY, label="class", split="part")
    assert table.pairs.names == ("image", "text")
    assert table.pairs.column("text")[:] == [row["text"] for row in ROWS]
    assert table.pairs.column("image")[:] == ["a.jpg", "b.jpg", "c.jpg"]
    assert table.pairs.label is not None
    assert table.pairs.label.tolist() == ["dog", "dog", "bird"]
    assert table.pairs.group is None
    assert table.split is not None
    assert table.split.tolist() == ["train", "valid", "test"]
    assert table.rows.tolist() == [0, 1, 2]
    assert not table.bad


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(
        '\ufeffimage, text\r\na.jpg,"one, ""two"""\r\n\r\nb.jpg,Vögel\r\nc.jpg,\r\n'.encode()
    )
    table, bad = lines_of(path)
    assert table.pairs.column("text")[:] == ['one, "two"', "Vögel"]
    assert bad == {5: "text is empty"}
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"image": "a", "text": "b"}\r\n{"image": "a"}\r\n')
    table, bad = lines_of(path)
    assert len(table.pairs) == 1
    assert bad == {2: "text is missing"}


def test_bad_csv_rows_by_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(
        b"image,text\n"
        b"a.jpg,good\n"
        b"b.jpg\n"
        b"c.jpg,too,many\n"
        b'd.jpg,"two\nlines"\n'
        b",no image\n"
        b"e.jpg,   \n"
        b'f.jpg,"quoted" not\n'
        b"g.jpg,caf\xe9\n"
        b"\n"
        b"h.jpg,good too\n"
        b'i.jpg,"never closed\n'
        b"j.jpg,swallowed\n"
    )
    table, bad = lines_of(path)
    assert table.pairs.column("text")[:] == ["good", "two\nlines", "good too"]
    assert table.rows.tolist() == [0, 3, 8]
    assert bad == {
        3: "1 cells, but the header has 2",
        4: "3 cells, but the header has 2",
        7: "image is empty",
        8: "text is empty",
        9: bad[9],
        10: "text is not UTF-8 text",
        13: "a quote is opened but never closed, so the rest of the file is one cell",
    }
    assert bad[9].startswith("quotes do not match")
    assert (table.bad.total, table.bad.rows) == (7, 10)


def test_blank_lines_before_the_header_count(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("\n\nimage,text\na,b\na,\n")
    table, bad = lines_of(tmp_path / "pairs.csv")
    assert len(table.pairs) == 1
    assert list(bad) == [5]


def test_bad_jsonl_rows_by_line(tmp_path: Path) -> None:
    good = '{"image": "a.jpg", "text": "good", "class": 3, "part": "train"}'
    wrong = {
        2: ('{"image": "a.jpg", "text": ', "not JSON"),
        3: ('["a.jpg", "text"]', "not a JSON object but a list"),
        4: (good.replace('"text"', '"other"'), "text is missing"),
        5: (good.replace('"good"', "null"), "text is missing"),
        6: (good.replace('"good"', "5"), "text must be text, got int"),
        7: (good.replace('"good"', '" "'), "text is empty"),
        8: (good.replace('"good"', "[]"), "text is an empty list"),
        9: (good.replace('"good"', '["a", "b", ""]'), "text 3 of 3 is empty"),
        10: (good.replace('"good"', '"\\ud800"'), "text is not UTF-8 text"),
        11: (good.replace("3", "3.5"), "class must be text, got float"),
        12: (good.replace("3", "null"), "class is missing"),
        13: (good.replace("train", "later"), "part is 'later'; expected train, valid or test"),
        14: (good.replace("train", ""), "part is empty"),
        15: (good.replace('"good"', '["a", "b"]').replace('"a.jpg"', '["c", "d"]'), "both lists"),
        16: ("[" * 100_000, "not JSON"),
    }
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join([good, *(text for text, _ in wrong.values()), "", good]))
    table, bad = lines_of(path, label="class", split="part")
    assert len(table.pairs) == 2
    assert table.rows.tolist() == [0, 16]
    assert list(bad) == list(wrong)
    for line, (_, reason) in wrong.items():
        assert reason in bad[line]
    assert table.pairs.label is not None
    assert table.pairs.label.tolist() == [3, 3]


def test_bad_parquet_rows_by_row(tmp_path: Path) -> None:
    rows = [*ROWS, {"image": None, "text": "x"}, {"image": "a", "text": ""}]
    table, bad = lines_of(write(tmp_path / "pairs.parquet", rows))
    assert len(table.pairs) == 3
    assert bad == {4: "image is missing", 5: "text is empty"}
    assert "row 4: image is missing" in str(table.bad)


def test_parquet_rows_count_across_batches(tmp_path: Path) -> None:
    rows = [{"image": "a", "text": "" if i == 9000 else "b"} for i in range(1, 10_001)]
    table, bad = lines_of(write(tmp_path / "pairs.parquet", rows))
    assert len(table.pairs) == 9_999
    assert list(bad) == [9000]


def test_files_must_exist(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("a.jpg", "c.jpg"):
        (tmp_path / "images" / name).touch()
    path = write(tmp_path / "pairs.csv", ROWS)
    table, bad = lines_of(path, files=["image"], root=tmp_path / "images")
    assert table.pairs.column("image")[:] == [
        str(tmp_path / "images" / n) for n in ("a.jpg", "c.jpg")
    ]
    assert bad == {3: f"image: file not found: {tmp_path / 'images' / 'b.jpg'}"}
    _, bad = lines_of(
        write(tmp_path / "images" / "p.csv", [*ROWS, {**ROWS[0], "image": "."}]), files=["image"]
    )
    assert list(bad) == [3, 6]  # beside the table by default; a folder is not a file
    with pytest.raises(InputError, match=r"files names \['audio'\], but the columns are of"):
        read_table(path, XY, files=["audio"])


CAPTIONS: list[dict[str, Any]] = [
    {"image": "a.jpg", "text": ["one", "two", "three"], "shoot": "x"},
    {"image": "b.jpg", "text": ["four"], "shoot": "y"},
    {"image": "c.jpg", "text": ["five", "six"], "shoot": "x"},
]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_captions_become_pairs_of_one_group(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"pairs{suffix}", CAPTIONS)
    pairs = read_table(path, XY).pairs
    assert pairs.column("text")[:] == ["one", "two", "three", "four", "five", "six"]
    assert pairs.column("image")[:] == ["a.jpg"] * 3 + ["b.jpg"] + ["c.jpg"] * 2
    assert pairs.group is not None
    assert pairs.group.tolist() == [0, 0, 0, 1, 2, 2]
    by_column = read_table(path, XY, group="shoot").pairs
    assert by_column.group is not None
    assert by_column.group.tolist() == ["x", "x", "x", "y", "x", "x"]
    joined = read_table(path, XY, captions="concatenate").pairs
    assert joined.column("text")[:] == ["one\ntwo\nthree", "four", "five\nsix"]
    assert joined.group is None


def test_an_array_beside_the_table_follows_its_rows(tmp_path: Path) -> None:
    rows = [CAPTIONS[0], {"image": "x", "text": ""}, CAPTIONS[1]]
    path = write(tmp_path / "pairs.jsonl", rows)
    features = np.arange(6.0).reshape(3, 2)
    given: dict[str, Any] = {"image": features, "text": "text"}
    table, bad = lines_of(path, modalities=given)
    assert list(bad) == [2]
    assert table.pairs.column("image").source is features
    assert table.pairs.column("image")[:].tolist() == [[0, 1]] * 3 + [[4, 5]]
    with pytest.raises(InputError, match=r"pairs\.jsonl has 3 rows, but image has 4"):
        read_table(path, {**given, "image": np.ones((4, 2))}, strict=False)


def test_only_some_bad_rows_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("image,text\na,b\n" + "a,\n" * 1234)
    with pytest.raises(InputError) as error:
        read_table(path, XY)
    assert str(error.value).splitlines() == [
        f"{path}: 1,234 bad rows of 1,235",
        *(f"  line {line}: text is empty" for line in range(3, 23)),
        "  ... and 1,214 more",
    ]


def test_nothing_but_bad_rows_is_refused_even_if_not_strict(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("not json\n")
    with pytest.raises(InputError, match="1 bad rows of 1"):
        read_table(path, XY, strict=False)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_files_without_rows_or_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pairs{suffix}"
    with pytest.raises(InputError, match="no such file"):
        read_table(path, XY)
    path.touch()
    with pytest.raises(InputError, match=rf"pairs\{suffix}: the file is empty"):
        read_table(path, XY)
    path.write_text("\n\n")
    with pytest.raises(InputError, match=r"no rows|no header|not a readable"):
        read_table(path, XY)
    write(path, ROWS)
    expected = "no column 'caption', 'kind'; the columns are 'image', 'text', 'class', 'part'"
    with pytest.raises(InputError, match=expected):
        read_table(path, {"image": "image", "text": "caption"}, label="kind")


def test_a_header_without_rows(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("image,text\n")
    empty = pa.table({"image": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "pairs.parquet")
    for name in ("pairs.csv", "pairs.parquet"):
        with pytest.raises(InputError, match=f"{name}: a header, but no rows"):
            read_table(tmp_path / name, XY)


def test_other_wrong_files(tmp_path: Path) -> None:
    (tmp_path / "pairs.xlsx").write_text("x")
    with pytest.raises(InputError, match=r"expected one of \.csv, .*got \.xlsx"):
        read_table(tmp_path / "pairs.xlsx", XY)
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path, XY)
    (tmp_path / "pairs.csv").write_bytes("image,text\na,b\n".encode("utf-16"))
    with pytest.raises(InputError, match="header is not UTF-8 text; save the file as UTF-8"):
        read_table(tmp_path / "pairs.csv", XY)
    (tmp_path / "pairs.csv").write_text("image,text,text\na,b,c\n")
    with pytest.raises(InputError, match="more than one column is called 'text'"):
        read_table(tmp_path / "pairs.csv", XY)
    (tmp_path / "pairs.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"pairs\.parquet: not a readable Parquet file"):
        read_table(tmp_path / "pairs.parquet", XY)


def test_wrong_arguments(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.csv", ROWS)
    with pytest.raises(InputError, match="modalities must be two"):
        read_table(path, {"image": "image"})
    with pytest.raises(InputError, match="captions must be 'separate' or 'concatenate'"):
        read_table(path, XY, captions="join")  # type: ignore[arg-type]


def test_a_long_file_is_streamed(tmp_path: Path) -> None:
    """40 MB of rows, all but one of them bad, in a few MB of memory."""
    path = tmp_path / "pairs.csv"
    path.write_text("image,text\na,b\n" + ("a," + "x" * 400 + ",\n") * 100_000)
    tracemalloc.start()
    table = read_table(path, XY, strict=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.bad.total == 100_000
    assert len(table.pairs) == 1
    assert peak < 4e6


def test_an_unclosed_quote_does_not_swallow_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text('image,text\na,"b\n' + "a,bbbbbbbbbbbbbbbb\n" * 20_000)
    table, bad = lines_of(path)
    assert bad[2].startswith("a cell of more than 131,072 characters")
    assert len(table.pairs) > 10_000


def test_parquet_without_pyarrow_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "pairs.parquet", ROWS)
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CcalError, match=r"needs the package pyarrow; .*pip install pyarrow"):
        read_table(path, XY)
