"""Dates and times out of texts: ISO 8601, and the forms people write.

    2013-03-01   2013-03-01T14:30:00Z   2013/3/1 14:30   1 Mar 2013   March 1, 2013 2:30 pm
    31.12.2013 14:30   12/31/2013   31-12-13   19-Sep-03   14:30
    2013-03   2013-Mar   Mar 2013   2013M03   2013Q1   20130301 where the column is named so

A month or a quarter is its first day. An offset such as +01:00 is taken off, so that all times of a
column are UTC; a clock without one is read as it stands.

>>> seconds("1970-01-02 00:00:01", "ymd"), seconds("13/1/1970", "dmy"), seconds("13/1/1970", "mdy")
(86401.0, 1036800.0, None)
"""

from __future__ import annotations

import datetime
import re
from collections import Counter

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.cells.cells import Ambiguous

# Of day, month and year where all are numbers and the year is not first; "ymd" covers the years
# that are first and the months that have names, "clock" times without a date.
WRITTEN = ("ymd", "dmy", "mdy", "clock")
DAY = 86_400
# Times that are numbers: seconds of a unit, and what is 1970 in it; "digits" are dates whose eight
# digits are one number, 20130301. Between which numbers a column that is named like a time is one:
# 2001 to 2039, of spreadsheets (which count days) 1982 to 2064, of digits 1700 to 2199.
# Seconds of the day are as large as spreadsheets' days, so that days have to be named like days.
COUNTED = {
    "seconds": (1.0, 0.0),
    "milliseconds": (1e-3, 0.0),
    "days": (float(DAY), 25_569.0),
    "digits": (float(DAY), 0.0),
}
_RANGES = {
    "seconds": (1e9, 2.2e9),
    "milliseconds": (1e12, 2.2e12),
    "days": (3e4, 6e4),
    "digits": (17_000_101, 21_991_231),
}
# Numbers beyond these are counted otherwise than was agreed: 1973 to 2286, days 1927 to 2173.
BELIEVED = {
    "seconds": (1e8, 1e10),
    "milliseconds": (1e11, 1e13),
    "days": (1e4, 1e5),
    "digits": (10_000_101, 99_991_231),
}
_NAMED_SO = re.compile(
    r"(?:^|[^a-z])(?:date|datetime|time|timestamp|ts|day|when|datum|zeit|epoch)(?:[^a-z]|$)", re.I
)
_NAMED_DAYS = re.compile(r"(?:^|[^a-z])(?:date|datetime|day|datum)(?:[^a-z]|$)", re.I)
ORDERS = (*WRITTEN, *COUNTED)
MOST_AHEAD = 14 * 60  # minutes, on the Line Islands
_OFFSET = re.compile(r":\d{2}(?:[.,]\d+)?\s*([+-]\d{2}(?::?\d{2})?)\s*$")
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?"
    r"\s*(?:Z|UTC|GMT|(?P<sign>[+-])(?P<ahead>\d{2})(?::?(?P<minutes>\d{2}))?)?"
)
_HOUR = _CLOCK.replace(r":(?P<minute>\d{2})", r"(?::(?P<minute>\d{2}))?")  # 2013-03-01T14
_AFTER = rf"(?:(?:T|,? +){_HOUR})?"
_YEAR_FIRST = re.compile(
    rf"(?P<year>\d{{4}})([-/.])(?P<month>\d{{1,2}})\2(?P<day>\d{{1,2}}){_AFTER}"
)
_NAMED = (
    re.compile(
        rf"(?P<day>\d{{1,2}})[. -]+(?P<name>[A-Za-z]{{3,9}})[., -]+(?P<year>\d{{4}}){_AFTER}"
    ),
    re.compile(rf"(?P<name>[A-Za-z]{{3,9}})\.? +(?P<day>\d{{1,2}}),? +(?P<year>\d{{4}}){_AFTER}"),
    re.compile(rf"(?P<day>\d{{1,2}})([- /]){_MONTH}\2(?P<year>\d{{2}}){_AFTER}", re.I),
    re.compile(rf"(?P<year>\d{{4}})([- /]){_MONTH}\2(?P<day>\d{{1,2}}){_AFTER}", re.I),
)
# Months and quarters, of years of which a code is not likely to consist.
_YEAR = r"(?P<year>1[5-9]\d\d|2[01]\d\d)"
_MONTHLY = (
    re.compile(rf"{_YEAR}(?:[-/]|[- ]?M)(?P<month>\d{{1,2}})", re.I),
    re.compile(rf"{_YEAR}[- ]?Q(?P<quarter>[1-4])", re.I),
    re.compile(rf"Q(?P<quarter>[1-4])[- /]{_YEAR}", re.I),
    re.compile(rf"{_YEAR}[- /]?{_MONTH}", re.I),
    re.compile(rf"{_MONTH}(?:[-/]|[.,]? ){_YEAR}", re.I),
)
_NUMBERS = re.compile(
    rf"(?P<a>\d{{1,2}})([-/.])(?P<b>\d{{1,2}})\2(?P<year>\d{{4}}|\d{{2}}){_AFTER}"
)
_CODE = re.compile(r"(\d{4})[-/](\d{1,2})")
_ALONE = re.compile(_CLOCK)


def seconds(cell: object, order: str) -> float | None:
    """Seconds since 1970 of one cell, in UTC if it has an offset; None if it is no such time."""
    if isinstance(cell, datetime.datetime):
        clock = 3600 * cell.hour + 60 * cell.minute + cell.second + cell.microsecond / 1e6
        ahead = cell.utcoffset()
        clock -= 0.0 if ahead is None else ahead.total_seconds()
        return _days(cell.year, cell.month, cell.day) + clock
    if isinstance(cell, datetime.date):
        return _days(cell.year, cell.month, cell.day)
    if isinstance(cell, datetime.time):
        return 3600.0 * cell.hour + 60 * cell.minute + cell.second
    if not isinstance(cell, str):
        return None
    if order == "clock":
        found = _ALONE.fullmatch(cell)
        alone = None if found is None else _of_day(found)
        return None if alone is None else alone % DAY
    found = _YEAR_FIRST.fullmatch(cell)
    if found is not None:
        return _whole(found, int(found["month"]), int(found["day"]))
    for pattern in _NAMED:
        found = pattern.fullmatch(cell)
        if found is not None and found["name"][:3].lower() in _MONTHS:
            return _whole(found, 1 + _MONTHS.index(found["name"][:3].lower()), int(found["day"]))
    found = _NUMBERS.fullmatch(cell) if order in ("dmy", "mdy") else None
    if found is None:
        return _of_month(cell) if order == "ymd" else None
    day, month = (found["a"], found["b"]) if order == "dmy" else (found["b"], found["a"])
    return _whole(found, int(month), int(day))


def counted_order(name: str, values: Array) -> str | None:
    """What a column of numbers (n,), named like a time, counts; None if that is nothing likely.

    >>> counted_order("start_time", np.array([1.7e9, 1.8e9]))
    'seconds'
    >>> counted_order("day", np.array([45e3, 46e3])), counted_order("time", np.array([45e3, 46e3]))
    ('days', None)
    """
    known = values[~np.isnan(values)]
    if not known.size or not _NAMED_SO.search(name):
        return None
    low, high = known.min(), known.max()
    order = next((k for k, (a, b) in _RANGES.items() if a <= low < high <= b), None)
    if order == "digits" and np.isnan(counted_seconds(known, order)).any():
        return None
    return None if order == "days" and not _NAMED_DAYS.search(name) else order


def counted_seconds(values: Array, order: str) -> Array:
    """Seconds since 1970 of times that are counted; NaN of digits that are no date.

    >>> counted_seconds(np.array([19700102.0, 20130230.0]), "digits")
    array([86400.,    nan])
    """
    unit, start = COUNTED[order]
    counted = _days_of_digits(values) if order == "digits" else values
    return np.asarray((counted - start) * unit)


def _days_of_digits(values: Array) -> Array:
    """Days since 1970 (n,) of 20130301; NaN where that is no date."""
    inside = (values >= BELIEVED["digits"][0]) & (values <= BELIEVED["digits"][1])
    whole = np.where(inside & (values == np.floor(values)), values, 0).astype(np.int64)
    years, months, days = whole // 10_000, whole // 100 % 100, whole % 100
    month = (12 * (years - 1970) + months - 1).astype("datetime64[M]")
    found = month.astype("datetime64[D]") + (days - 1)
    real = (months >= 1) & (months <= 12) & (days >= 1) & (found.astype("datetime64[M]") == month)
    return np.where(real & (whole > 0), found.astype(np.int64), np.nan)


def _whole(found: re.Match[str], month: int, day: int) -> float | None:
    year = int(found["year"])
    year += 0 if year > 99 else 2000 if year < 70 else 1900
    clock = 0.0 if found["hour"] is None else _of_day(found)
    try:
        return None if clock is None else _days(year, month, day) + clock
    except ValueError:  # the 30th of February
        return None


def _of_month(cell: str) -> float | None:
    """Seconds since 1970 of the first day of a month or a quarter."""
    for pattern in _MONTHLY:
        found = pattern.fullmatch(cell)
        if found is not None:
            parts = found.groupdict()
            if parts.get("quarter"):
                month = 3 * int(parts["quarter"]) - 2
            elif parts.get("month"):
                month = int(parts["month"])
            else:
                month = 1 + _MONTHS.index(parts["name"][:3].lower())
            return _days(int(parts["year"]), month, 1) if 1 <= month <= 12 else None
    return None


def _days(year: int, month: int, day: int) -> float:
    return float(DAY * (datetime.date(year, month, day).toordinal() - _EPOCH))


def _of_day(found: re.Match[str]) -> float | None:
    hour, minute, second = int(found["hour"]), int(found["minute"] or 0), found["second"] or "0"
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"][0] in "pP" else 0)
    exact = float(second.replace(",", "."))
    ahead = 60 * int(found["ahead"] or 0) + int(found["minutes"] or 0)
    if not (hour < 24 and minute < 60 > exact) or ahead > MOST_AHEAD:
        return None
    return 3600.0 * hour + 60 * (minute - (-ahead if found["sign"] == "-" else ahead)) + exact


def offset_of(cell: object) -> str:
    """The offset that a time has, such as +01:00; empty for none, and for UTC itself.

    >>> offset_of("2013-03-01T14:30:00+01:00"), offset_of("2013-03-01T14:30Z")
    ('+01:00', '')
    """
    found = _OFFSET.search(cell) if isinstance(cell, str) else None
    return found[1] if found is not None and found[1].strip("+-0:") else ""


def guessed_order(counts: Counter[str], given: str | None = None) -> tuple[str | None, int]:
    """The order by which most texts are times, None if none are; and how many these are.

    given: "dmy" or "mdy", where somebody knows. If day and month cannot be distinguished, day is
    first between points, and `Ambiguous` otherwise.
    """
    if not any(char.isdigit() for cell in list(counts)[:1] for char in cell):
        return None, 0
    orders = WRITTEN if given is None else (*({"ymd", given}), "clock")
    fits = {order: _fitting(counts, order) for order in orders}
    best = max(fits, key=lambda order: (fits[order], order == "ymd"))
    if not fits[best] or (best == "ymd" and _may_be_codes(counts)):
        return None, 0
    if fits.get("dmy", 0) == fits.get("mdy", -1) == fits[best] > fits["ymd"]:
        dated = [cell for cell in counts if _NUMBERS.fullmatch(cell)]
        if not all("." in cell for cell in dated):
            raise Ambiguous(
                f"{dated[0]!r} may begin with the day or with the month: name the order",
                dated[0],
                "--dates dmy or --dates mdy",
            )
        best = "dmy"
    return best, fits[best]


def _may_be_codes(counts: Counter[str]) -> bool:
    """Whether months by number may be codes: 2012-07, 2012-31, or seasons, 2008-09, 2009-10, or
    parts of one thing, 2100-1, 2100-2.
    """
    found = [pair.groups() for cell in counts if (pair := _CODE.fullmatch(cell)) is not None]
    seasons = len(found) > 1 and all(int(b) == (int(a) + 1) % 100 for a, b in found)
    parts = len({a for a, _ in found}) == 1 and any(len(b) == 1 for _, b in found)
    return seasons or parts or not all(1 <= int(month) <= 12 for _, month in found)


def _fitting(counts: Counter[str], order: str) -> int:
    return sum(n for cell, n in counts.items() if seconds(cell, order) is not None)
