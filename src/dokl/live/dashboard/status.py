"""One agent's `GET /status`, checked: whatever comes from outside is hostile until then.

Numbers are of a sensible size or None, texts are short and printable (no escape sequences for a
terminal, no tricks with the direction of writing), lists are bounded. What is missing or of
another kind is None or empty: an agent of another version is still worth looking at.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from dokl.base.errors import BadInput
from dokl.base.files import Json

MOST_BYTES = 1_000_000
LONGEST_TEXT = 300
MOST_LINES = 20
MOST_POINTS = 200
MOST_PEERS = 1000
MOST_ROWS = 200
LONGEST_NAME = 60
# Beyond these sums, rates and axes of charts would be infinite or nothing.
LARGEST, SMALLEST = 1e100, 1e-100
KINDS = ("mse", "mistakes")


@dataclass(frozen=True)
class PeerStatus:
    """A neighbour as an agent sees it: connected or not, and how old its last message is."""

    up: bool
    age: float | None


@dataclass(frozen=True)
class RowSeen:
    """A row that an agent has learned: the measurement, and the prediction before."""

    number: float
    measured: float
    predicted: float
    lower: float | None = None
    upper: float | None = None

    @property
    def inside(self) -> bool | None:
        """Whether the interval held what was measured; None where there was none."""
        if self.lower is None or self.upper is None:
            return None
        return self.lower <= self.measured <= self.upper


@dataclass(frozen=True)
class Newest:
    """The newest rows of an agent, what they measure, and how often its intervals are to hold."""

    target: str = ""
    coverage: float | None = None
    rows: tuple[RowSeen, ...] = ()


@dataclass(frozen=True)
class Status:
    """What an agent reports of itself."""

    network: str
    name: str
    fingerprint: str
    incarnation: float | None = None
    uptime: float | None = None
    samples: float | None = None
    kind: str = "mse"
    error: float | None = None
    curve: tuple[tuple[float, float], ...] = ()
    disagreement: float | None = None
    bytes: float | None = None
    peers: dict[str, PeerStatus] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    ended: bool = False
    sharing: float | None = None
    newest: Newest = Newest()


def parse(body: bytes) -> Status:
    """A status from the bytes of a response; BadInput where it is none.

    >>> parse(b'{"network": "lab", "name": "a", "samples": 12}').samples
    12.0
    >>> parse(b"<html>")
    Traceback (most recent call last):
    dokl.base.errors.BadInput: its /status is not JSON
    """
    if len(body) > MOST_BYTES:
        raise BadInput(f"its /status is longer than {MOST_BYTES:,} bytes")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise BadInput("its /status is not JSON") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("name"), str):
        raise BadInput("its /status is not that of an agent")
    return _status(answer)


def _status(answer: Json) -> Status:
    error = _table(answer.get("error"))
    kind = error.get("kind")
    return Status(
        network=text(answer.get("network")),
        name=text(answer.get("name")),
        fingerprint=text(answer.get("fingerprint")),
        incarnation=number(answer.get("incarnation")),
        uptime=_not_negative(answer.get("uptime_s")),
        samples=_not_negative(answer.get("samples")),
        kind=kind if kind in KINDS else "mse",
        error=_not_negative(error.get("recent")),
        curve=_curve(error.get("curve")),
        disagreement=_not_negative(answer.get("disagreement")),
        bytes=_sum(_not_negative(answer.get("bytes_in")), _not_negative(answer.get("bytes_out"))),
        peers=_peers(answer.get("neighbours")),
        assumptions=_lines(answer.get("assumptions")),
        problems=_lines(answer.get("problems")),
        ended=_table(answer.get("source")).get("finished") is True,
        sharing=_not_negative(_table(answer.get("sharing")).get("ratio")),
        newest=_newest(answer.get("newest")),
    )


def number(value: object) -> float | None:
    """A number that can be computed with, or None; one next to nothing is 0.

    >>> number(3), number(float("nan")), number("3"), number(True), number(10**400)
    (3.0, None, None, None, None)
    >>> number(1.7e308), number(5e-324)
    (None, 0.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    if math.isnan(found) or abs(found) > LARGEST:
        return None
    return found if abs(found) >= SMALLEST else 0.0


def text(value: object, longest: int = LONGEST_TEXT) -> str:
    r"""Printable text of bounded length.

    >>> text("a\x1b[31mb\u202ec")
    'a [31mb c'
    """
    if not isinstance(value, str):
        return ""
    cut = value if len(value) <= longest else value[: longest - 1] + "…"
    return "".join(c if c.isprintable() else " " for c in cut).strip()


def _not_negative(value: object) -> float | None:
    found = number(value)
    return found if found is not None and found >= 0 else None


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None and b is None else (a or 0.0) + (b or 0.0)


def _table(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _lines(value: object) -> tuple[str, ...]:
    found = value[:MOST_LINES] if isinstance(value, list) else []
    return tuple(line for line in map(text, found) if line)


def _curve(value: object) -> tuple[tuple[float, float], ...]:
    """(samples learned, error) with samples increasing."""
    points: list[tuple[float, float]] = []
    for pair in value[-MOST_POINTS:] if isinstance(value, list) else []:
        if isinstance(pair, list) and len(pair) == 2:
            x, y = _not_negative(pair[0]), _not_negative(pair[1])
            if x is not None and y is not None and (not points or x > points[-1][0]):
                points.append((x, y))
    return tuple(points)


def _newest(value: object) -> Newest:
    """Rows with numbers increasing; an interval has two ends in order, or is none."""
    found = _table(value)
    table, rows = found.get("rows"), list[RowSeen]()
    for row in table[-MOST_ROWS:] if isinstance(table, list) else []:
        if isinstance(row, list) and len(row) == 5:
            n, measured, predicted, lower, upper = map(number, row)
            if (
                n is None
                or measured is None
                or predicted is None
                or (rows and n <= rows[-1].number)
            ):
                continue
            ends = (lower, upper) if lower is not None and upper is not None else (None, None)
            ordered = ends[0] is None or ends[1] is None or ends[0] <= ends[1]
            rows.append(RowSeen(n, measured, predicted, *(ends if ordered else (None, None))))
    coverage = number(found.get("coverage"))
    level = coverage if coverage is not None and 0 < coverage < 1 else None
    return Newest(text(found.get("target"), LONGEST_NAME), level, tuple(rows))


def _peers(value: object) -> dict[str, PeerStatus]:
    found = list(_table(value).items())[:MOST_PEERS]
    tables = ((text(name), _table(facts)) for name, facts in found)
    return {
        n: PeerStatus(facts.get("up") is True, _not_negative(facts.get("age_s")))
        for n, facts in tables
    }
