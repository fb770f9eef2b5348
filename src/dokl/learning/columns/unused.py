"""Columns of text that say nothing about other rows: names, identifiers, free text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns.preprocessor import MAX_LEVELS, is_text

REPEATED = 0.5  # of the rows have a text of their own, at least, where texts are names
MANY_WORDS, DIFFERENT = 6.0, 0.1  # words in free text on average, and how many texts are different


def unused_texts(columns: Mapping[str, Array], besides: Collection[str]) -> dict[str, str]:
    """Columns that hold names or free text, none of `besides`, and why: {column: in words}.

    Texts that repeat are levels, however many; they are no concern of this.

    >>> import numpy as np
    >>> unused_texts({"who": np.array([f"person {i}" for i in range(90)], object)}, ())
    {'who': "90 different texts in 90 rows, like 'person 0'"}
    """
    found = dict[str, str]()
    for name, column in columns.items():
        if name in besides or not is_text(column):
            continue
        texts = [text for text in column.tolist() if text is not None]
        different = len(set(texts))
        if different <= MAX_LEVELS:
            continue
        words = sum(len(text.split()) for text in texts) / len(texts)
        if different > REPEATED * len(texts):
            what = f"{different:,} different texts in {len(texts):,} rows"
        elif words >= MANY_WORDS and different > DIFFERENT * len(texts):
            what = f"free text, {words:.0f} words on average"
        else:
            continue
        found[name] = f"{what}, like {_short(texts[0])}"
    return found


def check_some_left(columns: Collection[str], unused: Mapping[str, str]) -> None:
    """Refuse a table in which every column is unused."""
    if unused and not set(columns) - set(unused):
        raise BadInput(
            f"no column is left to learn from: {_each(unused)}. Names, identifiers and free text "
            "say nothing about other rows; are these numbers or times that nobody can read?",
            options=["--numeric COLUMN", "--decimal ,", "--dates dmy"],
        )


def unused_words(unused: Mapping[str, str]) -> Iterable[str]:
    """A line on what is not used, with the options that say otherwise; none where all is used."""
    if not unused:
        return []
    return [
        f"not used: {_each(unused)}; names, identifiers and free text say nothing about other "
        "rows; --numeric COLUMN, --group COLUMN or --levels COLUMN=A,B,... takes one"
    ]


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def _each(unused: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({why})" for name, why in unused.items())
