"""Everything dokl raises on purpose, in one tree.

::

    DoklError
    ├── BadInput            (also a ValueError)  a value that cannot be used
    │   ├── UnknownName     an unknown name, with the nearest one
    │   ├── BadGraph        a graph or weight matrix that cannot carry the algorithm
    │   ├── BadFile         a file that cannot be read, written or understood
    │   └── FingerprintMismatch  two models whose vectors must not be averaged or mixed
    ├── Diverged            (also an ArithmeticError)  the iterates left the finite numbers
    └── MissingExtra        (also an ImportError)  an optional dependency is absent

A message says what is wrong, where, and what to do about it; `options` names the options of the
command line that do it. What it quotes may come from outside and be of any length: the middle of a
message that is longer than `LONGEST` is left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "BadFile",
    "BadGraph",
    "BadInput",
    "Diverged",
    "DoklError",
    "FingerprintMismatch",
    "MissingExtra",
    "UnknownName",
]

LONGEST = 2000  # characters of a message


class DoklError(Exception):
    """Base of every error that dokl raises on purpose."""

    options: tuple[str, ...] = ()


class BadInput(DoklError, ValueError):
    """A value that cannot be used.

    >>> BadInput("'x' is not a number", options=["--text COLUMN"]).at("a.csv, line 3")
    BadInput("a.csv, line 3: 'x' is not a number")
    """

    def __init__(self, message: str, *, options: Iterable[str] = ()) -> None:
        super().__init__(_shorten(message))
        self.options = tuple(options)

    def at(self, place: str) -> BadInput:
        """The same with its place in front."""
        return BadInput(f"{place}: {self}", options=self.options)


class UnknownName(BadInput):
    """A name that is not among the known ones.

    >>> raise UnknownName("kernel", "gausian", ["gaussian", "cauchy"])
    Traceback (most recent call last):
    dokl.base.errors.UnknownName: unknown kernel 'gausian': did you mean 'gaussian'? ...
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        known = sorted(known)
        lower = {each.lower(): each for each in known}
        near = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.5)
        hint = f"did you mean {lower[near[0]]!r}? " if near else ""
        names = ", ".join(map(_on_one_line, known))
        super().__init__(f"unknown {kind} {name!r}: {hint}Known: {names}.")


class BadGraph(BadInput):
    """A graph or a weight matrix that cannot carry the algorithm."""


class BadFile(BadInput):
    """A file that cannot be read, written or understood; the message begins with its path."""


class FingerprintMismatch(BadInput):
    """Two models whose vectors live in different feature spaces."""

    def __init__(self, what: str, ours: str, theirs: str) -> None:
        super().__init__(
            f"{what}: fingerprint {theirs} does not match ours, {ours}. Vectors of different "
            "feature maps (kernel, sigma, seed, variant, scaling or labels) must not be mixed."
        )


class Diverged(DoklError, ArithmeticError):
    """The iterates left the finite numbers."""


class MissingExtra(DoklError, ImportError):
    """An optional dependency is absent; the message is the line that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional package: {install_line(extra)}")


def install_line(extra: str) -> str:
    """What installs an extra: from the checkout that this is, if it is one, or from an index."""
    import dokl

    root = Path(dokl.__file__).parents[2]
    here = (root / "pyproject.toml").is_file() and (root / "src" / "dokl").is_dir()
    checkout = f"pip install -e '{root}[{extra}]', or of a release: " if here else ""
    return f"{checkout}pip install 'dokl[{extra}]'"


def _shorten(message: str) -> str:
    """A message of at most `LONGEST` characters: its place is at the start, its advice at the end.

    >>> len(_shorten("x" * 9000))
    2000
    """
    gap = " ... "
    end = LONGEST // 3
    start = LONGEST - end - len(gap)
    return message if len(message) <= LONGEST else message[:start] + gap + message[-end:]


def _on_one_line(name: str) -> str:
    """A name from outside, where it has line ends or the like with these spelled out.

    >>> print(_on_one_line("two\\nlines"))
    two\\nlines
    """
    return name if name.isprintable() else repr(name)[1:-1]


def counted(n: int, noun: str) -> str:
    """A number of things for a message.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def shortened(text: str) -> str:
    """A text as messages have it, where it may be long."""
    return text if len(text) <= 40 else f"{text[:37]}..."


def listed(values: Iterable[object], most: int = 12) -> str:
    """Some names for a message, and how many more there are.

    >>> listed("abc", 2)
    'a, b and 1 more'
    """
    every = [_on_one_line(str(value)) for value in values]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
