"""Machine code that is kept on disk, and never outlives an edit of what it was compiled from.

Numba notices edits of the file that holds a function, but not of the files it calls into: their
code is a part of its own. Here the names of the kept files end in a digest of all sources, so
what was compiled from others is not found.

Of several processes that need the same code, one compiles it while the others wait, and then load
it: a lock on a file in the folder of the kept files, which the system frees when its holder ends.
"""

from __future__ import annotations

import fcntl
import os
import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler_lock import global_compiler_lock

F = TypeVar("F", bound=Callable[..., Any])
Watcher = Callable[[str], None]

COMPILING, WAITING = "compiling", "waiting"
LOCK = "dokl-compiling.lock"
LONGEST = 300.0  # seconds to wait for another process, before compiling all the same
LOOK = 0.1  # seconds between two looks whether it is done
_watchers: list[Watcher] = []


def cached_njit(*sources: str, **options: Any) -> Callable[[F], F]:
    """Like `njit(cache=True, **options)`, for these files of the package as they are now.

    sources: the files, besides its own, from which the function takes functions and constants,
    those of their sources among them.
    """

    def compiled(function: F) -> F:
        own = f"{function.__module__.partition('.')[2].replace('.', '/')}.py"
        out = njit(**options)(function)
        if hasattr(out, "py_func"):  # not where NUMBA_DISABLE_JIT is set
            _keep(out, function, (own, *sources))
        return cast(F, out)

    return compiled


def _keep(out: Any, function: Callable[..., Any], sources: tuple[str, ...]) -> None:
    """Have the code of a compiled function kept, where any folder can be written: beside the
    sources, or else in the user's cache, or else in NUMBA_CACHE_DIR.
    """
    try:
        kept = out._cache = _Cache(function, sources)
    except RuntimeError:  # there is no such folder: each process compiles for itself
        return
    compile = out.compile

    def compile_once(sig: Any) -> Any:
        with global_compiler_lock:  # or a thread that waited here would free the lock of another
            try:
                return compile(sig)
            finally:
                kept.free()

    out.compile = compile_once


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call a function with COMPILING or WAITING when something is compiled in this block, or
    another process compiles it.
    """
    listener = _Compiling(watcher)
    _watchers.append(watcher)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)
        _watchers.remove(watcher)


class _Compiling(event.Listener):
    """Is called by Numba when it compiles."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def on_start(self, event: object) -> None:
        """Something is about to be compiled."""
        self._watcher(COMPILING)

    def on_end(self, event: object) -> None:
        """It is."""


def digest(*sources: str) -> str:
    """What these files of the package hold, in 16 letters.

    >>> digest("base/arrays.py") == digest("base/arrays.py") != digest("base/errors.py")
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
        self._lock: int | None = None
        super().__init__(function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Kept code of a signature. If there is none it is compiled next, by one process at a
        time: a process that waited looks again.
        """
        found = super().load_overload(sig, target_context)
        if found is None and self._lock is None:
            self._lock = _locked(Path(self.cache_path))
            if self._lock is not None:
                found = super().load_overload(sig, target_context)
        return found

    def free(self) -> None:
        """Let others compile; without the lock, do nothing."""
        if self._lock is not None:
            os.close(self._lock)
            _held.discard(self.cache_path)
            self._lock = None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled signature, and drop what was compiled from other sources."""
        super().save_overload(sig, data)
        mine = self._impl.filename_base
        function, line_and_python, _ = mine.rsplit("-", 2)
        python = line_and_python.partition(".")[2]
        for path in Path(self.cache_path).glob(f"{function}-*.{python}-*.nb[ci]"):
            if not path.name.startswith(mine):
                path.unlink(missing_ok=True)


# -- one process at a time -----------------------------------------------------------------------
_held: set[str] = set()  # folders that this process has locked; one thread at a time compiles


def _locked(folder: Path) -> int | None:
    """The lock of a folder; None where this process has it, where none can be had, or where
    another process has it for too long.
    """
    if str(folder) in _held:
        return None  # for the function that this one is compiled for
    try:
        number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None
    if not _wait(number):
        os.close(number)
        return None
    _held.add(str(folder))
    return number


def _wait(number: int) -> bool:
    """Whether a file could be locked."""
    limit, reported = time.monotonic() + LONGEST, False
    while time.monotonic() < limit:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            for watcher in () if reported else _watchers:
                watcher(WAITING)
            reported = True
            time.sleep(LOOK)
        except OSError:  # a file system without locks
            return False
    return False
