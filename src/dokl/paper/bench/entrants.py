"""dokl and what a user would pick instead, on a user's own file, each at its defaults.

An entrant starts on a table and is then fed rows i to j in order: it predicts each
of them, and learns them. It learns row by row, in batches that are predicted whole, or is fitted
again to all rows so far where a fifth of them ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import BadInput
from dokl.paper.bench.peers import OfPackage, one_by_one
from dokl.paper.bench.tasks import Rows
from dokl.tables.jobs.sources import Source, targets
from dokl.tables.jobs.start import Training, guesses, start
from dokl.tables.models.rows import inputs_for
from dokl.tables.readers import Chunk

FEWEST = 50
MOST_NUMBERS = 200_000_000  # of a sparse file, all of them written out: 1.6 GB
PIECE = 512  # rows between two looks at the clock
PARTS = 5  # the first of them is not scored; who is refitted is so before each of the others


@dataclass(frozen=True)
class OwnTable:
    """rows: X (n, d) as they are, texts as 0 and 1, gaps at the mean so far; y (n,) targets, or
    numbers of classes. scaled: X (n, d) standardised by the rows so far. labels: of classes, in
    their order; none in a regression. guesses: what was found out about the file, in words.
    """

    name: str
    rows: Rows
    scaled: Array
    labels: tuple[Any, ...] = ()
    guesses: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.rows.X.shape[1])

    @property
    def cuts(self) -> list[int]:
        """Where one part ends and the next begins."""
        return [self.n * k // PARTS for k in range(1, PARTS)]

    @property
    def metric(self) -> str:
        """What predictions are judged by."""
        return "error rate" if self.labels else "error / variance"

    def first(self, n: int) -> OwnTable:
        """The first rows; labels stay, whether they come up or not."""
        return replace(self, rows=self.rows.first(n), scaled=self.scaled[:n])

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(i, j) in order, short ones, cut where parts end."""
        for a, b in zip([0, *self.cuts], [*self.cuts, self.n], strict=True):
            for i in range(a, b, PIECE):
                yield i, min(b, i + PIECE)

    def error(self, predicted: Array) -> float | None:
        """Of predictions (n,), or of fewer rows, after the first part; None if it is all there is.

        The share of wrong labels, or the mean squared error over the variance of the target there.
        """
        return self._error(predicted, self.cuts[0], len(predicted))

    def errors(self, predicted: Array) -> tuple[float | None, ...]:
        """The same of each part but the first; None where not all of it was predicted."""
        parts = zip(self.cuts, [*self.cuts[1:], self.n], strict=True)
        whole = len(predicted)
        return tuple(self._error(predicted, a, b) if b <= whole else None for a, b in parts)

    def _error(self, predicted: Array, start: int, stop: int) -> float | None:
        f, y = predicted[start:stop], self.rows.y[start:stop]
        if not len(y):
            return None
        if self.labels:
            return float(np.mean(f != y))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # it may have diverged
            return float(np.mean((f - y) ** 2) / np.var(y))


def read(source: Source, training: Training, most: int | None) -> OwnTable:
    """At most n rows of a file that have a target."""
    classes = replace(training, method="gradient")  # to which inputs may come in either way
    plain, scaled = (replace(classes, standardise=how) for how in ("off", "running"))
    parts: list[tuple[Any, Any, Array]] = []
    with source.open(target=training.target) as reader:
        models = start(plain, reader.first), start(scaled, reader.first)
        guessed = guesses(classes, reader.first, models[0])
        rows = 0
        for chunk in reader:
            y, keep = targets(models[0], chunk)
            X, Z = (_dense(inputs_for(model, chunk, learn=True), chunk)[keep] for model in models)
            parts.append((X, Z, y))
            rows += len(y)
            if most is not None and rows >= most:
                break
    X, Z, y = (np.concatenate(each)[:most] for each in zip(*parts, strict=True))
    name = "stdin" if source.path == "-" else Path(source.path).name
    if len(y) < FEWEST:
        raise BadInput(f"{name} has {len(y)} rows with a target: {FEWEST} are needed to compare")
    if not models[0].classifying:
        return _with_spread(OwnTable(name, Rows(X, np.asarray(y, np.float64)), Z, (), guessed))
    labels, numbers = np.unique(y, return_inverse=True)
    if len(labels) < 2:
        raise BadInput(f"{name} has one class only, {labels[0]!r}, in its first {len(y):,} rows")
    return OwnTable(name, Rows(X, numbers.astype(np.int64)), Z, tuple(labels.tolist()), guessed)


def _with_spread(table: OwnTable) -> OwnTable:
    if not np.var(table.rows.y[table.cuts[0] :]) > 0:
        raise BadInput(f"the target of {table.name} does not vary: there is nothing to predict")
    return table


def _dense(X: Any, chunk: Chunk) -> Array:
    if not is_sparse(X):
        return np.asarray(X)
    if X.shape[1] * chunk.n > MOST_NUMBERS:
        raise BadInput(f"{X.shape[1]:,} inputs are too many for this comparison")
    return np.asarray(X.toarray(), np.float64)


# -- who takes part -------------------------------------------------------------------------------
BATCH = 256
TREES = 10
MOST_PRODUCTS = 50  # inputs whose products Vowpal Wabbit is given

Feed = Callable[[int, int], Array]


@dataclass(frozen=True)
class Entrant(OfPackage):
    """A way to learn a table. name: what --only calls it; start: a feed, and what ends it."""

    name: str
    title: str
    package: str
    settings: str
    start: Callable[[OwnTable], tuple[Feed, Callable[[], Any]]]


def _nothing() -> None:
    return None


# -- dokl ----------------------------------------------------------------------------------------
def _prequential(model: Any, table: OwnTable, X: Array) -> tuple[Feed, Callable[[], Any]]:
    classes = {"classes": np.arange(len(table.labels))} if table.labels else {}
    y = table.rows.y
    return lambda i, j: np.asarray(model.prequential(X[i:j], y[i:j], **classes)), _nothing


def auto(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """No settings, raw inputs."""
    from dokl.estimators import AutoClassifier, AutoRegressor

    kind = AutoClassifier if table.labels else AutoRegressor
    return _prequential(kind(random_state=0), table, table.rows.X)


def kernel(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Defaults; inputs standardised by the rows so far."""
    from dokl.estimators import KernelClassifier, KernelRegressor

    kind = KernelClassifier if table.labels else KernelRegressor
    return _prequential(kind(random_state=0), table, table.scaled)


# -- River ---------------------------------------------------------------------------------------
def _river(model: Any, table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    xs, ys = table.rows.dicts, table.rows.y.tolist()

    def step(k: int) -> Any:
        before = model.predict_one(xs[k])
        model.learn_one(xs[k], ys[k])
        return 0 if before is None else before

    return one_by_one(step), _nothing


def forest(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Trees that are replaced where the target moves."""
    from river import forest

    kind = forest.ARFClassifier if table.labels else forest.ARFRegressor
    return _river(kind(n_models=TREES, seed=0), table)


def linear(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """A linear model behind a scaler."""
    from river import linear_model, preprocessing

    model: Any = linear_model.LinearRegression()
    if table.labels:
        two = len(table.labels) == 2
        model = linear_model.LogisticRegression() if two else linear_model.SoftmaxRegression()
    return _river(preprocessing.StandardScaler() | model, table)


# -- scikit-learn, LightGBM, CatBoost --------------------------------------------------------------
def sgd(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """A linear model behind a scaler, in batches."""
    from sklearn.linear_model import SGDClassifier, SGDRegressor
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    model: Any = (SGDClassifier if table.labels else SGDRegressor)(random_state=0)
    classes = {"classes": np.arange(len(table.labels))} if table.labels else {}
    X, y = table.rows.X, table.rows.y
    size = max(1, min(BATCH, table.n // 20))

    def step(i: int, j: int) -> Array:
        known = hasattr(model, "coef_")
        before = model.predict(scaler.transform(X[i:j])) if known else np.zeros(j - i)
        model.partial_fit(scaler.partial_fit(X[i:j]).transform(X[i:j]), y[i:j], **classes)
        return np.asarray(before)

    def feed(i: int, j: int) -> Array:
        return np.concatenate([step(k, min(j, k + size)) for k in range(i, j, size)])

    return feed, _nothing


def _refitted(make: Callable[[], Any], table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Fitted to all rows so far where a part ends, and then asked for the next part."""
    X, y, model = table.rows.X, table.rows.y, _Constant(0.0)

    def feed(i: int, j: int) -> Array:
        nonlocal model
        if i in table.cuts:
            several = len(np.unique(y[:i])) > 1
            model = make().fit(X[:i], y[:i]) if several else _Constant(y[0])
        return np.asarray(model.predict(X[i:j]))

    return feed, _nothing


@dataclass(frozen=True)
class _Constant:
    """Before anything was fitted, and where all targets so far are the same."""

    value: Any

    def predict(self, X: Array) -> Array:
        return np.full(len(X), self.value)


def ridge(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Linear least squares behind a scaler."""
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kind = RidgeClassifier if table.labels else Ridge
    return _refitted(lambda: make_pipeline(StandardScaler(), kind()), table)


def lightgbm(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Boosted trees."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if table.labels else LGBMRegressor
    return _refitted(lambda: _Named(kind(random_state=0, verbose=-1)), table)


def trees(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Trees that split at random."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if table.labels else ExtraTreesRegressor
    return _refitted(lambda: kind(random_state=0, n_jobs=-1), table)


def catboost(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Boosted trees that are symmetric."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostClassifier if table.labels else CatBoostRegressor
    how = {"random_seed": 0, "verbose": False, "allow_writing_files": False}
    return _refitted(lambda: Flat(kind(**how)), table)


@dataclass(frozen=True)
class Flat:
    """CatBoost gives labels as (n, 1)."""

    model: Any

    def fit(self, X: Array, y: Array) -> Self:
        """Learn rows X: (n, d) with targets y: (n,)."""
        self.model.fit(X, y)
        return self

    def predict(self, X: Array) -> Array:
        """What the model predicts for rows X: (n, d), as (n,)."""
        return np.asarray(self.model.predict(X)).reshape(len(X))


class _Named(Flat):
    """LightGBM gives arrays names and then misses them."""

    def predict(self, X: Array) -> Array:
        import warnings

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            return np.asarray(self.model.predict(X))


# -- Vowpal Wabbit -------------------------------------------------------------------------------
def vw(table: OwnTable) -> tuple[Feed, Callable[[], Any]]:
    """Lines of text, one by one; its `learn` predicts first, so one call does both."""
    from vowpalwabbit import Workspace

    products = "-q ::" if table.d <= MOST_PRODUCTS else ""
    classes = f"--oaa {len(table.labels)} --loss_function logistic" if table.labels else ""
    space = Workspace(f"--quiet --random_seed 1 {products} {classes}")
    rows = table.rows
    lines = Rows(rows.X, rows.y + 1).lines if table.labels else rows.lines  # it counts from 1

    def step(k: int) -> float:
        example = space.example(lines[k])
        space.learn(example)
        if table.labels:
            found = float(example.get_multiclass_prediction()) - 1
        else:
            found = float(example.get_simplelabel_prediction())
        space.finish_example(example)
        return found

    return one_by_one(step), space.finish


AT_CUTS = "refitted to all rows at each fifth"
ENTRANTS = (
    Entrant("auto", "dokl, Auto", "dokl", "AutoRegressor or AutoClassifier; raw inputs", auto),
    Entrant(
        "kernel", "dokl, Kernel", "dokl",
        "KernelRegressor or KernelClassifier; inputs standardised by the rows so far", kernel,
    ),
    Entrant("sgd", "sklearn SGD", "sklearn", f"StandardScaler, batches of {BATCH} rows", sgd),
    Entrant(
        "ridge", "sklearn Ridge", "sklearn",
        f"StandardScaler and Ridge or RidgeClassifier; {AT_CUTS}", ridge,
    ),
    Entrant("trees", "sklearn ExtraTrees", "sklearn", f"100 trees; {AT_CUTS}", trees),
    Entrant("lightgbm", "LightGBM", "lightgbm", AT_CUTS, lightgbm),
    Entrant("catboost", "CatBoost", "catboost", f"1000 trees; {AT_CUTS}", catboost),
    Entrant(
        "vw", "Vowpal Wabbit", "vowpalwabbit",
        f"products of two inputs (-q ::), beyond {MOST_PRODUCTS} inputs linear; --oaa and logistic "
        "loss for classes", vw,
    ),
    Entrant(
        "linear", "River linear", "river",
        "StandardScaler and LinearRegression, LogisticRegression or SoftmaxRegression", linear,
    ),
    Entrant("forest", "River forest", "river", f"ARF, {TREES} trees", forest),
)  # fmt: skip
NAMES = tuple(entrant.name for entrant in ENTRANTS)
