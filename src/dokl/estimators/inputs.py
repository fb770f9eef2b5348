"""What a person gives to an estimator: raw tables as inputs; rows, weights and numbers, checked.

Tables are data frames with texts, times and gaps, and arrays with NaN. One reading with the files:
`learning.cells` reads the cells, a `Preprocessor` makes inputs of them, as for `dokl train`. Rows
of numbers alone pass through as they are. A call that fails leaves the estimator as it was.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_X_y, validate_data

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.learning.cells.cells import number, quote_cell
from dokl.learning.cells.forms import TEXT, Form, guess_forms
from dokl.learning.cells.frames import (
    array_of,
    by_name,
    column,
    column_names,
    declared_levels,
    is_category,
    is_unnamed,
    length_of,
    typed_numbers,
    typed_seconds,
    written_cells,
)
from dokl.learning.columns import MAX_LEVELS, Preprocessor, require

Table = Mapping[str, Any]
NOBODY = -1.0  # the number of no group
_NOT_NUMBERS = (str, datetime.date, datetime.time, np.datetime64)
# In one order, which decides how products of matrices are rounded.
_NUMBERS: dict[str, Any] = {"dtype": np.float64, "order": "C", "ensure_all_finite": "allow-nan"}
_AS_TYPES = "In a data frame, give the column as numbers, as times, or as a category"


@dataclass(frozen=True)
class EncodedRows:
    """Rows that are inputs already, (n, d), but that missing numbers are NaN: as `_encode` has
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
        self, X: Any, y: Any, reset: bool, sample_weight: object = None, **rules: object
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
                prepared, X = fresh.copied(), self._with_nobody(X, fresh)
                X, self.preprocessor_ = _fill(prepared, X, kept), prepared
            else:
                _check_full(X)
            return X, y
        if reset or known is None:
            prepared, columns = self._plan_columns(X, table or {}, kept, reset)
        else:
            prepared, columns = known.copied(), _columns(known, _match(known, X, table))
        columns = self._columns_with_nobody(columns, prepared)
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
        """Start over: let go what belongs to the columns before."""

    def _group_name(self, names: tuple[str, ...]) -> str | None:
        """Which of the columns by these names holds groups, if one does."""
        return None

    def _learn_encoded(
        self, X: Array, y: object, kept: Array | None, **rules: object
    ) -> tuple[Array, Array]:
        """The same of rows that `_encode` made."""
        if hasattr(self, "preprocessor_"):
            prepared = self.preprocessor_.copied()
            X = self._with_nobody(X, prepared)
            X, self.preprocessor_ = _fill(prepared, X, kept), prepared
        made: tuple[Array, Array] = check_X_y(X, y, dtype=np.float64, estimator=self, **rules)
        return made

    def _encode(self, X: object) -> Array:
        """Inputs (n, d) of rows, with NaN for missing numbers, which `learn` fills once it may
        learn from them.
        """
        known: Preprocessor | None = getattr(self, "preprocessor_", None)
        rows = self._read_rows(X)
        if known is None or not self._raw:
            return rows
        if known.numbers_only and _table_of(X) is None:
            return np.asarray(validate_data(self, X, reset=False, **_NUMBERS))
        return known.with_gaps(rows, _columns(known, _match(known, X, _table_of(X))))

    def _read_rows(self, X: object) -> Array:
        """Inputs (n, d) of rows to predict, checked."""
        known: Preprocessor | None = getattr(self, "preprocessor_", None)
        table = _table_of(X) if self._raw else None
        if table is None and (known is None or known.numbers_only):
            rows: Array = np.asarray(validate_data(self, X, reset=False, **_NUMBERS))
            if known is None:
                _check_full(rows)
            return rows if known is None else known.fill(self._with_nobody(rows, known))
        if known is None:
            raise _numbers_only()
        columns = _columns(known, _match(known, X, table))
        return known.copied().transform(self._columns_with_nobody(columns, known))

    def _with_nobody(self, X: Array, known: Preprocessor) -> Array:
        """Inputs X (n, d) in which a missing number of a group is NOBODY's, no mean of numbers."""
        if not np.isnan(X).any():
            return X
        name = self._group_name(known.columns)
        if name not in known.numeric:
            return X
        X, at = X.copy(), known.names_out.index(name)
        X[np.isnan(X[:, at]), at] = NOBODY
        return X

    def _columns_with_nobody(
        self, columns: dict[str, Array], known: Preprocessor
    ) -> dict[str, Array]:
        """The same of columns (n,) by name."""
        name = self._group_name(known.columns)
        if name is None or name not in known.numeric:
            return columns
        numbers = columns[name]
        return {**columns, name: np.where(np.isnan(numbers), NOBODY, numbers)}

    def _plan_columns(
        self, X: object, table: Table, kept: Array | None, reset: bool
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


def _match(prepared: Preprocessor, X: object, table: Table | None) -> Table:
    """Cells by name, those of the model and no others; an array has them in its order."""
    unnamed = isinstance(X, np.ndarray | list | tuple) and is_unnamed(X)
    found = by_name(X, prepared.columns) if table is None or unnamed else table
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
    if isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X):
        raise BadInput(
            "X is a list of dicts, which dokl.fit_table takes as they are: give a data frame "
            "(pandas.DataFrame(X)), or an array"
        )
    if isinstance(X, list | tuple) and all(isinstance(row, list | tuple) for row in X):
        if not any(isinstance(cell, _NOT_NUMBERS) for row in X for cell in row):
            return None
        X = array_of(X)
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.kind not in "OUMm":
        return None
    if X.dtype.kind == "O" and not any(isinstance(cell, _NOT_NUMBERS) for cell in X.flat):
        return None
    return {f"x{i + 1}": X[:, i] for i in range(X.shape[1])}


def _all_numbers(X: object) -> bool:
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


def _kept(sample_weight: object) -> Array | None:
    """Which rows have a weight, None for all; wrong weights are refused elsewhere."""
    if sample_weight is None:
        return None
    try:
        some = np.asarray(sample_weight, np.float64) != 0
    except (TypeError, ValueError):
        return None
    return None if some.ndim != 1 or some.all() else some


def _fill(prepared: Preprocessor, X: Array, kept: Array | None) -> Array:
    """X (n, d) without gaps, in the rows that are looked at."""
    if kept is None or len(kept) != len(X):
        return prepared.fill(X, learn=True)
    X = X.copy()
    X[kept] = prepared.fill(X[kept], learn=True)
    return X


def _check_some(table: Table) -> None:
    if not length_of(table):
        raise BadInput("X has no rows: at least one is needed")


def valid_numbers(model: object, X: object, **how: object) -> Any:
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


def check_same_columns(a: object, b: object) -> None:
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


@contextmanager
def all_or_nothing(estimator: object) -> Iterator[None]:
    """A call that fails leaves the estimator as it was, whatever it had set by then."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


# -- numbers, weights and rows, checked -----------------------------------------------------------
def plain_numbers(values: Array, kind: Any) -> Array | None:
    """The array as `kind` in C order; None if something in it is not finite."""
    if values.dtype != kind:
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and found just below
            values = values.astype(kind)
    values = np.ascontiguousarray(values)
    return values if np.isfinite(values).all() else None


# Beside heavier rows, rows of weight 1 are lost to rounding.
HEAVIEST = 1e9


def checked_weight(sample_weight: object, n: int) -> Array:
    """A number or one number for each of the n rows, none of them negative: (n,)."""
    try:
        weight = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"sample_weight must be numbers: {error}") from None
    if weight.ndim and weight.shape != (n,):
        raise BadInput(f"sample_weight must have shape ({n},), as y has; got {weight.shape}")
    weight = np.broadcast_to(weight, n)
    bad = np.flatnonzero(~((weight >= 0) & (weight <= HEAVIEST)))
    if bad.size:
        value = weight[bad[0]]
        raise BadInput(
            f"sample_weight of row {bad[0]} is {value:g}: it must be from 0 to {HEAVIEST:g}; a row "
            "of weight 2 counts as two rows"
        )
    return weight


def present_rows(X: Any, y: Array, sample_weight: object, first: bool) -> Any:
    """(n, X, y, weight, kept): rows of weight 0 are left out, as if never given.

    n counts all rows; kept are the numbers of those that stay, None for all.
    """
    n = X.shape[0]
    if sample_weight is None:
        return n, X, y, None, None
    weight = checked_weight(sample_weight, n)
    kept = np.flatnonzero(weight)
    if first and not kept.size:
        raise BadInput("all sample weights are zero: there is nothing to start from")
    if len(kept) == n:
        return n, X, y, weight, None
    return n, X[kept], y[kept], weight[kept], kept


def only(values: Array | None, kept: Array | None) -> Array | None:
    """Of values (n,), if any, those of the rows that are kept."""
    return values if values is None or kept is None else values[kept]


def everywhere(values: Array, kept: Array | None, n: int) -> Array:
    """Values of the rows that are kept among n, NaN for the others: (n, m)."""
    if kept is None:
        return values
    out = np.full((n, *values.shape[1:]), np.nan)
    out[kept] = values
    return out


def float_type(dtype: DTypeLike) -> Any:
    """np.float32 or np.float64."""
    try:
        kind = np.dtype(dtype).type
    except (TypeError, ValueError, SyntaxError):  # of what is a description of several fields
        kind = None
    if kind not in (np.float32, np.float64):
        raise BadInput(f"dtype must be float32 or float64, got {dtype!r}")
    return kind


def machine_memory() -> float:
    """Bytes of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def not_negative(name: str, value: Any) -> float:
    """A parameter that is a finite number, at least 0."""
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (real and np.isfinite(value) and value >= 0):
        raise BadInput(f"{name} must be a finite number, at least 0, got {value!r}")
    return float(value)


# -- numbers as targets ---------------------------------------------------------------------------
def check_numbers(model: object, y: object) -> None:
    """Refuse targets that are texts, and name the class that learns them."""
    try:
        values = np.asarray(y).ravel()
    except ValueError:  # lists of different lengths, which scikit-learn refuses
        return
    if values.dtype.kind == "M":
        raise BadInput("y holds times, and numbers are predicted: take hours since a time, say")
    for cell in values if values.dtype.kind in "OU" else ():
        if isinstance(cell, str) and number(cell) is None:
            other = type(model).__name__.replace("Regressor", "Classifier")
            raise BadInput(
                f"y must hold numbers, not texts like {quote_cell(cell)}; {other} learns classes"
            )


class NumericTargets:
    """One output or several, in float64; y: (n,) or (n, m)."""

    _flat: bool  # whether y is (n,)

    @property
    def _outputs(self) -> int:
        """m, once the model has started."""
        raise NotImplementedError

    def _checked(self, X: Any, y: Any, reset: bool, weight: object = None) -> tuple[Array, Array]:
        check_numbers(self, y)
        rules = {"multi_output": True, "y_numeric": True}
        X, y = self._learn_rows(X, y, reset, weight, **rules)  # type: ignore[attr-defined]
        y = np.asarray(y, np.float64)
        outputs = 1 if y.ndim == 1 else y.shape[1]
        if reset:
            self._flat = y.ndim == 1
        elif outputs != self._outputs:
            raise BadInput(f"y has {outputs} outputs, the model was started with {self._outputs}")
        return X, y

    def _targets(self, y: Array) -> Array:
        return y.reshape(len(y), -1)

    def _shaped(self, values: Array) -> Array:
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        """Several outputs are welcome, too."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.multi_output = True
        return tags
