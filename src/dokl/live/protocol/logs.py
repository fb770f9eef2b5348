"""The log of one origin: its sealed batches, each following on the one before.

What is kept is a stretch without gaps, the newest rows. Every batch names the hash of the one
before, so two logs agree up to a row or they do not. Where they do not (a fork: an origin that came
back from an old backup, say, and sealed other rows under the same numbers), the first batch in
which they differ decides, by its rank: the later incarnation counts. That is an order of all logs
of an origin, so nodes that exchange theirs end with the same one, whatever came in which order.

Nothing here looks at seals: who adds a batch has checked that its origin sealed it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dokl.live.protocol.batches import NOTHING, SealedBatch
from dokl.live.protocol.messages import mark_of

MOST_FORKS = 16  # of one origin that are followed; after that its log stays as it is
MOST_TOLD = 4096  # logs in a message
_VERSION = struct.Struct("<8sQQ8s")
_WANT = struct.Struct("<8s8s")
_POINT = struct.Struct("<Q8s")
POINTS = 24  # places of a log that a question names, at most


@dataclass(frozen=True)
class Version:
    """What a node has of an origin: rows base ... end - 1; tip: of the hash of the last batch."""

    base: int
    end: int
    tip: bytes


@dataclass(frozen=True)
class Fork:
    """Two different batches of an origin with the same number: which, and of which starts."""

    number: int
    incarnations: tuple[int, int]


@dataclass(frozen=True)
class OriginLog:
    """batches: the kept ones, in order. missing: rows before the first of them that this node
    never had, since it started; at most, where there are forks: their place may be unknown, and
    then all rows before the first count. forks: how often the origin was found to have sealed two
    batches of one number, and the last time that it did. lost: tips of logs that did not count,
    and batches with which they began to differ.
    """

    batches: tuple[SealedBatch, ...] = ()
    missing: int = 0
    forks: int = 0
    fork: Fork | None = None
    lost: tuple[bytes, ...] = ()

    @property
    def base(self) -> int:
        """The number of the first row that is kept."""
        return self.batches[0].first if self.batches else 0

    @property
    def end(self) -> int:
        """The number of the next row."""
        return self.batches[-1].end if self.batches else 0

    @property
    def tip(self) -> bytes:
        """The hash of the last batch."""
        return self.batches[-1].hash if self.batches else NOTHING

    @property
    def version(self) -> Version:
        """In short, for neighbours."""
        return Version(self.base, self.end, self.tip[:8])

    def at(self, number: int) -> int:
        """The place of the batch that has row `number`; len(batches) where none has."""
        if not self.batches or number >= self.end:
            return len(self.batches)
        return max(0, bisect_right(self.batches, number, key=lambda batch: batch.first) - 1)

    def has(self, end: int, tip: bytes) -> bool:
        """Whether a batch here ends with this number and hash."""
        i = self.at(end - 1) if 0 < end <= self.end else len(self.batches)
        if i == len(self.batches):
            return False
        return self.batches[i].end == end and self.batches[i].hash[: len(tip)] == tip


# -- adding ----------------------------------------------------------------------------------------
NEW, KNOWN, GAP, UNLIKE, BEATEN, STUCK = "new", "known", "gap", "unlike", "beaten", "stuck"
USELESS = frozenset((KNOWN, BEATEN, STUCK))  # the same comes of them when they come again


def add(
    log: OriginLog,
    batch: SealedBatch,
    most: int,
    over_gap: bool = False,
    first: bool = False,
    after: bytes = NOTHING,
) -> tuple[OriginLog, str]:
    """The log with a batch, and what became of that.

    NEW: it is the last one now; where it won a fork, in place of all from its number on. KNOWN: it
    was here. GAP: rows before it are missing. UNLIKE: it follows on a batch that is not here: the
    logs differ earlier. BEATEN: it lost a fork. STUCK: too many forks. most: rows that are kept.
    over_gap: take it although rows before it are missing: nobody has them. first: it is the first
    one of an answer, so that who answers has no place in common with this log or keeps none of what
    is before. after: the hash of the one before in that answer, where that was KNOWN.
    """
    if not log.batches:
        if batch.first and not over_gap and batch.before != NOTHING:
            return log, GAP
        return replace(log, batches=(batch,), missing=batch.first), NEW
    if batch.first == log.end:
        if batch.before != log.tip or batch.incarnation < log.batches[-1].incarnation:
            return _apart(log, batch, over_gap, first, after)
        return _trim(replace(log, batches=(*log.batches, batch)), most), NEW
    if batch.first > log.end:
        if not over_gap:
            return log, GAP
        if batch.incarnation < log.batches[-1].incarnation:
            return log, BEATEN
        missing = log.missing + batch.first - log.end
        return replace(log, batches=(batch,), missing=missing), NEW
    if batch.end <= log.base:
        if batch.incarnation <= log.batches[-1].incarnation:
            return log, KNOWN  # and no longer kept
        return _apart(log, batch, over_gap, first, after)
    return _against(log, batch, over_gap, first, after)


def _against(
    log: OriginLog, batch: SealedBatch, over_gap: bool, first: bool, after: bytes
) -> tuple[OriginLog, str]:
    """A batch with numbers of which there are others here: the same, or one of a fork."""
    i = log.at(batch.first)
    here = log.batches[i]
    if here.hash == batch.hash:
        return log, KNOWN
    if here.first != batch.first or here.before != batch.before:
        return _apart(log, batch, over_gap, first, after)
    fork = Fork(batch.first, (here.incarnation, batch.incarnation))
    if batch.rank < here.rank:
        seen = batch.hash[:8] in log.lost or log.forks >= MOST_FORKS
        return (log if seen else _noted(log, fork, batch.hash)), BEATEN
    if log.forks >= MOST_FORKS:
        return log, STUCK
    log = _noted(log, fork, log.tip, here.hash)
    return replace(log, batches=(*log.batches[:i], batch)), NEW


def _apart(
    log: OriginLog, batch: SealedBatch, over_gap: bool, first: bool, after: bytes
) -> tuple[OriginLog, str]:
    """A batch of a log that differs earlier. Incarnations only grow along a log, so a later start
    than that of the last batch here proves a fork: an origin that lost its journal, say. Where its
    place is not kept here, nobody can show which log counts there: that of the later start does, or
    the two would differ for ever. It begins with the batch that follows on known ones, or else with
    the first one that anybody has.
    """
    last = log.batches[-1]
    if batch.incarnation <= last.incarnation:
        return log, UNLIKE
    follows = batch.before in (NOTHING, after)
    if not follows and not (first and over_gap):
        return log, GAP if first else UNLIKE
    if log.forks >= MOST_FORKS:
        return log, STUCK
    missing = min(log.missing, batch.first) if follows else max(log.missing, batch.first)
    fork = Fork(batch.first, (last.incarnation, batch.incarnation))
    log = _noted(log, fork, log.tip, log.batches[0].hash)
    return replace(log, batches=(batch,), missing=missing), NEW


def _noted(log: OriginLog, fork: Fork, *losers: bytes) -> OriginLog:
    """losers: the tip of the log that does not count, or batches that show the same fork again
    when somebody sends them.
    """
    lost = (*log.lost, *(loser[:8] for loser in losers))[-2 * MOST_FORKS :]
    return replace(log, forks=log.forks + 1, fork=fork, lost=lost)


def _trim(log: OriginLog, most: int) -> OriginLog:
    """With at most n rows, the newest; a batch is kept or not, the last one always."""
    first = bisect_left(log.batches, log.end - most, key=lambda batch: batch.first)
    first = min(first, len(log.batches) - 1)
    return replace(log, batches=log.batches[first:]) if first else log


def restored(batches: Sequence[SealedBatch]) -> OriginLog:
    """The log of an origin that was stored: the last stretch without a gap."""
    start = 0
    for i in range(1, len(batches)):
        if (batches[i].first, batches[i].before) != (batches[i - 1].end, batches[i - 1].hash):
            start = i
    return OriginLog(tuple(batches[start:]))


# -- comparing -------------------------------------------------------------------------------------
def lacks(log: OriginLog, theirs: Version) -> bool:
    """Whether one with this version may have batches that belong here."""
    if theirs.end == 0 or theirs.tip in log.lost:
        return False
    return not log.has(theirs.end, theirs.tip)


def points(log: OriginLog) -> list[tuple[int, bytes]]:
    """Places of the log, from its end back, ever farther apart: (number, hash up to there)."""
    found, back = list[tuple[int, bytes]](), 1
    i = len(log.batches) - 1
    while i >= 0 and len(found) < POINTS - 2:  # one for what an answer showed
        found.append((log.batches[i].end, log.batches[i].hash[:8]))
        if len(found) >= 8:
            back *= 2
        i -= back
    if log.batches:
        found.append((log.base, log.batches[0].before[:8]))
    return found


def stretch(log: OriginLog, known: list[tuple[int, bytes]], most: int) -> list[SealedBatch]:
    """What follows here on the last of these places that both have; from the start where there is
    none. most: bytes after which there is no more.
    """
    start = 0
    for number, mark in sorted(known, reverse=True):
        if log.has(number, mark):
            start = log.at(number - 1) + 1
            break
        if log.batches and number == log.base and log.batches[0].before[:8] == mark:
            break
    found, size = list[SealedBatch](), 0
    for batch in log.batches[start:]:
        if size > most:
            break
        found.append(batch)
        size += batch.size
    return found


# -- as bytes --------------------------------------------------------------------------------------
def pack_versions(logs: Mapping[str, OriginLog]) -> bytes:
    """What a node has, for its neighbours."""
    named = sorted(name for name, log in logs.items() if log.batches)[:MOST_TOLD]
    every = ((name, logs[name].version) for name in named)
    return b"".join(_VERSION.pack(mark_of(name), v.base, v.end, v.tip) for name, v in every)


def unpack_versions(data: bytes) -> dict[bytes, Version]:
    """The same, by the marks of origins."""
    whole = data[: len(data) // _VERSION.size * _VERSION.size][: MOST_TOLD * _VERSION.size]
    return {mark: Version(*rest) for mark, *rest in _VERSION.iter_unpack(whole)}


def pack_want(peer: str, origin: bytes, known: list[tuple[int, bytes]]) -> bytes:
    """A question to a neighbour: what follows on these places of the log of an origin, by mark."""
    head = _WANT.pack(mark_of(peer), origin)
    return head + b"".join(_POINT.pack(number, mark) for number, mark in known[:POINTS])


def unpack_want(data: bytes) -> tuple[bytes, bytes, list[tuple[int, bytes]]] | None:
    """(whom, of whose log, places); None where it is no question."""
    rest = len(data) - _WANT.size
    if rest < 0 or rest % _POINT.size or rest // _POINT.size > POINTS:
        return None
    whom, origin = _WANT.unpack_from(data)
    return whom, origin, list(_POINT.iter_unpack(data[_WANT.size :]))
