"""`dokl train`: learn from a file or stdin in one pass, or several, at fixed memory.

A chunk is learned in parts, one after the other, with something to see in between. Experts take
their time for a row, and seconds at a pilot, where they learn length scales again; networks of them
as well. Parts end there, wherever a snapshot of the model is taken, and where somebody may want to
stop; of a network at the end of a step. It learns the same as from the whole where every node has a
row in each step. Where some are missing it learns nearly the same: each part finds the order among
its nodes again, by which one comes first, and a few steps become two (of six nodes that miss 15 %
of their rows, 203 steps instead of 200).

A snapshot is a frozen model: trained on a file, then used without learning on. On the rows since it
is scored beside the model that learns; where the target moves it does worse.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.progress import Settled, Stopped, Whole, stoppable
from dokl.estimators.auto import Auto
from dokl.estimators.network import NetworkEstimator
from dokl.estimators.nodes import in_order
from dokl.learning.experts.bank import AT_ONCE
from dokl.learning.experts.kinds import PILOTS
from dokl.tables.jobs.course import Course, Persistence
from dokl.tables.jobs.sources import (
    Source,
    closing,
    notices,
    rows_in_order,
    shuffled,
    usable,
    wanted,
)
from dokl.tables.jobs.start import (
    Training,
    guesses,
    known_classes,
    nodes_grouped,
    nodes_missing,
    random_order,
    start,
)
from dokl.tables.models import TableModel
from dokl.tables.models.rows import answers, finish, learn
from dokl.tables.models.scores import LEVEL, Coverage, Score, make_score
from dokl.tables.readers import MISSING, Chunk, Reader

# -- the parts of a chunk -------------------------------------------------------------------------
FIRST_SNAPSHOT = 32
# Rows of a model with a horizon, which are predicted together, before their targets are known.
WAITING = 64
COMPILING = "compiling, unless that was done before"


@dataclass(frozen=True)
class ChunkPart:
    """Rows to learn. y: targets of those to keep; nodes: of a network, theirs; classes: all labels
    there will be, the first time; doing: what takes long about it, if anything does.
    """

    chunk: Chunk
    y: Array
    keep: Array
    nodes: Any = None
    classes: Any = None
    doing: str = ""


def cut(model: TableModel, whole: ChunkPart) -> list[ChunkPart]:
    """The parts of a chunk, the whole where it is learned at once."""
    if not stands_still(model):
        return [whole if model.started else replace(whole, doing=COMPILING)]
    seen, pilots, there = rows_seen(model), _pilots(model), np.flatnonzero(whole.keep)
    waits = model.series is not None and model.series.horizon
    most = WAITING if waits else AT_ONCE
    ends = [stop - seen for stop in stops(seen, len(there), pilots, most)]
    if whole.nodes is not None:
        ends = _at_steps(ends, whole.nodes)
    parts, row, begin = list[ChunkPart](), 0, 0
    for end in ends:
        last = len(whole.keep) if end == len(there) else int(there[end - 1]) + 1
        pilot = next((p for p in pilots if seen + begin < p <= seen + end), None)
        doing = "" if pilot is None else f"learning length scales at row {pilot:,}"
        part = rows_of(whole.chunk, row, last), whole.y[begin:end], whole.keep[row:last]
        nodes = None if whole.nodes is None else whole.nodes[begin:end]
        parts.append(ChunkPart(*part, nodes, None if begin else whole.classes, doing))
        row, begin = last, end
    return parts or [whole]


def stands_still(model: TableModel) -> bool:
    """Whether a snapshot costs little beside the learning itself: of experts, and of networks."""
    return isinstance(model.estimator, Auto | NetworkEstimator)


def rows_seen(model: TableModel) -> int:
    """How many rows such a model has learned."""
    known = getattr(model.estimator, "bank_", getattr(model.estimator, "network_", None))
    return 0 if known is None else int(np.sum(known.seen))


def _pilots(model: TableModel) -> Sequence[int]:
    bank = getattr(model.estimator, "bank_", None)
    return PILOTS if bank is None else bank.settings.pilots


def _at_steps(ends: list[int], nodes: Sequence[str]) -> list[int]:
    """The ends of the steps that these rows are in, by the order among nodes in all of them."""
    names, owner = np.unique(np.array(nodes, str), return_inverse=True)
    index = in_order(len(names), owner)
    last = 1 + index.max(axis=1, initial=-1)  # rows up to the end of each step
    return sorted({int(last[np.searchsorted(last, end)]) for end in ends})


def stops(seen: int, n: int, pilots: Sequence[int], most: int = AT_ONCE) -> list[int]:
    """After which rows, of n that follow `seen`, a part of at most this many rows ends.

    >>> stops(100, 500, (125, 250))
    [125, 128, 250, 256, 512, 600]
    """
    last = seen + n
    found = {last, *pilots, *range(most * (seen // most + 1), last, most)}
    found |= {1 << k for k in range(last.bit_length()) if is_snapshot(1 << k)}
    return sorted(stop for stop in found if seen < stop <= last)


def is_snapshot(seen: int) -> bool:
    """Whether a snapshot is taken after n rows: at powers of two."""
    return seen >= FIRST_SNAPSHOT and not seen & (seen - 1)


def rows_of(chunk: Chunk, start: int, stop: int | None = None) -> Chunk:
    """Some rows of a chunk."""
    if not start and (stop is None or stop == chunk.n):
        return chunk
    return chunk.rows(slice(start, stop))


# -- a frozen model beside the one that learns ----------------------------------------------------
FEW = 30


@dataclass
class Frozen:
    """A snapshot after `at` rows. score: its own, tracking: of the model that goes on, both on the
    rows since; coverage: of its intervals, None where it has none.
    """

    at: int
    model: TableModel
    score: Score
    tracking: Score
    coverage: Coverage | None = None

    def figures(self) -> dict[str, Any]:
        """The row, what the snapshot did, and what the model that goes on did meanwhile."""
        more = {} if self.coverage is None else {"intervals": self.coverage.figures()}
        return {"row": self.at, **self.score.figures(), "tracking": self.tracking.figures(), **more}


@dataclass
class FrozenComparison:
    """The newest snapshot, and the one before; none where there are none."""

    now: Frozen | None = None
    before: Frozen | None = None

    def guess(self, model: TableModel, part: ChunkPart) -> Array | None:
        """What the snapshot says of the rows to keep, before the model learns them: (n,), or with
        the ends of intervals (2, n).
        """
        if self.now is None or not len(part.y):
            return None
        still = replace(self.now.model, series=model.series)  # which remembers the rows before
        how: dict[str, Any] = {"nodes": part.nodes, "keep": part.keep, "due": True}
        if self.now.coverage is None or part.y.ndim > 1:
            return answers(still, part.chunk, "predict", **how)[0]
        steps = 1 + self.now.score.n + np.arange(len(part.y))
        how |= {"coverage": LEVEL, "steps_ahead": steps}
        return answers(still, part.chunk, "predict_interval", **how)[0]

    def add(
        self, model: TableModel, part: ChunkPart, guess: Array | None, predicted: Array
    ) -> None:
        """Rows that the model has learned by now; a new snapshot if it is time."""
        if self.now is not None and guess is not None:
            if self.now.coverage is not None and part.y.ndim == 1:
                self.now.coverage.add(part.y, *guess)
                guess = guess.mean(axis=0)
            self.now.score.add(part.y, guess)
            self.now.tracking.add(part.y, predicted)
        seen = rows_seen(model)
        if any(is_snapshot(row) for row in range(seen - len(part.y) + 1, seen + 1)):
            self.take(model)

    def take(self, model: TableModel) -> None:
        """A snapshot."""
        scores = make_score(model.classifying), make_score(model.classifying)
        self.before = self.now
        coverage = Coverage() if model.knows_distances else None
        self.now = Frozen(rows_seen(model), _still(model), *scores, coverage)

    def newest(self) -> Frozen | None:
        """The one to report: the newest, unless hardly any rows came since."""
        found = [one for one in (self.now, self.before) if one is not None and one.score.n]
        many = [one for one in found if one.score.n >= FEW]
        return next(iter(many or found), None)


def _still(model: TableModel) -> TableModel:
    """What predicts as the model does now, without the matrices that it learns by."""
    grouped = model.preprocessor is not None and model.preprocessor.group is not None
    if not hasattr(model.estimator, "network_") and not grouped:
        return model.predict_only()
    still = copy.deepcopy(replace(model, estimator=None))
    still.estimator = copy.copy(model.estimator)  # learning replaces what it knows
    return still


# -- the training ---------------------------------------------------------------------------------
Watch = Callable[[Reader, Score, str, float], None]


@dataclass(frozen=True)
class Halt:
    """Where an interrupted training stopped: rows of the file done in this pass, passes left."""

    rows: int
    passes: int
    signum: int


@dataclass(frozen=True)
class Learned:
    """What came of a training: the model, and of this run the score, rows skipped and its halt.

    notices: what the user may not have meant. frozen: how a snapshot did, coverage: how often
    intervals held the target; both of this run, and of experts only. guesses: what was found out
    about the file, and the task. fault: the row where it stopped, if it was to stop there. course:
    how errors went along the rows, and nodes' scores. rest: where to go on. persistence: what
    repeating earlier values would have done. shuffled: whether rows were learned in random order.
    """

    model: TableModel
    score: Score
    skipped: int
    halt: Halt | None
    notices: list[str]
    frozen: Frozen | None = None
    coverage: Coverage | None = None
    guesses: tuple[str, ...] = ()
    fault: BadInput | None = None
    course: Course = field(default_factory=Course)
    rest: Halt = Halt(0, 0, 0)
    persistence: Persistence = field(default_factory=Persistence)
    shuffled: bool = False


def train(
    source: Source,
    training: Training,
    path: Path,
    model: TableModel | None = None,
    passes: int = 1,
    skip: int = 0,
    watch: Watch | None = None,
    say: Callable[[str], None] | None = None,
) -> Learned:
    """Learn from a source and save to `path`; with `model`, go on with that one.

    `watch` is called after every part of a chunk, and before one that takes long with the reason;
    beside it stands the share of the chunk that is left. Ctrl-C stops learning, saves what was
    learned so far and reports where it stopped. A fault in the data raises and leaves an earlier
    file as it was, unless `source.on_error` says otherwise. `say` receives the guesses, a line at a
    time, before anything is learned.
    """
    if passes > 1 and source.path == "-":
        raise BadInput("stdin can be read only once: use one pass, or a file")
    work = _Work(source, training, model, Halt(skip, passes, 0), say=say or _silent)
    try:
        with closing(source.on_error), stoppable() as whole:
            _learn_all(work, whole, watch or _unwatched)
            if model is None and passes == 1:
                work.finish()
    except Stopped as stop:
        work.halt = replace(work.halt, signum=stop.signum)
    except BadInput as error:
        if source.on_error.fault is None or not work.begun:
            raise
        work.fault = error
    if work.model is None or not work.model.started:
        raise BadInput(f"{source.path}: no row with a target was read; nothing was saved")
    with suppress(Stopped), stoppable() as whole, whole() as settled:
        settled()
        work.model.save(path)
    return work.learned()


def _learn_all(work: _Work, whole: Whole, watch: Watch) -> None:
    """Part by part, each wholly or not at all."""
    chunks = work.chunks()
    try:
        _learn_each(work, chunks, whole, watch)
    except Stopped:
        # A stream may go on for ever; a file is looked at, since training ends with it.
        if not work.cut_short and work.source.path != "-" and Path(work.source.path).is_file():
            with suppress(BadInput):
                next(chunks, None)
        raise


def _learn_each(
    work: _Work, chunks: Iterator[tuple[Reader, Chunk]], whole: Whole, watch: Watch
) -> None:
    for reader, chunk in chunks:
        with whole() as settled:
            settled()
            parts = work.parts(chunk, reader.name)
        left = chunk.n
        for part in parts:
            with whole() as settled:
                if part.doing:
                    watch(reader, work.score, part.doing, left / chunk.n)
                work.learn(part, settled)
                left -= part.chunk.n
                work.cut_short = left > 0
                watch(reader, work.score, "", left / chunk.n)
        work.source.on_error.check(reader)


def _silent(line: str) -> None:
    pass


def _unwatched(reader: Reader, score: Score, doing: str, left: float) -> None:
    pass


@dataclass
class _Work:
    """A training under way; halt: how far it is."""

    source: Source
    training: Training
    model: TableModel | None
    halt: Halt
    remarks: list[str] = field(default_factory=list)
    say: Callable[[str], None] = _silent
    guesses: tuple[str, ...] = ()
    fault: BadInput | None = None
    cut_short: bool = False  # amid a chunk
    shuffled: str | None = None  # why rows are learned in random order; None: not settled
    longer: float = 1.0  # how many times as long as the first chunk the file is, about
    whole: bool = False  # whether the first chunk is all of the file

    def __post_init__(self) -> None:
        """The score of this run; that of the model's whole life goes on beside it."""
        self.score: Score = make_score(self.model is not None and self.model.classifying)
        self.skipped = 0
        # In further passes a snapshot would meet rows that it has learned.
        self.compared = FrozenComparison() if self.halt.passes == 1 else None
        self.course = Course(self.model is not None and self.model.classifying)
        self.persistence = Persistence(
            self.course.classifying, self.halt.passes == 1, self.training.lags.auto
        )
        self.covered = Coverage()
        if self.model is not None and self.model.coverage is not None:
            self.covered = replace(self.model.coverage)
        if self.compared is not None and self.model is not None and stands_still(self.model):
            self.compared.take(self.model)

    def learned(self) -> Learned:
        """What came of it."""
        model, halt = self.started, self.halt if self.halt.signum and self.halt.passes else None
        frozen = None if self.compared is None else self.compared.newest()
        coverage = None if model.coverage is None else model.coverage.since(self.covered)
        remarks = self.remarks + notices(model, self.score)
        found = frozen, coverage, self.guesses, self.fault, self.course, self.halt, self.persistence
        return Learned(model, self.score, self.skipped, halt, remarks, *found, bool(self.shuffled))

    @property
    def begun(self) -> bool:
        """Whether anything was learned in this run."""
        return self.score.n > 0

    @property
    def started(self) -> TableModel:
        """The model, once there is one."""
        assert self.model is not None
        return self.model

    def chunks(self) -> Iterator[tuple[Reader, Chunk]]:
        """The rows that are left to learn."""
        while self.halt.passes:
            skip, done = self.halt.rows, 0
            with self._open() as reader:
                self.longer = 1.0 / (reader.first_share or 1.0)
                self.whole = reader.first_share == 1.0
                for chunk in self._in_order(reader):
                    done += chunk.n
                    if done > skip:
                        self.cut_short = True
                        yield reader, rows_of(chunk, max(0, chunk.n - (done - skip)))
            self.source.on_error.again = True
            self.halt = Halt(0, self.halt.passes - 1, 0)
            if self.halt.passes and self.model is not None and self.model.series is not None:
                self.model.series = self.model.series.empty()  # the rows begin again

    def _in_order(self, reader: Reader) -> Iterator[Chunk]:
        """The rows in the order in which they are learned, in every pass the same."""
        chunks = self.source.on_error.chunks(reader)
        if self.shuffled is None:
            self.shuffled = self._random_order(reader)
            if self.model is not None and self.shuffled:
                self.say(self.shuffled)
        if not self.shuffled:
            return chunks
        self.persistence.on, self.longer = False, 1.0
        return shuffled(chunks)

    def _random_order(self, reader: Reader) -> str:
        """Why rows are learned in random order, if they are. A pipe may have no end to wait for,
        and of shuffled rows none come before a wrong one.
        """
        stops = self.source.on_error.mode == "stop"
        if self.training.shuffle and stops:
            raise BadInput("--on-error stop keeps the rows before a wrong one: leave out --shuffle")
        if self.training.shuffle is None and (stops or not Path(self.source.path).is_file()):
            return ""
        return random_order(self.training, reader.first, self.model)

    def _open(self) -> Reader:
        if self.model is None:
            reading, node = self.source.options, self.training.node
            columns = node, self.training.lags.by, self.training.group
            named = [name for name in columns if name is not None]
            text = (*reading.text, *named)
            by_gradients = node is not None or self.training.method == "gradient"
            options = replace(reading, text=text, compiled=by_gradients)
            reader = replace(self.source, options=options).open(target=self.training.target)
        else:
            reader = self.source.open(wanted(self.model, target=True, node=True))
        if self.training.node is None:  # a network's steps are cut by chunks; keep them equal
            reader.go_live()
        return reader

    def finish(self) -> None:
        """After the last row of a file that a new model has learned once."""
        if self.model is not None and finish(self.model):
            self.remarks.append(
                f"few rows: the model is a fit of all {rows_seen(self.model)}, better than what "
                "predicted them one by one; --test random:20% scores such a model"
            )

    def parts(self, chunk: Chunk, name: str) -> list[ChunkPart]:
        """What is to be learned of a chunk, once nothing in it is wrong."""
        if self.model is None:
            self._begin(chunk)
        model = self.started
        chunk = rows_in_order(model, chunk, self.source, name)
        y, keep, nodes = usable(model, chunk, self.source, name, model.node is not None)
        classes = None
        if model.classifying and not model.started and len(y):
            classes = known_classes(self.training, y)
        return cut(model, ChunkPart(chunk, y, keep, nodes, classes))

    def _begin(self, chunk: Chunk) -> None:
        """A new model, by the first rows; guesses are reported."""
        self.model = start(self.training, chunk, self.longer, self.whole)
        if self.model.preprocessor is not None and self.source.options.missing != MISSING:
            self.model.preprocessor.missing = tuple(self.source.options.missing)
        self.score = make_score(self.model.classifying)
        self.course = Course(self.model.classifying)
        self.persistence.classifying = self.model.classifying
        self.remarks = nodes_missing(self.training, chunk)
        self.remarks += nodes_grouped(self.training, chunk, self.model)
        self.guesses = guesses(self.training, chunk, self.model)
        self.guesses += (self.shuffled,) if self.shuffled else ()
        for line in self.guesses:
            self.say(line)

    def learn(self, part: ChunkPart, settled: Settled) -> None:
        """Predict, score and learn rows of a part that have a target. Until `settled` is called,
        whatever fails changes nothing.
        """
        model = self.started
        compared = self.compared if stands_still(model) else None
        guess = None if compared is None else compared.guess(model, part)
        untaught = model.tally is None
        if untaught and len(part.y):
            model.tally = self.score
        before = model.coverage or Coverage()
        counted = before.n, before.inside
        rows = part.chunk, part.y, part.keep, part.nodes, part.classes
        predicted = learn(model, *rows, settled)
        self.course.add(part.y, predicted, part.nodes)
        self.persistence.add(model, part.chunk, part.y, part.keep, predicted, untaught)
        if model.coverage is not None:
            n, inside = model.coverage.n - counted[0], model.coverage.inside - counted[1]
            self.course.covered.add(np.full(n, inside / max(1, n)))
        if len(part.y) and model.tally is not self.score:
            self.score.add(part.y, predicted)
        if compared is not None:
            compared.add(model, part, guess, predicted)
        self.skipped += part.chunk.n - len(part.y)
        self.halt = replace(self.halt, rows=self.halt.rows + part.chunk.n)
