"""Cells into columns: what is given about a file, what its columns hold, and guesses.

`Options` is what was given, one record from the command line to the readers. `Columns` finds
out the rest from the first cells (which columns hold numbers, times or text), makes a `Chunk` of
cells, and names the place of a cell that is wrong. Guesses are reported, a line each,
with the option that says otherwise.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.learning.cells.cells import MISSING, SKIP, infinite, number, numbers, quote_cell, text
from dokl.learning.cells.forms import TEXT, Form, code_among, guess_forms, words
from dokl.learning.cells.times import COUNTED, counted_order, offset_of

# What takes a row that cannot be used: its line, why, and the row as text.
Refuse = Callable[[int, BadInput, str], None]
# Which rows are read, by their lines: (n,) whole numbers -> (n,) truth values.
Take = Callable[[Any], Any]

MOST_ROWS = 8192
CHUNK_BYTES = 1 << 21


@dataclass(frozen=True)
class Options:
    """How to read a file, and what of it; where names are wanted, one may stand alone.

    format: one of `FORMATS`; None looks at the file's name, then at its first line. chunk: rows at
    a time; None takes 8192, fewer where lines are long. columns: those wanted, drop: those not
    wanted; others are not converted. optional: columns of text that are read, too, if the file has
    them. text, numeric: columns that hold that, whatever their first
    rows look like. header: False for a CSV file without one (columns are then x1..xd); True takes
    the first line for names even if they look like numbers. delimiter: None finds , ; | or tab in
    the header. n_features: for LIBSVM; without it a file is read twice, and stdin refused.
    zero_based: LIBSVM features are numbered from 0. compiled: False where loading Numba, and at
    first compiling, would take longer than it saves; the numbers are the same.

    forms: how the cells of some columns are written, if that is known. decimal: the mark of all
    numbers, "." or ","; dates: "dmy" or "mdy", of dates that are all numbers. missing: spellings of
    a missing value instead of `MISSING`. refuse: takes the rows that cannot be used, which are then
    passed over; without it they are errors. quantity: a column, the target, whose numbers are
    never times that are counted. take: which rows are read, by their lines; None is all.

    >>> Options(drop="id", delimiter=";").drop
    ('id',)
    """

    format: str | None = None
    chunk: int | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    text: Sequence[str] = ()
    numeric: Sequence[str] = ()
    header: bool | None = None
    delimiter: str | None = None
    n_features: int | None = None
    zero_based: bool = False
    compiled: bool = True
    forms: Mapping[str, Form] = field(default_factory=dict)
    decimal: str | None = None
    dates: str | None = None
    missing: Sequence[str] = MISSING
    refuse: Refuse | None = None
    quantity: str | None = None
    optional: Sequence[str] = ()
    take: Take | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without the file."""
        for name in ("columns", "drop", "text", "numeric", "optional"):
            names = getattr(self, name)
            if names is not None:
                object.__setattr__(self, name, (names,) if isinstance(names, str) else (*names,))
        for name in ("chunk", "n_features"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} must be at least 1, got {value}")
        if self.missing is not MISSING:
            object.__setattr__(self, "missing", ("", *self.missing))
        for name, known in (("decimal", (".", ",")), ("dates", ("dmy", "mdy"))):
            if getattr(self, name) not in (None, *known):
                raise BadInput(f"{name} must be {' or '.join(known)}")
        mark = self.delimiter
        if mark is not None and (len(mark) != 1 or mark in '"\r\n'):
            raise BadInput(f"delimiter must be one character, and no quote; got {mark!r}")

    def rows(self, first_line: bytes) -> int:
        """Rows in a chunk: as given, or about 2 MiB of text and at most 8192."""
        return self.chunk or max(1, min(MOST_ROWS, CHUNK_BYTES // len(first_line)))


# -- columns --------------------------------------------------------------------------------------
class NoColumn(BadInput):
    """A column that somebody asked for is not in the file."""

    def __init__(self, name: str, column: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(column, known, n=1)
        there = f"the nearest is {near[0]!r}" if near else f"there are {listed(known)}"
        super().__init__(f"{name} has no column {column!r}; {there}")
        self.column = column


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table.

    columns: name -> (n,) float64 with NaN where missing, or objects (str, None where missing).
    lines: line number in the file of each row. LIBSVM files have no names: X (n, d) CSR and y (n,).
    forms: of columns that are neither plain numbers nor text. guesses: of the first chunk, what was
    found out about the file, a line each with the option that changes it.
    """

    names: tuple[str, ...]
    columns: dict[str, Array]
    lines: Sequence[int]
    X: Any = None
    y: Array | None = None
    forms: Mapping[str, Form] = field(default_factory=dict)
    guesses: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.lines)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that hold times, in seconds since 1970."""
        return tuple(name for name, form in self.forms.items() if form.kind == "time")

    @property
    def first_line(self) -> int:
        """Line number of the first row."""
        return self.lines[0]

    def rows(self, some: Any) -> Chunk:
        """Some rows: a slice, a mask (n,), or their numbers."""
        columns = {name: column[some] for name, column in self.columns.items()}
        X, y = (None if each is None else each[some] for each in (self.X, self.y))
        if isinstance(some, slice):
            lines = self.lines[some]
        else:
            which = np.flatnonzero(some) if some.dtype == bool else some
            lines = [self.lines[i] for i in which.tolist()]
        return replace(self, columns=columns, lines=lines, X=X, y=y)

    @staticmethod
    def joined(chunks: Sequence[Chunk]) -> Chunk:
        """The rows of several chunks of one table."""
        first = chunks[0]
        if len(chunks) == 1:
            return first
        parts = {name: [chunk.columns[name] for chunk in chunks] for name in first.columns}
        columns = {name: np.concatenate(each) for name, each in parts.items()}
        lines = [line for chunk in chunks for line in chunk.lines]
        if first.X is None:
            return replace(first, columns=columns, lines=lines)
        from scipy.sparse import vstack

        y = [chunk.y for chunk in chunks if chunk.y is not None]
        X = vstack([chunk.X for chunk in chunks], "csr")
        return replace(first, columns=columns, lines=lines, X=X, y=np.concatenate(y))


@dataclass
class Columns:
    """Turns cells into chunks; the first chunk decides how the cells of a column are read."""

    name: str
    names: tuple[str, ...]
    options: Options
    unit: str = "line"
    delimiter: str = ""
    forms: dict[str, Form] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Check that every column somebody named is there."""
        options = self.options
        for wanted in (
            *(options.columns or ()),
            *sorted({*options.text, *options.numeric, *options.drop}),
        ):
            self._find(wanted)
        both = sorted({*options.text} & {*options.numeric})
        if both:
            raise BadInput(f"column {both[0]!r} cannot be both text and numeric")
        more = [name for name in options.optional if name in self.names]
        kept = self.names if options.columns is None else dict.fromkeys((*options.columns, *more))
        self.kept = tuple(name for name in kept if name not in options.drop)
        plain = Form(decimal=options.decimal or ".")
        self.forms = dict.fromkeys((*options.text, *more), TEXT) | dict.fromkeys(
            options.numeric, plain
        )
        self.forms |= {name: form for name, form in options.forms.items() if name in self.kept}
        self._begun = False

    def _find(self, wanted: str) -> None:
        if wanted not in self.names:
            raise NoColumn(self.name, wanted, self.names)

    @property
    def known(self) -> bool:
        """Whether it is settled for every column that is kept what it holds."""
        return all(name in self.forms for name in self.kept)

    @property
    def plain(self) -> set[str]:
        """The columns that hold plain numbers."""
        usual = self.options.missing == Options.missing
        return {name for name, form in self.forms.items() if form == Form()} if usual else set()

    def chunk(self, cells: Mapping[str, Sequence[Any] | Array], lines: Sequence[int]) -> Chunk:
        """Convert the kept columns; an array of float64 is taken as it is."""
        if begins := not self._begun:
            self._settle(cells)
            self._begun = True
        wrong: dict[int, BadInput] = {}
        columns = {name: self._column(name, cells[name], lines, wrong) for name in self.kept}
        odd = {name: self.forms[name] for name in self.kept if not self.forms[name].plain}
        guesses = (*self.guesses, *silent_columns(columns)) if begins else ()
        made = Chunk(self.kept, columns, lines, forms=odd, guesses=guesses)
        return self._passed(made, cells, wrong) if wrong else made

    def _passed(self, made: Chunk, cells: Mapping[str, Any], wrong: dict[int, BadInput]) -> Chunk:
        """The rows in which nothing is wrong; the others go where refused rows go."""
        assert self.options.refuse is not None
        for i, reason in sorted(wrong.items()):
            row = {name: str(column[i]) for name, column in cells.items()}
            self.options.refuse(made.lines[i], reason, json.dumps(row, ensure_ascii=False))
        good = np.ones(made.n, bool)
        good[list(wrong)] = False
        return made.rows(good)

    # -- what columns hold -----------------------------------------------------------------------
    def _settle(self, cells: Mapping[str, Any]) -> None:
        """Find the format of every column without a given one, and report it."""
        options = self.options
        open_ = [name for name in self.kept if name not in self.forms]
        # Where lists are separated by commas numbers have points, and the reverse.
        usual = {",": ".", ";": ","}.get(self.delimiter)
        given = cells, open_, options.missing, options.decimal, options.dates, usual
        self.forms = guess_forms(*given, known=self.forms, where=f"{self.name}, ")
        for name in open_:
            if self.forms[name] == Form() and name != options.quantity:
                order = counted_order(name, self.forms[name].read(cells[name], options.missing)[0])
                self.forms[name] = Form() if order is None else Form("time", order=order)
        self.guesses += columns_in_words(self.forms, open_, cells)
        self.guesses += codes_in_words(self.forms, open_, cells, options.missing)
        self.guesses += missing_in_words(self.kept, cells, options.missing)

    # -- columns ---------------------------------------------------------------------------------
    def _column(
        self, name: str, cells: Any, lines: Sequence[int], wrong: dict[int, BadInput]
    ) -> Array:
        form = self.forms[name]
        if form.kind == "text":
            return self._texts(name, cells, lines, wrong)
        values, bad = form.read(cells, self.options.missing)
        for i in bad:
            self._wrong(i, lines, name, self._fault(form, cells[i]), wrong)
        return self._without(values) if self.options.missing != Options.missing else values

    def _without(self, values: Array) -> Array:
        """Numbers in which a spelling of one's own, such as -999, is missing."""
        spelled = [number(word) for word in self.options.missing]
        found = [value for value in spelled if value is not None and value == value]
        return np.where(np.isin(values, found), np.nan, values)

    def _texts(
        self, name: str, cells: Sequence[Any], lines: Sequence[int], wrong: dict[int, BadInput]
    ) -> Array:
        types = set(map(type, cells))
        missing = self.options.missing
        for i, cell in enumerate(cells if types & {list, dict} else ()):
            if isinstance(cell, list | dict):
                fault = BadInput(
                    f"{quote_cell(cell)} is not a single value. Each row is an object of single "
                    "values (pandas: frame.to_json(FILE, orient='records'))"
                )
                self._wrong(i, lines, name, fault, wrong)
        values = np.empty(len(cells), dtype=object)
        if types <= {str, type(None)}:  # few different ones, as a rule
            seen = {cell: text(cell, missing) for cell in set(cells)}
            values[:] = [seen[cell] for cell in cells]
        else:
            values[:] = [text(cell, missing) for cell in cells]
        return values

    def _wrong(
        self, i: int, lines: Sequence[int], name: str, fault: BadInput, wrong: dict[int, BadInput]
    ) -> None:
        """A cell that does not fit: its row is passed over, or an error."""
        if self.options.refuse is None:
            raise fault.at(f"{self.name}, {self.unit} {lines[i]}, column {name!r}")
        wrong.setdefault(i, fault.at(f"column {name!r}"))

    def _fault(self, form: Form, cell: Any) -> BadInput:
        """What is wrong with a cell, and what to do about it."""
        if infinite(cell):
            problem = "infinite"
        elif form.kind == "time":
            problem = f"not a time like those before ({words(form)})"
        elif form.plain:
            problem = "not a number"
        else:
            problem = f"not a number like those before ({words(form)})"
        return BadInput(
            f"{quote_cell(cell)} is {problem}. Correct the cell, empty it if the value is missing, "
            "or declare that the column holds text",
            options=["--text COLUMN", "--missing A,B,... names spellings", SKIP],
        )


# -- what was guessed, in words -------------------------------------------------------------------
_OTHER = {"dmy": "--dates mdy, ", "mdy": "--dates dmy, "}


def columns_in_words(
    forms: Mapping[str, Form], names: Iterable[str], cells: Mapping[str, Any]
) -> list[str]:
    """A line for every column that is neither plain numbers nor text."""
    return [_column(name, forms[name], cells[name]) for name in names if not forms[name].plain]


def _column(name: str, form: Form, cells: Any) -> str:
    example = next((c for c in cells if isinstance(c, str) and _shows(form, c)), "")
    how = words(form)
    if form.order == "ymd" and example:
        how = "dates, year first" if example.strip()[:4].isdigit() else "dates, months by name"
    like = f", like {quote_cell(example.strip())}" if example else ""
    if form.kind == "time":
        taken = "taken as time of day, week and year, where the rows cover them twice"
        taken = "taken as time of day" if form.order == "clock" else taken
        ahead = next(filter(None, map(offset_of, cells)), "")
        taken = f"brought to UTC ({ahead} is taken off), {taken}" if ahead else taken
        options = f"{_OTHER.get(form.order, '')}--text {quote(name)} or --drop {quote(name)}"
        options = options.replace("--text", "--numeric") if form.order in COUNTED else options
    else:
        mark = {",": "--decimal .", ".": "--decimal ,"}[form.decimal] if form.thousands else ""
        mark = "--decimal ." if form.decimal == "," else mark
        taken, options = (
            "taken as numbers",
            f"{mark} or --text {quote(name)}" if mark else f"--text {quote(name)}",
        )
    return f"column {name!r}: {how}{like}, {taken}; {options}"


def _shows(form: Form, cell: str) -> bool:
    """Whether a cell shows what is special about its column."""
    value = form.read([cell])[0][0]
    if value != value:
        return False
    marks = [form.thousands or form.unit or (form.decimal if form.decimal == "," else "")]
    return form.kind == "time" or all(mark in cell.replace("\u00a0", " ") for mark in marks)


def codes_in_words(
    forms: Mapping[str, Form],
    names: Iterable[str],
    cells: Mapping[str, Any],
    missing: Sequence[str],
) -> list[str]:
    """A line for every column of whole numbers that codes among them made text."""
    found = []
    for name in names:
        code = code_among(cells[name], missing) if forms[name] == TEXT else ""
        values, bad = numbers(cells[name], missing) if code else (np.empty(0), [])
        if code and np.count_nonzero(~np.isnan(values)) >= len(bad):
            found.append(
                f"column {name!r}: whole numbers, and codes like {quote_cell(code)}, taken as "
                f"text; --numeric {quote(name)} or --drop {quote(name)}"
            )
    return found


def missing_in_words(
    names: Sequence[str], cells: Mapping[str, Any], spellings: Sequence[str]
) -> list[str]:
    """A line on the words that were taken for missing values; an empty cell is no guess."""
    spelled = frozenset(spellings) - {""}
    found = Counter[str]()
    for name in names:
        texts = (cell.strip() for cell in cells[name] if isinstance(cell, str))
        found.update(word for word in texts if word in spelled)
    counts = {word: found[word] for word in spellings if found[word]}
    if not counts:
        return []
    counted = ", ".join(f"{word!r} ({n:,})" for word, n in counts.items())
    return [f"taken as missing: {counted}; --missing names the spellings, if they are others"]


def silent_columns(columns: Mapping[str, Any]) -> list[str]:
    """A line on columns that have no value, or but one: they are useless."""
    kinds: dict[str, list[str]] = {"no value": [], "one value only": []}
    for name, values in columns.items():
        kind = _kinds(values)
        if kind < 2 < len(values):
            kinds["one value only" if kind else "no value"].append(name)
    found = [f"{what} in {listed(names)}" for what, names in kinds.items() if names]
    return (
        [f"{', '.join(found)}, in the rows looked at; --drop COLUMN leaves it out"] if found else []
    )


def _kinds(values: Any) -> int:
    """How many different values there are, 2 for more."""
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        return int(known.size > 0) + int(known.size > 0 and known.min() < known.max())
    return min(2, len(set(values.tolist()) - {None}))
