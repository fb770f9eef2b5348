"""One page with everything, pictures inside: readable without a network."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path

from dokl.base import files
from dokl.paper.reproduce import show, texts
from dokl.paper.reproduce.parts import COMMANDS, PARTS
from dokl.paper.reproduce.results import PartResult
from dokl.tables.report import pyplot

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2530; background: #fff; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dbe2; }
table { border-collapse: collapse; margin: .7rem 0; font-size: .88rem; width: 100%; }
th, td { text-align: right; padding: .15rem .5rem; border-bottom: 1px solid #e6eaee; }
th:first-child, td:first-child { text-align: left; } caption { text-align: left; font-weight: 600; }
.no { color: #a8261c; font-weight: 700; } .made { color: #5b6673; font-size: .82rem; }
img { max-width: 100%; height: auto; } section { overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #dde3ea; }
  th, td { border-color: #2b333c; } h2 { border-color: #2b333c; } .made { color: #94a0ad; }
  img { background: #fff; border-radius: 4px; } .no { color: #ff8a7d; } }
"""


def picture(result: PartResult) -> str:
    """The panel as a data address."""
    figure, axes = pyplot().subplots(figsize=(7.6, 4.4), layout="constrained")
    show.panel(axes, result)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=110)
    pyplot().close(figure)
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()


def table(result: PartResult, group: str) -> str:
    """One group of rows."""
    head = "".join(f"<th>{escape(word)}</th>" for word in show.HEADER)
    lines = []
    for row in show.groups(result)[group]:
        cells = [f"<td>{escape(cell)}</td>" for cell in show.cells(row)]
        if row.agrees() is False:
            cells[-1] = '<td class="no">no</td>'
        lines.append("<tr>" + "".join(cells) + "</tr>")
    caption = f"<caption>{escape(group)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def section(result: PartResult) -> str:
    """A part: picture, tables, remarks, provenance."""
    out = [f'<section id="{result.part}"><h3>{escape(result.part)}: {escape(result.title)}</h3>']
    if result.curves:
        words = escape(f"Learning curves: {result.title}")
        out.append(f'<img src="{picture(result)}" alt="{words}">')
    out += [table(result, group) for group in show.groups(result)]
    out += [f"<p>{escape(note)}</p>" for note in result.notes]
    out.append(f'<p class="made">{escape(texts.provenance(result.made))}</p></section>')
    return "".join(out)


def page(results: dict[str, PartResult]) -> str:
    """The whole document."""
    out = [f"<h1>{escape(texts.TITLE)}</h1><p>{escape(texts.INTRODUCTION)}</p>"]
    out.append(f"<p>{escape(texts.counts(results))}</p>")
    for command, words in COMMANDS.items():
        there = [r for name, r in results.items() if PARTS[name].command == command]
        if there:
            out.append(f"<h2>{command}: {escape(words)}</h2>" + "".join(map(section, there)))
    missing = texts.missing(results)
    if missing:
        out.append(f"<h2>Not in here</h2><p>{escape(missing)}</p>")
    for title, points in texts.POINTS.items():
        listed = "".join(f"<li>{escape(point)}</li>" for point in points)
        out.append(f"<h2>{escape(title)}</h2><ul>{listed}</ul>")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{escape(texts.TITLE)}</title><style>{STYLE}</style>"
    body = "".join(out)
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def write(results: dict[str, PartResult], path: Path) -> Path:
    """To disk, whole or not at all."""
    return files.atomic_text(path, page(results))
