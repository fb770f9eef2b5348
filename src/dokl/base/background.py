"""Work that a background thread does before it is needed.

A `Task` is a function that is called once. `begin` gives it to the background thread, which takes
tasks in the order in which they were begun. `result` waits for the one that is running, and calls
the function itself where nobody has begun: what comes out never depends on who computed it.

>>> task = Task(lambda each: sum(each(abs, [-1, 2])), reserve(8, most=1e9))
>>> task.begin()
>>> task.result()
3

One thread serves the whole process, and ends when there is nothing left to do. It never delays the
exit of the interpreter by more than one product of matrices. A forked child has no such thread and
begins unfinished tasks again. A copy of a record shares its task; a pickled one has None in its
place, since the work can be done again.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Generic, TypeVar

T = TypeVar("T")
# As `map`, perhaps on several cores.
Each = Callable[..., Iterable[Any]]

# How long the exit of the interpreter waits for the thread to end, at most.
EXIT_SECONDS = 2.0


class _State(Enum):
    NEW = 0
    QUEUED = 1
    RUNNING = 2
    FINISHED = 3


class _Shared:
    """What all tasks of a process share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queue: deque[weakref.ref[Task[Any]]] = deque()
        self.thread: threading.Thread | None = None
        self.reserved: weakref.WeakSet[Reservation] = weakref.WeakSet()


_shared = _Shared()


class _Exit(BaseException):
    """The interpreter exits: the thread is to end."""


class Reservation:
    """Memory that results of tasks take, given back when no task holds this any more; began: when
    it was made, by the clock `time.monotonic`.
    """

    def __init__(self, size: float) -> None:
        self.size, self.began = size, time.monotonic()


def reserve(size: float, most: float) -> Reservation | None:
    """N bytes, or None where all reservations together would take more than `most`."""
    with _shared.lock:
        if size + sum(each.size for each in _shared.reserved) > most:
            return None
        made = Reservation(size)
        _shared.reserved.add(made)
        return made


class Task(Generic[T]):
    """A function of an `Each`, called once, in the background or by the thread that needs its
    result. holds: what its result takes; a task without it is not begun in the background.
    """

    def __init__(self, function: Callable[[Each], T], holds: Reservation | None) -> None:
        self.holds = holds
        self._function: Callable[[Each], T] | None = function
        self._value: T | None = None
        self._renew()

    def _renew(self) -> None:
        self._error: BaseException | None = None
        self._state, self._process, self._finished = _State.NEW, os.getpid(), threading.Event()

    def begin(self) -> None:
        """Let the background thread do it, after what was begun before."""
        with _shared.lock:
            if self.holds is None or not self._is_new():
                return
            if _shared.thread is not None:
                self._state = _State.QUEUED
                _shared.queue.append(weakref.ref(self))
                return
            self._state = _State.RUNNING
            thread = threading.Thread(target=_work, args=(self,), name="pilots", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads: the caller that needs it does it
                self._state = _State.NEW
            else:
                _shared.thread = thread

    def wait(self, seconds: float) -> None:
        """Give the background thread so much time, less where it has finished or never began."""
        with _shared.lock:
            waits = not self._is_new() and self._state is not _State.FINISHED
        if waits and seconds > 0:
            self._finished.wait(seconds)

    def result(self, each: Each = map) -> T:
        """What the function returns; what it raised, and then the next call tries again."""
        mine = False
        try:
            with _shared.lock:
                mine = self._claim()
            if mine:
                self._run(each)
        except BaseException:  # an interrupt between its lines: somebody else may try again
            if mine and self._state is not _State.FINISHED:
                self._renew()
            raise
        if self._state is not _State.FINISHED:  # a fork may come between state and event
            self._finished.wait()
        with _shared.lock:
            error = self._error
            if error is not None:
                self._renew()
        if error is not None:
            raise error
        return self._value  # type: ignore[return-value]

    def _is_new(self) -> bool:
        """Whether nobody has begun, in this process."""
        if self._process != os.getpid() and self._state is not _State.FINISHED:
            self._renew()
        return self._state is _State.NEW

    def _claim(self) -> bool:
        """Whether the caller is to run it; the lock is held."""
        if not self._is_new() and self._state is not _State.QUEUED:
            return False
        self._state = _State.RUNNING
        return True

    def _run(self, each: Each) -> None:
        assert self._function is not None
        try:
            self._value = self._function(each)
        except _Exit:
            raise
        except BaseException as error:
            self._error = error
        self._state = _State.FINISHED
        self._finished.set()
        if self._error is None:
            self._function = None  # and all that it holds

    def __deepcopy__(self, memo: object) -> Task[T]:
        """Itself: what comes out is never written to."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """None."""
        return type(None), ()


def wait_until_idle() -> None:
    """Until everything that was begun is done."""
    thread = _shared.thread
    if thread is not None:
        thread.join()


def _work(task: Task[Any] | None) -> None:
    """The thread: this task, and then those of the queue that somebody still holds."""
    try:
        while task is not None:
            task._run(map)
            task = None
            with _shared.lock:
                while _shared.queue and task is None:
                    task = _shared.queue.popleft()()
                    task = task if task is not None and task._claim() else None
                if task is None:
                    _shared.thread = None
    except _Exit:
        pass


def _forked() -> None:
    """In a child process, which has no other threads, and perhaps a lock that one of them held."""
    global _shared
    _shared = _Shared()


def _end() -> None:
    """Have the thread end before the interpreter does. It would be killed inside a library."""
    thread, _shared.thread = _shared.thread, threading.current_thread()  # nobody begins any more
    if thread is not None and thread.ident is not None:
        raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raising(ctypes.c_ulong(thread.ident), ctypes.py_object(_Exit))
        thread.join(EXIT_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_end)
