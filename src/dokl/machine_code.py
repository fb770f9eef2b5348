"""Machine code that is kept on disk, and never outlives an edit of what it was compiled from.

Numba notices edits of the file that holds a function, but not of the files it calls into: their
code is a part of its own. Here the names of the kept files end in a digest of all sources, so
what was compiled from others is not found.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache

F = TypeVar("F", bound=Callable[..., Any])


def cached_njit(*sources: str, **options: Any) -> Callable[[F], F]:
    """Like `njit(cache=True, **options)`, for these files of the package as they are now.

    sources: the files, besides its own, from which the function takes functions and constants,
    those of their sources among them.
    """

    def compiled(function: F) -> F:
        own = f"{function.__module__.partition('.')[2].replace('.', '/')}.py"
        out = njit(**options)(function)
        if hasattr(out, "py_func"):  # not where NUMBA_DISABLE_JIT is set
            out._cache = _Cache(function, (own, *sources))
        return cast(F, out)

    return compiled


def digest(*sources: str) -> str:
    """What these files of the package hold, in 16 letters.

    >>> digest("arrays.py") == digest("arrays.py") != digest("errors.py")
    True
    """
    package = __name__.partition(".")[0]
    return sha256(b"".join(pkgutil.get_data(package, s) or b"" for s in sources)).hexdigest()[:16]


class _Cache(FunctionCache):
    """Numba's cache of a function, under names of its own; older ones go when code is saved."""

    def __init__(self, function: Callable[..., Any], sources: tuple[str, ...]) -> None:
        class Names(CompileResultCacheImpl):
            def get_filename_base(self, fullname: str, abiflags: str) -> str:
                """How the names begin: module, function, line, Python's version, sources."""
                return f"{super().get_filename_base(fullname, abiflags)}-{digest(*sources)}"

        self.sources = sources
        self._impl_class = Names
        super().__init__(function)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled signature, and drop what was compiled from other sources."""
        super().save_overload(sig, data)
        mine = self._impl.filename_base
        function, line_and_python, _ = mine.rsplit("-", 2)
        python = line_and_python.partition(".")[2]
        for path in Path(self.cache_path).glob(f"{function}-*.{python}-*.nb[ci]"):
            if not path.name.startswith(mine):
                path.unlink(missing_ok=True)
