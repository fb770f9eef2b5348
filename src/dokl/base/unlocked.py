"""Functions of BLAS and LAPACK that let other threads run meanwhile.

`scipy.linalg.blas` and `lapack` hold the interpreter's lock while they compute, so experts in
several threads would wait for each other. The same functions of the same library are called here
through ctypes, which lets go of it. Matrices are float64 in Fortran's order, of which the lower
triangle counts.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from threading import Event, Lock, local
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dokl.base.arrays import Array

if TYPE_CHECKING:
    Number = ctypes.c_int | ctypes.c_double | ctypes.c_char

_ONE, _ZERO = ctypes.c_double(1.0), ctypes.c_double(0.0)
_LEFT, _RIGHT, _LOWER = ctypes.c_char(b"L"), ctypes.c_char(b"R"), ctypes.c_char(b"L")
_STEP = ctypes.c_int(1)
_BY_THREAD = ("openblas", "openmp")
_PLAIN, _TRANSPOSED = ctypes.c_char(b"N"), ctypes.c_char(b"T")


class Library(Protocol):
    """A linear algebra library, as threadpoolctl controls it."""

    @property
    def num_threads(self) -> int:
        """How many it uses."""

    def set_num_threads(self, num_threads: int) -> None:
        """Have it use n."""


@contextmanager
def one_thread() -> Iterator[None]:
    """While this lasts, a product runs in the thread that asks for it. Many small ones are many
    times slower in several threads, which wait for each other, above all where cores are shared.
    Also a decorator, which does nothing before the first call.

    The first to enter sets the limit, and the last to leave lifts it. Each by itself, two
    threads at once would restore the one thread that the other had set.
    """
    shared, own = _libraries()
    with _lock:
        _come(_everybody, shared)
    _come(_this_thread, own)
    try:
        yield
    finally:
        _leave(_this_thread, own)
        with _lock:
            _leave(_everybody, shared)


class GivenUp(Exception):
    """Nobody waits for this result any more."""


@contextmanager
def threads(count: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` on n threads. Where the waiting thread is interrupted, by Ctrl-C say, what runs in
    them ends at its next factorisation instead of its own end, which may be seconds away.
    """
    left = Event()

    def run(function: Callable[..., Any], *items: object) -> Any:
        _waiting.left = left
        return function(*items)

    with ThreadPoolExecutor(count) as pool:
        try:
            yield lambda function, *items: pool.map(partial(run, function), *items)
        except BaseException:
            left.set()
            raise


_waiting = local()


class _Inside:
    """How many are in `one_thread`, and how many threads libraries had before the first of them."""

    count = 0
    before: tuple[int, ...] = ()


class _OwnInside(_Inside, local):
    """The same of each thread."""


_lock, _everybody, _this_thread = Lock(), _Inside(), _OwnInside()


def _come(inside: _Inside, libraries: Sequence[Library]) -> None:
    if not inside.count:
        inside.before = tuple(library.num_threads for library in libraries)
        _set_threads(libraries, [1] * len(libraries))
    inside.count += 1


def _leave(inside: _Inside, libraries: Sequence[Library]) -> None:
    inside.count -= 1
    if not inside.count:
        _set_threads(libraries, inside.before)


def _set_threads(libraries: Sequence[Library], numbers: Sequence[int]) -> None:
    for library, number in zip(libraries, numbers, strict=True):
        # From 3.8 on threadpoolctl heeds one thread alone, and ignores the one that leaves last.
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)
        library.set_num_threads(number)
        if release is not None:
            release()


def _forked() -> None:
    """In a child process the other threads are gone, and will neither leave nor free the lock."""
    global _lock
    _lock, everybody = Lock(), _everybody.count
    _everybody.count = _this_thread.count
    if everybody and not _everybody.count:
        _set_threads(_libraries()[0], _everybody.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@cache
def _libraries() -> tuple[list[Library], list[Library]]:
    """The linear algebra libraries: those whose limit is the process's, and those (OpenBLAS on
    OpenMP) where each thread has its own. To look for them takes longer than to learn a row.
    """
    import scipy.linalg.blas  # noqa: F401  which brings its own
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    found = [each for each in found if each.num_threads is not None]
    own = [each for each in found if (each.internal_api, each.threading_layer) == _BY_THREAD]
    return [each for each in found if each not in own], own


@lru_cache(maxsize=8)
def _function(name: str, arguments: int) -> Callable[..., None]:
    """A function of BLAS or LAPACK from the tables that SciPy offers to compiled code."""
    from scipy.linalg import cython_blas, cython_lapack

    known = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}
    capsule, api = known[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _at(a: Array) -> int:
    return int(a.ctypes.data)


def _ref(value: Number) -> object:
    return ctypes.byref(value)


def potrf(A: Array) -> bool:
    """The Cholesky factor of A: (n, n) in Fortran's order, over its lower triangle; whether there
    is one: A must be positive definite.
    """
    left: Event | None = getattr(_waiting, "left", None)
    if left is not None and left.is_set():
        raise GivenUp
    n, info = ctypes.c_int(len(A)), ctypes.c_int()
    _function("dpotrf", 5)(_ref(_LOWER), _ref(n), _at(A), _ref(n), _ref(info))
    return info.value == 0


def potri(C: Array) -> None:
    """The inverse of C C' over the lower triangle of C, which `potrf` made."""
    n, info = ctypes.c_int(len(C)), ctypes.c_int()
    _function("dpotri", 5)(_ref(_LOWER), _ref(n), _at(C), _ref(n), _ref(info))


def symm(factor: float, P: Array, Z: Array) -> Array:
    """factor P Z': (D, B) for P: (D, D) symmetric and Z: (B, D) in C's order."""
    Z = np.ascontiguousarray(Z, np.float64)
    B, D = Z.shape
    out = np.empty((D, B), order="F")
    n, k, a = ctypes.c_int(D), ctypes.c_int(B), ctypes.c_double(factor)
    _function("dsymm", 12)(
        _ref(_LEFT), _ref(_LOWER), _ref(n), _ref(k), _ref(a), _at(P), _ref(n), _at(Z), _ref(n),
        _ref(_ZERO), _at(out), _ref(n),
    )  # fmt: skip
    return out


def syrk(factor: float, W: Array, keep: float, P: Array) -> None:
    """P <- keep P + factor W'W in place, its lower triangle; W: (n, D) in C's order."""
    W = np.ascontiguousarray(W, np.float64)
    k, D = W.shape
    n, inner = ctypes.c_int(D), ctypes.c_int(k)
    a, b = ctypes.c_double(factor), ctypes.c_double(keep)
    _function("dsyrk", 10)(
        _ref(_LOWER), _ref(_PLAIN), _ref(n), _ref(inner), _ref(a), _at(W), _ref(n), _ref(b), _at(P),
        _ref(n),
    )  # fmt: skip


def trsm_right(C: Array, H: Array) -> None:
    """H <- H C^-T in place; C: (B, B) lower, H: (D, B) in Fortran's order."""
    D, B = H.shape
    n, k = ctypes.c_int(D), ctypes.c_int(B)
    _function("dtrsm", 11)(
        _ref(_RIGHT), _ref(_LOWER), _ref(_TRANSPOSED), _ref(_PLAIN), _ref(n), _ref(k), _ref(_ONE),
        _at(C), _ref(k), _at(H), _ref(n),
    )  # fmt: skip


def trsm_left(factor: float, L: Array, K: Array) -> None:
    """K <- factor L^-1 K in place; K: (M, n) in Fortran's order, L: lower, its first M rows and
    columns, as they lie in a larger one.
    """
    M, n = K.shape
    rows, columns, a = ctypes.c_int(M), ctypes.c_int(n), ctypes.c_double(factor)
    apart = ctypes.c_int(len(L))
    if n == 1:  # trsm packs the whole triangle before it begins
        _function("dtrsv", 8)(
            _ref(_LOWER), _ref(_PLAIN), _ref(_PLAIN), _ref(rows), _at(L), _ref(apart), _at(K),
            _ref(_STEP),
        )  # fmt: skip
        K *= factor
        return
    _function("dtrsm", 11)(
        _ref(_LEFT), _ref(_LOWER), _ref(_PLAIN), _ref(_PLAIN), _ref(rows), _ref(columns), _ref(a),
        _at(L), _ref(apart), _at(K), _ref(rows),
    )  # fmt: skip
