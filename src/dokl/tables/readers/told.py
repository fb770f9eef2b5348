"""What was guessed about a file, in words: a line each, with the option that says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dokl.base.errors import listed
from dokl.learning.cells.cells import quote_cell
from dokl.learning.cells.forms import Form, words
from dokl.learning.cells.times import COUNTED, offset_of

_OTHER = {"dmy": "--dates mdy, ", "mdy": "--dates dmy, "}


def columns(forms: Mapping[str, Form], names: Iterable[str], cells: Mapping[str, Any]) -> list[str]:
    """A line for every column that is neither plain numbers nor text."""
    return [_column(name, forms[name], cells[name]) for name in names if not forms[name].plain]


def _column(name: str, form: Form, cells: Any) -> str:
    example = next((c for c in cells if isinstance(c, str) and _shows(form, c)), "")
    how = words(form)
    if form.order == "ymd" and example:
        how = "dates, year first" if example.strip()[:4].isdigit() else "dates, months by name"
    like = f", like {quote_cell(example.strip())}" if example else ""
    if form.kind == "time":
        taken = "taken as time of day, of week and of year, those that the rows cover twice"
        taken = "taken as time of day" if form.order == "clock" else taken
        ahead = next(filter(None, map(offset_of, cells)), "")
        taken = f"brought to UTC ({ahead} is taken off), {taken}" if ahead else taken
        options = f"{_OTHER.get(form.order, '')}--text {name} or --drop {name}"
        options = options.replace("--text", "--numeric") if form.order in COUNTED else options
    else:
        mark = {",": "--decimal .", ".": "--decimal ,"}[form.decimal] if form.thousands else ""
        mark = "--decimal ." if form.decimal == "," else mark
        taken, options = (
            "taken as numbers",
            f"{mark} or --text {name}" if mark else f"--text {name}",
        )
    return f"column {name!r}: {how}{like}, {taken}; {options}"


def _shows(form: Form, cell: str) -> bool:
    """Whether a cell shows what is special about its column."""
    value = form.read([cell])[0][0]
    if value != value:
        return False
    marks = [form.thousands or form.unit or (form.decimal if form.decimal == "," else "")]
    return form.kind == "time" or all(mark in cell.replace("\u00a0", " ") for mark in marks)


def missing(names: Sequence[str], cells: Mapping[str, Any], spellings: Sequence[str]) -> list[str]:
    """A line on the words that were taken for missing values; an empty cell is no guess."""
    spelled = frozenset(spellings) - {""}
    found = Counter[str]()
    for name in names:
        texts = (cell.strip() for cell in cells[name] if isinstance(cell, str))
        found.update(word for word in texts if word in spelled)
    counts = {word: found[word] for word in spellings if found[word]}
    if not counts:
        return []
    said = ", ".join(f"{word!r} ({n:,})" for word, n in counts.items())
    return [f"taken as missing: {said}; --missing names the spellings, if they are others"]


def silent(columns: Mapping[str, Any]) -> list[str]:
    """A line on columns that have no value, or but one: they say nothing."""
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
