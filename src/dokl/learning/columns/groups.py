"""Which column says of what a row is: a station, a customer, an animal."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.columns.preprocessor import MAX_LEVELS, is_text

# Whole numbers look like names of things where there are so many different ones, each in so many
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
