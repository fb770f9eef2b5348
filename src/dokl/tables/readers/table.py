"""Cells into columns: which hold numbers, times or text, and where a cell is wrong."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.cells.cells import SKIP, infinite, number, quote_cell, text
from dokl.learning.cells.forms import TEXT, Form, words
from dokl.learning.cells.guessing import guess_forms
from dokl.learning.cells.times import counted_order
from dokl.tables.readers import told
from dokl.tables.readers.options import Options


class NoColumn(BadInput):
    """A column that somebody asked for is not in the file."""

    def __init__(self, name: str, column: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(column, known, n=1, cutoff=0.0)
        super().__init__(f"{name} has no column {column!r}; the nearest is {near[0]!r}")
        self.column = column


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table.

    columns: name -> (n,) float64 with NaN where missing, or objects (str, None where missing).
    lines: line number in the file of each row. LIBSVM files have no names: X (n, d) CSR and y (n,).
    forms: of columns that are neither plain numbers nor text. guesses: of the first chunk, what was
    found out about the file, a line each with the option that says otherwise.
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
        """Some rows: a slice, or a mask (n,)."""
        columns = {name: column[some] for name, column in self.columns.items()}
        X, y = (None if each is None else each[some] for each in (self.X, self.y))
        if isinstance(some, slice):
            lines = self.lines[some]
        else:
            lines = [self.lines[i] for i in np.flatnonzero(some).tolist()]
        return replace(self, columns=columns, lines=lines, X=X, y=y)


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
        told = self.options
        for wanted in (*(told.columns or ()), *sorted({*told.text, *told.numeric, *told.drop})):
            self._find(wanted)
        both = sorted({*told.text} & {*told.numeric})
        if both:
            raise BadInput(f"column {both[0]!r} cannot be both text and numeric")
        more = [name for name in told.optional if name in self.names]
        kept = self.names if told.columns is None else dict.fromkeys((*told.columns, *more))
        self.kept = tuple(name for name in kept if name not in told.drop)
        plain = Form(decimal=told.decimal or ".")
        self.forms = dict.fromkeys((*told.text, *more), TEXT) | dict.fromkeys(told.numeric, plain)
        self.forms |= {name: form for name, form in told.forms.items() if name in self.kept}
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
        guesses = (*self.guesses, *told.silent(columns)) if begins else ()
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
        """Find the form of every column that nobody has told, and say what was found."""
        options = self.options
        open_ = [name for name in self.kept if name not in self.forms]
        # Where lists are parted by commas numbers have points, and the other way round.
        usual = {",": ".", ";": ","}.get(self.delimiter)
        given = cells, open_, options.missing, options.decimal, options.dates, usual
        self.forms = guess_forms(*given, known=self.forms, where=f"{self.name}, ")
        for name in open_:
            if self.forms[name] == Form() and name != options.quantity:
                order = counted_order(name, self.forms[name].read(cells[name], options.missing)[0])
                self.forms[name] = Form() if order is None else Form("time", order=order)
        self.guesses += told.columns(self.forms, open_, cells)
        self.guesses += told.missing(self.kept, cells, options.missing)

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
                fault = BadInput(f"{quote_cell(cell)} is no single value")
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
            "or say that the column holds text",
            options=["--text COLUMN", "--missing A,B,... names spellings", SKIP],
        )
