"""Rows that are not learned, to score a model on: the last ones of a file, or some at random."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.random_numbers import uniforms
from dokl.tables.jobs.faults import OnError
from dokl.tables.jobs.predict import Evaluation, Watch, evaluate
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.stopping import stoppable
from dokl.tables.models import TableModel

_WRITTEN = re.compile(r"(last|random):\s*(\d+(?:\.\d+)?)\s*%")
_BLOCK = 4096


@dataclass(frozen=True)
class HoldOut:
    """Which share of a file's rows is held out: the "last" ones, or "random" ones.

    Random ones are drawn by the number of their line: the same every time, whoever reads the file.

    >>> HoldOut.of("last:20%").words
    'the last 20 % of the rows'
    """

    kind: str
    share: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read "last:20%" or "random:20%"."""
        found = _WRITTEN.fullmatch(text.strip())
        share = float(found[2]) / 100 if found else 0.0
        if found is None or not 0 < share < 1:
            raise BadInput(
                f"{text!r} does not say which rows are held out: write last:20% or random:20%"
            )
        return cls(found[1], share)

    @property
    def in_order(self) -> bool:
        """Whether the rows follow each other without gaps."""
        return self.kind == "last"

    @property
    def words(self) -> str:
        """Which rows these are."""
        percent = f"{100 * self.share:g} %"
        if self.kind == "last":
            return f"the last {percent} of the rows"
        return f"{percent} of the rows, drawn at random"

    def split(self, source: Source, watch: Watch | None = None) -> tuple[Source, Source]:
        """The rows to learn, and those that are held out. watch: called while rows are counted."""
        if self.kind == "random":
            held = self._drawn
        else:
            first = _first_line(source, self.share, watch)
            held = lambda lines: lines >= first  # noqa: E731
        options = source.options
        return (
            replace(source, options=replace(options, take=lambda lines: ~held(lines))),
            replace(source, options=replace(options, take=held)),
        )

    def _drawn(self, lines: Array) -> Array:
        """Whether each of these lines is held out: (n,)."""
        found = np.zeros(len(lines), bool)
        blocks = lines // _BLOCK
        for block in np.unique(blocks).tolist():
            here = blocks == block
            found[here] = _chances(block)[lines[here] % _BLOCK] < self.share
        return found


@lru_cache(maxsize=8)
def _chances(block: int) -> Array:
    return uniforms(0, ("held out", block), _BLOCK)


def check_file(source: Source) -> None:
    """Refuse to hold out rows of what can be read only once."""
    if source.path == "-":
        raise BadInput("--test reads DATA more than once, and stdin can be read only once: save it")


def _first_line(source: Source, share: float, watch: Watch | None) -> int:
    """The line of the first of the last rows."""
    count, seen = 0, list[Sequence[int]]()
    options = replace(source.options, columns=(), drop=(), text=(), numeric=(), compiled=False)
    passing = OnError(None if source.on_error.mode is None else "skip")
    with replace(source, options=options, on_error=passing).open() as reader:
        for chunk in reader:
            first, last = chunk.lines[0], chunk.lines[-1]
            whole = last - first + 1 == chunk.n
            seen.append(range(first, last + 1) if whole else [*chunk.lines])
            count += chunk.n
            if watch is not None:
                watch(reader, count)
    held = round(share * count)
    if not 0 < held < count:
        raise BadInput(f"{source.path}: {100 * share:g} % of its {count:,} rows are {held:,}")
    left = count - held
    for lines in seen:
        if left < len(lines):
            return int(lines[left])
        left -= len(lines)
    raise AssertionError("more rows are held out than there are")


def score_held_out(
    model: TableModel, source: Source, which: HoldOut, watch: Watch | None = None
) -> Evaluation:
    """Score a model that has just learned the other rows; it stays as it is.

    A label that only held-out rows have is an error like any other wrong row. Ctrl-C and SIGTERM
    raise `Stopped`.
    """
    prepared = None if model.preprocessor is None else model.preprocessor.copied()
    source.on_error.again = True  # rows that are wrong were told while it learned
    with stoppable():
        still, ahead = replace(model, preprocessor=prepared), 1 if which.in_order else None
        found = evaluate(still, source, watch=watch, steps_ahead=ahead)
    found.persistence.on &= which.in_order
    return found
