"""`dokl train`: learn from a file or stdin in one pass, or several, at fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dokl.errors import BadInput
from dokl.jobs.sources import Source
from dokl.jobs.start import Training, known_classes, nodes_missing, start
from dokl.jobs.stopping import Stopped, stoppable
from dokl.jobs.tables import check_labels, check_nodes, notices, targets, wanted
from dokl.models import TableModel
from dokl.models.learning import learn
from dokl.models.scores import Score, make_score
from dokl.readers import Chunk, Reader

Watch = Callable[[Reader, TableModel, Score], None]


@dataclass(frozen=True)
class Halt:
    """Where an interrupted training stopped: rows of the file done in this pass, passes left."""

    rows: int
    passes: int
    signum: int


@dataclass(frozen=True)
class Learned:
    """What came of a training: the model, and of this run the score, rows skipped and its halt.

    notices: what the user may not have meant.
    """

    model: TableModel
    score: Score
    skipped: int
    halt: Halt | None
    notices: list[str]


def train(
    source: Source,
    training: Training,
    path: Path,
    model: TableModel | None = None,
    passes: int = 1,
    skip: int = 0,
    watch: Watch | None = None,
) -> Learned:
    """Learn from a source and save to `path`; with `model`, go on with that one.

    `watch` is called after every chunk. Ctrl-C stops learning, saves what was learned so far and
    tells where it stopped. A fault in the data raises and leaves an earlier file as it was.
    """
    if passes > 1 and source.path == "-":
        raise BadInput("stdin can be read only once: use one pass, or a file")
    work = _Work(source, training, model, Halt(skip, passes, 0))
    try:
        with stoppable() as whole:
            for reader, chunk in work.chunks():
                with whole():
                    work.learn(chunk, reader.name)
                    if watch is not None:
                        watch(reader, work.started, work.score)
    except Stopped as stop:
        work.halt = replace(work.halt, signum=stop.signum)
    if work.model is None or not work.model.started:
        raise BadInput(f"{source.path}: no row with a target was read; nothing was saved")
    work.model.save(path)
    halt = work.halt if work.halt.signum and work.halt.passes else None
    remarks = work.remarks + notices(work.model)
    return Learned(work.model, work.score, work.skipped, halt, remarks)


@dataclass
class _Work:
    """A training under way; halt: how far it is."""

    source: Source
    training: Training
    model: TableModel | None
    halt: Halt
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The score of this run; that of the model's whole life goes on beside it."""
        self.score: Score = make_score(self.model is not None and self.model.classifying)
        self.skipped = 0

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
                for chunk in reader:
                    done += chunk.n
                    if done > skip:
                        yield reader, _without(chunk, max(0, chunk.n - (done - skip)))
            self.halt = Halt(0, self.halt.passes - 1, 0)

    def _open(self) -> Reader:
        if self.model is None:
            node = self.training.node
            told = self.source if node is None else self._with_text(node)
            reader = told.open()
        else:
            reader = self.source.open(wanted(self.model, target=True, node=True))
        if self.training.node is None:  # a network's steps are cut by chunks; keep them equal
            reader.go_live()
        return reader

    def _with_text(self, column: str) -> Source:
        told = self.source.options
        return replace(self.source, options=replace(told, text=(*told.text, column)))

    def learn(self, chunk: Chunk, name: str) -> None:
        """Predict, score and learn the rows of a chunk that have a target."""
        if self.model is None:
            self.model = start(self.training, chunk)
            self.score = make_score(self.model.classifying)
            self.remarks = nodes_missing(self.training, chunk)
        model = self.model
        y, keep = targets(model, chunk)
        more: dict[str, Any] = {}
        if model.node is not None:
            more["nodes"] = check_nodes(model, chunk, keep, name)
        if model.classifying and model.started:
            check_labels(model, chunk, y, keep, name)
        elif model.classifying and len(y):
            more["classes"] = known_classes(self.training, y)
        if model.tally is None and len(y):
            model.tally = self.score
        predicted = learn(model, chunk, y, keep, **more)
        if len(y) and model.tally is not self.score:
            self.score.add(y, predicted)
        self.skipped += chunk.n - len(y)
        self.halt = replace(self.halt, rows=self.halt.rows + chunk.n)


def _without(chunk: Chunk, first: int) -> Chunk:
    """The chunk without its first rows."""
    if not first:
        return chunk
    columns = {name: column[first:] for name, column in chunk.columns.items()}
    X = None if chunk.X is None else chunk.X[first:]
    y = None if chunk.y is None else chunk.y[first:]
    return Chunk(chunk.names, columns, chunk.lines[first:], X, y)
