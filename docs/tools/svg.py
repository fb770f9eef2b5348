"""What the drawings of the pages have in common."""

from __future__ import annotations

from collections.abc import Iterable

WIDTH = 960  # of a drawing, in pixels
STYLE = """\
rect { fill: #e8eaf6; stroke: #3f51b5 }
.paper { fill: #fff; stroke: none }
path { fill: none; stroke: #3f51b5 }
marker path { fill: #3f51b5 }
"""


def drawing(title: str, style: str, height: int, parts: Iterable[str]) -> str:
    """An SVG file of these parts, in which paths may end with `url(#end)`, an arrow's head."""
    about = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
    marker = (
        '<marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z"/></marker>'
    )
    head = [f"<svg {about}>", f"<title>{title}</title><style>\n{style}{STYLE}</style>", marker]
    paper = f'<rect class="paper" width="{WIDTH}" height="{height}"/>'
    return "\n".join([*head, paper, *parts, "</svg>"]) + "\n"
