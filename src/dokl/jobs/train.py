"""`dokl train`: learn from a file or stdin in one pass, or several, at fixed memory."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput, UnknownName
from dokl.estimators import KernelClassifier, KernelRegressor
from dokl.jobs.scores import Score, make_score
from dokl.jobs.tables import Model
from dokl.preprocess import Preprocessor, is_text
from dokl.readers import Chunk, Reader, open_table

TASKS = ("auto", "regression", "classification")


@dataclass(frozen=True)
class Source:
    """A file to read and how; also what `predict` and `evaluate` read."""

    path: str
    format: str | None = None
    n_features: int | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    header: bool | None = None

    def open(self) -> Reader:
        """Open it; only one chunk will be in memory."""
        return open_table(
            self.path,
            self.format,
            n_features=self.n_features,
            text_columns=self.text,
            numeric_columns=self.numeric,
            header=self.header,
        )


@dataclass(frozen=True)
class Training:
    """What to learn: target, task, preprocessing and the estimator's parameters."""

    target: str | None = None
    task: str = "auto"
    classes: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    standardise: str = "running"
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """What came of a training: the model, its score, and whether it was interrupted."""

    model: Model
    score: Score
    interrupted: bool


def start(training: Training, reader: Reader, chunk: Chunk) -> Model:
    """A model that has learned nothing yet, planned on the first chunk."""
    if training.task not in TASKS:
        raise UnknownName("task", training.task, TASKS)
    if chunk.X is not None:
        y, prepared, target = chunk.y, None, None
    else:
        target = _target_name(training, chunk)
        y = chunk.columns[target]
        prepared = Preprocessor.plan(chunk.columns, (target, *training.drop), training.standardise)
    assert y is not None
    classifying = _classifying(training, y)
    kind = KernelClassifier if classifying else KernelRegressor
    return Model(_estimator(kind, training.parameters), prepared, target)


def _estimator(kind: Any, parameters: dict[str, Any]) -> Any:
    known = kind._get_param_names()
    for name in parameters:
        if name not in known:
            raise UnknownName(f"parameter of {kind.__name__}", name, known)
    return kind(**parameters)


def _target_name(training: Training, chunk: Chunk) -> str:
    if training.target is None:
        raise BadInput(f"name the target column with --target: {', '.join(chunk.names)}")
    if training.target not in chunk.columns:
        raise UnknownName("target column", training.target, chunk.names)
    return training.target


def _classifying(training: Training, y: Array) -> bool:
    """Text, or two distinct numbers out of -1, 0, 1, are classes unless told otherwise."""
    if training.task != "auto":
        return training.task == "classification"
    if is_text(y) or training.classes:
        return True
    values = set(np.unique(y[~np.isnan(y)]).tolist())
    return values in ({-1.0, 1.0}, {0.0, 1.0})


def known_classes(training: Training, y: Array) -> Array:
    """All labels there will be: those named, else those of the first chunk."""
    labels = np.unique(y)
    if training.classes and is_text(y):
        return np.array(sorted(training.classes), dtype=object)
    if training.classes:
        try:
            labels = np.array(sorted(float(label) for label in training.classes))
        except ValueError:
            raise BadInput(f"the labels are numbers, but classes are {training.classes}") from None
    # Files know only one kind of number; labels that are whole are better shown as such.
    whole = labels.dtype.kind == "f" and bool((labels == labels.round()).all())
    return labels.astype(np.int64) if whole else labels


def train(
    source: Source,
    training: Training,
    path: Path,
    model: Model | None = None,
    passes: int = 1,
    skip: int = 0,
    watch: Callable[[Reader, Model, Score], None] | None = None,
) -> Learned:
    """Learn from a source and save to `path`; with `model`, go on with that one.

    `watch` is called after every chunk. Ctrl-C stops learning, saves what was learned so far and
    returns with `interrupted`. A fault in the data raises and leaves an earlier file as it was.
    """
    if passes > 1 and source.path == "-":
        raise BadInput("stdin can be read only once: use one pass, or a file")
    score: Score | None = None
    interrupted = False
    try:
        with stoppable() as whole:
            for reader, chunk in _chunks(source, passes, skip):
                with whole():
                    model = start(training, reader, chunk) if model is None else model
                    score = score or make_score(model.classifying)
                    learn_chunk(model, training, chunk, score, reader.name)
                    if watch is not None:
                        watch(reader, model, score)
    except KeyboardInterrupt:
        interrupted = True
    if model is None or score is None or not hasattr(model.estimator, "state_"):
        raise BadInput(f"{source.path}: no row with a target was read; nothing was saved")
    model.error = score.figures()
    model.save(path)
    return Learned(model, score, interrupted)


@contextmanager
def stoppable() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Ctrl-C between `with whole():` blocks stops at once, inside one at its end.

    So a chunk is learned wholly or not at all, and the count of rows tells where to go on.
    """
    busy = asked = False

    def handler(signum: int, frame: Any) -> None:
        nonlocal asked
        if not busy or asked:  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        asked = True

    @contextmanager
    def whole() -> Iterator[None]:
        nonlocal busy
        busy = True
        try:
            yield
        finally:
            busy = False
        if asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield whole
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield whole
    finally:
        signal.signal(signal.SIGINT, before)


def _chunks(source: Source, passes: int, skip: int) -> Iterator[tuple[Reader, Chunk]]:
    for _ in range(passes):
        with source.open() as reader:
            passed = 0
            for chunk in reader:
                passed += chunk.n
                if passed <= skip:
                    continue
                late = max(0, chunk.n - (passed - skip))
                yield reader, (_rows(chunk, late) if late else chunk)
        skip = 0


def _rows(chunk: Chunk, first: int) -> Chunk:
    """The chunk without its first rows."""
    columns = {name: column[first:] for name, column in chunk.columns.items()}
    X = None if chunk.X is None else chunk.X[first:]
    y = None if chunk.y is None else chunk.y[first:]
    return Chunk(chunk.names, columns, chunk.lines[first:], X, y)


def learn_chunk(model: Model, training: Training, chunk: Chunk, score: Score, name: str) -> None:
    """Predict, score and learn the rows of a chunk that have a target."""
    y, keep = model.targets(chunk)
    X = model.inputs(chunk, learn=True)
    every = bool(keep.all())
    X, y = (X, y) if every else (X[keep], y[keep])
    if len(y):
        estimator = model.estimator
        if not model.classifying:
            score.add(y, estimator.prequential(X, y))
        elif not hasattr(estimator, "state_"):
            score.add(y, estimator.prequential(X, y, classes=known_classes(training, y)))
        else:
            check_labels(model, chunk, y, keep, name)
            score.add(y, estimator.prequential(X, y))
    model.rows += chunk.n
    model.skipped += int(chunk.n - len(y))


def check_labels(model: Model, chunk: Chunk, y: Array, keep: Array, name: str) -> None:
    """A label never seen is an error that names its line."""
    known = model.estimator.classes_
    strange = ~np.isin(y, known)
    if strange.any():
        at = np.flatnonzero(keep)[np.flatnonzero(strange)[0]]
        label = y[strange].tolist()[0]
        raise BadInput(
            f"{name}, line {chunk.lines[at]}: label {label!r} was never seen; the classes are "
            f"{known.tolist()}. Name all of them with --classes when you start"
        )


def parameters_in_use(model: Model) -> dict[str, Any]:
    """What the estimator settled on, for people."""
    estimator = model.estimator
    return {
        "estimator": type(estimator).__name__,
        "kernel": estimator.feature_map_.kernel.spec(),
        "features": estimator.feature_map_.variant,
        "D": estimator.feature_map_.D,
        "inputs": estimator.feature_map_.d,
        "loss": estimator.loss_.spec(),
        "schedule": estimator.schedule_.spec(),
        "alpha": float(estimator.alpha),
        "average": estimator.average,
        "engine": estimator.engine_,
        "dtype": np.dtype(estimator.dtype_).name,
        "fingerprint": estimator.fingerprint_,
    }


def names(values: Sequence[Any], most: int = 8) -> str:
    """A short list for people."""
    shown = ", ".join(map(str, values[:most]))
    return shown + (f" and {len(values) - most} more" if len(values) > most else "")
