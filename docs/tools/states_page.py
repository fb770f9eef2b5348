"""Write the states of the protocol into docs/protocol.md, and draw them, from their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from xml.sax.saxutils import escape

from svg import WIDTH, drawing

from dokl.live.protocol.states import TABLES, Event

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "protocol.md", DOCS / "assets" / "protocol-states.svg"
BEGIN = "<!-- Up to the next remark written by docs/tools/states_page.py: run make docs. -->\n"
END = "<!-- Up to here. -->\n"

Rows = Mapping[Enum, Mapping[Event, Enum]]
Edge = tuple[int, int, str]  # from the state of this number to that one, and why

BOX, HIGH = 108, 32  # of a state, in pixels
ARC, TITLE = 32, 30  # how much higher an arc is for each state it passes; room for a title
STYLE = """\
text { font: 12px sans-serif; fill: #222; text-anchor: middle }
.title { font-size: 14px; text-anchor: start }
.why { font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 4px }
"""


def page(text: str) -> str:
    """The page with the part between its two remarks written again."""
    before, rest = text.split(BEGIN)
    _, behind = rest.split(END)
    return before + BEGIN + tables() + END + behind


# -- tables ----------------------------------------------------------------------------------
def tables() -> str:
    """A table for each machine, and one of the events."""
    events = "".join(f"| {event.name} | {event.value} |\n" for event in Event)
    return "".join(map(_table, TABLES)) + f"\n| event | meaning |\n|---|---|\n{events}\n"


def _table(table: Rows) -> str:
    lines = [f"| `{state.name}` | {state.value} | {_ways(state, table)} |\n" for state in table]
    kind = type(next(iter(table)))
    head = "| state | meaning | events and next states |\n|---|---|---|\n"
    return f"\n**{kind.__name__}**: {_about(kind)}\n\n{head}{''.join(lines)}"


def _about(kind: type[Enum]) -> str:
    about = (kind.__doc__ or "").rstrip(".")
    return about[0].lower() + about[1:]


def _ways(state: Enum, table: Rows) -> str:
    """Events by where they lead; those that change nothing come last."""
    found = sorted(set(table[state].values()), key=lambda to: (to is state, list(table).index(to)))
    return "; ".join(f"{_events(state, to, table)} → `{to.name}`" for to in found)


def _events(state: Enum, to: Enum, table: Rows) -> str:
    return ", ".join(event.name for event, end in table[state].items() if end is to)


# -- picture ---------------------------------------------------------------------------------
def picture() -> str:
    """All machines as SVG, one below the other, those of two states in pairs."""
    pairs = [table for table in TABLES if len(table) == 2]
    wide = [table for table in TABLES if len(table) > 2]
    rows = [[table] for table in wide] + [pairs[i : i + 2] for i in range(0, len(pairs), 2)]
    parts, y = list[str](), 10
    for row in rows:
        width = WIDTH // len(row)
        for i, table in enumerate(row):
            parts += _panel(table, i * width, y, width)
        y += max(_height(table) for table in row)
    return drawing("States", STYLE, y, parts)


def _edges(table: Rows) -> Iterator[Edge]:
    """The transitions that change something, those to the right first; the same way is one."""
    states = list(table)
    ways = [(a, b) for a in range(len(states)) for b in range(len(states)) if a != b]
    for a, b in sorted(ways, key=lambda way: (way[0] > way[1], abs(way[0] - way[1]), way)):
        why = _events(states[a], states[b], table)
        if why:
            yield a, b, why


def _room(table: Rows, up: bool) -> int:
    """How high the arcs above the states are, or those below."""
    spans = [abs(b - a) for a, b, _ in _edges(table) if (b > a) is up]
    return ARC * max(spans, default=0) + 14


def _height(table: Rows) -> int:
    return TITLE + _room(table, up=True) + HIGH + _room(table, up=False) + 14


def _panel(table: Rows, x: int, y: int, width: int) -> Iterator[str]:
    kind, pitch = type(next(iter(table))), width // len(table)
    centres = [x + pitch * i + pitch // 2 for i in range(len(table))]
    top = y + TITLE + _room(table, up=True)
    about = escape(f"{kind.__name__}: {_about(kind)}")
    yield f'<text class="title" x="{x + 16}" y="{y + 18}">{about}</text>'
    for centre, state in zip(centres, table, strict=True):
        box = f'x="{centre - BOX // 2}" y="{top}" width="{BOX}" height="{HIGH}" rx="8"'
        yield f'<rect {box}/><text x="{centre}" y="{top + 20}">{state.name}</text>'
    arcs = [_arc(edge, centres, top) for edge in _edges(table)]
    yield from (path for path, _ in arcs)
    yield from (label for _, label in arcs)  # over all lines


def _arc(edge: Edge, centres: list[int], top: int) -> tuple[str, str]:
    """To the right above the states, to the left below; longer ones go around shorter ones."""
    a, b, why = edge
    right, span = b > a, abs(b - a)
    sign, y = (1, top) if right else (-1, top + HIGH)
    start, end = centres[a] + sign * (44 - 12 * span), centres[b] - sign * (44 - 12 * span)
    apex, bend = y - sign * ARC * span, y - sign * ARC * span * 4 // 3
    path = f'<path marker-end="url(#end)" d="M{start} {y}C{start} {bend} {end} {bend} {end} {y}"/>'
    label = apex - 4 if right else apex + 12
    return path, f'<text class="why" x="{(start + end) // 2}" y="{label}">{escape(why)}</text>'


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    PICTURE.write_text(picture(), "utf-8")
