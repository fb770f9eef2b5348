import gzip
import io
import itertools
import os
import re
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput, MissingExtra
from dokl.tables import readers
from dokl.tables.readers import MISSING, Options, delimited, open_table

CSV = "a,b,place\n1,2.5,roof\n-3,NA,cellar\n4e2,,\n"
LIBSVM = "+1 1:0.5 3:2\n-1 2:1\n+1 4:-7.25\n"
JSONL = '{"a": 1, "b": 2.5, "place": "roof"}\n{"a": -3, "place": "cellar"}\n{"a": 4e2, "b": null}\n'


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, *args, **options):
    """All chunks put together: columns, and line numbers."""
    with open_table(path, Options(*args, **options)) as reader:
        chunks = list(reader)
    names = chunks[0].names
    columns = {name: np.concatenate([c.columns[name] for c in chunks]) for name in names}
    return columns, list(itertools.chain.from_iterable(c.lines for c in chunks))


def refused(message, path, *args, **options):
    with pytest.raises(BadInput, match=message):
        read(path, *args, **options)


def feed(monkeypatch, content):
    content = content if isinstance(content, bytes) else content.encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def check_table(columns):
    np.testing.assert_array_equal(columns["a"], [1.0, -3.0, 400.0])
    np.testing.assert_array_equal(columns["b"], [2.5, np.nan, np.nan])
    assert columns["place"].tolist() == ["roof", "cellar", None]


# -- the same table in every dress -----------------------------------------------------------
TABLES = {
    "t.csv": CSV,
    "t.tsv": CSV.replace(",", "\t"),
    "semicolons.csv": CSV.replace(",", ";"),
    "crlf.csv": CSV.replace("\n", "\r\n"),
    "bom.csv": "\ufeff" + CSV,
    "quoted.csv": CSV.replace("roof", '"roof"'),
    "noend.csv": CSV.replace("4e2,,\n", "4e2,,"),
    "blank.csv": CSV + "\n\n",
    "nohint": CSV,
    "t.jsonl": JSONL,
    "nohint2": JSONL,
}


@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_every_dress_gives_the_same_table(tmp_path, name, packed, chunk):
    content = TABLES[name].encode()
    path = written(tmp_path, name, gzip.compress(content) if packed else content)
    columns, lines = read(path, chunk=chunk, columns=["a", "b", "place"], numeric="b")
    check_table(columns)
    first = 1 if "jsonl" in name or name == "nohint2" else 2
    assert lines == [first, first + 1, first + 2]


@pytest.mark.parametrize("packed", [False, True])
def test_stdin(monkeypatch, packed):
    feed(monkeypatch, gzip.compress(CSV.encode()) if packed else CSV)
    reader = open_table("-")
    assert (reader.name, reader.format, reader.names) == ("stdin", "csv", ("a", "b", "place"))
    assert reader.bytes_total is None
    check_table(next(iter(reader)).columns)
    assert not sys.stdin.buffer.closed


def test_a_live_pipe_is_read_line_by_line(monkeypatch):
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as reading, os.fdopen(theirs, "wb", buffering=0) as writing:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=reading))
        writing.write(b"a,b\n1,2\n")  # would hang here for more
        chunks = iter(open_table("-", Options(chunk=1)))
        assert next(chunks).columns["b"].tolist() == [2.0]
        writing.write(b"3,4\n")
        assert next(chunks).columns["b"].tolist() == [4.0]
        writing.close()
        assert list(chunks) == []


def test_the_first_chunk_is_there_before_iterating_and_decides(tmp_path):
    assert list(read(written(tmp_path, "t.jsonl", LATE), chunk=1)[0]) == ["a"]
    with open_table(written(tmp_path, "t.csv", CSV), Options(chunk=2)) as reader:
        assert reader.first.n == 2
        assert reader.first.first_line == 2
        assert [c.n for c in reader] == [2, 1]
        assert list(reader) == []


def test_progress_in_bytes(tmp_path):
    for path in (written(tmp_path, "t.gz", gzip.compress(CSV.encode())), parquet_example(tmp_path)):
        with open_table(path) as reader:
            list(reader)
        assert reader.bytes_read == reader.bytes_total == path.stat().st_size


# name, content, options, lines, columns
QUOTED = 'a,b\n1,"x, y"\n2,"two\nlines"\n3,"say ""hi"""\n'
JSON = '{"a": true, "b": "12", "c": 1, "d": "x"}\n\n{"a": NaN, "b": "NA", "c": false, "e": 1}\n'
LATE = '{"a": 1}\n{"a": 2, "late": 5}\n'
CASES = {
    "no header": ("t.csv", "1,2\n3,4\n", {"header": False}, [1, 2], {"x1": [1, 3], "x2": [2, 4]}),
    "numbers as names": ("t.csv", "19,20\n3,4\n", {"header": True}, [2], {"19": [3], "20": [4]}),
    "an empty name": ("t.csv", ",a\n0,4\n", {}, [2], {"x1": [0], "a": [4]}),
    "blank lines": ("t.csv", "a,b\n1,2\n\n  \n,\n3,\n", {}, [2, 5, 6], {"a": [1, None, 3]}),
    "as asked": ("t.csv", "a,b,c\n1,x,3\n", {"columns": ["c", "a"]}, [2], {"c": [3], "a": [1]}),
    "underscores": ("t.csv", "a,b\n1_0,1\n2_0,2\n", {}, [2, 3], {"a": ["1_0", "2_0"]}),
    "a code": ("t.csv", "a,b\n012,1\n", {"text": "a"}, [2], {"a": ["012"], "b": [1]}),
    "quotes": ("t.csv", QUOTED, {}, [2, 3, 5], {"b": ["x, y", "two\nlines", 'say "hi"']}),
    "JSON numbers": ("t.jsonl", JSON, {}, [1, 3], {"a": [1, None], "b": [12, None], "c": [1, 0]}),
    "JSON text": ("t.jsonl", JSON, {"text": "c"}, [1, 3], {"c": ["1", "false"]}),
    "JSON absent": ("t.ndjson", JSON, {}, [1, 3], {"d": ["x", None], "e": [None, 1]}),
    "JSON late": ("t.jsonl", LATE, {"columns": ("late",)}, [1, 2], {"late": [None, 5]}),
}


@pytest.mark.parametrize("case", CASES)
def test_reading(tmp_path, case):
    name, content, options, at, wanted = CASES[case]
    columns, lines = read(written(tmp_path, name, content), **options)
    assert lines == at
    for name, values in wanted.items():
        got = [None if value != value else value for value in columns[name].tolist()]
        assert got == values


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_quoted_cells_go_on_beyond_a_chunk(tmp_path, chunk):
    _, content, _, at, wanted = CASES["quotes"]
    columns, lines = read(written(tmp_path, "t.csv", content), chunk=chunk)
    assert (columns["b"].tolist(), lines) == (wanted["b"], at)


def test_every_missing_token(tmp_path):
    rows = "".join(f"{token},{token},1\n" for token in (*MISSING, " NA ", "5"))
    columns, _ = read(written(tmp_path, "t.csv", "a,b,c\n" + rows), text=["b"])
    assert np.isnan(columns["a"]).tolist() == [True] * (len(MISSING) + 1) + [False]
    assert columns["b"].tolist() == [None] * (len(MISSING) + 1) + ["5"]


CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["", "NA", "nan", " 1 ", "+.5", "1e5", "-0", "1e-400", "?"]),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=4, max_size=12), st.booleans())
def test_the_quick_way_agrees_with_the_careful_one(tmp_path_factory, rows, subset):
    text = "a,b,c\n" + "0,0,0\n0,0,0\n" + "".join(",".join(row) + "\n" for row in rows)
    path = written(tmp_path_factory.getbasetemp(), "quick.csv", text)
    options = {"columns": ["c", "a"]} if subset else {}
    slow, lines = read(path, chunk=10**6, **options)
    quick, quick_lines = read(path, chunk=2, **options)
    assert lines == quick_lines
    for name, column in slow.items():
        np.testing.assert_array_equal(column, quick[name])


def test_the_quick_way_is_taken(tmp_path, monkeypatch):
    path = written(tmp_path, "t.csv", "a,b\n" + "1,2\n" * 9 + '1,"2"\n' + "1,\n" * 10)
    taken = []
    quick = delimited._Table._quick

    def spy(self, raw):
        values = quick(self, raw)
        taken.append(values is not None)
        return values

    monkeypatch.setattr(delimited._Table, "_quick", spy)
    read(path, chunk=5)
    assert taken == [False, True, True]  # the second chunk has quotes; missing cells are fine


# -- LIBSVM ----------------------------------------------------------------------------------
def libsvm(path, **options):
    with open_table(path, Options(**options)) as reader:
        chunks = list(reader)
    X = np.vstack([c.X.toarray() for c in chunks])
    return X, np.concatenate([c.y for c in chunks]), [at for c in chunks for at in c.lines]


@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("name", ["t.svm", "t.libsvm.gz", "t.svmlight", "a9a", "a9a.gz", "a9a.t"])
def test_libsvm(tmp_path, name, chunk):
    content = (LIBSVM + "\n# a comment\n+1 # nothing\n").encode()
    path = written(tmp_path, name, gzip.compress(content) if name.endswith("gz") else content)
    X, y, lines = libsvm(path, chunk=chunk)
    assert X.tolist() == [[0.5, 0, 2, 0], [0, 1, 0, 0], [0, 0, 0, -7.25], [0, 0, 0, 0]]
    assert y.tolist() == [1, -1, 1, 1]
    assert lines == [1, 2, 3, 6]


def test_libsvm_from_stdin_wants_the_number_of_features(monkeypatch):
    feed(monkeypatch, LIBSVM)
    refused(r"stdin: .*Give the number of features", "-")
    feed(monkeypatch, LIBSVM)
    reader = open_table("-", Options(n_features=6))
    assert (reader.n_features, reader.names, next(iter(reader)).X.shape) == (6, (), (3, 6))


def test_libsvm_from_zero_and_without_names(tmp_path):
    path = written(tmp_path, "t.svm", "1 0:5 2:6\n")
    assert libsvm(path, zero_based=True)[0].tolist() == [[5, 0, 6]]
    refused("no names", path, columns=["a"])


# A good line, a bad one after three of those, and what is said about it
BAD_LINES = [
    ("1 1:1", "1 1:1 9:1", ": feature number 9, and there are 4 features"),
    ("1 1:1", "1 0:1", ": feature number 0, and they start at 1"),
    ("1 1:1", "1 3:1 2:1", ": feature number 2 comes after 3"),
    ("1 1:1", "1 1:x", ": '1:x' is not a feature number and a value"),
    ("1 1:1", "1 1:nan", ": '1:nan' is not a feature number and a value"),
    ("1 1:1", "1 b:2", ": 'b:2' is not a feature number and a value"),
    ("1 1:1", "spam 1:1", ": the label 'spam' is not a number"),
    ("1 1:1", "inf 1:1", ": the label 'inf' is not a number"),
    ('{"a": 1}', '{"a": 1', ": this is not JSON"),
    ('{"a": 1}', '{"a": 1}, {"a": 1}', ": this is not JSON"),
    ('{"a": 1}', '{"a": ' + "[" * 100000, ": too deeply nested"),
    ('{"a": 1}', "[1]", ": expected an object"),
    ('{"a": 1}', '{"a": "abc"}', ", column 'a': 'abc' is not a number"),
    ('{"a": 1}', '{"a": [1]}', r", column 'a': \[1\] is not a number"),
    ('{"a": 1}', '{"a": 1e999}', ", column 'a': inf is infinite"),
    ('{"a": 1}', '{"a": 1' + "0" * 400 + "}", r", column 'a': 10+\.\.\. is infinite"),
    ('{"a": "x"}', '{"a": {"b": 1}}', ", column 'a': {'b': 1} is not a single value"),
]


@pytest.mark.parametrize(("good", "bad", "message"), BAD_LINES, ids=itertools.count())
def test_bad_lines_of_libsvm_and_json(tmp_path, good, bad, message):
    path = written(tmp_path, "nohint", f"{good}\n" * 3 + f"{bad}\n{good}\n")
    refused(f"nohint, line 4{message}", path, n_features=4)


# -- Parquet ---------------------------------------------------------------------------------
def parquet_file(folder, **columns):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


def parquet_example(folder):
    pa = pytest.importorskip("pyarrow")
    return parquet_file(
        folder,
        a=pa.array([1, -3, 400], pa.int32()),
        b=pa.array([2.5, None, np.nan], pa.float32()),
        place=pa.array(["roof", "cellar", None]).dictionary_encode(),
        flag=pa.array([True, None, False]),
        day=pa.array([0, 1, None], pa.date32()),
    )


@pytest.mark.parametrize("chunk", [1, 2, None])
def test_parquet(tmp_path, chunk):
    path = parquet_example(tmp_path)
    columns, lines = read(path, chunk=chunk)
    check_table(columns)
    np.testing.assert_array_equal(columns["flag"], [1, np.nan, 0])
    np.testing.assert_array_equal(columns["day"], [0, 86400, np.nan])
    texts, _ = read(path, chunk=chunk, text="day")
    assert texts["day"].tolist() == ["1970-01-01", "1970-01-02", None]
    assert lines == [1, 2, 3]
    columns, _ = read(path.rename(tmp_path / "unnamed"), columns=["a"], text=["a"])
    assert columns["a"].tolist() == ["1", "-3", "400"]


def test_hints_can_be_typed_as_they_stand(tmp_path):
    path = written(tmp_path, "t.csv", "Date Egg,b\n2024-05-01,1\n2024-05-02,2\n")
    with open_table(path) as reader:
        assert "--text 'Date Egg' or --drop 'Date Egg'" in " ".join(reader.first.guesses)
    refused("no column 'zebra'; there are Date Egg, b", path, columns=("zebra",))
    refused("the nearest is 'Date Egg'", path, columns=("date egg",))


def test_bad_parquet(tmp_path, monkeypatch):
    path = parquet_file(tmp_path, a=[1.0, np.inf], b=[[1], [2]])
    refused(r"row 2, column 'a': inf is infinite", path, columns=["a"])
    refused("column 'b' is of type list", path, columns=["b"])
    refused("no column 'c'; there are a, b", path, columns=["c"])
    content = path.read_bytes()
    refused("cannot be read as Parquet", written(tmp_path, "cut.parquet", content[:-20]))
    refused("must be a file", written(tmp_path, "t.parquet.gz", gzip.compress(content)))
    feed(monkeypatch, content)
    refused("must be a file", "-")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"reading Parquet needs .*dokl\[parquet\]"):
        read(written(tmp_path, "t.parquet", "PAR1"))


# -- what goes wrong -------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [2, None])
def test_bad_cell_has_a_place(tmp_path, chunk):
    path = written(tmp_path, "readings.csv", "temp,y\n" + "20,1\n" * 1201 + "abc,1\n")
    refused(r"readings\.csv, line 1203, column 'temp': 'abc' is not a n", path, chunk=chunk)


BAD_CSV = [
    ("", "is empty"),
    ("a,b\n", "has no rows"),
    ("a,b\n\n\n", "has no rows"),
    ("\n1,2\n", "line 1: column names are expected"),
    ("1,2\n3,4\n", "line 1: column names are expected"),
    ("1 2\n3 4\n", "line 1: column names are expected"),
    ("a,b,a\n1,2,3\n", "line 1: two columns are called 'a'"),
    ("a,b\n1,2\n1,2,3\n", "line 3: 2 cells are expected, as in the first line, and 3"),
    ("a,b\n1,2\n1\n", "line 3: 2 cells are expected, as in the first line, and 1"),
    ("a,b\n1,2\n1,inf\n", "line 3, column 'b': 'inf' is infinite"),
    ("a,b\n1,inf\n1,-inf\n", "line 2, column 'b': 'inf' is infinite"),
    ("a,b\n1,2\n1,1e999\n", "line 3, column 'b': '1e999' is infinite"),
    ("a,b\n1,2\n1,1_0\n", "line 3, column 'b': '1_0' is not a number"),
    ('a,b\n1,2\n1,"2\n', "line 3: unexpected end of data"),
    ('a,b\n1,2\n1,"' + "2\n" * 99999, "line 3: field larger than field limit"),
    ("x" * 200_000 + ",b\n1,2\n", "line 1: field larger than field limit"),
    ("a,b\n1,2\n1," + "x" * 99 + "\n", r"line 3, column 'b': 'x+\.\.\. is not a number"),
    (b"a,b\n1,2\n3,\xff\n", "line 3: byte 0xff is not UTF-8"),
    (b"a,\xe9\n1,2\n3,4\n", "line 1: byte 0xe9 is not UTF-8"),
    ("a,b\r1,2\r", "end in CR alone"),
    ("a,b\n1,2\r3,4\n", "line 2: new-line character seen"),
    (b"PK\x03\x04\n", "is a zip archive or a spreadsheet"),
    (b"\xff\xfea\0\n\0", "is text in UTF-16"),
    (gzip.compress(CSV.encode() * 99)[:-20], "is cut off"),
    (gzip.compress(b""), "is empty"),
    (gzip.compress(b"a")[:10] + b"\xff" * 30, "is damaged"),
    (gzip.compress(CSV.encode()) + b"garbage", "is damaged"),
]


@pytest.mark.parametrize(("content", "message"), BAD_CSV, ids=itertools.count())
@pytest.mark.parametrize("chunk", [1, None])
def test_bad_csv(tmp_path, content, message, chunk):
    path = written(tmp_path, "t.csv", content)
    refused(rf"^{re.escape(str(path))}\b.*{message}", path, chunk=chunk)


@pytest.mark.parametrize("columns", [None, ["b"]])
def test_ragged_rows_that_even_out(tmp_path, columns):
    path = written(tmp_path, "t.csv", "a,b,c\n" + "1,2,3\n" * 4 + "1,2\n1,2,3,4\n")
    refused("line 6: 3 cells are expected", path, chunk=2, columns=columns)


def test_files_that_are_none(tmp_path, monkeypatch):
    refused(r"gone\.csv: there is no such file", tmp_path / "gone.csv")
    refused("is a directory", tmp_path)
    monkeypatch.setattr(readers.text, "LONGEST_FIRST_LINE", 100)
    refused("no line end", written(tmp_path, "t.csv", "x" * 200))


NEAREST = "no column 'plaice'; the nearest is 'place'"
BAD_OPTIONS = [
    ({"format": "cvs"}, "unknown format 'cvs': did you mean 'csv'"),
    ({"columns": ["a", "plaice"]}, NEAREST),
    ({"text": "plaice"}, NEAREST),
    ({"numeric": "plaice"}, NEAREST),
    ({"text": "a", "numeric": "a"}, "both text and numeric"),
    ({"chunk": 0}, "chunk must be at least 1"),
    ({"n_features": -1}, "n_features must be at least 1"),
    ({"delimiter": ", "}, "delimiter must be one character"),
    ({"delimiter": '"'}, "delimiter must be one character"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=itertools.count())
def test_bad_options(tmp_path, options, message):
    refused(message, written(tmp_path, "t.csv", CSV), **options)


@pytest.mark.parametrize(("rows", "cell"), [(200_000, "0"), (40_000, "")])
def test_memory_is_flat(tmp_path, rows, cell):
    lines = (f"{i}.25,{i * i},-1.5,{cell},12345.678,{i % 7}\n" for i in range(rows // 1000))
    path = written(tmp_path, "long.csv", "a,b,c,d,e,y\n" + "".join(line * 1000 for line in lines))
    small = written(tmp_path, "small.csv", "a,b,c,d,e,y\n" + f"1.5,1,-1.5,{cell},1.5,1\n" * 3)
    for chunk in open_table(small, Options(chunk=1)):  # loads the compiled parser, once
        assert chunk.n == 1
    tracemalloc.start()
    n = sum(chunk.n for chunk in open_table(path, Options(chunk=500)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == rows
    assert peak < 1e6, peak  # the numbers take 48 bytes a row: 9.6 MB and 1.9 MB


def test_nothing_is_compiled_where_that_is_not_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr("dokl.tables.readers.digits.numbers", None)
    monkeypatch.setattr("dokl.tables.readers.digits.sparse_rows", None)
    (tmp_path / "r.csv").write_text("a,b\n1,2.5\n3,NA\n")
    options = Options(numeric=("a", "b"), chunk=1, compiled=False)
    with open_table(tmp_path / "r.csv", options) as reader:
        assert [chunk.columns["a"].tolist() for chunk in reader] == [[1.0], [3.0]]
    (tmp_path / "r.svm").write_text("1 1:2 3:4\n-1 2:5\n")
    with open_table(tmp_path / "r.svm", Options(compiled=False)) as reader:
        assert reader.first.X.toarray().tolist() == [[2, 0, 4], [0, 5, 0]]
