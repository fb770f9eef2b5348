"""Batches of rows that wait to be learned by the network's bank, in the order in which they came.

Of each origin only so many are in line, and its next one joins when one of them is learned: an
origin that sends much can delay others by that, and not crowd them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dokl.live.protocol.batches import Context, read_rows
from dokl.live.protocol.logs import OriginLog
from dokl.live.rows import RowsLearner
from dokl.network.state import State

LINE = 64  # batches of one origin that wait before others' have their turn
LATE_SECONDS = 300.0  # after which rows are too old for short memories
CHUNK = 8  # rows that are learned in one call


@dataclass(frozen=True)
class LearningLine:
    """waiting: (origin, number of the first row, whether it is late). lined: up to which row of
    each origin batches are in it. skipped: rows of each origin that were gone before their turn.
    """

    waiting: tuple[tuple[str, int, bool], ...] = ()
    lined: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)


def line_up(
    line: LearningLine, name: str, log: OriginLog, heard: Mapping[str, int], wall: float
) -> LearningLine:
    """With the next batch of an origin, unless enough of its batches wait; heard: the next row of
    each origin that is to be learned; wall: seconds since 1970.
    """
    waiting = sum(1 for origin, _, _ in line.waiting if origin == name)
    i = log.at(max(line.lined.get(name, 0), heard.get(name, 0), log.base))
    if waiting >= LINE or i == len(log.batches):
        return line
    batch = log.batches[i]
    late = batch.until < wall - LATE_SECONDS
    more = (*line.waiting, (name, batch.first, late))
    return replace(line, waiting=more, lined={**line.lined, name: batch.end})


def line_up_all(
    logs: Mapping[str, OriginLog], heard: Mapping[str, int], wall: float
) -> LearningLine:
    """What is in the logs and not learned, by its time."""
    line = LearningLine()
    every = [batch for log in logs.values() for batch in log.batches]
    for batch in sorted(every, key=lambda each: (each.until, each.origin, each.first)):
        if batch.end > heard.get(batch.origin, 0):
            line = line_up(line, batch.origin, logs[batch.origin], heard, wall)
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
) -> tuple[LearningLine, State, int]:
    """The line without its first batch; the state that has learned it; how many rows that were."""
    (name, first, late), *rest = line.waiting
    line, log = replace(line, waiting=tuple(rest)), logs.get(name, OriginLog())
    heard, rows = learner.heard(state).get(name, 0), 0
    if first < log.base:  # gone before its turn
        gone = max(0, log.base - max(heard, first))
        line = replace(line, skipped={**line.skipped, name: line.skipped.get(name, 0) + gone})
        state = learner.hear_from(state, name, max(heard, log.base))
    else:
        state, rows = _learn(log, first, late, learner, state, context)
    if name in logs:
        line = line_up(line, name, log, learner.heard(state), wall)
    return line, state, rows


def _learn(
    log: OriginLog, first: int, late: bool, learner: RowsLearner, state: State, context: Context
) -> tuple[State, int]:
    i = log.at(first)
    if i == len(log.batches):
        return state, 0
    batch = log.batches[i]
    start = max(0, learner.heard(state).get(batch.origin, 0) - batch.first)
    X, Y = read_rows(context, batch)
    for at in range(start, batch.n, CHUNK):
        end = min(at + CHUNK, batch.n)
        given = X[at:end], Y[at:end], batch.first + end, late
        state = learner.hear(state, batch.origin, *given)
    return state, max(0, batch.n - start)
