"""What rows of earlier columns become: where names and kinds agree they stay, as far as they go.

An input is known by its kind and its name: a number, a level of a text, a part of a time, or an
earlier value that nodes make. What has no namesake of its kind among the earlier ones is missing
in their rows. Scaling may differ: numbers are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.columns import Preprocessor, RawRows
from dokl.learning.columns.times import DAY
from dokl.live.description.agreed import AgreedInputs
from dokl.live.description.cells import times_of
from dokl.live.description.service import RowEncoder
from dokl.live.rows.columns import ColumnMap

NUMBER, TEXT, TIME = "number", "text", "time"
Key = tuple[str, ...]


def kinds_of(inputs: AgreedInputs) -> dict[str, str]:
    """The kind of each column that rows bring."""
    times = {*times_of(inputs.times), inputs.ordered_by} - {""}
    kinds = {name: TIME if name in times else NUMBER for name in inputs.brought}
    return kinds | {name: TEXT for name, _ in inputs.levels}


def column_map(
    old: AgreedInputs, before: Preprocessor, new: AgreedInputs, now: Preprocessor
) -> ColumnMap:
    """How inputs by one agreement, prepared as `before`, become those of another."""
    places = {key: i for i, key in enumerate(_keys(old, before))}
    scales, earlier = _scales(now), _scales(before)
    missing = now.transform(_missing(new, now))[0]
    source, factor, offset = np.full(now.d, -1), np.zeros(now.d), missing.astype(np.float64)
    for i, key in enumerate(_keys(new, now)):
        if key not in places:
            continue
        source[i], factor[i], offset[i] = places[key], 1.0, 0.0
        if i >= len(now.scaled):
            continue
        (centre, size), (mean, spread), later = scales[i], earlier[places[key]], 0.0
        if key[0] == TIME:
            later = (before.times[key[1]].start - now.times[key[1]].start) / DAY
        if (centre, size) != (mean, spread) or later:  # otherwise the same bits
            factor[i] = spread / size if size else 0.0
            offset[i] = (mean + later - centre) / size if size else 0.0
    return ColumnMap(before.d, source, factor, offset)


def waiting_map(
    old: AgreedInputs, before: RowEncoder, new: AgreedInputs, now: RowEncoder
) -> Callable[[Array], Array] | None:
    """How rows (n, d), as the journal of the earlier columns has them, become rows as it has them
    now; None where they cannot: nobody knows the times of rows that did not need any.
    """
    if isinstance(before, Preprocessor):
        if not isinstance(now, Preprocessor):
            return None
        return column_map(old, before, new, now).rows
    assert isinstance(before, RawRows)
    kinds, kept = kinds_of(old), before

    def made(X: Array) -> Array:
        columns = {k: v for k, v in kept.columns(X).items() if kinds_of(new).get(k) == kinds[k]}
        return now.transform({**_missing(new, None, len(X)), **columns})

    return made


def _keys(inputs: AgreedInputs, prepared: Preprocessor) -> list[Key]:
    """What each of the inputs is, in their order."""
    plan = inputs.lag_plan
    lags = {
        name: ("lag", kind, column, str(span))
        for name, (kind, column, span) in zip(plan.names, plan.made, strict=True)
    }
    keys: list[Key] = [lags.get(name, (NUMBER, name)) for name in prepared.numeric]
    keys += [(TIME, name, "since") for name in prepared.since]
    keys += [
        (TIME, name, part) for name, each in prepared.times.items() for part in each.names(name)
    ]
    return keys + [
        (TEXT, name, level) for name, levels in prepared.levels.items() for level in levels
    ]


def _scales(prepared: Preprocessor) -> list[tuple[float, float]]:
    """Mean and deviation by which each number is scaled; (0, 1) where it is not."""
    if prepared.standardise == "off":
        return [(0.0, 1.0)] * len(prepared.scaled)
    sums = prepared.moments
    n = np.maximum(sums.count, 1.0)
    mean = sums.total / n
    spread = np.sqrt(np.maximum(sums.square / n - mean * mean, 0.0))
    return list(zip((sums.shift + mean).tolist(), spread.tolist(), strict=True))


def _missing(inputs: AgreedInputs, prepared: Preprocessor | None, n: int = 1) -> dict[str, Array]:
    """Rows in which everything is missing."""
    texts = np.full(n, None, object)
    numbers = inputs.brought if prepared is None else (*prepared.numeric, *prepared.times)
    gaps: dict[str, Array] = {name: np.full(n, np.nan) for name in numbers}
    return gaps | {name: texts for name, _ in inputs.levels}
