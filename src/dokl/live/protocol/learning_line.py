"""Batches of rows that wait to be learned by the network's bank, in the order in which they came.

Only a few of each origin are in line, and its next one joins when one of them is learned: an
origin that sends much can delay others by that, and not crowd them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import DoklError
from dokl.learning.squares.blocks import NotDefinite
from dokl.live.protocol.batches import Context, read_rows
from dokl.live.protocol.logs import OriginLog
from dokl.live.rows import RowsLearner
from dokl.network.state import State

LINE = 64  # batches of one origin that wait before others' have their turn
LINE_ROWS = 2048  # rows of one origin after which none of its batches joins the line
CHUNK = 256  # rows of several batches that are learned by one call, at most
LATE_SECONDS = 300.0  # after which rows are too old for short memories
MOST_PASSED = 3  # origins whose rows fail in turn, none learned between: whose fault is unknown
OF_ROWS = (DoklError, ArithmeticError, ValueError, np.linalg.LinAlgError, NotDefinite)


@dataclass(frozen=True)
class LearningLine:
    """waiting: (origin, number of the first row, whether it is late). lined: up to which row of
    each origin batches are in it. skipped: rows of each origin that were gone before their turn.
    failed: rows of each origin that could not be learned. passed: origins whose batches failed
    since one was learned. aside: origins that are not in line for a while, since it is unknown
    whose fault it is that their next batch fails: the number of its first row, and why.
    """

    waiting: tuple[tuple[str, int, bool], ...] = ()
    lined: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    aside: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def line_up(
    line: LearningLine, name: str, log: OriginLog, next_rows: Mapping[str, int], wall: float
) -> LearningLine:
    """With the next batch of an origin, unless enough of its batches wait; next_rows: the next row
    of each origin that is to be learned; wall: seconds since 1970.
    """
    waiting = [first for origin, first, _ in line.waiting if origin == name]
    lined = line.lined.get(name, 0)
    i = log.at(max(lined, next_rows.get(name, 0), log.base))
    if len(waiting) >= LINE or i == len(log.batches) or name in line.aside:
        return line
    if waiting and lined - waiting[0] >= LINE_ROWS:
        return line
    batch = log.batches[i]
    late = batch.until < wall - LATE_SECONDS
    more = (*line.waiting, (name, batch.first, late))
    return replace(line, waiting=more, lined={**line.lined, name: batch.end})


def line_up_all(
    logs: Mapping[str, OriginLog], next_rows: Mapping[str, int], wall: float
) -> LearningLine:
    """What is in the logs and not learned, by its time."""
    line = LearningLine()
    every = [batch for log in logs.values() for batch in log.batches]
    for batch in sorted(every, key=lambda each: (each.until, each.origin, each.first)):
        if batch.end > next_rows.get(batch.origin, 0):
            line = line_up(line, batch.origin, logs[batch.origin], next_rows, wall)
    return line


def cut(line: LearningLine, name: str, number: int) -> LearningLine:
    """Without batches of an origin from a number on: there are others in their place."""
    waiting = tuple(each for each in line.waiting if each[0] != name or each[1] < number)
    lined = {**line.lined, name: min(line.lined.get(name, number), number)}
    return replace(line, waiting=waiting, lined=lined)


def learn_next(
    line: LearningLine,
    logs: Mapping[str, OriginLog],
    learner: RowsLearner,
    state: State,
    context: Context,
    wall: float,
    most: int = CHUNK,
) -> tuple[LearningLine, State, int, str]:
    """The line without its first batches; the state that has learned them, together; how many rows
    that were, at most about n, and why they could not be learned. Where several cannot, the first
    is learned alone; one that cannot even then is passed over, so that it does not keep those after
    it from being learned. After what rows cannot cause, or what befalls the rows of several origins
    in turn, none is lost: the origin is put aside (0 rows), and the others have their turn.
    """
    name, first, _ = line.waiting[0]
    count, rows = 1, 0
    if first < logs.get(name, OriginLog()).base:  # those after it may be there
        line, state = _skip(line, learner, state, name, first, logs[name].base)
    else:
        count = _together(line, logs, min(most, CHUNK))
        try:
            state, rows = _learn(line.waiting[:count], logs, learner, state, context)
            line = replace(line, passed=frozenset()) if rows else line
        except Exception as error:
            if count > 1:
                return learn_next(line, logs, learner, state, context, wall, 1)
            return _pass_over(line, logs[name], learner, state, wall, error)
    learned, line = line.waiting[:count], replace(line, waiting=line.waiting[count:])
    for name, _, _ in learned:
        if name in logs:
            line = line_up(line, name, logs[name], learner.next_rows(state), wall)
    return line, state, rows, ""


def readmit(
    line: LearningLine,
    logs: Mapping[str, OriginLog],
    learner: RowsLearner,
    state: State,
    wall: float,
) -> tuple[LearningLine, State]:
    """The line with those in it that were put aside; rows that went meanwhile are skipped."""
    aside, line = line.aside, replace(line, aside={})
    for name in sorted(aside.keys() & logs.keys()):
        if aside[name][0] < logs[name].base:
            line, state = _skip(line, learner, state, name, aside[name][0], logs[name].base)
        for _ in range(LINE):
            line = line_up(line, name, logs[name], learner.next_rows(state), wall)
    return line, state


def _pass_over(
    line: LearningLine,
    log: OriginLog,
    learner: RowsLearner,
    state: State,
    wall: float,
    error: Exception,
) -> tuple[LearningLine, State, int, str]:
    """The same, where the first batch cannot be learned alone: without it, or with its origin put
    aside, whose batches are lined up again when it is readmitted.
    """
    name, first, _ = line.waiting[0]
    why = f"{type(error).__name__}: {error}"
    line = replace(line, passed=line.passed | {name})
    if len(line.passed) >= MOST_PASSED or not isinstance(error, OF_ROWS):
        aside = {**line.aside, name: (first, why)}
        return replace(cut(line, name, first), aside=aside), state, 0, why
    end = log.batches[log.at(first)].end
    rows = end - max(learner.next_rows(state).get(name, 0), first)
    line = replace(line, waiting=line.waiting[1:], failed=_more(line.failed, name, rows))
    state = learner.receive_from(state, name, end)
    return line_up(line, name, log, learner.next_rows(state), wall), state, rows, why


def _skip(
    line: LearningLine, learner: RowsLearner, state: State, name: str, first: int, base: int
) -> tuple[LearningLine, State]:
    """The rows of an origin from `first` to `base` are no longer kept: it goes on after them."""
    known = learner.next_rows(state).get(name, 0)
    gone = max(0, base - max(known, first))
    state = learner.receive_from(state, name, max(known, base))
    return replace(line, skipped=_more(line.skipped, name, gone)), state


def _more(counts: Mapping[str, int], name: str, rows: int) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + rows}


def _together(line: LearningLine, logs: Mapping[str, OriginLog], most: int) -> int:
    """How many of the first batches are learned by one call, which takes about half as long a row
    as a call for each: those that are kept and alike in being late, of at most n rows; or one.
    """
    rows, late = 0, line.waiting[0][2]
    for i, (name, first, is_late) in enumerate(line.waiting):
        log = logs.get(name, OriginLog())
        at = log.at(first)
        rows += log.batches[at].n if at < len(log.batches) else 0
        if i and (rows > most or is_late != late or first < log.base):
            return i
    return len(line.waiting)


def _learn(
    waiting: Sequence[tuple[str, int, bool]],
    logs: Mapping[str, OriginLog],
    learner: RowsLearner,
    state: State,
    context: Context,
) -> tuple[State, int]:
    done, parts = dict(learner.next_rows(state)), list[tuple[str, Array, Array, int]]()
    for name, first, _ in waiting:
        log = logs.get(name, OriginLog())
        i = log.at(first)
        if i == len(log.batches):
            continue
        batch = log.batches[i]
        start = max(0, done.get(name, 0) - batch.first)
        if start < batch.n:
            X, Y = read_rows(context, batch)
            parts.append((name, X[start:], Y[start:], batch.end))
            done[name] = batch.end
    if not parts:
        return state, 0
    state = learner.receive(state, parts, waiting[0][2])
    return state, sum(len(X) for _, X, _, _ in parts)
