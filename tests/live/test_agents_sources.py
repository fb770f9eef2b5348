"""Files and stdin: every good row once, also over restarts; bad lines are told."""

import gzip
import io
import json
import os
import random
import threading

import numpy as np
import pytest

from dokl.base.errors import BadInput
from dokl.live.sources import lines as lines_module
from dokl.live.sources import name_of, read_file, read_stdin
from dokl.live.sources.lines import Lines
from source_files import INPUTS, numbers, plain_inputs, row, text, through_json


@pytest.fixture
def path(tmp_path):
    return tmp_path / "readings.csv"


# -- files ---------------------------------------------------------------------------------------
def test_a_file_is_read_to_its_end(path):
    path.write_text(text(*range(10)))
    arrivals = list(read_file(path, INPUTS, batch=4))
    assert [a.rows for a in arrivals] == [3, 4, 3]  # the header counts as a line of the first
    assert numbers(arrivals) == list(range(10))
    assert np.concatenate([a.Y for a in arrivals])[:, 0].tolist() == [-i for i in range(10)]
    assert {a.source for a in arrivals} == {name_of(path)} == {str(path.resolve())}
    assert arrivals[-1].position["bytes"] == path.stat().st_size
    assert arrivals[-1].position["rows"] == 10


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("last", [True, False])
def test_going_on_after_every_position(tmp_path, packed, end, last):
    content = text(*range(9)).replace("\n", end)
    content = content if last else content.removesuffix(end)
    path = tmp_path / ("r.csv.gz" if packed else "r.csv")
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    arrivals = list(read_file(path, INPUTS, batch=2))
    for i, arrival in enumerate(arrivals):
        rest = list(read_file(path, INPUTS, through_json(arrival.position), batch=3))
        assert numbers(arrivals[: i + 1]) + numbers(rest) == list(range(9))
        assert not rest or rest[-1].position["rows"] == 9


def test_a_file_that_grew_since(path):
    path.write_text(text(0, 1))
    (arrival,) = read_file(path, INPUTS)
    with path.open("a") as file:
        file.write(row(2))
    assert numbers(read_file(path, INPUTS, arrival.position)) == [2]


@pytest.mark.parametrize("other", [text(0), text(5, 6, 7, 8)])
def test_another_file_of_the_same_name_is_refused(path, other):
    path.write_text(text(0, 1, 2))
    (arrival,) = read_file(path, INPUTS)
    path.write_text(other)
    with pytest.raises(BadInput, match="another one"):
        list(read_file(path, INPUTS, arrival.position))


@pytest.mark.parametrize("packed", [False, True])
def test_a_position_far_into_a_long_file(tmp_path, packed):
    path = tmp_path / "r"
    content = text(*range(5000)).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    arrivals = list(read_file(path, INPUTS, batch=1000))
    rest = read_file(path, INPUTS, arrivals[2].position)
    assert numbers(arrivals[:3]) + numbers(rest) == list(range(5000))
    short = content[: arrivals[2].position["bytes"] - 10]
    path.write_bytes(gzip.compress(short) if packed else short)
    with pytest.raises(BadInput, match="another one"):
        list(read_file(path, INPUTS, arrivals[2].position))


def test_a_damaged_position(path):
    path.write_text(text(0))
    for position in ({}, {"bytes": 3}, {"bytes": 1, "inode": 1, "head": 5}):
        with pytest.raises(BadInput, match="position"):
            list(read_file(path, INPUTS, position))


def test_json_lines(tmp_path):
    path = tmp_path / "r.jsonl"
    rows = [{"a": i, "b": None, "y": -i} for i in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n{oops\n")
    told = []
    arrivals = list(read_file(path, INPUTS, batch=4, on_bad=lambda *bad: told.append(bad)))
    assert numbers(arrivals) == list(range(6))
    assert [where for where, _ in told] == [f"{name_of(path)}, line 8"]
    assert "not JSON" in told[0][1]
    assert numbers(read_file(path, INPUTS, arrivals[0].position)) == [4, 5]


def test_inputs_and_labels_from_a_file(path):
    path.write_text("id,a,b,y\n1,1,2,\n,3,4,5\n1,,,6\n")
    (arrival,) = read_file(path, INPUTS)
    assert [name for name, _ in arrival.waiting] == ["1"]
    assert [(name, y.tolist()) for name, y in arrival.labels] == [("1", [6.0])]
    assert (numbers([arrival]), arrival.position["rows"]) == ([3], 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,y\n1,2\n", "header: there is no column 'b'"),
        (b"1,2,3\n4,5,6\n", "header: column '1' is not an input"),
        (b"a,b,y,z\n1,2,3,4\n", "header: column 'z' is not an input"),
        (b"a,a,y\n1,2,3\n", "header: "),
        (b"PK\x03\x04....", "zip archive"),
        (b"PAR1....", "Parquet"),
        ("a,b,y\n1,2,3\n".encode("utf-16"), "UTF-16"),
        (gzip.compress(text(*range(1000)).encode())[:-20], "cut off"),
    ],
)
def test_files_that_are_refused(path, content, words):
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        list(read_file(path, INPUTS))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        list(read_file(tmp_path / "none.csv", INPUTS))
    with pytest.raises(BadInput, match="directory"):
        list(read_file(tmp_path, INPUTS))


# -- bad lines -----------------------------------------------------------------------------------
BAD = [
    (b"1,2\n", "cells"),
    (b"1,2,3,4\n", "cells"),
    (b"1,warm,3\n", "column 'b'"),
    (b"1,2,\n", "no target"),
    (b"1,inf,3\n", "column 'b'"),
    (b'1,"2,3\n', "not CSV"),
    (b"1,\xff,3\n", "0xff"),
    (b"1," + b"9" * (1 << 21) + b",3\n", "one line"),
]


@pytest.mark.parametrize(("bad", "why"), BAD, ids=[why for _, why in BAD])
def test_bad_lines_are_skipped_and_told(path, bad, why):
    content = [b"a,b,y\n", *(row(i).encode() for i in range(6))]
    content[4:4] = [bad]
    path.write_bytes(b"".join(content))
    told = []
    arrivals = list(read_file(path, INPUTS, batch=6, on_bad=lambda *bad: told.append(bad)))
    assert numbers(arrivals) == list(range(6))
    assert [where for where, _ in told] == [f"{name_of(path)}, line 5"]
    assert why in told[0][1]
    assert arrivals[-1].position["bad"] == 1
    assert arrivals[0].position["bytes"] == len(b"".join(content[:6]))


@pytest.mark.parametrize(("bad", "why"), BAD, ids=[why for _, why in BAD])
def test_strict_reading_stops_there_and_can_go_on(path, bad, why):
    content = [b"a,b,y\n", *(row(i).encode() for i in range(6))]
    path.write_bytes(b"".join([*content[:4], bad, *content[4:]]))
    arrivals = read_file(path, INPUTS, strict=True)
    stored = [next(arrivals)]
    with pytest.raises(BadInput, match=r"line 5: .*" + why):
        next(arrivals)
    assert numbers(stored) == [0, 1, 2]
    path.write_bytes(b"".join(content))  # mended
    assert numbers(read_file(path, INPUTS, stored[-1].position, strict=True)) == [3, 4, 5]


def test_a_header_that_comes_again_is_no_row(path):
    path.write_text(text(0, 1) + text(2, 3) + "\n \n" + row(4))
    told = []
    arrivals = list(read_file(path, INPUTS, on_bad=lambda *bad: told.append(bad)))
    assert (numbers(arrivals), told) == ([0, 1, 2, 3, 4], [])


def test_a_batch_is_never_larger_than_the_queue(path):
    path.write_text(text(*range(20)))
    assert numbers(read_file(path, plain_inputs(queue_rows=3))) == list(range(20))


def test_stopping(path):
    path.write_text(text(*range(100)))
    stop = threading.Event()
    arrivals = read_file(path, INPUTS, batch=10, stop=stop)
    next(arrivals)
    stop.set()
    assert list(arrivals) == []


# -- stdin ---------------------------------------------------------------------------------------
def test_a_pipe_gives_rows_as_they_come():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as pipe:
        arrivals = read_stdin(INPUTS, stream=stream)
        pipe.write(text(0, 1).encode())
        assert numbers([next(arrivals)]) == [0, 1]
        pipe.write(b"2,1,-2\n3,1")
        assert numbers([next(arrivals)]) == [2]
        pipe.write(b".5,-3")
        pipe.close()
        last = next(arrivals)
        assert (numbers([last]), last.source) == ([3], "stdin")
        assert last.position == {"rows": 4, "bad": 0, "line": 5}
        assert list(arrivals) == []


def test_a_pipe_can_be_stopped():
    reading, writing = os.pipe()
    stop = threading.Event()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as pipe:
        arrivals = read_stdin(INPUTS, stream=stream, stop=stop)
        pipe.write(text(0).encode())
        next(arrivals)
        threading.Timer(0.05, stop.set).start()
        assert list(arrivals) == []


def test_streams_without_a_number():
    stream = io.BytesIO(b'{"a": 1, "b": 2, "y": 3}\nnot JSON\n{"a": 4, "b": 5, "y": 6}')
    told = []
    arrivals = list(read_stdin(INPUTS, stream=stream, on_bad=lambda *bad: told.append(bad)))
    assert numbers(arrivals) == [1, 4]
    assert told[0][0] == "stdin, line 2"
    with pytest.raises(BadInput, match="stdin is empty"):
        list(read_stdin(INPUTS, stream=io.BytesIO()))


def test_a_named_pipe_is_read_like_stdin(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(text(0, 1)))
    writer.start()
    assert numbers(read_file(path, INPUTS)) == [0, 1]
    writer.join()


# -- lines ---------------------------------------------------------------------------------------
def test_lines_however_they_are_cut(monkeypatch):
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 20)
    content = b"one\n\ntwo words\r\n" + b"x" * 100 + b"\nthree\n" + b"y" * 19 + b"\nlast"
    wanted = [b"one", b"", b"two words\r", None, b"three", b"y" * 19, b"last"]
    chance = random.Random(3)
    for _ in range(200):
        lines, at = Lines(), 0
        while at < len(content):
            step = chance.randint(1, 40)
            lines.add(content[at : at + step])
            at += step
            assert lines.waiting == min(at, len(content))
            assert len(lines.part) <= 20 + 40
        lines.end()
        taken = lines.take(100)
        assert [line.text for line in taken] == wanted
        assert sum(line.length for line in taken) == len(content)
