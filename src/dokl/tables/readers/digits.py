"""Numbers out of lines of text, compiled: the same doubles as `float`, or none at all.

A number of up to 19 digits is m * 10^e with whole m. Where m < 2^53 and |e| <= 22 both factors are
doubles, and one multiplication or division rounds correctly (Clinger 1990). Elsewhere the product
is taken in twice the precision; its error is known, so it is also known whether rounding it could
go either way. Then, and wherever a cell is unusual, the answer is "cannot", and the caller
reads those lines another way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numba import njit

from dokl.base.arrays import Array
from dokl.learning.cells.cells import MISSING as SPELLINGS

_POINT, _MINUS, _PLUS, _COLON, _BLANK, _CR, _LF = (ord(c) for c in ".-+: \r\n")
_ZERO, _NINE, _SMALL_E, _LARGE_E = (ord(c) for c in "09eE")
_EXACT = 1 << 53
_MOST_DIGITS, _WIDEST, _HUGE = 19, 280, 9999
_ERROR = 2.0**-98  # of the product, relative; it is below 2^-102
_SPLITTER = 134217729.0  # 2^27 + 1, by which a double is cut into two halves (Dekker 1971)


def _powers() -> Array:
    """10^e as the sum of two doubles, for e from -280 to 280: (561, 2)."""
    out = np.empty((2 * _WIDEST + 1, 2))
    for e in range(-_WIDEST, _WIDEST + 1):
        exact = Fraction(10) ** e
        out[e + _WIDEST, 0] = float(exact)
        out[e + _WIDEST, 1] = float(exact - Fraction(float(exact)))
    return out


POWERS = _powers()
# What stands for a missing number, besides nothing at all: (11, 4) bytes.
MISSING = np.array([[*word.encode().ljust(4)] for word in SPELLINGS if word])


def numbers(data: bytes, delimiter: str, kept: Array, n: int) -> Array | None:
    """The numbers of n lines in the columns that are kept, (columns kept, n), NaN where missing.

    kept: for every column of the table, whether it is wanted. None if a cell is unusual, or a line
    does not have as many cells as `kept`.

    >>> print(numbers(b"1,x,2.5\\n-3e2,y,\\n", ",", np.array([True, False, True]), 2))
    [[   1.  -300. ]
     [   2.5    nan]]
    """
    out = np.empty((int(kept.sum()), n))
    text = np.frombuffer(data, np.uint8)
    done = _table(text, ord(delimiter), kept, POWERS, MISSING, out)
    return out if done == n else None


@njit(cache=True, nogil=True)
def _table(text: Any, delimiter: int, kept: Any, powers: Any, missing: Any, out: Any) -> int:
    """Fill `out`; returns the number of lines, -1 if something is unusual."""
    at, row, n = 0, 0, len(text)
    while at < n:
        if row == out.shape[1]:
            return -1
        column = 0
        for i in range(len(kept)):
            stop = at
            while stop < n and text[stop] != delimiter and text[stop] != _LF:
                stop += 1
            last = i == len(kept) - 1
            if last != (stop == n or text[stop] == _LF):
                return -1
            if kept[i]:
                value, fine = _cell(text, at, stop, powers, missing)
                if not fine:
                    return -1
                out[column, row] = value
                column += 1
            at = stop + 1
        row += 1
    return row


def sparse_rows(data: bytes, n: int, first: int, d: int) -> tuple[Array, ...] | None:
    """n LIBSVM lines: labels (n,), and values, columns, starts as a CSR matrix has them.

    first: number of the first of the d features. None if anything is unusual: remarks, qid,
    features that do not ascend or are not among the d, lines without a label.

    >>> sparse_rows(b"1 1:0.5 3:2\\n-1\\n", 2, 1, 3)
    (array([ 1., -1.]), array([0.5, 2. ]), array([0, 2]), array([0, 2, 2]))
    """
    labels, values = np.empty(n), np.empty(data.count(b":"))
    columns, starts = np.empty(len(values), np.int64), np.zeros(n + 1, np.int64)
    text = np.frombuffer(data, np.uint8)
    done = _rows(text, first, d, POWERS, MISSING, labels, values, columns, starts)
    return (labels, values, columns, starts) if done == n else None


@njit(cache=True, nogil=True)
def _rows(
    text: Any, first: int, d: int, powers: Any, missing: Any,
    labels: Any, values: Any, columns: Any, starts: Any,
) -> int:  # fmt: skip
    """Fill the arrays; returns the number of lines, -1 if something is unusual."""
    at, row, pair, n = 0, 0, 0, len(text)
    while at < n:
        if row == len(labels):
            return -1
        stop = _word(text, at)
        labels[row], fine = _cell(text, at, stop, powers, missing)
        if not fine or np.isnan(labels[row]):
            return -1
        before, at = first - 1, _next_word(text, stop)
        while at < n and text[at] != _LF:
            stop = _word(text, at)
            feature, at = _feature(text, at, stop)
            if at < 0 or feature <= before or feature >= first + d or pair == len(values):
                return -1
            values[pair], fine = _cell(text, at, stop, powers, missing)
            if not fine or np.isnan(values[pair]):
                return -1
            columns[pair] = feature - first
            before, at, pair = feature, _next_word(text, stop), pair + 1
        row, at = row + 1, at + 1
        starts[row] = pair
    return row if pair == len(values) else -1


@njit(cache=True, nogil=True)
def _word(text: Any, at: int) -> int:
    """Where a word ends."""
    while at < len(text) and text[at] != _BLANK and text[at] != _LF:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _next_word(text: Any, at: int) -> int:
    """Where the next one begins, or the line ends."""
    while at < len(text) and (text[at] == _BLANK or text[at] == _CR):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _feature(text: Any, at: int, stop: int) -> tuple[int, int]:
    """The whole number before a colon, and where its value begins; -1 if it is none."""
    feature, start = 0, at
    while at < stop and _ZERO <= text[at] <= _NINE:
        feature = min(10 * feature + int(text[at]) - _ZERO, 1 << 40)
        at += 1
    fine = at > start and at < stop and text[at] == _COLON
    return feature, at + 1 if fine else -1


@njit(cache=True, nogil=True)
def _cell(text: Any, at: int, stop: int, powers: Any, missing: Any) -> tuple[float, bool]:
    """The number in a cell, and whether it could be read."""
    while stop > at and (text[stop - 1] == _BLANK or text[stop - 1] == _CR):
        stop -= 1
    while at < stop and text[at] == _BLANK:
        at += 1
    if at == stop or _is_missing(text, at, stop, missing):
        return np.nan, True
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    mantissa, exponent, at = _mantissa(text, at, stop)
    if at > 0 and at < stop and (text[at] == _SMALL_E or text[at] == _LARGE_E):
        power, at = _power(text, at + 1, stop)
        exponent += power
    if at != stop:
        return 0.0, False
    value, fine = _round(mantissa, exponent, powers)
    return -value if negative else value, fine


@njit(cache=True, nogil=True)
def _mantissa(text: Any, at: int, stop: int) -> tuple[Any, int, int]:
    """Digits and a point as m * 10^e: m, e, and where they end; -1 if they are no number."""
    mantissa, digits, point, seen = np.uint64(0), 0, -1, False
    while at < stop:
        c = text[at]
        if _ZERO <= c <= _NINE:
            seen = True
            # From the twentieth digit on the product may wrap, even to 0: count by the digits.
            mantissa = mantissa * np.uint64(10) + np.uint64(c - _ZERO)
            digits += 1 if digits > 0 or c != _ZERO else 0
        elif c == _POINT and point < 0:
            point = at
        else:
            break
        at += 1
    if not seen or digits > _MOST_DIGITS:
        return mantissa, 0, -1
    return mantissa, 0 if point < 0 else point + 1 - at, at


@njit(cache=True, nogil=True)
def _power(text: Any, at: int, stop: int) -> tuple[int, int]:
    """The whole number after an e, and where it ends; that is -1 if there is none, or no end."""
    negative = at < stop and text[at] == _MINUS
    if at < stop and (negative or text[at] == _PLUS):
        at += 1
    if at == stop:
        return 0, -1
    power = 0
    while at < stop and _ZERO <= text[at] <= _NINE:
        power = min(10 * power + int(text[at]) - _ZERO, _HUGE)
        at += 1
    if power == _HUGE:
        return 0, -1
    return -power if negative else power, at


@njit(cache=True, nogil=True)
def _round(mantissa: Any, exponent: int, powers: Any) -> tuple[float, bool]:
    """The double next to mantissa * 10^exponent, and whether it is sure to be that."""
    if mantissa == 0:
        return 0.0, True
    if mantissa < _EXACT and -22 <= exponent <= 22:
        whole = float(mantissa)
        if exponent < 0:
            return whole / powers[_WIDEST - exponent, 0], True
        return whole * powers[_WIDEST + exponent, 0], True
    if exponent < -_WIDEST or exponent > _WIDEST:
        return 0.0, False
    high = float(mantissa)
    low = float(np.int64(mantissa - np.uint64(high)))
    ten, rest = powers[_WIDEST + exponent, 0], powers[_WIDEST + exponent, 1]
    product = high * ten
    tail = _rounding_error(high, ten, product) + (high * rest + low * ten)
    margin = product * _ERROR
    value = product + tail
    return value, product + (tail + margin) == product + (tail - margin)


@njit(cache=True, nogil=True)
def _rounding_error(a: float, b: float, product: float) -> float:
    """What rounding took from a * b, exactly (Dekker)."""
    wide_a, wide_b = _SPLITTER * a, _SPLITTER * b
    a1, b1 = wide_a - (wide_a - a), wide_b - (wide_b - b)
    a2, b2 = a - a1, b - b1
    return a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


@njit(cache=True, nogil=True)
def _is_missing(text: Any, at: int, stop: int, missing: Any) -> bool:
    length = stop - at
    if length > 4 or _ZERO <= text[at] <= _NINE:
        return False
    for word in range(missing.shape[0]):
        same = True
        for i in range(4):
            there = text[at + i] if i < length else _BLANK
            same = same and there == missing[word, i]
        if same:
            return True
    return False
