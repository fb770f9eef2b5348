"""The loop: change, read, and keep what should not have happened."""

import gc
import random
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dokl.base.errors import DoklError

FOUND = Path(__file__).parent / "found"
SECONDS = 10.0  # of processor time for one input
MEGABYTES = 400  # that the process may grow by with one input
LONGEST = 3000  # characters of a message


class TookLong(BaseException):
    """Not an Exception: nothing that is fuzzed may catch it."""


@dataclass
class Target:
    """What is fuzzed: `make(rng)` gives an input as bytes, `read(data)` reads it.

    valid: inputs in which nothing is changed, which must be accepted.
    """

    name: str
    make: Callable[[random.Random], bytes]
    read: Callable[[bytes], None]
    valid: Sequence[bytes] = ()


@dataclass
class Finding:
    target: str
    data: bytes
    text: str
    error: BaseException | None = None

    def save(self, folder=FOUND):
        """The input as a file, to be read again."""
        place = Path(folder) / self.target
        place.mkdir(parents=True, exist_ok=True)
        path = place / sha256(self.data).hexdigest()[:12]
        path.write_bytes(self.data)
        return path


@contextmanager
def limited(seconds):
    """Raises TookLong after this much processor time, where the system has such a clock."""

    def stop(number, frame):
        raise TookLong(f"more than {seconds:g} seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def examine(target, data, seconds=SECONDS):
    """A finding, or None where this input is accepted or rejected as it should be."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with limited(seconds):
            target.read(data)
    except DoklError as error:
        text = str(error)
        if not text.strip() or "\n" in text.strip() or len(text) > LONGEST:
            return Finding(target.name, data, f"not one line: {text[:200]!r}", error)
    except Exception as error:
        return Finding(target.name, data, f"{type(error).__name__}: {str(error)[:200]}", error)
    except TookLong as error:
        return Finding(target.name, data, str(error), error)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if grown > MEGABYTES:
        return Finding(target.name, data, f"the process grew by {grown:,.0f} MB")
    return None


def fuzz(target, runs=None, seconds=None, seed=0, most=1):
    """(inputs tried, findings): `runs` inputs, or as many as fit into some seconds.

    The n-th input of a seed is the same in every run. most: stop after that many findings; of
    those with the same text one is kept.
    """
    found, n, end = {}, 0, None if seconds is None else time.monotonic() + seconds
    while (runs is None or n < runs) and (end is None or time.monotonic() < end):
        finding = examine(target, target.make(random.Random(f"{target.name} {seed} {n}")))
        n += 1
        if n % 200 == 0:
            gc.collect()
        if finding is not None:
            found.setdefault(_place_of(finding), finding)
        if len(found) >= most:
            break
    return n, list(found.values())


def _place_of(finding):
    """Where it was raised: findings of one place are one."""
    trace = finding.error.__traceback__ if finding.error is not None else None
    at = ""
    while trace is not None:
        at, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return finding.text[:40], at
