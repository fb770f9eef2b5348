"""Results as tables and pictures. Matplotlib is loaded when a picture is first drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.diffusion import Trace
from dokl.errors import MissingExtra
from dokl.metrics import decibels

# Told apart by lightness as well as hue, so that they survive print and colour blindness.
COLOURS = ("#1f5fa8", "#d1662a", "#3f8f5b", "#8a4fa3", "#7a7a7a")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to the terminal; the first column is text, the others are numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, name in enumerate(header):
        grid.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        grid.add_row(*row)
    Console().print(grid)


def pyplot() -> Any:
    """matplotlib.pyplot on a backend that needs no screen."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("drawing a picture", "plot") from None
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


def draw_curves(axes: Any, traces: dict[str, Trace], name: str = "mse", window: int = 1) -> None:
    """Learning curves in dB: the mean over runs and a band of two standard errors."""
    for colour, (label, trace) in zip(COLOURS, traces.items(), strict=False):
        mean, error = smooth(trace[name], window), smooth(trace.error(name), window)
        steps = np.arange(1, len(mean) + 1)
        low = np.maximum(mean - 2 * error, mean / 10)
        axes.plot(steps, decibels(mean), color=colour, lw=1.6, label=label)
        band = {"color": colour, "alpha": 0.18, "lw": 0}
        axes.fill_between(steps, decibels(low), decibels(mean + 2 * error), **band)
    axes.set_xlabel("samples per node")
    axes.set_ylabel("mean square error (dB)")
    axes.grid(alpha=0.25, lw=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)


def draw_graph(axes: Any, graph: Any, values: Array | None = None, label: str = "") -> None:
    """The network; nodes may be coloured by a value each: (K,)."""
    import networkx as nx

    # A drawing from a fixed seed: the same graph looks the same every time.
    place = nx.get_node_attributes(graph, "pos") or nx.spring_layout(graph, seed=1, iterations=300)
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color="#9aa3ad", width=1.0)
    colour = COLOURS[0] if values is None else values
    dots = nx.draw_networkx_nodes(
        graph, place, ax=axes, node_color=colour, cmap="viridis", node_size=170,
        edgecolors="white", linewidths=1.0,
    )  # fmt: skip
    if values is not None:
        bar = axes.figure.colorbar(dots, ax=axes, shrink=0.75, pad=0.02)
        bar.set_label(label)
        bar.outline.set_visible(False)
    axes.set_axis_off()


def save_picture(figure: Any, path: Path) -> Path:
    """Write a figure to disk, whole or not at all, and close it."""
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, dpi=150, bbox_inches="tight", format=path.suffix.lstrip(".") or "png")
    part.replace(path)
    pyplot().close(figure)
    return path
