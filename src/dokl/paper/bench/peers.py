"""dokl and what a user would pick instead, each behind the same small interface.

A peer starts on a task and is then fed rows i to j: it predicts each of them
(before it learns from it, or from its batch) and learns them. Settings are a library's defaults
unless given; kernel widths are the task's, for everybody.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import install_line
from dokl.paper.bench.tasks import CLASSES, Task

D = 500  # features of dokl and of scikit-learn's RBFSampler
ALPHA = 1e-4  # L2 strength in classification: the default of dokl and of scikit-learn
BATCH = 256
RIVER_COMPONENTS = 100  # per input: River's default
MOST_EXACT = 4000  # rows for methods whose cost grows with the rows they have seen


@dataclass(frozen=True)
class Run:
    """A peer at work on a task."""

    feed: Callable[[int, int], Array | None]  # rows i to j -> predictions before learning
    predict: Callable[[], Array]  # of the test rows
    size: Callable[[], int]  # bytes of the model, written down
    close: Callable[[], None] = lambda: None


DISTRIBUTIONS = {"sklearn": "scikit-learn"}
NOT_INSTALLED = f"not installed: {install_line('bench')}"


class OfPackage:
    """Something that a package does, which may be absent."""

    package: str

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def version(self) -> str:
        """The version that is installed."""
        return importlib.metadata.version(DISTRIBUTIONS.get(self.package, self.package))


@dataclass(frozen=True)
class Peer(OfPackage):
    """A way to learn a task."""

    family: str  # what --peers calls it
    name: str
    package: str  # what has to be installed to import it
    fed: str  # "batches", "one by one" or "all at once"
    settings: str
    start: Callable[[Task], Run]
    suits: Callable[[Task], bool] = lambda task: True
    most: int | None = None  # rows at most


def pickled(model: object) -> int:
    """Bytes of its pickle."""
    return len(pickle.dumps(model, protocol=5))


def in_batches(step: Callable[[int, int], Array]) -> Callable[[int, int], Array]:
    """Feed rows i to j a batch at a time."""

    def feed(i: int, j: int) -> Array:
        return np.concatenate([step(k, min(j, k + BATCH)) for k in range(i, j, BATCH)])

    return feed


def one_by_one(step: Callable[[int], Any]) -> Callable[[int, int], Array]:
    """Feed rows i to j one after another."""
    return lambda i, j: np.array([step(k) for k in range(i, j)])


# -- dokl ----------------------------------------------------------------------------------------
def _estimator(task: Task) -> Any:
    from dokl.estimators import KernelClassifier, KernelRegressor

    if task.classifying:
        return KernelClassifier(sigma=task.sigma, n_components=D, alpha=ALPHA, random_state=0)
    return KernelRegressor(sigma=task.sigma, n_components=D, random_state=0)


def _dokl(task: Task) -> tuple[Any, Callable[[Any, Array], Array]]:
    model = _estimator(task)
    known = {"classes": CLASSES} if task.classifying else {}
    return model, lambda X, y: model.prequential(X, y, **known)


def dokl_batches(task: Task) -> Run:
    """One call of `prequential` a batch: it predicts every row just before it learns it."""
    model, learn = _dokl(task)
    X, y = task.learn.X, task.learn.y
    feed = in_batches(lambda i, j: learn(X[i:j], y[i:j]))
    return Run(feed, lambda: model.predict(task.test.X), lambda: pickled(model))


def dokl_single(task: Task) -> Run:
    """One call of `prequential` a row."""
    model, learn = _dokl(task)
    rows = task.learn.single
    feed = one_by_one(lambda k: learn(*rows[k])[0])
    return Run(feed, lambda: model.predict(task.test.X), lambda: pickled(model))


def dokl_in_river(task: Task) -> Run:
    """`dokl.estimators.river`: predict_one and learn_one on dicts."""
    from dokl.estimators.river import KernelClassifier, KernelRegressor

    if task.classifying:
        model: Any = KernelClassifier(sigma=task.sigma, n_components=D, alpha=ALPHA, loss="hinge")
    else:
        model = KernelRegressor(sigma=task.sigma, n_components=D)
    return river_run(model, task, task.learn.y.tolist(), task.test.dicts)


# -- scikit-learn --------------------------------------------------------------------------------
def _sgd(task: Task) -> tuple[Any, Callable[[Any, Array], Array], Callable[[], Array], Any]:
    """Features, a step (predict, then learn), a test, and what a user would pickle."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    features = RBFSampler(gamma=task.gamma, n_components=D, random_state=0).fit(task.learn.X[:1])
    if task.classifying:
        model: Any = SGDClassifier(alpha=ALPHA, average=True, random_state=0)
        known = {"classes": CLASSES}
    else:
        model = SGDRegressor(
            penalty=None, learning_rate="constant", eta0=0.5, fit_intercept=False, random_state=0
        )
        known = {}

    def step(X: object, y: Array) -> Array:
        Z = features.transform(X)
        before = model.predict(Z) if hasattr(model, "coef_") else np.full(len(y), CLASSES[0])
        model.partial_fit(Z, y, **known)
        return np.asarray(before)

    def test() -> Array:
        X = task.test.X
        parts = range(0, len(task.test), BATCH)
        return np.concatenate([model.predict(features.transform(X[i : i + BATCH])) for i in parts])

    return features, step, test, (features, model)


def sklearn_batches(task: Task) -> Run:
    """RBFSampler and SGD, a batch at a time: predicted whole, then learned."""
    _, step, test, model = _sgd(task)
    X, y = task.learn.X, task.learn.y
    return Run(in_batches(lambda i, j: step(X[i:j], y[i:j])), test, lambda: pickled(model))


def sklearn_single(task: Task) -> Run:
    """RBFSampler and SGD, a row at a time."""
    _, step, test, model = _sgd(task)
    rows = task.learn.single
    return Run(one_by_one(lambda k: step(*rows[k])[0]), test, lambda: pickled(model))


def exact(task: Task) -> Run:
    """The kernel machine itself, on all rows at once: what features can at best come close to."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.svm import SVC

    n = min(MOST_EXACT, len(task.learn))
    if task.classifying:
        model: Any = SVC(C=1 / (ALPHA * n), gamma=task.gamma)
    else:
        model = KernelRidge(alpha=1e-3, kernel="rbf", gamma=task.gamma)

    def feed(i: int, j: int) -> None:
        model.fit(task.learn.X[i:j], task.learn.y[i:j])

    return Run(feed, lambda: model.predict(task.test.X), lambda: pickled(model))


# -- River ---------------------------------------------------------------------------------------
def river_run(model: Any, task: Task, targets: list[Any], tests: list[dict[str, float]]) -> Run:
    """predict_one, then learn_one."""
    rows = task.learn.dicts
    unknown = float(CLASSES[0])  # before the first label

    def ask(x: dict[str, float]) -> float:
        found = model.predict_one(x)
        return _as_class(unknown if found is None else found)

    def step(k: int) -> float:
        before = ask(rows[k])
        model.learn_one(rows[k], targets[k])
        return before

    return Run(one_by_one(step), lambda: np.array([ask(x) for x in tests]), lambda: pickled(model))


def _as_class(found: Any) -> float:
    """River's labels are False and True, ours -1 and 1."""
    return (1.0 if found else -1.0) if isinstance(found, bool | np.bool_) else float(found)


def river(task: Task) -> Run:
    """Its RBFSampler and a linear model."""
    from river import feature_extraction, linear_model, optim

    features = feature_extraction.RBFSampler(
        gamma=task.gamma, n_components=RIVER_COMPONENTS, seed=0
    )
    mapped = RIVER_COMPONENTS * np.mean([len(x) for x in task.learn.dicts])
    step = optim.SGD(1 / mapped)
    if task.classifying:
        model: Any = features | linear_model.LogisticRegression(step)
        targets = (task.learn.y > 0).tolist()
    else:
        model = features | linear_model.LinearRegression(step)
        targets = task.learn.y.tolist()
    return river_run(model, task, targets, task.test.dicts)


# -- Vowpal Wabbit -------------------------------------------------------------------------------
def _vw(task: Task, options: str) -> Run:
    """Lines of text, one by one; its `learn` predicts first, so one call does both."""
    from vowpalwabbit import Workspace

    space = Workspace(f"--quiet --random_seed 1 {options}")

    def answer(line: str, act: Callable[[Any], Any]) -> float:
        example = space.example(line)
        act(example)
        found = float(example.get_simplelabel_prediction())
        space.finish_example(example)
        return (1.0 if found > 0 else -1.0) if task.classifying else found

    def size() -> int:
        with tempfile.TemporaryDirectory() as folder:
            space.save(str(Path(folder, "model")))
            return Path(folder, "model").stat().st_size

    lines, tests = task.learn.lines, task.test.lines
    feed = one_by_one(lambda k: answer(lines[k], space.learn))
    test = lambda: np.array([answer(line, space.predict) for line in tests])  # noqa: E731
    return Run(feed, test, size, space.finish)


def vw(task: Task) -> Run:
    """Products of two inputs, or the inputs alone where they are many and sparse."""
    loss = "hinge" if task.classifying else "squared"
    products = "-q ::" if task.d <= 50 else ""
    return _vw(task, f"--loss_function {loss} {products}")


def vw_kernel(task: Task) -> Run:
    """Its online kernel machine (LASVM)."""
    return _vw(task, f"--ksvm --kernel rbf --bandwidth {task.gamma} --reprocess 5")


# -- padasip -------------------------------------------------------------------------------------
def padasip(task: Task) -> Run:
    """A linear adaptive filter over the inputs and a constant."""
    from padasip.filters import FilterNLMS

    def inputs(X: Array) -> Array:
        return np.column_stack([X, np.ones(len(X))])

    model = FilterNLMS(n=task.d + 1, mu=0.1, w="zeros")
    X, y, X_test = inputs(task.learn.X), task.learn.y, inputs(task.test.X)
    feed = in_batches(lambda i, j: np.asarray(model.run(y[i:j], X[i:j])[0]))
    return Run(feed, lambda: X_test @ model.w, lambda: pickled(model))


def _regression(task: Task) -> bool:
    return not task.classifying


def _classification(task: Task) -> bool:
    return task.classifying


PEERS = (
    Peer(
        "dokl", "dokl", "dokl", "batches",
        f"D = {D}, else defaults; a classifier's online score is of its last vector, its test "
        "score of the averaged one",
        dokl_batches,
    ),
    Peer("dokl", "dokl, by row", "dokl", "one by one", "the same", dokl_single),
    Peer(
        "sklearn", "sklearn", "sklearn", "batches",
        f"RBFSampler, D = {D}; SGDClassifier(average=True), else defaults, or SGDRegressor with "
        "dokl's step (its own is far too short)",
        sklearn_batches,
    ),
    Peer("sklearn", "sklearn, by row", "sklearn", "one by one", "the same", sklearn_single),
    Peer(
        "exact", "SVC", "sklearn", "all at once",
        f"C = 1/(alpha n), so as much regularization as the others; at most {MOST_EXACT:,} rows",
        exact, _classification, MOST_EXACT,
    ),
    Peer(
        "exact", "KernelRidge", "sklearn", "all at once",
        f"alpha = 1e-3; at most {MOST_EXACT:,} rows", exact, _regression, MOST_EXACT,
    ),
    Peer(
        "river", "River", "river", "one by one",
        f"RBFSampler, {RIVER_COMPONENTS} components per input (its default), which it never sums: "
        "not an RBF map; logistic or linear regression, SGD(1 / mapped features), as its default "
        "0.01 diverges in regression",
        river,
    ),
    Peer(
        "river", "dokl in River", "river", "one by one",
        f"dokl.estimators.river, D = {D}, float64; hinge or squared loss", dokl_in_river,
    ),
    Peer(
        "vw", "VW", "vowpalwabbit", "one by one",
        "products of two inputs (-q ::), beyond 50 inputs linear; hinge or squared loss, else "
        "defaults",
        vw,
    ),
    Peer(
        "vw", "VW --ksvm", "vowpalwabbit", "one by one",
        f"rbf, --reprocess 5, lightly tuned; it keeps support vectors: at most {MOST_EXACT:,} rows",
        vw_kernel, _classification, MOST_EXACT,
    ),
    Peer(
        "padasip", "padasip", "padasip", "batches",
        "FilterNLMS, mu = 0.1 (its default), a constant input added; linear, no kernel",
        padasip, _regression,
    ),
)  # fmt: skip
FAMILIES = tuple(dict.fromkeys(peer.family for peer in PEERS))
