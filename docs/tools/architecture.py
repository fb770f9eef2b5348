"""Draw the rooms of the package, in the order that import-linter checks, into docs/assets."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

from svg import WIDTH, drawing

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "assets" / "architecture.svg"

# What a room is for; the parts below it are read from its folder.
ABOUT = {
    "cli": "commands: parse, call, print",
    "paper": "reproduction, baselines, data sets",
    "live": "agents: processes that learn together",
    "tables": "files in, models and reports out",
    "estimators": "scikit-learn's and River's interfaces",
    "simulation": "the paper's algorithm, streams, engines",
    "network": "what nodes store and send",
    "learning": "what one learner is",
    "base": "arrays, files, errors, random numbers",
}
# Where things come in from outside.
ENTERS = {
    "cli": "a command",
    "live": "samples, neighbours",
    "tables": "a CSV file",
    "estimators": "rows in Python",
    "simulation": "an experiment",
}

LEFT, PARTS = 200, 490  # where rooms and the names of parts begin
LINE, GAP = 17, 8  # between lines of parts, and between rooms
STYLE = """\
text { font: 12px sans-serif; fill: #222 }
.room { font-size: 15px; font-weight: bold }
.way { text-anchor: end }
.parts { font-family: monospace }
"""


def rooms() -> list[str]:
    """From the top to the bottom: each imports only those below it."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return list(tomllib.loads(text)["tool"]["importlinter"]["contracts"][0]["layers"])


def parts(room: str) -> list[str]:
    """Folders of a room: files come and go, these stay."""
    return sorted(path.parent.name for path in (ROOT / "src" / "dokl" / room).glob("*/__init__.py"))


def picture() -> str:
    """All rooms as SVG, one below the other."""
    drawn, y = list[str](), GAP
    for room in rooms():
        lines = wrap(", ".join(parts(room)), 48)
        high = max(40, LINE * len(lines) + 14)
        drawn += _room(room, lines, y, high)
        y += high + GAP
    return drawing("Architecture", STYLE, y, drawn)


def _room(room: str, lines: list[str], y: int, high: int) -> Iterator[str]:
    middle = y + high // 2
    if room in ENTERS:
        yield f'<text class="way" x="{LEFT - 46}" y="{middle + 4}">{escape(ENTERS[room])}</text>'
        yield f'<path marker-end="url(#end)" d="M{LEFT - 40} {middle}H{LEFT - 4}"/>'
    size = f'width="{WIDTH - LEFT - GAP}" height="{high}"'
    yield f'<rect x="{LEFT}" y="{y}" {size} rx="8"/>'
    yield f'<text class="room" x="{LEFT + 12}" y="{middle - 2}">{room}</text>'
    yield f'<text x="{LEFT + 12}" y="{middle + 14}">{escape(ABOUT[room])}</text>'
    top = middle - LINE * (len(lines) - 1) // 2 + 4
    for i, line in enumerate(lines):
        yield f'<text class="parts" x="{PARTS}" y="{top + LINE * i}">{escape(line)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
