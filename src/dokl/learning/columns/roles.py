"""The role of each column of a table: target (classes or a quantity), group, or of no use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from shlex import quote

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.base.errors import BadInput, counted, listed, shortened
from dokl.learning.columns.preprocessor import MAX_LEVELS, is_text

# -- targets --------------------------------------------------------------------------------------
# Whole numbers of more kinds, or repeated less often, are taken for quantities.
MOST_CLASSES, FEWEST_OF_A_CLASS = 10, 5


def are_classes(y: Array) -> bool:
    """Whether targets (n,) are classes, if that is not given; missing ones are passed over.

    Text and truth values are classes. So are whole numbers, if they are 0 and 1 or -1 and 1, or of
    2 to 10 kinds that come five times each on average: many kinds, or hardly any repeats, are
    quantities.

    >>> are_classes(np.arange(100) % 3), are_classes(np.arange(100.0)), are_classes([0.5, 1.5] * 9)
    (True, False, False)
    """
    y = np.asarray(y)
    if is_text(y) or y.dtype.kind == "b":
        return True
    present = y[~np.isnan(y)]
    kinds = np.unique(present)
    if not 2 <= len(kinds) <= MOST_CLASSES or (kinds != np.rint(kinds)).any():
        return False
    plain = kinds.tolist() in ([0, 1], [-1, 1])
    return plain or len(present) >= FEWEST_OF_A_CLASS * len(kinds)


def guessed_task(y: Array, name: str = "y") -> tuple[bool, str]:
    """Whether targets (n,) are classes, if that is not given; and the reason, in words.

    >>> guessed_task(np.arange(600) % 6, "class")
    (True, "target 'class': 6 whole numbers, taken as classes; --task regression")
    """
    y = np.asarray(y)
    classes = are_classes(y)
    if is_text(y):
        kinds = {label for label in y.tolist() if label is not None}
        present = sum(label is not None for label in y.tolist())
        if len(kinds) > MAX_LEVELS and 2 * len(kinds) > present:
            raise BadInput(
                f"the target {name!r} holds {len(kinds):,} different texts in {present:,} rows, "
                f"like {sorted(kinds)[0]!r}: these are neither classes nor numbers that could be "
                "read. Name the decimal mark, or correct the column (no units)",
                options=["--decimal . or --decimal ,"],
            )
        shown = listed(sorted(kinds), 6)
        return True, f"target {name!r}: texts ({shown}), taken as classes; --numeric {quote(name)}"
    whole = bool((y[~np.isnan(y)] == np.rint(y[~np.isnan(y)])).all()) if y.size else False
    n = len(np.unique(y[~np.isnan(y)]))
    what = counted(n, "whole number" if whole else "different number")
    if classes:
        return True, f"target {name!r}: {what}, taken as classes; --task regression"
    return False, f"target {name!r}: {what}, taken as a quantity; --task classification"


def numeric_target(column: Array, name: str = "y") -> tuple[Array, Array]:
    """y (n,) and the rows to keep, (n,) of bool: those where the target is not missing.

    >>> y, keep = numeric_target(np.array([1.0, np.nan, 3.0]))
    >>> print(y[keep], "skipped:", np.count_nonzero(~keep))
    [1. 3.] skipped: 1
    """
    if is_text(column):
        raise BadInput(f"the target {name!r} holds text, and regression needs numbers")
    y = np.asarray(column, np.float64)
    if np.isinf(y).any():
        raise BadInput(f"the target {name!r} holds infinity")
    return limited(y), ~np.isnan(y)


def class_target(column: Array, name: str = "y") -> tuple[Array, Array]:
    """Labels (n,), numbers or texts, and the rows to keep.

    >>> y, keep = class_target(np.array(["ham", None, "spam"], object))
    >>> print(y[keep])
    ['ham' 'spam']
    """
    if not is_text(column):
        return numeric_target(column, name)
    y = np.asarray(column, object)
    return y, np.array([label is not None for label in y], dtype=bool)


# -- groups: a station, a customer, an animal -----------------------------------------------------
# Whole numbers look like names of things where there are so many different ones, each in this many
# rows on average, in about equally many (standard deviation over mean), and nearly all from 0 or 1
# to the largest are there.
FEWEST, ROWS_EACH, UNEVEN, FILLED = 30, 3.0, 0.5, 0.9

# Or where the column is called so, and they repeat.
_CALLED = re.compile(
    r"(?:^|[^a-z])(?:id|ids|nr|code|key|customer|client|user|patient|subject|animal|station|sensor|"
    r"device|machine|store|shop|site|household|meter)(?:$|[^a-z])"
)

# What counts time or things, and is a quantity in spite of all this.
_QUANTITY = re.compile(
    r"(?:^|[^a-z])(?:time|date|year|month|week|day|hour|minute|min|second|sec|age|step|count)"
)

_FEW = 10


def group_among(columns: Mapping[str, Array], besides: Collection[str]) -> str | None:
    """The text column with the most levels, if they are more than one input each can stand for; not
    one of `besides`, and none without another column beside it.

    Texts that hardly repeat are no groups: who plans the inputs says so.
    """
    levels = dict[str, int]()
    for name, column in columns.items():
        if name in besides or not is_text(column):
            continue
        texts = [text for text in column.tolist() if text is not None]
        different = len(set(texts))
        if different > MAX_LEVELS and 2 * different <= len(texts):
            levels[name] = different
    alone = len([name for name in columns if name not in besides]) < 2
    return None if alone or not levels else max(levels, key=lambda name: levels[name])


def like_identifiers(columns: Mapping[str, Array], besides: Collection[str]) -> dict[str, int]:
    """Columns of numbers that look like names of things, not quantities, and how many there are.

    >>> panel = {"chick": np.arange(500.0) % 50, "time": np.arange(500.0) // 50}
    >>> like_identifiers(panel, ())
    {'chick': 50}
    """
    found = {}
    for name, column in columns.items():
        if name in besides or is_text(column):
            continue
        values = np.asarray(column, np.float64)
        values = values[~np.isnan(values)]
        if not len(values) or values.min() < 0 or (values != np.rint(values)).any():
            continue
        called = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        different, counts = np.unique(values, return_counts=True)
        if _named_so(called, counts) or _numbered_so(called, different, counts):
            found[name] = len(different)
    return found


def _named_so(called: str, counts: Array) -> bool:
    return bool(_CALLED.search(called)) and len(counts) > _FEW and counts.mean() >= 2.0


def _numbered_so(called: str, different: Array, counts: Array) -> bool:
    n = len(different)
    if n < FEWEST or _QUANTITY.search(called) or counts.mean() < ROWS_EACH:
        return False
    filled = different[0] in (0.0, 1.0) and n >= FILLED * (different[-1] - different[0] + 1)
    return bool(filled and counts.std() < UNEVEN * counts.mean())


# -- names, identifiers, free text: they do not help to predict other rows ------------------------
REPEATED = 0.5  # of the rows have a text of their own, at least, where texts are names

FEWEST_NAMES = 10  # rows of a whole table in which no text repeats

MANY_WORDS, DIFFERENT = 6.0, 0.1  # words in free text on average, and how many texts are different


def unused_texts(
    columns: Mapping[str, Array], besides: Collection[str], whole: bool = False
) -> dict[str, str]:
    """Columns that hold names or free text, none of `besides`, and why: {column: in words}.

    Texts that repeat are levels, however many; they are no concern of this. whole: no rows follow,
    so that texts that are all different are names, however few.

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
        names = whole and different == len(texts) >= FEWEST_NAMES
        if different <= MAX_LEVELS and not names:
            continue
        words = sum(len(text.split()) for text in texts) / len(texts)
        if different > REPEATED * len(texts):
            what = f"{different:,} different texts in {len(texts):,} rows"
        elif words >= MANY_WORDS and different > DIFFERENT * len(texts):
            what = f"free text, {words:.0f} words on average"
        else:
            continue
        found[name] = f"{what}, like {shortened(texts[0])!r}"
    return found


def check_some_left(columns: Collection[str], unused: Mapping[str, str]) -> None:
    """Refuse a table in which every column is unused."""
    if unused and not set(columns) - set(unused):
        raise BadInput(
            f"no column is left to learn from: {_each(unused)}. Names, identifiers and free text "
            "do not help to predict other rows; are these numbers with a unit (write it into the "
            "column's name), or numbers or times in an unknown format?",
            options=["--numeric COLUMN", "--decimal ,", "--dates dmy"],
        )


def unused_words(unused: Mapping[str, str]) -> Iterable[str]:
    """A line on what is not used, with the options that change it; none where all is used."""
    if not unused:
        return []
    return [
        f"not used: {_each(unused)}; names, identifiers and free text do not help to predict "
        "other rows; --numeric COLUMN, --group COLUMN or --levels COLUMN=A,B,... takes one"
    ]


def _each(unused: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({why})" for name, why in unused.items())
