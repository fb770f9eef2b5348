"""What arrives from outside, by the agreed preprocessing, into samples X and Y.

A **row** with inputs and a target is a sample. A row with an `id` and inputs waits for its label,
which comes later as a row with that `id` and the target alone. Anything else is refused, with row
and column, and so is every column that was not agreed (`drop` in [inputs] lists those that may be
there all the same). Where one row is wrong, nothing of the body is taken.

**Cells** follow the rules of `dokl.tables.readers`, by which the sample file was read: a missing
input (null, a key that is not there, an empty cell, NA, NaN, ...) stands at the mean of its column;
texts like "20.5" are numbers in a column of numbers; true and false are refused there, and are
"true" and "false" in a column of text. Where the sample had decimal commas, thousands, currencies
or times, texts are read in that form. A time may also be a number: its seconds since 1970 where the
sample had written times; where it counted them (seconds or milliseconds since 1970, a spreadsheet's
days, dates such as 20241231), numbers are counted so, and invalid ones are refused. Infinities and
what float32 cannot hold are refused. A missing target is none. Files of JSON lines are read as by
`dokl train`: there NaN is a missing input, though never a target, and true and false are 1 and 0. A
number outside the range of its column is refused, or clipped if `outside` says so, and counted.

**Ids** are texts or whole numbers; 7 and "7" are the same. In a row that has `id` and target,
inputs that are all missing are no inputs: it is a label. A complete row needs no id, and makes no
use of it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.arrays import FLOAT32, Array, first_bad
from dokl.base.errors import BadInput
from dokl.learning.cells.cells import text
from dokl.learning.cells.forms import words
from dokl.learning.cells.times import BELIEVED, COUNTED, counted_seconds
from dokl.live.description.cells import ISO, forms_of, times_of
from dokl.live.inputs import bodies
from dokl.live.inputs.bodies import BodyTable, Cells, quote_value
from dokl.live.inputs.outside import Outside
from dokl.live.inputs.targets import PLAIN, Targets
from dokl.tables.readers import MISSING, Form
from dokl.tables.readers.text import twice

if TYPE_CHECKING:
    from dokl.live.description import ServiceDescription

LONGEST_ID = 255  # characters


@dataclass(frozen=True, eq=False)
class Arrival:
    """Rows that came together, to be stored together.

    X: (n, d), Y: (n, m): samples. waiting: (id, x (d,)) of inputs without label; they come before
    labels: (id, y (m,)). key, digest: of the request, against learning it twice. source, position:
    how far a file was read with these rows.
    """

    X: Array
    Y: Array
    waiting: tuple[tuple[str, Array], ...] = ()
    labels: tuple[tuple[str, Array], ...] = ()
    key: str | None = None
    digest: str | None = None
    source: str | None = None
    position: dict[str, Any] | None = None

    @property
    def rows(self) -> int:
        """All rows together."""
        return len(self.X) + len(self.waiting) + len(self.labels)


class Inputs:
    """The agreed way from columns to X: (n, d) and Y: (n, m); any thread may use it.

    columns: names of the input columns. most_rows: as many may come at once. complete: refuse JSON
    rows where no row of a body has one of the columns, as models in Python do; null is how such a
    row says that a value is missing.
    """

    def __init__(self, described: ServiceDescription, complete: bool = False) -> None:
        agreed, self._complete = described.inputs, complete
        self._prepared = described.preprocessor()
        labels = agreed.labels if agreed.classifying else ()
        ranges = zip(agreed.numeric, agreed.ranges, strict=False)
        brought = [name for name in agreed.brought if name != agreed.target]
        self._ranges = {name: each for name, each in ranges if name in brought}
        bounded = [*self._ranges, agreed.target] if agreed.target_range else [*self._ranges]
        self.outside = Outside(agreed.outside, bounded)
        self._missing = agreed.missing or MISSING
        times = {*times_of(agreed.times), agreed.ordered_by} - {""}
        self._forms = dict.fromkeys(times, ISO) | forms_of(agreed.forms)
        self._numeric = agreed.brought
        self._targets = Targets(
            agreed.target, labels, agreed.target_range, self.outside,
            self._forms.get(agreed.target, PLAIN), self._missing, agreed.says_range,
        )  # fmt: skip
        self._says_drop = agreed.says_drop
        self.most_rows = described.limits.queue_rows
        self.columns = (*self._numeric, *self._prepared.levels)
        self.target, self.d, self.m = agreed.target, self._prepared.d, self._targets.m
        # With a horizon a row's own target is an input, and not one that a row must have.
        self._wanted = tuple(name for name in self.columns if name != self.target)
        drop = frozenset(agreed.drop)
        self._id = None if "id" in drop else "id"
        self._known = {*self.columns, self.target, *drop, "id"}

    # -- from outside --------------------------------------------------------------------------
    def from_json(self, body: bytes) -> Arrival:
        """Rows of a JSON or NDJSON body; see `dokl.live.inputs.bodies` for its forms."""
        return self.arrival(bodies.from_json(body, self.most_rows))

    def from_csv(self, body: bytes) -> Arrival:
        """Rows of a CSV body with a header."""
        return self.arrival(bodies.from_csv(body, self.most_rows))

    def rows_json(self, body: bytes) -> Array:
        """X (n, d) of a JSON or NDJSON body, to predict; a target or an id is not looked at."""
        return self.asked(bodies.from_json(body, self.most_rows))

    def rows_csv(self, body: bytes) -> Array:
        """X (n, d) of a CSV body with a header, to predict; a target or an id is not looked at."""
        return self.asked(bodies.from_csv(body, self.most_rows))

    def asked(self, table: BodyTable) -> Array:
        """X (n, d) of a table that asks for predictions."""
        self._check_names(table, needed=True)
        X, _ = self._inputs(table)
        for row in range(table.n) if table.rows is not None else ():
            if not table.has_any(row, self._wanted):
                raise BadInput(f"row {row + 1} has no inputs; they are {self._as_list()}")
        return X

    def labels_json(self, body: bytes) -> Arrival:
        """Labels, {id, target} each, of a JSON or NDJSON body."""
        return _labels_only(self.from_json(body))

    def labels_csv(self, body: bytes) -> Arrival:
        """Labels of a CSV body with a header."""
        return _labels_only(self.from_csv(body))

    def waiting_json(self, body: bytes) -> Arrival:
        """Inputs of a JSON or NDJSON body that wait for their labels, each under its id."""
        return self.remembered(bodies.from_json(body, self.most_rows))

    def waiting_csv(self, body: bytes) -> Arrival:
        """The same of a CSV body with a header."""
        return self.remembered(bodies.from_csv(body, self.most_rows))

    def remembered(self, table: BodyTable) -> Arrival:
        """The inputs of a table that asks for predictions, which wait for their labels."""
        X, ids = self.asked(table), self._ids(table)
        if None in ids:
            row = list(ids).index(None) + 1
            raise BadInput(f"row {row} has no id, by which its target could find it later")
        if len(set(ids)) < len(ids):
            raise BadInput(f"two rows have the id {twice([str(name) for name in ids])!r}")
        names = zip(map(str, ids), X, strict=True)
        return Arrival(X[:0], np.zeros((0, self.m)), tuple(names))

    def arrival(self, table: BodyTable) -> Arrival:
        """Samples, inputs and labels of a table."""
        self._check_names(table, needed=False)
        X, missing = self._inputs(table)
        Y, known = self._targets.encoded(table.cells.get(self.target), table.n, table.strict)
        ids = self._ids(table)
        has_id = np.array([name is not None for name in ids], bool)
        full = self._have_inputs(table, missing, has_id & known)
        complete, waits, labels = full & known, full & ~known & has_id, ~full & known & has_id
        self._check_rows(complete | waits | labels, full, known)
        if complete.all():
            return Arrival(X, Y)
        return Arrival(
            X[complete],
            Y[complete],
            tuple((str(ids[i]), X[i]) for i in np.flatnonzero(waits).tolist()),
            tuple((str(ids[i]), Y[i]) for i in np.flatnonzero(labels).tolist()),
        )

    def check_header(self, names: Sequence[str]) -> None:
        """Refuse the header of a file whose rows could be no samples."""
        self._check_names(bodies.BodyTable(0, dict.fromkeys(names, ())), needed=False)

    # -- columns -------------------------------------------------------------------------------
    def _check_names(self, table: BodyTable, needed: bool) -> None:
        for name in table.cells:
            if name not in self._known:
                near = difflib.get_close_matches(name[:80], [*self.columns, self.target], 1, 0.0)[0]
                row = f"row {table.row_with(name) + 1}: " if table.rows is not None else ""
                raise BadInput(
                    f"{row}column {name[:80]!r} is not an input (the nearest is {near!r}"
                    f"{self._says_drop})"
                )
        if table.rows is None or self._complete:
            gone = [name for name in self._wanted if name not in table.cells]
            if gone and (needed or len(gone) < len(self._wanted)):
                null = "" if table.rows is None else " (null where a value is missing)"
                inputs = f"the inputs are {self._as_list()}{null}"
                raise BadInput(f"there is no column {gone[0]!r}; {inputs}")

    def _inputs(self, table: BodyTable) -> tuple[Array, Array]:
        """X (n, d), and the rows (n,) in which every input is missing."""
        empty: Cells = (None,) * table.n
        prepared, columns = self._prepared, {}
        missing = np.ones(table.n, bool)
        for name in self._numeric:
            columns[name] = self._numbers(name, table.cells.get(name, empty), table.strict)
            if name in self._ranges:
                columns[name] = self.outside.within(name, columns[name], self._ranges[name])
            if name != self.target:
                missing &= np.isnan(columns[name])
        for name in prepared.levels:
            columns[name] = _texts(name, table.cells.get(name, empty), self._missing)
            missing &= np.array([value is None for value in columns[name]], bool)
        with np.errstate(over="ignore"):  # checked just below
            X = prepared.transform(columns)
        if first_bad(X) is not None or np.abs(X).max(initial=0.0) > FLOAT32:
            row, column = np.argwhere(~(np.abs(X) <= FLOAT32))[0]
            name = prepared.names_out[column]
            raise BadInput(f"row {row + 1}, column {name!r}: too large for float32")
        return X, missing

    def _numbers(self, name: str, cells: Cells, strict: bool) -> Array:
        """Numbers, and times as seconds: texts as agreed, or numbers as `_check_times` has them."""
        form = self._forms.get(name, PLAIN)
        values, bad = form.read(cells, self._missing)
        if strict and bool in set(map(type, cells)):
            bad = sorted({*bad, *(i for i, cell in enumerate(cells) if isinstance(cell, bool))})
        if form.kind == "time":
            given = [row for row in bad if form.order not in COUNTED and _is_seconds(cells[row])]
            values[given] = [cells[row] for row in given]
            bad = [row for row in bad if row not in given]
            _check_times(name, cells, values, form)
        if bad:
            what = "a number that can be used" if form.plain else f"as agreed: {words(form)}"
            cell = quote_value(cells[bad[0]])
            raise BadInput(f"row {bad[0] + 1}, column {name!r}: {cell} is not {what}")
        return values

    # -- rows ----------------------------------------------------------------------------------
    def _ids(self, table: BodyTable) -> Sequence[str | None]:
        cells = table.cells.get(self._id) if self._id else None
        if cells is None:
            return (None,) * table.n
        return [_id(cell, row) for row, cell in enumerate(cells, 1)]

    def _have_inputs(self, table: BodyTable, missing: Array, label: Array) -> Array:
        """Which rows (n,) have inputs; label: (n,) those that would be labels without."""
        full = ~missing
        for row in np.flatnonzero(missing & ~label):
            full[row] = table.has_any(int(row), self._wanted)
        return full

    def _check_rows(self, good: Array, full: Array, known: Array) -> None:
        if good.all():
            return
        row = int(np.flatnonzero(~good)[0])
        if known[row]:
            problem = f"a target but no inputs ({self._as_list()}), and no id of waiting inputs"
        elif full[row]:
            problem = f"no target {self.target!r}, and no id under which it could wait for one"
        else:
            problem = f"neither inputs ({self._as_list()}) nor a target {self.target!r}"
        raise BadInput(f"row {row + 1} has {problem}")

    def _as_list(self) -> str:
        more = f" and {len(self._wanted) - 8} more" if len(self._wanted) > 8 else ""
        return ", ".join(map(repr, self._wanted[:8])) + more


def _labels_only(arrival: Arrival) -> Arrival:
    if len(arrival.X) or arrival.waiting:
        raise BadInput(
            "rows of id and target are learned here, for inputs that were predicted before: send "
            "rows with inputs to /samples"
        )
    return arrival


def _is_seconds(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell)


def _check_times(name: str, cells: Cells, seconds: Array, form: Form) -> None:
    """Refuse numbers, seconds (n,) by now, that are invalid as they are counted: as was agreed,
    or since 1970 where times are written; these may be long ago, but are no milliseconds.
    """
    counted = form.order if form.order in COUNTED else "seconds"
    low, high = counted_seconds(np.array(BELIEVED[counted]), counted).tolist()
    low = low if form.order in COUNTED else -high
    odd = np.flatnonzero((seconds < low) | (seconds > high)).tolist()
    for row in odd:
        if form.order in COUNTED or _is_seconds(cells[row]):
            raise BadInput(
                f"row {row + 1}, column {name!r}: {quote_value(cells[row])} is too small or too "
                f"large for a time in {words(Form('time', order=counted))}, as numbers are here"
            )


def _texts(name: str, cells: Cells, missing: Sequence[str] = MISSING) -> Array:
    values = np.empty(len(cells), object)
    for row, cell in enumerate(cells):
        if isinstance(cell, list | dict):
            raise BadInput(
                f"row {row + 1}, column {name!r}: {quote_value(cell)} is not a single value"
            )
        values[row] = text(cell, missing)
    return values


def _id(cell: object, row: int) -> str | None:
    if cell is None:
        return None
    if not isinstance(cell, str | int) or isinstance(cell, bool):
        raise BadInput(f"row {row}: an id is a text or a whole number, not {quote_value(cell)}")
    name = text(cell)
    if name is not None and len(name) > LONGEST_ID:
        raise BadInput(f"row {row}: the id is too long, {LONGEST_ID} characters are the most")
    if name is not None and not name.isprintable():
        raise BadInput(f"row {row}: the id {quote_value(cell)} is not plain text")
    return name
