"""Raw tables as inputs: data frames with texts, times and gaps, and arrays with NaN.

One reading with the files: `learning.cells` reads the cells, a `Preprocessor` makes inputs of them,
as for `dokl train`. Rows of numbers alone pass through as they are.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_X_y, validate_data

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.learning.cells.forms import TEXT, Form
from dokl.learning.cells.frames import (
    array_of,
    by_name,
    column,
    column_names,
    declared_levels,
    is_category,
    length_of,
    typed_numbers,
    typed_seconds,
    written_cells,
)
from dokl.learning.cells.guessing import guess_forms
from dokl.learning.columns import MAX_LEVELS, Preprocessor, require

Table = Mapping[str, Any]
_NOT_NUMBERS = (str, datetime.date, datetime.time, np.datetime64)
# In one order, which decides how products of matrices are rounded.
_NUMBERS: dict[str, Any] = {"dtype": np.float64, "order": "C", "ensure_all_finite": "allow-nan"}
_AS_TYPES = "In a data frame, give the column as numbers, as times, or as a category"


@dataclass(frozen=True)
class EncodedRows:
    """Rows that are inputs already, (n, d), but that missing numbers are NaN: as `_encoded` has
    them.
    """

    values: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.values.shape


class FrameInputs:
    """What estimators do with X: (n, columns) as people have them, (n, d) as a model takes them.

    The first call decides which columns there are and what each one is: numbers, times, or text
    with the levels of these rows (of a categorical column, those of its type). Later rows are read
    by it: a new level and a missing text are no level, a missing number is the mean so far.

    preprocessor_: how columns become inputs, with the means so far. Models of earlier versions
    have none, and take numbers only.
    """

    preprocessor_: Preprocessor
    n_features_in_: int
    feature_names_in_: Array
    _raw = True  # False where X comes from somebody who turns columns into inputs

    @property
    def inputs_(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of `relevance_`; "place=roof" is a level of a text."""
        if hasattr(self, "preprocessor_"):
            return self.preprocessor_.names_out
        return column_names_of(self)

    def _learn_rows(
        self, X: Any, y: Any, reset: bool, sample_weight: Any = None, **rules: Any
    ) -> tuple[Array, Array]:
        """Inputs (n, d) and targets, checked; rows of weight 0 are not looked at, and stay as they
        are. reset: on a first call, which decides what columns are.
        """
        kept, known = _kept(sample_weight), None if reset else getattr(self, "preprocessor_", None)
        if isinstance(X, EncodedRows):
            return self._learn_encoded(X.values, y, kept, **rules)
        if reset:
            self._forget()
        table = _table_of(X) if self._raw else None
        if table is None and (known is None or known.numbers_only):
            how = _NUMBERS | rules
            X, y = validate_data(self, X, y, reset=reset, **how)
            if self._raw and (reset or known is not None):
                fresh = Preprocessor(column_names_of(self), {}, "off") if known is None else known
                prepared = fresh.copied()
                X, self.preprocessor_ = _filled(prepared, X, kept), prepared
            else:
                _check_full(X)
            return X, y
        if reset or known is None:
            prepared, columns = self._planned(X, table or {}, kept, reset)
        else:
            prepared, columns = known.copied(), _columns(known, _matched(known, X, table))
        some = columns if kept is None else {name: cells[kept] for name, cells in columns.items()}
        made = prepared.learn_transform(some)
        if kept is not None:
            every = np.zeros((length_of(columns), prepared.d))
            every[kept] = made
            made = every
        made, y = check_X_y(made, y, dtype=np.float64, estimator=self, **rules)
        self.preprocessor_ = prepared
        return made, y

    def _forget(self) -> None:
        """Begin anew: let go what belongs to the columns before."""

    def _group_name(self, names: tuple[str, ...]) -> str | None:
        """Which of the columns by these names holds groups, if one does."""
        return None

    def _learn_encoded(
        self, X: Array, y: Any, kept: Array | None, **rules: Any
    ) -> tuple[Array, Array]:
        """The same of rows that `_encoded` made."""
        if hasattr(self, "preprocessor_"):
            prepared = self.preprocessor_.copied()
            X, self.preprocessor_ = _filled(prepared, X, kept), prepared
        made: tuple[Array, Array] = check_X_y(X, y, dtype=np.float64, estimator=self, **rules)
        return made

    def _encoded(self, X: Any) -> Array:
        """Inputs (n, d) of rows, with NaN for missing numbers, which `learn` fills once it may
        learn from them.
        """
        known: Preprocessor | None = getattr(self, "preprocessor_", None)
        rows = self._read_rows(X)
        if known is None or not self._raw:
            return rows
        if known.numbers_only and _table_of(X) is None:
            return np.asarray(validate_data(self, X, reset=False, **_NUMBERS))
        return known.with_gaps(rows, _columns(known, _matched(known, X, _table_of(X))))

    def _read_rows(self, X: Any) -> Array:
        """Inputs (n, d) of rows to predict, checked."""
        known: Preprocessor | None = getattr(self, "preprocessor_", None)
        table = _table_of(X) if self._raw else None
        if table is None and (known is None or known.numbers_only):
            rows: Array = np.asarray(validate_data(self, X, reset=False, **_NUMBERS))
            if known is None:
                _check_full(rows)
            return rows if known is None else known.fill(rows)
        if known is None:
            raise _numbers_only()
        return known.copied().transform(_columns(known, _matched(known, X, table)))

    def _planned(
        self, X: Any, table: Table, kept: Array | None, reset: bool
    ) -> tuple[Preprocessor, dict[str, Array]]:
        """What columns are, by the first rows; and these rows as columns."""
        if not reset:
            raise _numbers_only()
        prepared, columns = plan_columns(table, kept, self._group_name(tuple(table)))
        vars(self).pop("feature_names_in_", None)
        self.n_features_in_ = len(table)
        if column_names(X):
            self.feature_names_in_ = np.array(list(table), object)
        return prepared, columns

    def __sklearn_tags__(self) -> Any:
        """Missing values are welcome."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags


def plan_columns(
    table: Table, kept: Array | None = None, group: str | None = None
) -> tuple[Preprocessor, dict[str, Array]]:
    """What the columns of a table are, by these rows; and the rows as columns, (n,) each.

    kept: the rows to look at; None for all. group: a column of groups, by numbers or by texts.
    """
    _check_some(table)
    forms, written = dict[str, Form](), dict[str, Any]()
    for name, cells in table.items():
        if is_category(cells):
            forms[name] = TEXT
        elif typed_seconds(cells) is not None:
            forms[name] = Form("time", order="ymd")
        elif typed_numbers(cells) is None:
            written[name] = written_cells(cells)
    try:
        forms = guess_forms(written, written, known=forms)
        given = {name: written.get(name, cells) for name, cells in table.items()}
        kinds = {name: _kind(forms.get(name, Form())) for name in table}
        columns = {name: column(name, given[name], kinds[name]) for name in table}
    except BadInput as error:
        raise BadInput(f"{error}. {_AS_TYPES}") from None
    declared = {name: declared_levels(cells) for name, cells in table.items()}
    levels = {name: known for name, known in declared.items() if 0 < len(known) <= MAX_LEVELS}
    times = [name for name, form in forms.items() if form.kind == "time"]
    first = columns if kept is None else {name: cells[kept] for name, cells in columns.items()}
    texts = group is not None and kinds.get(group) == ()
    levels = {name: known for name, known in levels.items() if name != group}
    prepared = Preprocessor.plan(
        first, (), "off", levels, times=times, group=group if texts else None
    )
    prepared.forms = {name: form.spec() for name, form in forms.items() if not form.plain}
    return prepared, columns


def _kind(form: Form) -> Any:
    """As `column` takes it."""
    if form.kind == "text":
        return ()
    return None if form.plain else form


def _columns(prepared: Preprocessor, table: Table) -> dict[str, Array]:
    """The columns of a table, (n,) each, read as they were at first."""
    forms = {name: Form.from_spec(spec) for name, spec in prepared.forms.items()}
    kinds = {name: forms.get(name, prepared.levels.get(name)) for name in prepared.columns}
    if prepared.group is not None:
        kinds[prepared.group] = ()
    return {name: column(name, table[name], kind) for name, kind in kinds.items()}


def _matched(prepared: Preprocessor, X: Any, table: Table | None) -> Table:
    """Cells by name, those of the model and no others; an array has them in its order."""
    found = by_name(X, prepared.columns) if table is None else table
    _check_some(found)
    for name in prepared.columns:
        require(name, found, "was there in training and is missing now")
    new = [name for name in found if name not in prepared.columns]
    if new:
        raise BadInput(
            f"column {new[0]!r} was not there in training, which had {listed(prepared.columns)}: "
            "leave it out"
        )
    return found


def _table_of(X: Any) -> Table | None:
    """{name: cells} of rows that hold more than numbers; None where they are numbers, or nothing
    that could be a table.
    """
    if type(X) is np.ndarray and X.dtype.kind in "biufc":
        return None
    if names := column_names(X):
        return None if _all_numbers(X) else {name: X[name] for name in names}
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:  # names that are no texts
        return None if _all_numbers(X) else {f"x{i + 1}": X.iloc[:, i] for i in range(X.shape[1])}
    if isinstance(X, list | tuple) and all(isinstance(row, list | tuple) for row in X):
        if not any(isinstance(cell, _NOT_NUMBERS) for row in X for cell in row):
            return None
        X = array_of(X)
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.kind not in "OUMm":
        return None
    if X.dtype.kind == "O" and not any(isinstance(cell, _NOT_NUMBERS) for cell in X.flat):
        return None
    return {f"x{i + 1}": X[:, i] for i in range(X.shape[1])}


def _all_numbers(X: Any) -> bool:
    """Whether the columns of a data frame are numbers by their types."""
    for dtype in getattr(X, "dtypes", (None,)):
        kind = getattr(dtype, "kind", "") or "?"
        if kind not in "biufc" and not getattr(dtype, "is_numeric", bool)():
            return False
    return True


def column_names_of(model: Any) -> tuple[str, ...]:
    """Of columns of numbers: as they came, or x1, x2, ..."""
    if hasattr(model, "feature_names_in_"):
        return tuple(model.feature_names_in_)
    return tuple(f"x{i + 1}" for i in range(model.n_features_in_))


def _kept(sample_weight: Any) -> Array | None:
    """Which rows have a weight, None for all; wrong weights are refused elsewhere."""
    if sample_weight is None:
        return None
    try:
        some = np.asarray(sample_weight, np.float64) != 0
    except (TypeError, ValueError):
        return None
    return None if some.ndim != 1 or some.all() else some


def _filled(prepared: Preprocessor, X: Array, kept: Array | None) -> Array:
    """X (n, d) without gaps, in the rows that are looked at."""
    if kept is None or len(kept) != len(X):
        return prepared.fill(X, learn=True)
    X = X.copy()
    X[kept] = prepared.fill(X[kept], learn=True)
    return X


def _check_some(table: Table) -> None:
    if not length_of(table):
        raise BadInput("X has no rows: at least one is needed")


def valid_numbers(model: Any, X: Any, **how: Any) -> Any:
    """scikit-learn's checks of an estimator that takes numbers alone; where X is a raw table, the
    class that takes it is named.
    """
    try:
        return validate_data(model, X, **how)
    except (TypeError, ValueError) as error:
        name = type(model).__name__
        other = name.replace("Kernel", "Auto").replace("Diffusion", "Network")
        takes = "" if other == name else f", {other} takes them as they are"
        if "Input X contains NaN" in str(error):
            text = f"Input X contains NaN: {name} takes no missing values{takes}. Or fill them"
            raise BadInput(f"{text} before (SimpleImputer)") from None
        if _table_of(X) is not None:
            text = f"X has columns of text or times, and {name} takes numbers{takes}. Or encode"
            raise BadInput(f"{text} them before (OneHotEncoder)") from None
        raise


def has_gaps(model: Any) -> bool:
    """Whether a model has learned from rows in which numbers were missing."""
    if hasattr(model, "network_"):
        rows = int(model.network_.seen.sum())
    else:
        rows = model.bank_.seen if hasattr(model, "bank_") else model.rows_
    return bool((model.preprocessor_.moments.count < rows).any())


def check_same_columns(a: Any, b: Any) -> None:
    """Refuse two models to which columns mean different inputs."""
    mine, theirs = (getattr(model, "preprocessor_", None) for model in (a, b))
    if mine is not None and theirs is not None and mine.spec()[0] != theirs.spec()[0]:
        raise BadInput(
            "the two models have different columns, or different levels of texts: begin the second "
            "with fresh() of the first"
        )


def _check_full(X: Array) -> None:
    if np.isnan(X).any():
        raise BadInput(
            "X has missing values (NaN), and this model knows no means to put in their place: it "
            "was saved by an earlier version of dokl. Fill them, or fit the model again"
        )


def _numbers_only() -> BadInput:
    return BadInput(
        "X has columns of text or times, and this model takes numbers only: it was saved by an "
        "earlier version of dokl. Encode them, or fit the model again"
    )
