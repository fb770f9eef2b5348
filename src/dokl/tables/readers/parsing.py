"""Rows out of text, of files and of requests: the cells of CSV, the values of JSON.

Whoever asks knows the place, and adds it to what is wrong.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from dokl.base.errors import BadInput

DELIMITERS = ",;\t|"


# -- CSV ---------------------------------------------------------------------------------------
def delimiter_of(header: str) -> str:
    """The one of , ; | and tab that cuts a line into most cells.

    >>> delimiter_of("a;b;c, d")
    ';'
    """
    return max(DELIMITERS, key=lambda mark: width(header, mark))


def width(line: str, mark: str) -> int:
    """How many cells are on a line; 0 if it is no CSV."""
    with suppress(csv.Error):
        return len(next(csv.reader([line], delimiter=mark), ()))
    return 0


def csv_reader(lines: Iterable[str], mark: str) -> Any:
    """Rows of cells, one by one; quotes as in the standard library's csv, whose errors it has."""
    return csv.reader(lines, delimiter=mark, strict=True)


def cells_of(lines: Iterable[str], mark: str) -> list[list[str]]:
    """All rows of cells.

    >>> cells_of(['1,"a, b"', "2,c"], ",")
    [['1', 'a, b'], ['2', 'c']]
    """
    try:
        return list(csv_reader(lines, mark))
    except csv.Error as error:
        raise BadInput(f"this is not CSV ({error})") from None


def twice(names: Sequence[str]) -> str | None:
    """A name that stands there more than once."""
    return Counter(names).most_common(1)[0][0] if len(set(names)) < len(names) else None


# -- JSON --------------------------------------------------------------------------------------
class NotJson(BadInput):
    """A text that is no JSON."""


class Several(NotJson):
    """One JSON value is followed by something else."""


def json_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at this character, and where it ends; `json.JSONDecodeError` where
    there is none, which may go on later.

    >>> json_at('[{"a": 1}, 2', 1)
    ({'a': 1}, 9)
    """
    try:
        return _DECODERS[False, True].raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise BadInput("too deeply nested JSON") from None
    except ValueError:
        raise BadInput("this JSON holds a number of too many digits") from None


def json_value(text: str, once: bool = False, literals: bool = True) -> Any:
    """The value of a JSON text. once: refuse a key that stands twice in an object. literals: take
    NaN and Infinity, which are no JSON, as Python's json does.

    >>> json_value('{"a": [1, null]}')
    {'a': [1, None]}
    """
    try:
        return _DECODERS[once, literals].decode(text)
    except json.JSONDecodeError as error:
        kind = Several if error.msg == "Extra data" else NotJson
        raise kind(f"this is not JSON ({error})") from None
    except RecursionError:
        raise BadInput("too deeply nested JSON") from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput("this JSON holds a number of too many digits") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        name = twice([name for name, _ in pairs]) or ""
        raise BadInput(f"the key {name[:80]!r} stands twice in one JSON object")
    return made


def _no_literal(name: str) -> Any:
    raise NotJson(f"{name} is not JSON: send null where a value is missing")


_DECODERS = {
    (once, literals): json.JSONDecoder(
        object_pairs_hook=_once if once else None,
        parse_constant=None if literals else _no_literal,
    )
    for once in (False, True)
    for literals in (False, True)
}
