"""`dokl train`: learn from a file or stdin in one pass, or several, at fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput, listed
from dokl.jobs.scores import Score, make_score
from dokl.jobs.sources import Source
from dokl.jobs.start import Training, known_classes, start
from dokl.jobs.stopping import Stopped, stoppable
from dokl.jobs.tables import Model
from dokl.readers import Chunk, Reader

Watch = Callable[[Reader, Model, Score], None]


@dataclass(frozen=True)
class Halt:
    """Where an interrupted training stopped: rows of the file done in this pass, passes left."""

    rows: int
    passes: int
    signum: int


@dataclass(frozen=True)
class Learned:
    """What came of a training: the model, and of this run the score, rows skipped and its halt."""

    model: Model
    score: Score
    skipped: int
    halt: Halt | None


def train(
    source: Source,
    training: Training,
    path: Path,
    model: Model | None = None,
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
    if work.model is None or not hasattr(work.model.estimator, "state_"):
        raise BadInput(f"{source.path}: no row with a target was read; nothing was saved")
    work.model.save(path)
    halt = work.halt if work.halt.signum and work.halt.passes else None
    return Learned(work.model, work.score, work.skipped, halt)


@dataclass
class _Work:
    """A training under way; halt: how far it is."""

    source: Source
    training: Training
    model: Model | None
    halt: Halt

    def __post_init__(self) -> None:
        """The score of this run; that of the model's whole life goes on beside it."""
        self.score: Score = make_score(self.model is not None and self.model.classifying)
        self.skipped = 0

    @property
    def started(self) -> Model:
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
            reader = self.source.open(self.model.wanted(target=True, node=True))
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
        model = self.model
        y, keep = model.targets(chunk)
        X = model.inputs(chunk, learn=True)
        if not keep.all():
            X, y = X[keep], y[keep]
        if len(y):
            y = y.astype(str) if y.dtype == object else y
            self._add(y, self._prequential(X, y, chunk, keep, name))
        model.rows += chunk.n
        model.skipped += chunk.n - len(y)
        self.skipped += chunk.n - len(y)
        self.halt = replace(self.halt, rows=self.halt.rows + chunk.n)

    def _prequential(self, X: Any, y: Array, chunk: Chunk, keep: Array, name: str) -> Array:
        """Learn rows, and return what was predicted for each just before."""
        model = self.started
        more: dict[str, Any] = {}
        if model.node is not None:
            more["nodes"] = check_nodes(model, chunk, keep, name)
        if model.classifying and hasattr(model.estimator, "state_"):
            check_labels(model, chunk, y, keep, name)
        elif model.classifying:
            more["classes"] = known_classes(self.training, y)
        return np.asarray(model.estimator.prequential(X, y, **more))

    def _add(self, y: Array, predicted: Array) -> None:
        self.score.add(y, predicted)
        if self.started.score is None:
            self.started.score = self.score
        elif self.started.score is not self.score:
            self.started.score.add(y, predicted)


def _without(chunk: Chunk, first: int) -> Chunk:
    """The chunk without its first rows."""
    if not first:
        return chunk
    columns = {name: column[first:] for name, column in chunk.columns.items()}
    X = None if chunk.X is None else chunk.X[first:]
    y = None if chunk.y is None else chunk.y[first:]
    return Chunk(chunk.names, columns, chunk.lines[first:], X, y)


def check_labels(model: Model, chunk: Chunk, y: Array, keep: Array, name: str) -> None:
    """A label never seen is an error that names its line; y: of the rows kept."""
    strange = ~np.isin(y, model.estimator.classes_)
    if strange.any():
        at = np.flatnonzero(keep)[np.flatnonzero(strange)[0]]
        label = y[strange].tolist()[0]
        numbers = "" if isinstance(label, str) else ", or say --task regression"
        raise BadInput(
            f"{name}, line {chunk.lines[at]}: label {label!r} was never seen; the classes are "
            f"{listed(model.labels or ())}. Name all of them with --classes when you start{numbers}"
        )


def check_nodes(model: Model, chunk: Chunk, keep: Array, name: str) -> list[str]:
    """The node of each row kept; one that is not in the network is an error with its line."""
    assert model.node is not None
    nodes: list[str] = chunk.columns[model.node][keep].tolist()
    known = set(model.estimator.nodes_) if hasattr(model.estimator, "nodes_") else None
    known = set(model.estimator.graph.nodes) if known is None else known
    for i, node in enumerate(nodes):
        if node not in known:
            at = np.flatnonzero(keep)[i]
            raise BadInput(
                f"{name}, line {chunk.lines[at]}, column {model.node!r}: node {node!r} is not in "
                f"the network, whose nodes are {listed(sorted(known))}"
            )
    return nodes
