"""Least squares over more rows than one machine holds: from a Dask dataframe or bag.

    pilot   some rows of some partitions: columns, classes, length scales, one map for all
    sums    of each partition, where it lies: Z'Z, Z'y, y'y and counts (`learning.squares.sums`)
    tree    sums are added, some at a time, until one is left, and the model is solved from that

Sums add up, so the model is that of one pass over all rows, to rounding, however they are cut.
What comes out is an ordinary model (`experts="one"`, as `dokl train -p experts=one` makes it):
it predicts raw rows with intervals or probabilities, is saved, merged, and goes on learning.

>>> import pandas as pd
>>> import dask.dataframe as dd
>>> rng = np.random.default_rng(0)
>>> frame = pd.DataFrame({"a": rng.normal(size=2000), "b": rng.normal(size=2000)})
>>> frame["y"] = np.sin(frame.a) * frame.b
>>> model = fit_squares(dd.from_pandas(frame, npartitions=4), "y", n_components=50)
>>> model.rows_read, bool(model.score(frame) > 0.99)
(2000, True)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base import random_numbers
from dokl.base.arrays import Array
from dokl.base.errors import BadInput, MissingExtra, UnknownName
from dokl.estimators import AutoClassifier, AutoRegressor
from dokl.learning import calibration, intervals
from dokl.learning.cells.frames import by_name, column, typed_numbers
from dokl.learning.columns import Preprocessor, are_classes
from dokl.learning.experts import buffer as keeping
from dokl.learning.experts.bank import Bank, features, numbers_of, start
from dokl.learning.experts.learn import on_all_cores
from dokl.learning.experts.pilots import run_pilot, with_nothing_learned
from dokl.learning.squares import sums
from dokl.learning.squares.sums import Sums
from dokl.tables.models import TableModel
from dokl.tables.models.rows import chunk_for, inputs_for, targets_for

try:
    import dask
    from dask.delayed import delayed
except ImportError:
    raise MissingExtra("dokl.tables.dask", "dask") from None

TASKS = ("auto", "regression", "classification")
PILOT_ROWS, PILOT_PARTS = 10_000, 16
ROWS = 4096  # whose features are in memory at once, for each thread of a worker
FAN = 8  # sums that are added by one task
# Partitions whose sums may be held by workers at a time, twice: the sums of a group are kept until
# the client has their total, so that a lost worker costs its own partitions and nothing else.
GROUP = 32

__all__ = ["fit_squares"]


def fit_squares(
    rows: object,
    target: str,
    *,
    task: str = "auto",
    classes: Sequence[Any] | None = None,
    exclude: Sequence[str] = (),
    n_components: int = 1000,
    pilot_rows: int = PILOT_ROWS,
    random_state: int = 0,
    progress: bool = False,
    client: Any = None,
) -> TableModel:
    """Least squares on all rows of a Dask dataframe, or of a bag of dicts, with a column `target`.

    task: "auto" takes few whole numbers and texts for classes. classes: all labels, where the pilot
    may not show them. exclude: columns that are no inputs. pilot_rows: rows that settle columns,
    levels and length scales, from up to 16 partitions. progress: show Dask's own bar. client: of a
    cluster; else the one of `dask.distributed` that is active, or Dask's scheduler here.

    Every target is believed: a bound on wild ones depends on the order of rows, and sums do not.
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    parts = _partitions(rows)
    client = _active() if client is None else client
    (found,) = _compute([_pilot(parts, pilot_rows, random_state)], client)
    model, X, Y = _agreed(found, target, task, classes, exclude, n_components, random_state)
    shared = model if client is None else client.scatter(model, broadcast=True)
    leaves = [delayed(_sums_of, pure=True)(shared, part) for part in parts]
    total = _total(leaves, client, progress)
    if not total.sums.rows:
        raise BadInput(f"no row has a target {target!r}")
    return _solve(model, total, X, Y)


def _partitions(rows: object) -> list[Any]:
    if not hasattr(rows, "to_delayed"):
        raise BadInput(
            f"a Dask dataframe or bag is expected, not a {type(rows).__name__}: for rows in memory "
            "there is AutoRegressor(experts='one')"
        )
    parts = list(np.ravel(rows.to_delayed()))
    if not parts:
        raise BadInput("there are no partitions")
    return parts


def _active() -> Any:
    """The client of a cluster that is in use, or None."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _compute(tasks: list[Any], client: Any) -> list[Any]:
    if client is None:
        return list(dask.compute(*tasks))
    return list(client.gather(client.compute(tasks)))


# -- the pilot ---------------------------------------------------------------------------------
def _pilot(parts: list[Any], rows: int, seed: int) -> Any:
    """Rows of some partitions, as a task: {name: cells}."""
    chosen = np.unique(np.linspace(0, len(parts) - 1, min(len(parts), PILOT_PARTS)).astype(int))
    each = math.ceil(rows / len(chosen))
    return delayed(_together)([delayed(_some)(parts[i], each, seed, int(i)) for i in chosen])


def _some(part: Any, most: int, seed: int, number: int) -> dict[str, list[Any]]:
    """At most n rows of a partition, always the same for a seed."""
    part = _rows(part)
    if not len(part):
        return {}
    table = by_name(part)
    n = len(next(iter(table.values())))
    order = np.argsort(random_numbers.uniforms(seed, ("dask", number), n), kind="stable")
    at = np.sort(order[:most]).tolist()
    cells = {}
    for name, values in table.items():
        numbers = typed_numbers(values)
        plain = np.asarray(values, object) if numbers is None else np.asarray(values)
        cells[name] = [plain[i] for i in at]
    return cells


def _together(tables: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Tables one after the other; a column that one of them lacks is missing there."""
    names = dict.fromkeys(name for table in tables for name in table)
    out: dict[str, list[Any]] = {name: [] for name in names}
    for table in tables:
        n = len(next(iter(table.values()), ()))
        for name in names:
            out[name] += table.get(name, [None] * n)
    return out


def _rows(part: Any) -> Any:
    """A partition that can be counted: bags may have iterators."""
    return part if hasattr(part, "__len__") else list(part)


def _convert_types(name: str, cells: list[Any]) -> Array:
    """Numbers where all that is there are numbers, else texts."""
    real = all(isinstance(c, int | float | np.number) for c in cells if c is not None)
    return column(name, cells, None if real else ())


def _agreed(
    found: dict[str, list[Any]], target: str, task: str, classes: Sequence[Any] | None,
    exclude: Sequence[str], n_components: int, seed: int,
) -> tuple[TableModel, Array, Array]:  # fmt: skip
    """An empty model with what all partitions are to share, and the pilot's X (n, d), Y (n, m)."""
    table = {name: _convert_types(name, cells) for name, cells in found.items()}
    if target not in table:
        raise BadInput(f"there is no column {target!r}; there are {', '.join(table) or 'no rows'}")
    inputs = {name: cells for name, cells in table.items() if name != target}
    prepared = Preprocessor.plan(inputs, exclude, "off")
    prepared.learn_transform(inputs)  # what stands for missing numbers
    prepared.freeze()
    known = are_classes(table[target]) if task == "auto" else task == "classification"
    made: Any = AutoClassifier if known else AutoRegressor
    how: dict[str, Any] = {"experts": "one", "bound": math.inf, "random_state": seed}
    model = TableModel(made(n_components, **how), prepared, target)
    chunk = chunk_for(model, table)
    y, keep = targets_for(model, chunk, table[target])
    if not len(y):
        raise BadInput(f"no row of the pilot has a target {target!r}")
    X = inputs_for(model, chunk)[keep]
    return model, X, _install_map(model.estimator, X, y, classes)


def _install_map(estimator: Any, X: Array, y: Array, classes: Sequence[Any] | None) -> Array:
    """Give an estimator the map and the scalings of the pilot, X (n, d), and nothing learned;
    returns Y (n, m).
    """
    estimator.n_features_in_ = X.shape[1]
    if estimator._classifying:
        estimator._meet(y if classes is None else np.asarray(classes))
    else:
        estimator._flat = True
    Y: Array = estimator._targets(y)
    empty = start(X.shape[1], Y.shape[1], replace(estimator._settings(), pilots=()))
    now = run_pilot(empty, X, Y, np.ones(len(X)))
    estimator.bank_ = with_nothing_learned(replace(empty, now=now), now)
    return Y


# -- sums --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PartTotal:
    """The sums of rows, with the numbers of rows and of rows without a target."""

    sums: Sums
    read: int
    skipped: int


def _sums_of(model: TableModel, part: Any) -> PartTotal:
    """What a partition adds, by the map and the scalings that all share."""
    bank: Bank = model.estimator.bank_
    now, part = bank.now, _rows(part)
    assert now is not None
    total = sums.no_rows(now.maps[bank.kinds[0].features].D, bank.m)
    if not len(part):
        return PartTotal(total, 0, 0)
    chunk = chunk_for(model, part, target=True)
    y, keep = targets_for(model, chunk)
    X = inputs_for(model, chunk)[keep]
    Y = now.targets.inward(model.estimator._targets(y)) if len(y) else np.empty((0, bank.m))
    with on_all_cores(many=False):  # workers are as many as cores
        for at in range(0, len(X), ROWS):
            some = slice(at, at + ROWS)
            total = sums.add(total, features(bank, now, X[some], [0])[0], Y[some])
    return PartTotal(total, chunk.n, chunk.n - len(y))


def _add(parts: Sequence[PartTotal]) -> PartTotal:
    """One total of some."""
    total = parts[0]
    for part in parts[1:]:
        counts = total.read + part.read, total.skipped + part.skipped
        total = PartTotal(total.sums + part.sums, *counts)
    return total


def _total(leaves: list[Any], client: object, show: bool) -> PartTotal:
    if client is None:
        from dask.diagnostics import ProgressBar

        with ProgressBar() if show else nullcontext():
            (found,) = dask.compute(_tree(leaves, delayed(_add, pure=True)))
        return found  # type: ignore[no-any-return]
    return _by_groups(leaves, client, show)


def _tree(parts: list[Any], add: Any) -> Any:
    """Some at a time, until one is left."""
    while len(parts) > 1:
        parts = [add(parts[i : i + FAN]) for i in range(0, len(parts), FAN)]
    return parts[0]


def _by_groups(leaves: list[Any], client: Any, show: bool) -> PartTotal:
    """Groups of partitions, added in their order; two groups are under way at a time."""
    waiting: deque[tuple[list[Any], Any]] = deque()
    total: PartTotal | None = None

    def add(parts: list[Any]) -> Any:
        return client.submit(_add, parts, pure=False)

    for at in range(0, len(leaves) + 2 * GROUP, GROUP):
        group = leaves[at : at + GROUP]
        if group:
            futures = client.compute(group)
            waiting.append((futures, _tree(futures, add)))
        if waiting and (len(waiting) == 2 or not group):
            futures, root = waiting.popleft()
            if show:
                from distributed import progress

                progress(futures, notebook=False)
            found = root.result()
            total = found if total is None else _add([total, found])
            for future in (*futures, root):
                future.release()
    assert total is not None
    return total


# -- the model ---------------------------------------------------------------------------------
def _solve(model: TableModel, total: PartTotal, X: Array, Y: Array) -> TableModel:
    """The model of these sums. X, Y: the pilot's rows, kept for what comes later."""
    estimator, bank = model.estimator, model.estimator.bank_
    numbers = numbers_of(bank, bank.now, 0)
    memory = sums.solve(total.sums, numbers.rho)
    settings = bank.settings
    kept = keeping.append(bank.kept, X, Y, np.ones(len(X)), settings.kept, settings.seed)
    kept = replace(kept, seen=total.sums.rows)
    estimator.bank_ = replace(bank, memories=(memory,), sums=(total.sums,), kept=kept)
    _calibrate(estimator, X, Y)
    model.rows_read, model.rows_skipped = total.read, total.skipped
    return model


def _calibrate(estimator: Any, X: Array, Y: Array) -> None:
    """Widths of intervals, and probabilities, by what the model predicts for the pilot's rows
    without them: with z'Pz = h, a row's error without itself is e/(1 - h), and its variance 1/(1 -
    h).
    """
    bank: Bank = estimator.bank_
    now, memory = bank.now, bank.memories[0]
    assert now is not None
    Z, y = features(bank, now, X, [0])[0], now.targets.inward(Y)
    left = np.maximum(1.0 - memory.variance(Z), 1e-6)[:, None]
    error = y - Z @ memory.theta.T
    scores = np.abs(error) / np.sqrt(memory.noise * left)
    fresh = intervals.start(bank.settings.levels, bank.m)
    estimator.bank_ = replace(bank, tracker=intervals.follow_scores(fresh, scores)[0])
    if hasattr(estimator, "classes_"):
        both_scores = calibration.both(now.targets.outward(y - error / left))
        numbers = calibration.both(Y).argmax(axis=1)
        first = calibration.start(len(estimator.classes_))
        estimator.calibration_ = calibration.follow(first, both_scores, numbers)[0]
