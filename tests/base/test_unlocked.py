"""Threads of BLAS: one, wherever many small products would wait for each other."""

from threading import Event, Thread, local

import numpy as np
import pytest
import scipy.linalg.blas  # noqa: F401  it brings a library of its own
from threadpoolctl import threadpool_info, threadpool_limits

from commands import dokl, readings, write_csv
from dokl.base import background, unlocked
from dokl.base.unlocked import one_thread
from dokl.learning import scales
from dokl.learning.squares.memory import Memory
from dokl.tables.plan import planner


def threads():
    """How many threads products have now, of every library."""
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_cores():
    """As for a user, who sets nothing, while nothing is learned in the background."""
    background.wait_until_idle()
    with threadpool_limits(2, "blas"):
        yield


def test_a_plan_is_made_in_one_thread(monkeypatch):
    """In two, waiting for each other, it took eight times the processor time."""
    seen, ridges = set(), planner._ridges

    def told(*given):
        seen.update(threads())
        return ridges(*given)

    monkeypatch.setattr(planner, "_ridges", told)
    X = np.random.default_rng(0).normal(size=(120, 2))
    planner.plan(X, X[:, 0] ** 2, D=20)
    assert seen == {1}
    assert threads() == {2}


def test_commands_that_learn_by_least_squares_compute_in_one_thread(tmp_path, monkeypatch):
    """A training of twelve stations took 18.5 s where one thread takes 11.1."""
    seen = {"scales": set(), "variance": set()}

    def told(name, function):
        def one(*given):
            seen[name] |= threads()
            return function(*given)

        return one

    monkeypatch.setattr(scales, "_covariances", told("scales", scales._covariances))
    monkeypatch.setattr(Memory, "variance", told("variance", Memory.variance))
    columns = readings(40) | {"station": np.array(list("AB") * 20)}
    path, model = write_csv(tmp_path / "r.csv", columns), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", "--drop", "label", "--drop", "id", "--components", 20,
             "--model", model, "--overwrite", "-q")  # fmt: skip
    for more in ((), ("--nodes", "station", "--graph", "complete")):
        dokl(*start, *more)
        dokl("predict", model, path, "--interval", 90, "-o", tmp_path / "p.csv", "-q")
    assert seen == {"scales": {1}, "variance": {1}}
    assert threads() == {2}


def test_threads_that_overlap_leave_as_many_as_there_were():
    """The one that came second found one thread, and set it for good when it left."""
    came, go, seen = Event(), Event(), []

    @one_thread()
    def longer():
        came.set()
        assert go.wait(10)
        seen.append(threads())

    other = Thread(target=longer)
    with one_thread():
        other.start()
        assert came.wait(10)
        with one_thread():
            seen.append(threads())
    seen.append(threads())
    go.set()
    other.join()
    assert seen == [{1}] * 3
    assert threads() == {2}


def test_a_library_whose_threads_have_their_own_limits_is_limited_in_each(monkeypatch):
    """As OpenBLAS on OpenMP is."""

    class Library(local):
        num_threads = 4

        def set_num_threads(self, number):
            self.num_threads = number

    library, came, go, seen = Library(), Event(), Event(), []
    monkeypatch.setattr(unlocked, "_libraries", lambda: ([], [library]))

    def longer():
        with one_thread():
            seen.append(library.num_threads)
            came.set()
            assert go.wait(10)
        seen.append(library.num_threads)

    other = Thread(target=longer)
    with one_thread(), one_thread():
        other.start()
        assert came.wait(10)
        seen.append(library.num_threads)
    seen.append(library.num_threads)
    go.set()
    other.join()
    assert seen == [1, 1, 4, 4]


def test_an_error_in_one_thread_lifts_the_limit():
    with pytest.raises(ZeroDivisionError), one_thread():
        1 / 0  # noqa: B018
    assert threads() == {2}


def test_what_nobody_waits_for_ends():
    began, ended = Event(), []

    def endless(_):
        try:
            while True:
                unlocked.potrf(np.asfortranarray(np.eye(3)))
                began.set()
        except unlocked.GivenUp:
            ended.append(True)

    def interrupted():
        with unlocked.threads(1) as each:
            each(endless, [0])
            began.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ended
