"""`dokl train`: learn from a file or stdin in one pass, or several, at fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dokl.base.errors import BadInput
from dokl.tables.jobs.curves import Course
from dokl.tables.jobs.faults import closing
from dokl.tables.jobs.frozen import Frozen, FrozenComparison
from dokl.tables.jobs.parts import ChunkPart, cut, rows_of, stands_still
from dokl.tables.jobs.persistence import Persistence
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import (
    Training,
    guesses,
    known_classes,
    nodes_grouped,
    nodes_missing,
    start,
)
from dokl.tables.jobs.stopping import Settled, Stopped, Whole, stoppable
from dokl.tables.jobs.tables import notices, rows_in_order, usable, wanted
from dokl.tables.models import TableModel
from dokl.tables.models.learning import learn
from dokl.tables.models.scores import Coverage, Score, make_score
from dokl.tables.readers import MISSING, Chunk, Reader

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
    repeating earlier values would have done.
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
    learned so far and tells where it stopped. A fault in the data raises and leaves an earlier file
    as it was, unless `source.on_error` says otherwise. `say` is told what was guessed, a line at a
    time, before anything is learned.
    """
    if passes > 1 and source.path == "-":
        raise BadInput("stdin can be read only once: use one pass, or a file")
    work = _Work(source, training, model, Halt(skip, passes, 0), say=say or _unsaid)
    try:
        with closing(source.on_error), stoppable() as whole:
            _learn_all(work, whole, watch or _unwatched)
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
        # A stream may go on for ever; a file is looked at, since whoever has learned all is done.
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


def _unsaid(line: str) -> None:
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
    say: Callable[[str], None] = _unsaid
    guesses: tuple[str, ...] = ()
    fault: BadInput | None = None
    cut_short: bool = False  # amid a chunk
    longer: float = 1.0  # how many times as long as the first chunk the file is, about

    def __post_init__(self) -> None:
        """The score of this run; that of the model's whole life goes on beside it."""
        self.score: Score = make_score(self.model is not None and self.model.classifying)
        self.skipped = 0
        # In further passes a snapshot would meet rows that it has learned.
        self.compared = FrozenComparison() if self.halt.passes == 1 else None
        self.course = Course(self.model is not None and self.model.classifying)
        self.persistence = Persistence(self.course.classifying, on=self.halt.passes == 1)
        self.covered = Coverage()
        if self.model is not None and self.model.coverage is not None:
            self.covered = replace(self.model.coverage)
        if self.compared is not None and self.model is not None and stands_still(self.model):
            self.compared.take(self.model)

    def learned(self) -> Learned:
        """What came of it."""
        model, halt = self.started, self.halt if self.halt.signum and self.halt.passes else None
        frozen = None if self.compared is None else self.compared.told()
        coverage = None if model.coverage is None else model.coverage.since(self.covered)
        remarks = self.remarks + notices(model, self.score)
        found = frozen, coverage, self.guesses, self.fault, self.course, self.halt, self.persistence
        return Learned(model, self.score, self.skipped, halt, remarks, *found)

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
                for chunk in self.source.on_error.chunks(reader):
                    done += chunk.n
                    if done > skip:
                        self.cut_short = True
                        yield reader, rows_of(chunk, max(0, chunk.n - (done - skip)))
            self.source.on_error.again = True
            self.halt = Halt(0, self.halt.passes - 1, 0)
            if self.halt.passes and self.model is not None and self.model.series is not None:
                self.model.series = self.model.series.empty()  # the rows begin again

    def _open(self) -> Reader:
        if self.model is None:
            told, node = self.source.options, self.training.node
            columns = node, self.training.lags.by, self.training.group
            named = [name for name in columns if name is not None]
            text = (*told.text, *named)
            by_gradients = node is not None or self.training.method == "gradient"
            options = replace(told, text=text, compiled=by_gradients)
            reader = replace(self.source, options=options).open(target=self.training.target)
        else:
            reader = self.source.open(wanted(self.model, target=True, node=True))
        if self.training.node is None:  # a network's steps are cut by chunks; keep them equal
            reader.go_live()
        return reader

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
        """A new model, by the first rows; what they made believe is said."""
        self.model = start(self.training, chunk, self.longer)
        if self.model.preprocessor is not None and self.source.options.missing != MISSING:
            self.model.preprocessor.missing = tuple(self.source.options.missing)
        self.score = make_score(self.model.classifying)
        self.course = Course(self.model.classifying)
        self.persistence.classifying = self.model.classifying
        self.remarks = nodes_missing(self.training, chunk)
        self.remarks += nodes_grouped(self.training, chunk, self.model)
        self.guesses = guesses(self.training, chunk, self.model)
        for line in self.guesses:
            self.say(line)

    def learn(self, part: ChunkPart, settled: Settled) -> None:
        """Predict, score and learn rows of a part that have a target. Until `settled` is called,
        whatever fails changes nothing.
        """
        model = self.started
        compared = self.compared if stands_still(model) else None
        guess = None if compared is None else compared.guess(model, part)
        if model.tally is None and len(part.y):
            model.tally = self.score
        before = model.coverage or Coverage()
        counted = before.n, before.inside
        rows = part.chunk, part.y, part.keep, part.nodes, part.classes
        predicted = learn(model, *rows, settled)
        self.course.add(part.y, predicted, part.nodes)
        self.persistence.add(model, part.chunk, part.y, part.keep, predicted)
        if model.coverage is not None:
            n, inside = model.coverage.n - counted[0], model.coverage.inside - counted[1]
            self.course.covered.add(np.full(n, inside / max(1, n)))
        if len(part.y) and model.tally is not self.score:
            self.score.add(part.y, predicted)
        if compared is not None:
            compared.add(model, part, guess, predicted)
        self.skipped += part.chunk.n - len(part.y)
        self.halt = replace(self.halt, rows=self.halt.rows + part.chunk.n)
