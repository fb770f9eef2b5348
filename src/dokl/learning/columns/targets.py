"""Targets: whether they are classes, and which rows have one."""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.base.errors import BadInput, listed
from dokl.learning.columns.preprocessor import MAX_LEVELS, is_text

# Whole numbers of more kinds, or repeated less often, are taken for quantities.
MOST_CLASSES, FEWEST_OF_A_CLASS = 10, 5


def are_classes(y: Array) -> bool:
    """Whether targets (n,) are classes, where nobody has said so; missing ones are passed over.

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
    """Whether targets (n,) are classes, where nobody has said so; and what that rests on, in words.

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
                "read. Name the decimal mark, or correct the column",
                options=["--decimal . or --decimal ,"],
            )
        shown = listed(sorted(kinds), 6)
        return True, f"target {name!r}: texts ({shown}), taken as classes; --numeric {name}"
    whole = bool((y[~np.isnan(y)] == np.rint(y[~np.isnan(y)])).all()) if y.size else False
    n = len(np.unique(y[~np.isnan(y)]))
    what = f"{n:,} {'whole ' if whole else 'different '}number{'' if n == 1 else 's'}"
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
