"""[inputs] times and forms: what is taken of columns of times, and how cells are written."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

from dokl.base.errors import BadInput
from dokl.learning.columns import TimeParts
from dokl.tables.readers import Form

if TYPE_CHECKING:
    from dokl.live.description.agreed import AgreedInputs

ISO = Form("time", order="ymd")  # of a column of times that is written as usual
_KEYS = [field.name for field in fields(Form)]


def times_of(entries: tuple[Any, ...]) -> dict[str, TimeParts]:
    """What is taken of each column of times; entries: (column, (part, ...), start)."""
    found = {}
    for entry in entries:
        try:
            name, parts, start = entry
            found[str(name)] = TimeParts.from_spec({"parts": parts, "start": start})
        except (TypeError, ValueError, BadInput):
            raise BadInput(
                '[inputs] times: each entry is ["column", ["day", "week", "year"], start], with '
                f"the parts that count and the start in seconds since 1970, got {entry!r}"
            ) from None
    return found


def forms_of(entries: tuple[Any, ...]) -> dict[str, Form]:
    """How cells of some columns are written; entries: (column, kind, decimal, thousands, ...)."""
    found = {}
    for entry in entries:
        try:
            name, *values = entry
            found[str(name)] = Form.from_spec(dict(zip(_KEYS, values, strict=True)))
        except (TypeError, ValueError, BadInput):
            raise BadInput(
                f'[inputs] forms: each entry is ["column", {", ".join(map(repr, _KEYS))}], as '
                f"'dokl network new --sample' writes it, got {entry!r}"
            ) from None
    return found


def time_entries(times: dict[str, TimeParts]) -> tuple[object, ...]:
    """As [inputs] times has them."""
    return tuple((name, each.parts, each.start) for name, each in times.items())


def form_entries(forms: dict[str, Form]) -> tuple[object, ...]:
    """As [inputs] forms has them."""
    return tuple((name, *astuple(form)) for name, form in forms.items())


def check_cells(inputs: AgreedInputs) -> None:
    """Refuse forms of columns that are not there, or are of another kind."""
    times, forms = {*times_of(inputs.times)}, forms_of(inputs.forms)
    times |= {inputs.ordered_by} - {""}
    for name, form in forms.items():
        kind = "time" if name in times else "number"
        known = name in times or name in inputs.numeric or name == inputs.target
        if form.kind != kind or not known:
            what = "times" if form.kind == "time" else "numeric or the target"
            raise BadInput(f"[inputs] forms: column {name!r} is not among {what}")
