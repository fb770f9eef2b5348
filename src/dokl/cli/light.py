"""scikit-learn's base without what the commands do not need.

`import sklearn.base` loads all of scipy.stats, narwhals, asyncio, parts of NumPy that are for tests
and for Fortran, and where it is installed pandas, and uses none of them: three quarters of the time
that it takes, and a third of a small `dokl train`. While it is loaded, others stand in for them;
whoever asks one of these for anything gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# Nothing of these is used while others are loaded.
LATER = (
    "scipy.stats", "narwhals", "narwhals.stable", "narwhals.stable.v2", "numpy.testing",
    "numpy.f2py", "asyncio", "scipy.spatial",
)  # fmt: skip
ABSENT = ("pandas",)  # an import fails, and scikit-learn goes on without


class Later(ModuleType):
    """A module that is loaded when something of it is wanted."""

    def __getattr__(self, name: str) -> Any:
        """What the real one has under this name."""
        if name.startswith("__"):
            raise AttributeError(name)
        _leave(self.__name__)
        return getattr(importlib.import_module(self.__name__), name)


def load_sklearn(*more: str) -> None:
    """Load scikit-learn's base, unless it, or what it would do without, is there already; with
    more modules that are as greedy.
    """
    if any(name in sys.modules for name in ("sklearn", *ABSENT)):
        return
    importlib.import_module("numpy")  # with its own loading of some parts when they are wanted
    try:
        with _kept_out():
            for name in ("sklearn.base", *more):
                importlib.import_module(name)
    except Exception:  # a version that does need them: as ever, then
        for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
            del sys.modules[name]


@contextmanager
def _kept_out() -> Iterator[None]:
    sys.modules.update(dict.fromkeys(ABSENT))  # type: ignore[arg-type]
    later = [name for name in LATER if name not in sys.modules]
    for name in later:
        sys.modules[name] = Later(name)
    for name in later:
        parent = sys.modules.get(name.rpartition(".")[0])
        if parent is not None:
            setattr(parent, name.rpartition(".")[2], sys.modules[name])
    try:
        yield
    finally:
        for name in ABSENT:
            del sys.modules[name]
        for name in later:
            _leave(name)


def _leave(name: str) -> None:
    """Make room for the real module, unless it is there, and for those it is in."""
    if isinstance(sys.modules.get(name), Later):
        del sys.modules[name]
    above, _, last = name.rpartition(".")
    parent = sys.modules.get(above)
    if isinstance(parent, Later):
        _leave(above)
    elif parent is not None and isinstance(vars(parent).get(last), Later):
        delattr(parent, last)
