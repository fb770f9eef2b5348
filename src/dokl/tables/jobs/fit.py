"""`fit_table`: what `dokl train` does with a file, for rows that are in memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dokl.base.errors import BadInput
from dokl.estimators.lags import as_list
from dokl.learning.cells.frames import by_name, is_category, typed_numbers, written_cells
from dokl.tables.jobs.lagged import LagRequest
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import Training, known_classes, not_used, start
from dokl.tables.jobs.tables import rows_in_order, usable
from dokl.tables.models import TableModel
from dokl.tables.models.learning import learn
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
    **parameters: Any,
) -> TableModel:
    """A `TableModel` that has learned these rows, once and in their order: raw rows in.

    rows: a data frame, a dict of columns or a list of dicts, with the target among the columns;
    texts, gaps, dates and decimal commas are taken as `dokl train` takes them. task: "regression"
    or "classification"; method: "bank" (the default) or "gradient". lags, rolling, differences:
    {column: how far back}, in rows (24) or in time ("24h"), by group and in the order of a column
    of times; lags may be "auto". horizon: how much later the target of a row lies. group: the
    column that says of what a row is (a station, a customer), texts or whole numbers, each with a
    place of its own; else a text column of more than 50 levels is one. parameters: of the
    estimator: those of `AutoRegressor`, or of `KernelRegressor`.

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
        group=group,
    )  # fmt: skip
    model, source = start(training, chunk), Source("these rows")
    for line in not_used(chunk, model):
        warnings.warn(line, stacklevel=2)
    chunk = rows_in_order(model, chunk, source, "these rows")
    y, keep, nodes = usable(model, chunk, source, "these rows", False)
    classes = known_classes(training, y) if model.classifying else None
    learn(model, chunk, y, keep, nodes, classes)
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
