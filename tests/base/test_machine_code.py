"""Machine code on disk is found again, and never after an edit of what it was compiled from."""

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest

from dokl.base import machine_code

PART = "from numba import njit\n\n@njit\ndef part(x):\n    return x + {}\n"
WHOLE = (
    "from small.machine_code import cached_njit\nfrom small.part import part\n\n"
    "@cached_njit('part.py')\ndef whole(x):\n    return 10 * part(x)\n"
)


@pytest.fixture
def whole(tmp_path, monkeypatch):
    """A function that imports a package of two files afresh, the constant of one given."""
    package = tmp_path / "small"
    package.mkdir()
    shutil.copy(machine_code.__file__, package)
    (package / "__init__.py").touch()
    (package / "whole.py").write_text(WHOLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")

    def imported(constant):
        (package / "part.py").write_text(PART.format(constant))
        for name in [name for name in sys.modules if name.partition(".")[0] == "small"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("small.whole").whole

    yield imported
    for name in [name for name in sys.modules if name.partition(".")[0] == "small"]:
        del sys.modules[name]


def times(counter):
    return sum(counter.values())


def test_machine_code_is_found_again_until_what_it_calls_is_edited(whole):
    for constant, answer, hits in ((1, 30, 0), (1, 30, 1), (2, 40, 0), (2, 40, 1)):
        function = whole(constant)
        assert function(2) == answer
        assert times(function.stats.cache_hits) == hits
        assert times(function.stats.cache_misses) == 1 - hits


def test_machine_code_of_other_sources_is_deleted(whole, tmp_path):
    def files():
        return sorted(tmp_path.glob("small/__pycache__/*.nb?"))

    whole(1)(2)
    first = files()
    other = first[0].with_name(first[0].name.replace("whole-", "other-"))
    python = first[0].with_name(first[0].name.replace(".py3", ".py9"))
    for path in (other, python):  # of another function, and of another Python
        path.touch()
    whole(2)(2)
    assert not set(first) & set(files())
    assert len(files()) == len(first) + 2
    assert other.exists()
    assert python.exists()


# -- one process at a time ---------------------------------------------------------------------
USER = """
import small.machine_code as code
from small.whole import whole
with code.watched(lambda what: print(what, flush=True)):
    print(whole(2), flush=True)
print(sum(whole.stats.cache_misses.values()), whole.stats.cache_path, flush=True)
"""


def user(tmp_path, **more):
    """A process that needs the function."""
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": "", **more}
    command = [sys.executable, "-B", "-c", USER]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_one_process_compiles_and_the_others_wait_for_it(whole, tmp_path):
    whole(1)  # writes the package, and compiles nothing
    folder = tmp_path / "small" / "__pycache__"
    folder.mkdir(exist_ok=True)
    with (folder / machine_code.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        processes = [user(tmp_path) for _ in range(2)]
        try:
            assert [each.stdout.readline().strip() for each in processes] == ["waiting"] * 2
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
            told = [each.communicate(timeout=120)[0].split() for each in processes]
    assert sorted(each[-2] for each in told) == ["0", "1"]
    assert sum("compiling" in each for each in told) == 1


def test_a_lock_that_is_not_freed_is_waited_for_no_longer_than_the_bound(whole, monkeypatch):
    function = whole(1)
    code = sys.modules["small.machine_code"]
    monkeypatch.setattr(code, "LONGEST", 0.0)
    os.makedirs(function.stats.cache_path, exist_ok=True)
    with open(os.path.join(function.stats.cache_path, code.LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert function(2) == 30


def test_the_lock_is_freed_when_compiling_fails(whole):
    function = whole(1)
    with pytest.raises(numba.TypingError):
        function("text")
    assert not sys.modules["small.machine_code"]._held
    assert function(2) == 30
    assert not sys.modules["small.machine_code"]._held


def test_threads_that_compile_at_once_free_the_lock_once(whole, monkeypatch):
    function, close = whole(1), os.close
    kept = sys.modules["small.machine_code"]

    def slowly(number):
        close(number)
        time.sleep(0.2)  # the other thread is done meanwhile

    monkeypatch.setattr(kept.os, "close", slowly)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(function, (2, 2))) == [30, 30]


def in_the_way(*paths):
    """Files where folders are wanted: nothing can be written there, by root neither."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        path.write_text("in the way")


def test_code_is_kept_in_the_users_cache_where_the_package_cannot_be_written(whole, tmp_path):
    whole(1)
    in_the_way(tmp_path / "small" / "__pycache__")
    places = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    for misses in ("1", "0"):
        *_, missed, folder = user(tmp_path, **places).communicate(timeout=120)[0].split()
        assert missed == misses
        assert folder.startswith(str(tmp_path / "home"))


def test_functions_work_where_nothing_can_be_written(whole, tmp_path):
    whole(1)
    in_the_way(tmp_path / "small" / "__pycache__", tmp_path / "home")
    places = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    told = user(tmp_path, **places).communicate(timeout=120)[0].split()
    assert (told[0], "30" in told) == ("compiling", True)


def kept_functions(module):
    """Functions of a module whose machine code is kept."""
    for value in vars(module).values():
        own = hasattr(value, "py_func") and value.py_func.__module__ == module.__name__
        if own and value.stats.cache_path is not None:
            yield value


def files_of_parts(module, found):
    """The files whose compiled functions a module can call."""
    found.add(f"{module.__name__.partition('.')[2].replace('.', '/')}.py")
    for value in vars(module).values():
        name = getattr(getattr(value, "py_func", None), "__module__", None)
        if name is not None and f"{name.partition('.')[2].replace('.', '/')}.py" not in found:
            files_of_parts(sys.modules[name], found)
    return found


@pytest.mark.parametrize(
    "name",
    ["simulation.engines.numba_sweeps", "tables.readers.digits"]
    + [f"paper.baselines.{name}" for name in ("growing", "klms", "qklms", "diffusion_klms")],
)
def test_kept_functions_name_the_files_they_are_compiled_from(name):
    module = importlib.import_module(f"dokl.{name}")
    functions = list(kept_functions(module))
    assert functions
    for function in functions:
        named = getattr(function._cache, "sources", (f"{name.replace('.', '/')}.py",))
        assert files_of_parts(module, set()) <= set(named), function
