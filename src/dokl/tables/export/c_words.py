"""Numbers, names and arrays as C99 has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "auto break case char const continue default do double else enum extern float for goto if "
        "inline int long register restrict return short signed sizeof static struct switch "
        "typedef union unsigned void volatile while asm",
    )
)
PER_LINE = 12


@dataclass(frozen=True)
class Reals:
    """How numbers of one precision are written."""

    precision: str

    @property
    def end(self) -> str:
        """What functions and constants of this precision end in."""
        return "f" if self.precision == "float" else ""

    def number(self, value: float) -> str:
        """A constant, to the last bit."""
        if self.precision == "float":
            with np.errstate(over="ignore"):
                text = repr(float(str(np.float32(value))))
            return f"{text}f"
        return repr(float(value))

    def array(self, values: Array) -> str:
        """What stands between the braces of an array, nested as the array is."""
        return braces(np.asarray(values), self.number)


def doubles(values: Array) -> str:
    """An array of doubles, whatever the precision of the rest."""
    return braces(np.asarray(values), lambda value: repr(float(value)))


def braces(values: Array, number: object) -> str:
    """Nested braces with some numbers a line."""
    if values.ndim > 1:
        return "{" + ",\n".join(braces(part, number) for part in values) + "}"
    texts = [number(value) for value in values.tolist()]  # type: ignore[operator]
    lines = (",".join(texts[i : i + PER_LINE]) for i in range(0, len(texts), PER_LINE))
    return "{" + ",\n ".join(lines) + "}"


def quoted(text: str) -> str:
    """A string constant; what is no plain ASCII, and question marks, as octal escapes."""
    out = []
    for byte in text.encode():
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        out.append(chr(byte) if plain else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def remark_of(text: str) -> str:
    """Any text, fit to stand in a comment."""
    return json.dumps(text).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """{name: identifier}, each another one.

    >>> identifiers(["temp", "wind speed", "wind-speed", "2nd", "int"])
    {'temp': 'temp', 'wind speed': 'wind_speed', 'wind-speed': 'wind_speed_2', '2nd': 'c2nd',
     'int': 'int_'}
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "column"
        plain = f"c{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_" if plain in KEYWORDS else plain
        taken, made, k = set(found.values()), plain, 2
        while made in taken:
            made, k = f"{plain}_{k}", k + 1
        found[name] = made
    return found
