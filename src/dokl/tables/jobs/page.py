"""A run on one page of HTML that needs nothing else: pictures and tables inside, no server."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dokl.base.files import atomic_text

STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .9rem .2rem 0; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
img { max-width: 100%; height: auto } li { margin: .2rem 0 }
"""
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def write(
    path: Path,
    title: str,
    figure: Any,
    tables: Sequence[Table],
    lists: Mapping[str, Sequence[str]],
) -> Path:
    """A page with a figure of Matplotlib. tables: (title, header, rows); lists: {title: lines}."""
    title = html.escape(title)
    body = [f"<h1>{title}</h1>", *(_table(*table) for table in tables[:1])]
    body.append(
        f'<p><img alt="{title}: curves" src="data:image/png;base64,{_picture(figure)}"></p>'
    )
    body += [_list(name, lines) for name, lines in lists.items() if lines]
    body += [_table(*table) for table in tables[1:]]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'
    atomic_text(path, page + "\n")
    return path


def _picture(figure: Any) -> str:
    data = io.BytesIO()
    figure.savefig(data, dpi=130, format="png")
    return base64.b64encode(data.getvalue()).decode()


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<h2>{html.escape(title)}</h2><table><tr>{top}</tr>{lines}</table>"


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<h2>{html.escape(title)}</h2><ul>{items}</ul>"
