"""Every peer on every task, in one process and in turns: speed, accuracy and memory.

The rows of a task are cut into rounds. In each round every peer learns the same rows, one peer
after the other, so that whatever else the machine does meets all of them; ratios are medians of
ratios within a round. Before that every peer has learned some rows for nothing (imports, compiled
code), and some more for the measurement of memory. Everybody has one thread: those of linear
algebra libraries wait for each other on a busy machine, and would measure that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dokl.base.arrays import Array
from dokl.base.errors import DoklError, UnknownName
from dokl.paper.bench import tasks
from dokl.paper.bench.memory import peak_growth
from dokl.paper.bench.peers import BATCH, FAMILIES, NOT_INSTALLED, PEERS, Peer, Run
from dokl.paper.bench.tasks import Task

ROUNDS = 12  # about
WARM_UP = 64


@dataclass(frozen=True)
class Result:
    """One peer on one task; None where there is nothing to measure."""

    peer: str
    family: str
    version: str
    fed: str
    settings: str
    rows: int
    samples_per_second: float
    times_dokl: float  # its time over dokl's, fed alike: one by one, or in batches
    prequential: float | None
    test: float | None
    model_bytes: int
    peak_rss_growth: int | None


@dataclass(frozen=True)
class Comparison:
    """All peers on one task; what failed, and why."""

    task: Task
    results: list[Result]
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass
class _Entry:
    """A peer, its run, and what it did so far."""

    peer: Peer
    rows: int
    rss: int | None
    run: Run
    seconds: list[float] = field(default_factory=list)  # per row, one number a round
    predictions: list[Array] = field(default_factory=list)

    def learn(self, start: int, stop: int) -> None:
        stop = min(stop, self.rows)
        if self.peer.fed == "all at once":
            start, stop = (0, self.rows) if start == 0 else (0, 0)
        if start >= stop:
            return
        began = time.perf_counter()
        found = self.run.feed(start, stop)
        self.seconds.append((time.perf_counter() - began) / (stop - start))
        if found is not None:
            self.predictions.append(found)


def side_by_side(
    names: Sequence[str], families: Sequence[str], rows: int | None, tests: int,
    data_dir: object = None, report: Callable[[str], None] = lambda word: None,
) -> tuple[list[Comparison], dict[str, str]]:  # fmt: skip
    """Compare on these data sets; also what was skipped, and why."""
    peers, skipped = installed(families)
    wanted = []
    for name in names:
        try:
            wanted.append(tasks.load(name, rows, tests, data_dir))
        except UnknownName:
            raise
        except DoklError as error:
            skipped[name] = str(error)
    return [compare(task, peers, report) for task in wanted], skipped


def installed(families: Sequence[str]) -> tuple[list[Peer], dict[str, str]]:
    """The peers of these families that are there, dokl first; a reason for each that is not."""
    for family in families:
        if family not in FAMILIES:
            raise UnknownName("peer", family, FAMILIES)
    peers = [peer for peer in PEERS if peer.family == "dokl" or peer.family in families]
    missing = {peer.package for peer in peers if not peer.installed}
    there = [peer for peer in peers if peer.package not in missing]
    return there, {peer.name: NOT_INSTALLED for peer in peers if peer.package in missing}


def rounds_of(n: int) -> list[tuple[int, int]]:
    """Whole batches, a dozen rounds or fewer.

    >>> rounds_of(600)
    [(0, 256), (256, 512), (512, 600)]
    """
    length = BATCH * max(1, math.ceil(n / (ROUNDS * BATCH)))
    return [(i, min(n, i + length)) for i in range(0, n, length)]


def compare(
    task: Task, peers: Sequence[Peer], report: Callable[[str], None] = lambda word: None
) -> Comparison:
    """Run the peers that suit the task; the first of them is dokl, in batches."""
    skipped: dict[str, str] = {}
    with threadpool_limits(1):
        entries = _all_prepared(task, peers, skipped, report)
    with threadpool_limits(1):  # once more: by now all libraries are loaded
        for start, stop in rounds_of(len(task.learn)):
            report(f"{task.name}: rows {start:,} to {stop:,}")
            for entry in entries:
                _attempt(skipped, entry.peer, entry.learn, start, stop)
        results = []
        for entry in entries:
            result = _attempt(skipped, entry.peer, _result, task, entry, entries)
            results += [] if result is None else [result]
            entry.run.close()
    return Comparison(task, results, skipped)


def _all_prepared(
    task: Task, peers: Sequence[Peer], skipped: dict[str, str], report: Callable[[str], None]
) -> list[_Entry]:
    entries = []
    for peer in peers:
        if peer.suits(task):
            report(f"{task.name}: {peer.name}, warming up")
            entry = _attempt(skipped, peer, _prepared, peer, task)
            entries += [] if entry is None else [entry]
    return entries


def _attempt(skipped: dict[str, str], peer: Peer, action: Callable[..., Any], *args: object) -> Any:
    """Do it, unless the peer failed before; its failure must not take the others' results along."""
    if peer.name in skipped:
        return None
    try:
        return action(*args)
    except Exception as error:
        if peer.family == "dokl":
            raise
        skipped[peer.name] = f"failed: {type(error).__name__}: {error}"
        return None


def _prepared(peer: Peer, task: Task) -> _Entry:
    """Warm up, measure memory, and start afresh."""
    rows = min(len(task.learn), peer.most or len(task.learn))
    more = rows if peer.fed == "all at once" else min(rows, rounds_of(rows)[0][1])
    trial = peer.start(task)
    trial.feed(0, min(rows, WARM_UP))
    trial.close()

    def learn() -> None:
        trial = peer.start(task)
        trial.feed(0, more)
        trial.close()

    return _Entry(peer, rows, peak_growth(learn), peer.start(task))


def _result(task: Task, entry: _Entry, entries: Iterable[_Entry]) -> Result:
    fed_alike = [e for e in entries if e.peer.family == "dokl" and e.peer.fed == entry.peer.fed]
    dokl = fed_alike[0] if fed_alike else next(e for e in entries if e.peer.family == "dokl")
    mine, ours = np.array(entry.seconds), np.array(dokl.seconds)
    same = min(len(mine), len(ours))
    ratio = np.median(mine[:same] / ours[:same]) if fed_alike else mine[0] / np.median(ours)
    prequential = None
    if entry.predictions:
        before = np.concatenate(entry.predictions)
        prequential = task.score(before, task.learn.y[: len(before)])
    peer = entry.peer
    return Result(
        peer=peer.name,
        family=peer.family,
        version=peer.version,
        fed=peer.fed,
        settings=peer.settings,
        rows=entry.rows,
        samples_per_second=float(1 / np.median(mine)),
        times_dokl=float(ratio),
        prequential=prequential,
        test=task.score(entry.run.predict(), task.test.y),
        model_bytes=entry.run.size(),
        peak_rss_growth=entry.rss,
    )
