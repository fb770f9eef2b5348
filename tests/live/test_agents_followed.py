"""Followed files: every good row once, also over restarts and rotations."""

import gzip
import random
import threading
import time

import pytest

from dokl.base.errors import BadInput
from dokl.live.sources import files, follow
from source_files import HEADER, INPUTS, numbers, row, text, through_json


@pytest.fixture
def path(tmp_path):
    return tmp_path / "readings.csv"


class Follower:
    """A thread that follows a file and keeps what came, with the notes."""

    def __init__(self, path, position=None, **options):
        self.arrivals, self.notes, self.bad, self.error = [], [], [], None
        self.stop = threading.Event()
        options = {"poll": 0.005, **options}
        self.source = follow(
            path,
            INPUTS,
            position,
            stop=self.stop,
            on_note=self.notes.append,
            on_bad=lambda *bad: self.bad.append(bad),
            **options,
        )
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            for arrival in self.source:
                self.arrivals.append(arrival)
        except BadInput as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def wait(self, *wanted):
        """Until these rows are there; then a little longer, to see that no more come."""
        until(lambda: len(numbers(self.arrivals)) >= len(wanted) or self.error)
        time.sleep(0.03)
        assert numbers(self.arrivals) == list(wanted)

    @property
    def position(self):
        return through_json(self.arrivals[-1].position)


def until(true, seconds=120):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    assert true()


def append(path, content):
    with path.open("a") as file:
        file.write(content)


def test_a_file_that_grows(path):
    path.write_text(text(0, 1))
    with Follower(path) as follower:
        follower.wait(0, 1)
        append(path, row(2))
        follower.wait(0, 1, 2)
        append(path, "3,1.")  # half a line
        time.sleep(0.03)
        follower.wait(0, 1, 2)
        append(path, "5,-3\n" + row(4))
        follower.wait(0, 1, 2, 3, 4)
    assert follower.arrivals[-1].X[0, 1] == 1.5
    assert (follower.notes, follower.bad) == ([], [])


def test_a_file_that_is_not_there_yet(path):
    with Follower(path) as follower:
        until(lambda: follower.notes)
        path.write_text("a,b")
        time.sleep(0.03)
        append(path, ",y\n" + row(0))
        follower.wait(0)
    assert len(follower.notes) == 1


@pytest.mark.parametrize("header", [HEADER, "", "y,b,a\n"])
def test_rotation(path, header):
    path.write_text(text(0, 1))
    with Follower(path) as follower:
        follower.wait(0, 1)
        path.rename(path.with_suffix(".1"))
        time.sleep(0.02)
        append(path.with_suffix(".1"), row(2))  # the writer has not noticed yet
        follower.wait(0, 1, 2)
        new = text(3, 4, header=header) if header != "y,b,a\n" else header + "-3,1.5,3\n-4,2,4\n"
        path.write_text(new)
        follower.wait(0, 1, 2, 3, 4)
        append(path, row(5) if header != "y,b,a\n" else "-5,2.5,5\n")
        follower.wait(0, 1, 2, 3, 4, 5)
    assert len(follower.notes) == 1
    assert "replaced" in follower.notes[0]
    assert follower.bad == []


def test_rotation_in_the_middle_of_a_line(path):
    path.write_text(text(0, 1) + "2,1")
    with Follower(path) as follower:
        follower.wait(0, 1)
        path.rename(path.with_suffix(".1"))
        path.write_text(text(3))
        follower.wait(0, 1, 3)
    assert [why for _, why in follower.bad] == [
        "the file was replaced, and its last line has no line end"
    ]


@pytest.mark.parametrize("header", [HEADER, ""])
def test_truncation(path, header):
    path.write_text(text(*range(100)))
    with Follower(path) as follower:
        follower.wait(*range(100))
        with path.open("r+") as file:
            file.truncate(0)
            file.write(text(100, 101, header=header))
        follower.wait(*range(102))
        with path.open("r+") as file:  # cut, and longer than before when seen again
            file.truncate(0)
            file.write(text(*range(102, 110), header=header))
        follower.wait(*range(110))
    assert len(follower.notes) == 2


def test_going_on_with_a_followed_file(path):
    path.write_text(text(0, 1))
    with Follower(path) as first:
        first.wait(0, 1)
    append(path, row(2) + "3,1.5")
    with Follower(path, first.position) as second:
        second.wait(2)
        append(path, ",-3\n")
        second.wait(2, 3)
    assert second.notes == []


def test_going_on_after_a_rotation_while_away(path):
    path.write_text(text(0, 1))
    with Follower(path) as first:
        first.wait(0, 1)
    append(path, row(2))
    path.rename(path.with_name("old.csv"))
    path.write_text(text(3))
    with Follower(path, first.position) as second:
        second.wait(2, 3)
        assert second.position["inode"] == path.stat().st_ino
    with Follower(path, second.position) as third:
        append(path, row(4))
        third.wait(4)


@pytest.mark.parametrize("header", [HEADER, ""])
def test_going_on_where_the_old_file_is_gone(path, header):
    path.write_text(text(0, 1))
    with Follower(path) as first:
        first.wait(0, 1)
    path.unlink()
    path.write_text(text(7, 8, 9, header=header))
    with Follower(path, first.position) as second:
        second.wait(7, 8, 9)
    assert "not the file that was read before" in second.notes[0]


def test_positions_within_a_followed_file(path):
    """Whatever was the last that was stored, the rest comes exactly once."""
    path.write_text(text(*range(20)))
    with Follower(path, batch=3) as follower:
        follower.wait(*range(20))
    for i, arrival in enumerate(follower.arrivals):
        done = numbers(follower.arrivals[: i + 1])
        with Follower(path, through_json(arrival.position)) as again:
            again.wait(*range(len(done), 20))


def test_a_packed_file_cannot_be_followed(path):
    path.write_bytes(gzip.compress(text(0).encode()))
    with pytest.raises(BadInput, match="plain file"):
        next(follow(path, INPUTS))


def test_a_followed_file_with_bad_lines_and_strict(path):
    path.write_text(text(0) + "bad\n" + row(1))
    with Follower(path) as follower:
        follower.wait(0, 1)
    assert len(follower.bad) == 1
    with Follower(path, strict=True) as follower:
        until(lambda: follower.error)
        assert numbers(follower.arrivals) == [0]


def test_a_writer_at_random(path):
    """Rows in pieces of random sizes, rotations, and restarts of the reader at random."""
    chance, position, came, i, content = random.Random(5), None, [], 0, ""
    path.write_text(HEADER)
    for turn in range(8):
        with Follower(path, position, batch=chance.randint(1, 50)) as follower:
            content, i = content + row(i), i + 1
            append(path, content)
            # Into this file, before it is replaced: a file that came and went unseen is not found.
            until(lambda: len(numbers(came + follower.arrivals)) == i)  # noqa: B023
            content = ""
            for _ in range(chance.randint(1, 4)):
                fresh = range(i, i + chance.randint(0, 200))
                content, i = content + "".join(map(row, fresh)), fresh.stop
                cut = chance.randint(0, len(content))
                append(path, content[:cut])
                content = content[cut:]
            if chance.random() < 0.5:
                append(path, content)
                path.rename(path.with_name(f"{turn}.csv"))
                path.write_text(HEADER)
                content = ""
            time.sleep(chance.choice([0.0, 0.02]))
        came += follower.arrivals
        position = through_json(came[-1].position)
        assert follower.bad == []
    append(path, content)
    with Follower(path, position) as follower:
        until(lambda: len(numbers(came + follower.arrivals)) >= i)
    assert numbers(came + follower.arrivals) == list(range(i))
    assert i > 1000


def test_waiting_takes_next_to_no_time(path, monkeypatch):
    """A look now and then, and sleep in between."""
    path.write_text(text(0))
    waits, real, others = [], threading.Event.wait, set(threading.enumerate())

    def waited(event, seconds=None):
        if threading.current_thread() not in others:
            waits.append(seconds)
        return real(event, seconds)

    with Follower(path, poll=0.05) as follower:
        follower.wait(0)
        monkeypatch.setattr(threading.Event, "wait", waited)
        until(lambda: len(waits) >= 3)
        began = time.monotonic()
        del waits[:]
        time.sleep(0.3)
        assert len(waits) <= (time.monotonic() - began) / 0.05 + 1
        assert set(waits) <= {0.05}


def test_a_file_that_is_renamed_while_it_is_opened_is_waited_for(path, monkeypatch):
    path.write_text(text(0, 1))
    opened, stop = files.LineFile, threading.Event()

    def gone(place):
        path.unlink()
        monkeypatch.setattr(files, "LineFile", opened)
        threading.Timer(0.1, path.write_text, [text(2, 3)]).start()
        return opened(place)

    monkeypatch.setattr(files, "LineFile", gone)
    assert numbers([next(follow(path, INPUTS, poll=0.01, stop=stop))]) == [2, 3]
