"""The column of groups among an estimator's inputs: which it is, and what may stand in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName

# Beyond, floats leave out whole numbers.
MOST = 2.0**53


def group_column(groups: Any, d: int, names: Any = None) -> int:
    """The place of a column among d inputs, by its place (-1 is the last) or its name."""
    if isinstance(groups, str):
        if names is None:
            raise BadInput(
                f"groups={groups!r} is a name, and these inputs have none: give a data frame, or "
                "the place of the column (-1 is the last one)"
            )
        known = list(names)
        if groups not in known:
            raise UnknownName("column of groups", groups, known)
        return known.index(groups)
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer):
        raise BadInput(f"groups must be the place or the name of a column, got {groups!r}")
    if not -d <= groups < d:
        raise BadInput(f"groups={groups} names no column: there are {d} inputs")
    return int(groups) % d


def grouped_last(X: Array, at: int) -> Array:
    """Rows X: (n, d) with column `at`, of whole numbers, at the end."""
    if X.shape[1] < 2:
        raise BadInput(
            "the column of groups is the only input: with no other there is nothing to learn but "
            "the mean of each group"
        )
    group = X[:, at]
    wrong = np.flatnonzero((group != np.rint(group)) | (np.abs(group) > MOST))
    if len(wrong):
        raise BadInput(
            f"groups are whole numbers, and row {wrong[0]} has {group[wrong[0]]:g} in column {at}: "
            "number them first, for example with sklearn.preprocessing.OrdinalEncoder, or train "
            "from a table (dokl.fit_table, dokl train), where they may be texts"
        )
    return X if at == X.shape[1] - 1 else np.hstack([np.delete(X, at, axis=1), X[:, at : at + 1]])
