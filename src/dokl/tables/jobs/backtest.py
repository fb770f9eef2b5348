"""`backtest`: what `dokl backtest` does with a file, for rows that are in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.errors import DoklError
from dokl.base.progress import progress
from dokl.estimators.lags import as_list
from dokl.tables.jobs.fit import lag_request, table_of
from dokl.tables.jobs.rolling_origin import Backtest, run_backtest
from dokl.tables.jobs.rolling_report import scores
from dokl.tables.jobs.rolling_rows import Origins
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import Training


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
        columns |= {"y": forecasts.y, **forecasts.said}
        for name, (lower, upper) in forecasts.ends.items():
            columns |= {f"{name} lower": lower, f"{name} upper": upper}
        parts.append(columns)
    names = dict.fromkeys(name for part in parts for name in part)
    blank = [np.full(len(part["y"]), np.nan) for part in parts]
    return {
        name: np.concatenate([p.get(name, gap) for p, gap in zip(parts, blank, strict=True)])
        for name in names
    }
