"""scikit-learn's base without what the commands do not need.

`import sklearn.base` loads all of scipy.stats and, where it is installed, pandas, and uses neither:
two thirds of the time that it takes, and a quarter of a small `dokl train`. While it is loaded they
are kept out; whoever wants them later loads them as ever.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# None: an import fails, and scikit-learn goes on without. Else an empty module: it must be there.
KEPT_OUT: dict[str, Any] = {"pandas": None, "scipy.stats": ModuleType("scipy.stats")}


def load_sklearn() -> None:
    """Load scikit-learn's base, unless it, or what would be kept out, is there already."""
    if any(name in sys.modules for name in ("sklearn", *KEPT_OUT)):
        return
    try:
        with _kept_out():
            importlib.import_module("sklearn.base")
    except (ImportError, AttributeError):  # a version that does need them: as ever, then
        for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
            del sys.modules[name]


@contextmanager
def _kept_out() -> Iterator[None]:
    sys.modules.update(KEPT_OUT)
    try:
        yield
    finally:
        for name in KEPT_OUT:
            del sys.modules[name]
