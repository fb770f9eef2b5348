"""How the cells of a column are written: plain numbers, 1.234,5, $326, 12 %, times, or text.

A form is found once, on the first rows, and kept: later rows are read by it, and a cell that does
not fit is an error with its place.

>>> guessed_form(["1.234,5", "12,25", "NA"])
Form(kind='number', decimal=',', thousands='.', unit='', order='')
>>> values, bad = Form(decimal=",", thousands=".").read(["1.234,5", "-7", "x"])
>>> values.tolist()[:2], bad
([1234.5, -7.0], [2])
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.cells.cells import MISSING, Ambiguous, infinite, number, numbers
from dokl.learning.cells.times import COUNTED, ORDERS, counted_seconds, guessed_order, seconds

KINDS = ("number", "text", "time")
# Decimal mark and thousands separator, the simpler first.
_STYLES = ((".", ""), (",", ""), (".", ","), (",", "."), (".", " "), (",", " "), (".", "'"))
_MONEY = r"US\$|[$€£¥₹₩₽]|USD|EUR|GBP|CHF|JPY|CNY|INR"
_AMOUNT = re.compile(
    rf"([+-]?)\s*({_MONEY})?\s*([+-]?(?:\d[\d.,' \u00a0\u202f]*|[.,]\d+)(?:[eE][+-]?\d+)?)"
    rf"\s*({_MONEY}|%)?"
)
# Who writes these writes 1,234.5.
_ENGLISH = ("US$", "$", "£", "USD", "GBP")
_CODE = re.compile(r"([A-Za-z]{0,3})\d+([A-Za-z]{0,3})")  # 136A, B12
_BLANKS = str.maketrans("\u00a0\u202f", "  ")
_DATES = {
    "ymd": "dates, year first or months by name",
    "dmy": "dates, day first",
    "mdy": "dates, month first",
    "clock": "times of day",
    "seconds": "seconds since 1970",
    "milliseconds": "milliseconds since 1970",
    "days": "days as spreadsheets count them",
    "digits": "dates whose digits are one number, year first",
}
_MARKS = {".": "points", ",": "commas", " ": "blanks", "'": "quotes"}


@dataclass(frozen=True)
class Form:
    """kind: "number", "text" or "time". Of numbers: decimal mark, thousands separator, and a unit
    that may stand beside them, a currency or %. order: of a time's day and month, see `times`.
    """

    kind: str = "number"
    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    order: str = ""

    @property
    def plain(self) -> bool:
        """Whether cells are numbers as Python writes them, or text."""
        return self.kind == "text" or self == Form()

    def read(
        self, cells: Sequence[Any], missing: Sequence[str] = MISSING
    ) -> tuple[Array, list[int]]:
        """float64 (n,), NaN where missing, and the rows that do not fit; times are seconds."""
        if self.plain:
            return numbers(cells, missing)
        if self.order in COUNTED:
            counted, bad = numbers(cells, missing)
            found = counted_seconds(counted, self.order)
            wrong = np.flatnonzero(np.isnan(found) & ~np.isnan(counted)).tolist()
            return found, sorted({*bad, *wrong})
        each = dict[Any, float | None]()
        for cell in {cell for cell in cells if isinstance(cell, str)}:
            each[cell] = self._read_text(cell.strip(), missing)
        values = [each[c] if isinstance(c, str) else self._read_other(c, missing) for c in cells]
        bad = [i for i, value in enumerate(values) if value is None]
        return np.array(values, np.float64), bad

    def _read_text(self, cell: str, missing: Sequence[str]) -> float | None:
        if cell in missing:
            return math.nan
        return seconds(cell, self.order) if self.kind == "time" else self._amount(cell)

    def _read_other(self, cell: Any, missing: Sequence[str]) -> float | None:
        if self.kind == "time" and cell is not None:
            return seconds(cell, self.order)
        return number(cell, missing)

    def _amount(self, cell: str) -> float | None:
        found = _split(cell)
        if found is None or found[1] not in ("", self.unit):
            return None
        return _value(found[0], self.decimal, self.thousands)

    def spec(self) -> dict[str, str]:
        """What differs from plain numbers, for files."""
        plain = asdict(Form())
        return {key: value for key, value in asdict(self).items() if value != plain[key]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, str]) -> Self:
        """The form that had this `spec`."""
        form = cls(**spec)
        known = form.kind in KINDS and (form.decimal, form.thousands) in _STYLES
        if not known or (form.kind == "time" and form.order not in ORDERS):
            raise BadInput(f"{dict(spec)!r} is not a form of cells")
        return form


TEXT = Form("text")


def words(form: Form) -> str:
    """A form in a few words.

    >>> words(Form(decimal=",", thousands="."))
    'decimal commas, points between thousands'
    """
    if form.kind == "time":
        return _DATES[form.order]
    found = {"%": ["percentages"], "": []}.get(form.unit, [f"amounts in {form.unit}"])
    found += ["decimal commas"] if form.decimal == "," else []
    found += [f"{_MARKS[form.thousands]} between thousands"] if form.thousands else []
    return ", ".join(found) or "numbers"


# -- one cell ----------------------------------------------------------------------------------
def _split(cell: str) -> tuple[str, str] | None:
    """Digits with their marks, and the unit beside them; None if it is no number at all."""
    found = _AMOUNT.fullmatch(cell.translate(_BLANKS))
    if found is None or (found[2] and found[4]) or (found[1] and found[3][0] in "+-"):
        return None
    return found[1] + found[3].strip(), found[2] or found[4] or ""


def _value(body: str, decimal: str, thousands: str) -> float | None:
    if not _pattern(decimal, thousands).fullmatch(body):
        return None
    value = float((body.replace(thousands, "") if thousands else body).replace(decimal, "."))
    return value if math.isfinite(value) else None


@functools.cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point, mark = re.escape(decimal), re.escape(thousands)
    grouped = rf"[1-9]\d{{0,2}}(?:{mark}\d{{3}})+|" if thousands else ""
    return re.compile(rf"[+-]?(?:(?:{grouped}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?")


# -- a column ----------------------------------------------------------------------------------
def guessed_form(
    cells: Any,
    missing: Sequence[str] = MISSING,
    decimal: str | None = None,
    order: str | None = None,
) -> Form:
    """What at least half of the cells that are not missing are; text if that is nothing else.

    A few wrong cells among numbers are mistakes to be named, not a column of text. decimal, order:
    what is known of decimal marks and of dates. `Ambiguous` where cells can be read in two ways.
    """
    values, bad = numbers(cells, missing)
    good = int(np.count_nonzero(~np.isnan(values)))
    if not bad:
        return Form()
    texts = [cells[i] for i in range(len(cells)) if isinstance(cells[i], str)]
    counts = Counter(cell.strip() for cell in texts)
    counts = Counter({cell: n for cell, n in counts.items() if cell not in missing})
    total = good + sum(not infinite(cells[i]) for i in bad)
    if 2 * good < total or any(_split(cells[i].strip()) for i in bad if isinstance(cells[i], str)):
        time, seen = guessed_order(counts, order)
        if time is not None and 2 * seen >= total:
            return Form("time", order=time)
        local, seen = _guessed_style(counts, decimal)
        if local is not None and 2 * seen >= total and seen > good:
            return local
    return Form() if 2 * good >= total and not code_among(cells, missing) else TEXT


def code_among(cells: Any, missing: Sequence[str] = MISSING) -> str:
    """A cell like 136A in a column of whole numbers that are names of things; "" if there is none.

    One letter after a number may be a unit, or a mistake. Different letters, letters in front, and
    zeros in front of the other numbers are neither.

    >>> code_among(["7", "7A", "8", "9B"]), code_among(["20", "21", "22C"])
    ('7A', '')
    """
    texts = dict.fromkeys(cell.strip() for cell in cells if isinstance(cell, str))
    if not all(isinstance(cell, str | int | None) for cell in cells):
        return ""
    odd = [cell for cell in texts if number(cell, missing) is None]
    plain = [cell for cell in texts if cell not in missing and cell not in odd]
    codes = [found for cell in odd if (found := _CODE.fullmatch(cell))]
    if not codes or len(codes) < len(odd) or not all(cell.isdecimal() for cell in plain):
        return ""
    zeros = any(cell[0] == "0" and len(cell) > 1 for cell in plain)
    sure = zeros or len({found.groups() for found in codes}) > 1 or any(f[1] for f in codes)
    return odd[0] if sure else ""


def _guessed_style(counts: Counter[str], decimal: str | None) -> tuple[Form | None, int]:
    """The style of numbers that fits most cells, and how many these are."""
    found = {cell: split for cell in counts if (split := _split(cell)) is not None}
    bodies, units = Counter[str](), Counter[str]()
    for cell, (body, unit) in found.items():
        bodies[body] += counts[cell]
        units[unit] += counts[cell]
    if decimal is None and units and all(unit in ("", *_ENGLISH) for unit in units):
        decimal = "." if any(units[unit] for unit in _ENGLISH) else None
    styles = [style for style in _STYLES if decimal is None or style[0] == decimal]
    fits = {style: _fitting(bodies, style) for style in styles}
    most = max(fits.values(), default=0)
    if not most or 2 * most < counts.total():
        return None, 0
    best = [style for style in styles if fits[style] == most]
    unit = _one_unit(units, found)
    if len({mark for mark, _ in best}) > 1 and any("," in body for body in bodies):
        example = next(cell for cell, (body, _) in found.items() if "," in body)
        raise Ambiguous(
            f"{example!r} may have a decimal comma, or a thousands separator: name the "
            "decimal mark",
            example,
            "--decimal . or --decimal ,",
        )
    return Form("number", *best[0], unit), most


def _fitting(bodies: Counter[str], style: tuple[str, str]) -> int:
    return sum(n for body, n in bodies.items() if _value(body, *style) is not None)


def _one_unit(units: Counter[str], found: Mapping[str, tuple[str, str]]) -> str:
    """The unit of a column, none if there is none; two of them cannot be compared."""
    several = [unit for unit in units if unit]
    if not several:
        return ""
    if len(several) > 1 or ("%" in several and "" in units):
        shown = [next(c for c, (_, unit) in found.items() if unit == each) for each in units]
        raise Ambiguous(
            f"numbers in different units are mixed, {shown[0]!r} and {shown[1]!r}: write "
            "them all in one, or declare that the column holds text",
            shown[0],
            "--text COLUMN",
        )
    return several[0]


def _has_thousand_points(cells: Sequence[Any]) -> bool:
    """Whether all points in plain numbers may part thousands, and there are some: 1.234."""
    dotted = {cell.strip() for cell in cells if isinstance(cell, str) and "." in cell}
    pattern = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
    return bool(dotted) and all(pattern.fullmatch(cell) for cell in dotted)


def guess_forms(
    cells: Mapping[str, Any],
    names: Iterable[str],
    missing: Sequence[str] = MISSING,
    decimal: str | None = None,
    dates: str | None = None,
    usual: str | None = None,
    known: Mapping[str, Form] | None = None,
    where: str = "",
) -> dict[str, Form]:
    """The forms that are known, and those of the named columns by their first cells.

    decimal, dates: the mark of numbers and the order of dates, if somebody knows. usual: the mark
    where no column shows it. where: what stands before "column" in a message. A column that can be
    read in two ways is refused (`Ambiguous`), unless other columns decide.

    >>> cells = {"price": ["1,234", "2,345"], "weight": ["0,5", "12,75"]}
    >>> guess_forms(cells, cells)["price"].decimal
    ','
    """
    forms, unclear = dict(known or {}), dict[str, Ambiguous]()
    names = list(names)
    for name in names:
        try:
            forms[name] = guessed_form(cells[name], missing, decimal, dates)
        except Ambiguous as error:
            unclear[name] = error
    mark = decimal or _mark_elsewhere(forms, cells) or usual
    for name, problem in unclear.items():
        try:
            if mark is None:
                raise problem
            forms[name] = guessed_form(cells[name], missing, mark, dates)
        except Ambiguous as error:
            raise error.at(f"{where}column {name!r}") from None
    if any(form.decimal == "," for form in forms.values()):
        for name in names:  # where commas are decimal, a column of 1.234 and the like is thousands
            if forms[name] == Form() and _has_thousand_points(cells[name]):
                forms[name] = Form(decimal=",", thousands=".")
    return forms


def _mark_elsewhere(forms: Mapping[str, Form], cells: Mapping[str, Any]) -> str | None:
    """The decimal mark of the columns that show it, where they agree."""
    found = {form.decimal for form in forms.values() if form.kind == "number"}
    if "," in found and "." in found:
        plain = [name for name, form in forms.items() if form == Form()]
        odd = [name for name in plain if name in cells and _has_points(cells[name])]
        found -= set() if any(not _has_thousand_points(cells[n]) for n in odd) else {"."}
    elif found == {"."}:
        shown = [name for name, form in forms.items() if form.kind == "number" and name in cells]
        found = found if any(_has_points(cells[name]) for name in shown) else set()
    return found.pop() if len(found) == 1 else None


def _has_points(cells: Any) -> bool:
    """Whether some cell has a decimal point."""
    return any(isinstance(cell, str) and "." in cell for cell in cells)
