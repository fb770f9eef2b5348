"""Work in the background: who does it, what is raised, exits, forks and copies."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

from dokl.base import background, unlocked
from dokl.base.background import Task, reserve


def task(function, size=1.0):
    return Task(lambda each: function(), reserve(size, 1e9))


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """Nobody else's work is under way, or holds memory."""
    background.wait_until_idle()
    monkeypatch.setattr(background._shared, "reserved", weakref.WeakSet())


def test_the_background_works_in_order_and_one_thread_does_all_of_it():
    gate, seen = threading.Event(), []
    first = task(lambda: gate.wait(60) and seen.append(threading.current_thread()))
    others = [task(lambda i=i: seen.append((i, threading.current_thread()))) for i in range(3)]
    for each in (first, *others):
        each.begin()
        each.begin()  # once is enough
    gate.set()
    others[-1].wait(60)
    worker = seen[0]
    assert seen == [worker, *((i, worker) for i in range(3))]
    assert worker is not threading.current_thread()
    worker.join(60)
    assert not worker.is_alive()  # with nothing left to do


def test_whoever_needs_what_nobody_has_begun_does_it():
    gate, here = threading.Event(), threading.current_thread()
    busy, queued, never = task(lambda: gate.wait(60)), task(threading.current_thread), None
    busy.begin()
    queued.begin()
    assert queued.result() is here
    assert queued.result() is here
    never = Task(lambda each: threading.current_thread(), None)  # too large to begin
    never.begin()
    never.wait(60)  # nobody would come
    assert never.result() is here
    gate.set()


def test_an_error_is_raised_where_the_result_is_needed_and_the_next_call_tries_again():
    tries = []

    def fails_once():
        tries.append(threading.current_thread())
        if len(tries) == 1:
            raise MemoryError("no room")
        return 7

    failing = task(fails_once)
    failing.begin()
    failing.wait(60)
    with pytest.raises(MemoryError, match="no room"):
        failing.result()
    assert failing.result() == 7
    assert tries[1] is threading.current_thread() is not tries[0]


def test_what_nobody_holds_any_more_is_not_done():
    gate, done = threading.Event(), []
    busy, dropped = task(lambda: gate.wait(60)), task(lambda: done.append(1))
    busy.begin()
    dropped.begin()
    del dropped
    gc.collect()
    gate.set()
    background.wait_until_idle()
    assert not done


def test_memory_is_reserved_as_long_as_a_task_holds_it():
    gc.collect()
    large = Task(lambda each: 1, reserve(600.0, 1000.0))
    assert large.holds is not None
    assert reserve(600.0, 1000.0) is None
    shared = copy.deepcopy(large)
    del large
    assert reserve(600.0, 1000.0) is None
    assert shared.result() == 1
    del shared
    gc.collect()
    assert reserve(600.0, 1000.0) is not None


def test_a_copy_shares_the_task_and_a_pickled_one_begins_again():
    one = task(lambda: 5)
    assert copy.deepcopy([one])[0] is one
    assert pickle.loads(pickle.dumps([one])) == [None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_the_work_itself_and_no_lock_is_held_there():
    parent, gate = os.getpid(), threading.Event()

    def work():
        with unlocked.one_thread():
            if os.getpid() == parent:
                gate.wait(60)
        return os.getpid()

    running, queued = task(work), task(work)
    running.begin()
    queued.begin()
    while not unlocked._everybody.count:  # the thread is inside
        time.sleep(0.001)
    with background._shared.lock, unlocked._lock:  # as another thread may at that moment
        child = os.fork()
        if not child:
            signal.alarm(60)
            mine = running.result() == queued.result() == os.getpid()
            os._exit(0 if mine and not unlocked._everybody.count else 1)
    gate.set()
    assert os.waitpid(child, 0)[1] == 0
    assert running.result() == parent


def test_an_interrupt_of_whoever_does_the_work_leaves_it_to_the_next(monkeypatch):
    one, run = Task(lambda each: 5, None), Task._run

    def interrupted(self, each):
        raise KeyboardInterrupt

    monkeypatch.setattr(Task, "_run", interrupted)  # outside of the function itself
    with pytest.raises(KeyboardInterrupt):
        one.result()
    monkeypatch.setattr(Task, "_run", run)
    assert one.result() == 5
    one._finished = threading.Event()  # as in a child that was forked before this was set
    one.wait(60)
    assert one.result() == 5


EXIT = """
import time
import numpy as np
from dokl.base.background import Task, reserve

def long(each):
    A = np.eye(50)
    while True:
        A = A @ A

task, later = Task(long, reserve(1, 9)), Task(long, reserve(1, 9))
task.begin()
later.begin()
task.wait(0.2)
print(time.time())
"""


def test_the_interpreter_exits_while_there_is_work():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=300)
    assert time.time() - float(done.stdout) < 60  # the work has no end
    assert (done.returncode, done.stderr) == (0, "")
