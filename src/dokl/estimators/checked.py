"""What a person gives to an estimator, checked: parameters that are numbers, weights, rows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput


def plain_numbers(values: Array, kind: Any) -> Array | None:
    """The array as `kind` in C order; None if something in it is not finite."""
    if values.dtype != kind:
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and found just below
            values = values.astype(kind)
    values = np.ascontiguousarray(values)
    return values if np.isfinite(values).all() else None


def checked_weight(sample_weight: Any, n: int) -> Array:
    """A number or one number for each of the n rows, none of them negative: (n,)."""
    try:
        weight = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"sample_weight must be numbers: {error}") from None
    if weight.ndim and weight.shape != (n,):
        raise BadInput(f"sample_weight must have shape ({n},), as y has; got {weight.shape}")
    weight = np.broadcast_to(weight, n)
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if bad.size:
        value = weight[bad[0]]
        raise BadInput(f"sample_weight of row {bad[0]} is {value:g}: it must be 0 or more, finite")
    return weight


def present_rows(X: Any, y: Array, sample_weight: Any, first: bool) -> Any:
    """(n, X, y, weight, kept): rows of weight 0 are left out, as if never given.

    n counts all rows; kept are the numbers of those that stay, None for all.
    """
    n = X.shape[0]
    if sample_weight is None:
        return n, X, y, None, None
    weight = checked_weight(sample_weight, n)
    kept = np.flatnonzero(weight)
    if first and not kept.size:
        raise BadInput("all sample weights are zero: there is nothing to start from")
    if len(kept) == n:
        return n, X, y, weight, None
    return n, X[kept], y[kept], weight[kept], kept


def only(values: Array | None, kept: Array | None) -> Array | None:
    """Of values (n,), if any, those of the rows that are kept."""
    return values if values is None or kept is None else values[kept]


def everywhere(values: Array, kept: Array | None, n: int) -> Array:
    """Values of the rows that are kept among n, NaN for the others: (n, m)."""
    if kept is None:
        return values
    out = np.full((n, *values.shape[1:]), np.nan)
    out[kept] = values
    return out


def float_type(dtype: Any) -> Any:
    """np.float32 or np.float64."""
    try:
        kind = np.dtype(dtype).type
    except (TypeError, ValueError, SyntaxError):  # of what is a description of several fields
        kind = None
    if kind not in (np.float32, np.float64):
        raise BadInput(f"dtype must be float32 or float64, got {dtype!r}")
    return kind


def machine_memory() -> float:
    """Bytes of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def whole(name: str, value: Any) -> int:
    """A parameter that counts something."""
    return check_whole(name, value)


def not_negative(name: str, value: Any) -> float:
    """A parameter that is a finite number, at least 0."""
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (real and np.isfinite(value) and value >= 0):
        raise BadInput(f"{name} must be a finite number, at least 0, got {value!r}")
    return float(value)
