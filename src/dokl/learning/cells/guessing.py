"""How the cells of several columns are written: what one cannot tell, the others may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dokl.learning.cells.cells import MISSING, Ambiguous
from dokl.learning.cells.forms import Form, guessed_form, has_thousand_points


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
    read in two ways is refused (`Ambiguous`), unless other columns tell.

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
            if forms[name] == Form() and has_thousand_points(cells[name]):
                forms[name] = Form(decimal=",", thousands=".")
    return forms


def _mark_elsewhere(forms: Mapping[str, Form], cells: Mapping[str, Any]) -> str | None:
    """The decimal mark of the columns that show it, where they agree."""
    found = {form.decimal for form in forms.values() if form.kind == "number"}
    if "," in found and "." in found:
        plain = [name for name, form in forms.items() if form == Form()]
        odd = [name for name in plain if name in cells and _has_points(cells[name])]
        found -= set() if any(not has_thousand_points(cells[n]) for n in odd) else {"."}
    elif found == {"."}:
        shown = [name for name, form in forms.items() if form.kind == "number" and name in cells]
        found = found if any(_has_points(cells[name]) for name in shown) else set()
    return found.pop() if len(found) == 1 else None


def _has_points(cells: Any) -> bool:
    """Whether some cell has a decimal point."""
    return any(isinstance(cell, str) and "." in cell for cell in cells)
