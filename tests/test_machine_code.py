"""Machine code on disk is found again, and never after an edit of what it was compiled from."""

import importlib
import shutil
import sys

import numba
import pytest

from dokl import machine_code

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
    ["engines.numba_parts.sweeps", "readers.digits"]
    + [f"baselines.{name}" for name in ("growing", "klms", "qklms", "diffusion_klms")],
)
def test_kept_functions_name_the_files_they_are_compiled_from(name):
    module = importlib.import_module(f"dokl.{name}")
    functions = list(kept_functions(module))
    assert functions
    for function in functions:
        named = getattr(function._cache, "sources", (f"{name.replace('.', '/')}.py",))
        assert files_of_parts(module, set()) <= set(named), function
