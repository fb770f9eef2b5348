"""JSON arrays, zip archives and spreadsheets."""

import datetime
import gzip
import io
import json
import sys
import zipfile

import numpy as np
import pytest
from test_readers import CSV, JSONL, check_table, feed, parquet_file, read, refused, written

from commands import dokl, fails, json_of, readings
from dokl.base.errors import MissingExtra
from dokl.tables.readers import Options, open_table

OBJECTS = [json.loads(line) for line in JSONL.splitlines()]
START = ("--target", "y", "--drop", "id", "--drop", "label", "--method", "gradient")


def zipped(folder, name, files):
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, content in files.items():
            archive.writestr(inner, content)
    return folder / name


def sheet(path, rows, *more):
    """A spreadsheet with these rows, and further sheets of these names."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for at, row in enumerate(rows, 1):
        for i, cell in enumerate(row, 1):
            book.active.cell(at, i, cell)
    for name in more:
        book.create_sheet(name)
    book.save(path)
    return path


# -- JSON arrays -------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("indent", "lines"), [(None, [1, 1, 1]), (2, [2, 7, 11])])
def test_an_array_is_the_same_table(tmp_path, indent, lines, packed, chunk):
    content = json.dumps(OBJECTS, indent=indent).encode()
    for name in ("t.json", "nohint"):
        path = written(tmp_path, name, gzip.compress(content, mtime=0) if packed else content)
        columns, at = read(path, chunk=chunk, columns=["a", "b", "place"], numeric="b")
        check_table(columns)
        assert at == lines


def test_a_long_array_comes_in_pieces(tmp_path, monkeypatch):
    objects = [{"a": i, "text": "\u00e4" * (i % 50)} for i in range(20_000)]
    for indent in (None, 1):
        text = json.dumps(objects, indent=indent, ensure_ascii=False)
        with open_table(written(tmp_path, "t.json", text), Options(chunk=1000)) as reader:
            chunks = list(reader)
        assert len(chunks) == 20
        assert np.concatenate([c.columns["a"] for c in chunks]).tolist() == list(range(20_000))
    assert 0.01 < reader.first_share < 0.5
    feed(monkeypatch, json.dumps(OBJECTS, indent=1))
    check_table(read("-")[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[\n {"a": 1},\n {"a": 2]\n]', "line 3: this is not JSON"),
        ('[\n {"a": 1}\n {"a": 2}\n]', "line 3: this is not JSON .*a comma or the end"),
        ('[\n {"a": 1},\n]', "line 3: .*there is a comma before the end"),
        ('[\n {"a": 1}\n] 7', "line 3: .*followed by something else"),
        ('[\n {"a": 1},\n', "this is not JSON"),
        ('[\n {"a": 1}\n', "and the file ends"),
        ('[\n {"a": 1},\n 12\n]', "line 3: expected an object"),
        ("[\n]", "has no rows"),
        (b'[\n {"a": "\xff"}]', "0xff after line 2 is not UTF-8"),
        ('{\n "a": 1\n}', "one line, or all of them in one array"),
    ],
)
def test_bad_arrays(tmp_path, content, message):
    refused(message, written(tmp_path, "t.json", content))


def test_a_model_of_an_array_is_that_of_its_lines(tmp_path):
    columns = {name: values.tolist() for name, values in readings(200).items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    written(tmp_path, "t.jsonl", "\n".join(map(json.dumps, rows)))
    written(tmp_path, "t.json", json.dumps([*rows[:50], 7, *rows[50:]], indent=2))
    dokl("train", tmp_path / "t.jsonl", *START, "--model", tmp_path / "a.dokl")
    start = ("train", tmp_path / "t.json", *START, "--model", tmp_path / "b.dokl")
    assert "expected an object" in fails(*start)
    dokl(*start, "--on-error", "skip")
    assert (tmp_path / "a.dokl").read_bytes() == (tmp_path / "b.dokl").read_bytes()


# -- zip archives ------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize(
    ("inner", "content"),
    [
        ("t.csv", CSV),
        ("folder/t.jsonl", JSONL),
        ("t.tsv", CSV.replace(",", "\t")),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("nohint", json.dumps(OBJECTS, indent=2)),
    ],
    ids=["csv", "jsonl", "tsv", "gz", "json"],
)
def test_a_zip_archive_of_one_file(tmp_path, inner, content, chunk):
    path = zipped(tmp_path, "t.zip", {inner: content, "__MACOSX/x": "y", ".DS_Store": "z"})
    check_table(read(path, chunk=chunk, columns=["a", "b", "place"], numeric="b")[0])
    with open_table(path) as reader:
        assert list(reader)
        assert reader.bytes_read == reader.bytes_total


def test_archives_that_are_not_read(tmp_path, monkeypatch):
    two = zipped(tmp_path, "t.zip", {"a.csv": CSV, "b.csv": CSV})
    refused("must hold one file, and these are in it: a.csv, b.csv", two)
    refused("these are in it: none", zipped(tmp_path, "n.zip", {".hidden": ""}))
    one = zipped(tmp_path, "o.zip", {"a.csv": CSV * 99}).read_bytes()
    feed(monkeypatch, one)
    refused("save it to a file", "-")
    refused("cannot be unpacked", written(tmp_path, "cut.zip", one[:-30]))
    parquet = parquet_file(tmp_path, a=[1.0, 2.0]).read_bytes()
    refused("must be a file", zipped(tmp_path, "p.zip", {"a.parquet": parquet}))


# -- spreadsheets ------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [1, None])
def test_a_spreadsheet(tmp_path, chunk):
    day = datetime.datetime(1970, 1, 2)
    rows = [[], ["a", "b", "place", "when", "flag"], [1, 2.5, "roof", day, True],
            [-3, None, "cellar", day, False], [], [4e2, "NA"]]  # fmt: skip
    path = sheet(tmp_path / "t.xlsx", rows)
    columns, at = read(path, chunk=chunk, numeric="b", columns=["a", "b", "place", "flag"])
    check_table(columns)
    np.testing.assert_array_equal(columns["flag"], [1, 0, np.nan])
    assert at == [3, 4, 6]
    assert read(path)[0]["when"].tolist()[:2] == [86400, 86400]
    assert list(read(path, header=False, columns=["x3"])[0]) == ["x3"]


def test_a_spreadsheet_is_trained_on_and_evaluated(tmp_path):
    columns = {name: values.tolist() for name, values in readings(120).items()}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path, model = sheet(tmp_path / "t.xlsx", rows, "more", "notes"), tmp_path / "m.dokl"
    result = dokl("train", path, *START, "--model", model, "--test", "last:10%")
    assert "the first of 3 sheets, 'Sheet'" in result.stdout
    assert "has not learned the 12 rows held out" in result.stderr
    assert json_of("evaluate", model, path, "--json")["rows"] == 120


def test_bad_spreadsheets(tmp_path, monkeypatch):
    refused("row 1: two columns are called 'a'", sheet(tmp_path / "t.xlsx", [["a", "a"], [1, 2]]))
    refused("row 1: column names are expected", sheet(tmp_path / "u.xlsx", [[1, 2], [3, 4]]))
    path = sheet(tmp_path / "v.xlsx", [["a"], [1], [2, 3]])
    refused("row 3: 1 cells are expected, as in the first row, and 2 are there", path)
    refused("is empty", sheet(tmp_path / "w.xlsx", []))
    refused("is a spreadsheet, and not csv", path, format="csv")
    refused("is not a spreadsheet", written(tmp_path, "x.xlsx", CSV))
    refused("old spreadsheet", written(tmp_path, "x.xls", b"\xd0\xcf\x11\xe0\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    refused("save it to a file", "-")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match=r"reading a spreadsheet needs .*dokl\[xlsx\]"):
        read(path)


def test_dates_with_names_of_months_are_told_as_such(tmp_path):
    days = [datetime.date(2000, 1, 1) + datetime.timedelta(i) for i in range(40)]
    text = "when,y\n" + "".join(f"{d:%b} {d.day} {d:%Y},{d.day}\n" for d in days)
    with open_table(written(tmp_path, "t.csv", text)) as reader:
        (said,) = [line for line in reader.first.guesses if "when" in line]
    assert "dates, months by name, like 'Jan 1 2000'" in said
