"""`fit_table` and `backtest`: what `dokl train` and `dokl backtest` do, for rows in memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dokl.base.errors import BadInput, DoklError
from dokl.base.progress import progress
from dokl.estimators.lags import as_list
from dokl.learning.cells.frames import by_name, is_category, typed_numbers, written_cells
from dokl.tables.jobs.rolling_origin import Backtest, Origins, run_backtest
from dokl.tables.jobs.rolling_report import scores
from dokl.tables.jobs.sources import Source, rows_in_order, shuffled, usable
from dokl.tables.jobs.start import Training, known_classes, not_used, random_order, start
from dokl.tables.models import TableModel
from dokl.tables.models.rows import finish, learn
from dokl.tables.models.series import LagRequest
from dokl.tables.readers import Chunk, Options
from dokl.tables.readers.table import Columns


def fit_table(
    rows: Any,
    target: str,
    *,
    task: str = "auto",
    method: str | None = None,
    drop: Any = (),
    standardise: str | None = None,
    lags: Any = (),
    rolling: Any = (),
    differences: Any = (),
    by: str | None = None,
    time: str | None = None,
    horizon: Any = 0,
    group: str | None = None,
    shuffle: bool | None = None,
    **parameters: Any,
) -> TableModel:
    """A `TableModel` that has learned these rows, once: raw rows in.

    rows: a data frame, a dict of columns or a list of dicts, with the target among the columns;
    texts, gaps, dates and decimal commas are taken as `dokl train` takes them. task: "regression"
    or "classification"; method: "bank" (the default) or "gradient". lags, rolling, differences:
    {column: how far back}, in rows (24) or in time ("24h"), by group and in the order of a column
    of times; lags may be "auto". horizon: how much later the target of a row lies. group: the
    column that names the group of a row (a station, a customer), texts or whole numbers, each with
    a place of its own; else a text column of more than 50 levels is one. shuffle: whether rows
    are learned in random order, or in theirs; None shuffles those that are sorted by their target,
    and warns. parameters: of the estimator: those of `AutoRegressor`, or of `KernelRegressor`.

    >>> import dokl
    >>> rows = {"place": ["roof", "yard"] * 60, "day": ["2024-01-01", "2024-01-02"] * 60}
    >>> model = dokl.fit_table(rows | {"y": [3.5, 1.0] * 60}, "y", random_state=0)
    >>> model.predict([{"place": "roof", "day": "2024-01-01"}]).round(1).tolist()
    [3.5]
    """
    asked = lag_request(lags, rolling, differences, by, time, horizon)
    chunk = table_of(rows, target, drop, (by, group))
    training = Training(
        target, task, standardise=standardise, method=method, parameters=parameters, lags=asked,
        group=group, shuffle=shuffle,
    )  # fmt: skip
    model, source = start(training, chunk, whole=True), Source("these rows")
    why = random_order(training, chunk).replace("--no-shuffle", "shuffle=False")
    for line in (*not_used(chunk, model), *([why] if why and shuffle is None else [])):
        warnings.warn(line, stacklevel=2)
    if why:
        chunk = Chunk.joined(list(shuffled([chunk])))
    chunk = rows_in_order(model, chunk, source, "these rows")
    y, keep, nodes = usable(model, chunk, source, "these rows", False)
    classes = known_classes(training, y) if model.classifying else None
    learn(model, chunk, y, keep, nodes, classes)
    finish(model)
    return model


def table_of(rows: Any, target: str, drop: Any = (), groups: Sequence[str | None] = ()) -> Chunk:
    """All rows as columns, read as those of a file are; groups: columns of them, which are text."""
    given = by_name(rows)
    table = {name: _cells(cells) for name, cells in given.items()}
    text = [name for name in given if is_category(given[name]) and name != target]
    text += [name for name in groups if name is not None and name not in text]
    options = Options(drop=drop, quantity=target, text=text)
    columns = Columns("these rows", tuple(table), options, unit="row")
    return columns.chunk(table, range(1, 1 + len(next(iter(table.values())))))


def lag_request(
    lags: Any = (),
    rolling: Any = (),
    differences: Any = (),
    by: str | None = None,
    time: str | None = None,
    horizon: Any = 0,
) -> LagRequest:
    """What is asked for by {column: how far back}; lags may be "auto"."""
    return LagRequest(
        _pairs(lags), _pairs(rolling), _pairs(differences), by, time, horizon, lags == "auto"
    )


def _pairs(back: Any) -> tuple[tuple[str, Any], ...]:
    """(column, how far back) each."""
    if not isinstance(back, Mapping):
        if len(back) and back != "auto":
            raise BadInput(f"lags are {{column: how far back}}, or 'auto', and not {back!r}")
        return ()
    return tuple((str(name), v) for name, values in back.items() for v in as_list(values))


def _cells(cells: Any) -> Any:
    """Numbers as float64; anything else as a list of cells, times as ISO 8601."""
    numbers = None if is_category(cells) else typed_numbers(cells)
    return written_cells(cells) if numbers is None else numbers


# -- backtests ------------------------------------------------------------------------------------
def backtest(
    rows: Any,
    target: str,
    *,
    horizon: Any = 0,
    by: str | None = None,
    time: str | None = None,
    lags: Any = "auto",
    rolling: Any = (),
    differences: Any = (),
    folds: int = 4,
    held_out: float = 0.4,
    drop: Any = (),
    predictions: bool = False,
    **parameters: Any,
) -> Any:
    """A pandas frame of what a model would have done from several origins in the past.

    rows: as for `fit_table`, which also has target, lags, rolling, differences, by and time; rows
    are sorted by time. The last share of the rows, `held_out`, is cut into folds. At the beginning
    of each the model has learned what was known by then, and predicts the fold "frozen", and
    "following", where it learns on. Beside it stand ridge, LightGBM if it is installed, and earlier
    values. horizon: how much later the targets lie; several give an error for each.

    The frame has a row for each horizon, fold and predictor: rows, rmse, mae, r2, and of the model
    the coverage of 90 % intervals and half their width. Fold "all" is all of them. With
    predictions=True it has a row for each target instead: time, group, y, what everybody predicted,
    and the ends of intervals. parameters: of `AutoRegressor`.

    >>> import dokl
    >>> hours = np.arange("2024-01-01", "2024-01-21", dtype="datetime64[h]")
    >>> flow = 5 + np.sin(np.arange(480) * np.pi / 12)
    >>> found = dokl.backtest({"when": hours, "flow": flow}, "flow", folds=1, n_components=30)
    >>> best = found[found.fold == "all"].set_index("model")
    >>> bool(best.rmse["dokl following"] < best.rmse["the last value"])
    True
    """
    pandas = _pandas()
    asked = lag_request(lags, rolling, differences, by, time)
    table = table_of(rows, target, drop, (by,))
    how = {"random_state": 0, **parameters}
    training = Training(target, "regression", method="bank", parameters=how, lags=asked)
    horizons = as_list(horizon)
    with progress(table.n * len(horizons), "backtest", unit="rows") as bar:
        source = Source("these rows")
        origins = Origins(folds, held_out)
        found = run_backtest(table, training, horizons, origins, source, bar.advance)
    if found.interrupted:
        raise KeyboardInterrupt
    return pandas.DataFrame(_predictions(found) if predictions else scores(found))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise DoklError(
            "backtest returns a pandas frame, and pandas is not installed: pip install pandas. "
            "dokl backtest --json works without"
        ) from None
    return pandas


def _predictions(found: Backtest) -> dict[str, Any]:
    """Columns of a frame with a row for each target."""
    parts = []
    for forecasts in found.forecasts:
        n, due = len(forecasts.y), forecasts.due
        columns: dict[str, Any] = {"horizon": np.full(n, str(forecasts.horizon), object)}
        columns |= {"fold": forecasts.fold, "row": due}
        if (times := forecasts.times(due)) is not None:
            columns["time"] = times
        if forecasts.pairs.groups is not None:
            columns["group"] = forecasts.pairs.groups[due]
        columns |= {"y": forecasts.y, **forecasts.predicted}
        for name, (lower, upper) in forecasts.ends.items():
            columns |= {f"{name} lower": lower, f"{name} upper": upper}
        parts.append(columns)
    names = dict.fromkeys(name for part in parts for name in part)
    blank = [np.full(len(part["y"]), np.nan) for part in parts]
    return {
        name: np.concatenate([p.get(name, gap) for p, gap in zip(parts, blank, strict=True)])
        for name in names
    }
