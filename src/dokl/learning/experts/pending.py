"""A pilot in the background: begun some rows before its map is adopted.

At row `begin_row` the rows kept so far are set aside, and a background thread learns scales from
them, makes maps, and lets new experts learn these rows. Rows that follow are learned by the experts
there are, and kept apart; every STEP of them the new experts learn them, too. At the row of the
pilot the new maps and experts take the place of the old ones. All of this depends on counts of rows
alone, so the model does as well, to the last bit. How fast rows come says only who waits: a row
that comes before there was time for its share of the work waits for the thread, a few hundredths of
a second each, so that no row has to wait for all of it.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dokl.base import background
from dokl.base.arrays import Array
from dokl.base.background import Each, Task
from dokl.base.unlocked import one_thread
from dokl.learning import scales
from dokl.learning.experts import copies
from dokl.learning.experts.bank import Bank, Pending, PilotMaps, matrix_bytes, start
from dokl.learning.experts.group_errors import begin_again
from dokl.learning.experts.kinds import begin_row, next_pilot
from dokl.learning.experts.pilots import residual_group_errors, run_pilot, start_over
from dokl.learning.experts.rows import PATIENCE, learn_rows

# Rows that the new experts learn at a time. At adoption they have fewer than these left to learn.
STEP = 32
# Seconds that the thread has for each row; from a share of the rows before adoption on, this many
# more. The last are for a machine that is too slow: many pauses of half a second, and no long one.
PACE = (0.0, 0.05), (0.5, 0.04), (0.75, 0.4)
# Newest rows of the sample whose errors long memories of groups begin with. That is done at the row
# of the pilot itself, and takes a tenth of a second.
LEFT_OVER = 2000
MOST_SECONDS = 1.0  # that one call waits
# What new experts may take in memory before they are adopted, those of all banks together. Beyond,
# the work is done when it is needed: a network of hundreds of nodes has pilots at the same step.
MOST_BYTES = 1e9


def rows_left(bank: Bank) -> int:
    """Rows before a pilot begins or, where one is pending, before its map is adopted."""
    seen = bank.seen
    pilot = next_pilot(bank.settings.pilots, seen)
    return pilot - seen if bank.pending is not None else max(1, begin_row(pilot) - seen)


def begin(bank: Bank) -> Bank:
    """The bank with a pilot pending, if it is time for one."""
    pilot = next_pilot(bank.settings.pilots, bank.seen)
    late = bank.pending is None and begin_row(pilot) <= bank.seen
    return _begin(bank) if late else bank


def _begin(bank: Bank) -> Bank:
    """With a pilot by the rows that are kept."""
    nothing = np.empty((0, bank.d)), np.empty((0, bank.m)), np.empty(0)
    return append(replace(bank, pending=Pending(*nothing)), *nothing)


def append(bank: Bank, X: Array, Y: Array, w: Array) -> Bank:
    """The bank with a pilot pending, after further rows, which its experts have learned."""
    pending = bank.pending
    assert pending is not None
    X, Y, w = map(np.concatenate, zip(pending.rows(), (X, Y, w), strict=True))
    more = Pending(X, Y, w)
    work, done = pending.work, len(pending.X) // STEP
    if work is None:  # it begins, or was read from a file
        work, done = _first(bank), 0
    for i in range(done, len(more.X) // STEP):
        work = _next(work, *more.rows(slice(i * STEP, (i + 1) * STEP)))
    return replace(bank, pending=replace(more, work=work))


def _first(bank: Bank) -> Task[Bank]:
    """New maps, and experts that have learned the rows that are kept."""
    empty = replace(start(bank.d, bank.m, bank.settings), kept=bank.kept)
    # The scales before are as good a start as any once they were learned from as many rows.
    before = bank.now if bank.seen >= scales.MOST else None
    size = matrix_bytes(bank.kinds, min(bank.settings.most, bank.kept.n))
    holds = background.reserve(size, MOST_BYTES)

    @one_thread()
    def made(each: Each) -> PilotMaps:
        return run_pilot(empty, *empty.kept.all(), each, before)

    @one_thread()
    def learned(each: Each) -> Bank:
        return start_over(empty, maps.result(each), each)

    # Two tasks: a caller that waits for the first can do the second on all cores.
    maps, work = Task(made, holds), Task(learned, holds)
    maps.begin()
    work.begin()
    return work


def _next(work: Task[Bank], X: Array, Y: Array, w: Array) -> Task[Bank]:
    """The same after further rows."""

    @one_thread()
    def learned(each: Each) -> Bank:
        return _after(work.result(each), X, Y, w, each)

    task = Task(learned, work.holds)
    task.begin()
    return task


def _after(bank: Bank, X: Array, Y: Array, w: Array, each: Each) -> Bank:
    """The bank with new maps after these rows; the bank that was given stays as it was."""
    now, own = bank.now, tuple(replace(memory, W=memory.W.copy()) for memory in bank.memories)
    assert now is not None
    bank = replace(bank, memories=own)
    return learn_rows(bank, now, range(len(own)), X, Y, w, each)[0] if len(X) else bank


def adopt(bank: Bank, each: Each) -> Bank:
    """The bank with the new map and experts, at the row of a pilot."""
    bank = _begin(bank) if bank.pending is None else bank
    pending = bank.pending
    assert pending is not None
    assert pending.work is not None
    last = slice(len(pending.X) // STEP * STEP, None)
    new = _after(pending.work.result(each), *pending.rows(last), each)
    names = "now", "memories", "sums", "awake", "surprise", "extent"
    fresh = {name: getattr(new, name) for name in names}
    # Who slept has up to the next check to be of use with the new map.
    fresh["idle"] = new.idle if bank.now is None else np.minimum(bank.idle, PATIENCE - 1)
    mended = bank.mended + new.mended
    bank = replace(bank, kept=bank.stored, pending=None, mended=mended, **fresh)
    bank = copies.no_more(bank)
    if bank.group_errors is None:
        return bank
    newest = [part[-LEFT_OVER:] for part in bank.kept.all()]
    errors = begin_again(bank.group_errors, residual_group_errors(bank, *newest))
    return replace(bank, group_errors=errors)


def give_time(bank: Bank, rows: int) -> None:
    """Wait for the thread where n rows came before there was time for their share of the
    work.
    """
    pending = bank.pending
    if pending is None or pending.work is None or pending.work.holds is None:
        return
    n, began = len(pending.X), bank.kept.seen
    whole = next_pilot(bank.settings.pilots, began) - began
    given = sum(seconds * max(0.0, n - share * whole) for share, seconds in PACE)
    longest = min(MOST_SECONDS, rows * sum(seconds for _, seconds in PACE))
    pending.work.wait(min(longest, pending.work.holds.began + given - time.monotonic()))


def cancel(bank: Bank) -> Bank:
    """The bank without a pilot that is pending, if there is one; all rows are kept."""
    return bank if bank.pending is None else replace(bank, kept=bank.stored, pending=None)
