"""Results as tables, pictures and pages. Matplotlib is loaded when a picture is first drawn.

A page is one file of HTML that needs nothing else: pictures and tables inside, no server.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, MissingExtra
from dokl.base.files import atomic_text, atomic_write
from dokl.base.progress import in_notebook
from dokl.learning.metrics import decibels
from dokl.simulation.diffusion import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinct by lightness as well as hue, so that they survive print and colour blindness.
COLOURS = ("#1f5fa8", "#d1662a", "#3f8f5b", "#8a4fa3", "#7a7a7a")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to the terminal; the first column is text, the others are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    grid = Table(box=box.SIMPLE_HEAD, show_header=any(header))
    for i, name in enumerate(header):
        grid.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    if title:
        console.print(title, style="bold", markup=False, soft_wrap=True)
    console.print(grid)


def facts(title: str, values: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(title, style="bold", markup=False, soft_wrap=True)
    width = max(map(len, values), default=0)
    for name, value in values.items():
        console.print(f"  {name:<{width}}  {_words(value)}", markup=False, soft_wrap=True)


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" if k != "name" else str(v) for k, v in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def new_figure(width: float, height: float) -> Any:
    """An empty Matplotlib figure, in inches, that no window or notebook knows of yet."""
    pyplot()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panelled(title: str, panels: Sequence[Callable[[Any], None]]) -> Any:
    """A figure with a panel for each function of axes, two beside each other; of an odd number the
    first takes a whole row.
    """
    across = 1 if len(panels) == 1 else 2
    down = -(-len(panels) // across)
    figure = new_figure(5.6 * across, 3.3 * down)
    grid = figure.add_gridspec(down, across)
    wide = len(panels) % across
    for i, panel in enumerate(panels):
        at = i + wide
        place = grid[0, :] if wide and not i else grid[at // across, at % across]
        axes = figure.add_subplot(place)
        panel(axes)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def pyplot() -> Any:
    """matplotlib.pyplot on a backend that needs no screen; in a notebook, on the notebook's own."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("drawing a picture", "plot") from None
    if not in_notebook():
        matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def smooth(curve: Array, window: int) -> Array:
    """Mean over the last `window` steps, at most a tenth of those so far; (n,) -> (n,).

    The limit keeps the steep beginning of a learning curve where it is.
    """
    total = np.cumsum(np.concatenate([[0.0], curve]))
    stop = np.arange(1, len(curve) + 1)
    start = stop - np.clip(stop // 10, 1, window)
    return np.asarray((total[stop] - total[start]) / (stop - start))


def first_below(curve: Array, level: float) -> int | None:
    """The first step (from 1) from which the curve has reached `level`, None if it never does."""
    below = np.flatnonzero(curve <= level)
    return int(below[0]) + 1 if below.size else None


def draw_curves(axes: Axes, traces: dict[str, Trace], name: str = "mse", window: int = 1) -> None:
    """Learning curves: the mean over runs and a band of two standard errors; mse in dB."""
    scale = decibels if name == "mse" else np.asarray
    for colour, (label, trace) in zip(COLOURS, traces.items(), strict=False):
        # What is taken now and then is drawn as it is; what is taken at every step is smoothed.
        window = window if len(trace.at[name]) == trace.steps else 1
        mean, error = smooth(trace[name], window), smooth(trace.error(name), window)
        low = np.maximum(mean - 2 * error, mean / 10)  # a band below zero has no logarithm
        axes.plot(trace.at[name], scale(mean), color=colour, lw=1.6, label=label)
        high = scale(mean + 2 * error)
        axes.fill_between(trace.at[name], scale(low), high, color=colour, alpha=0.18, lw=0)
    axes.set_xlabel("samples per node")
    axes.set_ylabel("mean square error (dB)" if name == "mse" else name)
    axes.grid(alpha=0.25, lw=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)


def draw_graph(axes: Axes, graph: object, values: Array | None = None, label: str = "") -> None:
    """The network; nodes may be coloured by a value each: (K,)."""
    import networkx as nx

    # A drawing from a fixed seed: the same graph looks the same every time.
    place = nx.get_node_attributes(graph, "pos") or nx.spring_layout(graph, seed=1, iterations=300)
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color="#9aa3ad", width=1.0)
    colour: dict[str, Any] = {"node_color": COLOURS[0]}
    if values is not None:
        colour = {"node_color": values, "cmap": "viridis"}
    dots = nx.draw_networkx_nodes(
        graph, place, ax=axes, node_size=170, edgecolors="white", linewidths=1.0, **colour
    )
    if values is not None:
        bar = axes.figure.colorbar(dots, ax=axes, shrink=0.75, pad=0.02)
        bar.set_label(label)
        bar.outline.set_visible(False)
    axes.set_axis_off()


PICTURES = ("png", "svg", "pdf")


def check_picture(path: Path) -> str:
    """The format that a picture's name asks for; BadInput where it is none."""
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in PICTURES:
        raise BadInput(f"{path}: a picture is {', '.join(PICTURES)}, and not {kind!r}")
    pyplot()
    return kind


def save_picture(figure: Any, path: Path) -> Path:
    """Write a figure to disk, whole or not at all, and close it."""
    kind = check_picture(path)
    with atomic_write(path) as file:
        figure.savefig(file, dpi=150, bbox_inches="tight", format=kind)
    pyplot().close(figure)
    return path


# -- pages ----------------------------------------------------------------------------------------
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
    figure: object,
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
