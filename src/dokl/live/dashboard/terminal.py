"""The network as a table in the terminal, drawn again and again until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dokl.live.dashboard import formats
from dokl.live.dashboard.collect import Collector
from dokl.live.dashboard.status import Newest
from dokl.live.dashboard.view import DOWN, NodeView, View

if TYPE_CHECKING:
    from rich.console import RenderableType

AROUND = 8  # lines of the terminal that are not nodes
AROUND_ROWS = 5  # those that are not rows of the chosen node
ROWS = 10  # of the chosen node
WIDE = 110  # characters that all columns need
COLUMNS = (
    "node", "state", "samples", "samples/s", "error", "disagreement", "oldest msg", "bytes/s",
    "problems",
)  # fmt: skip
LEFT_OUT = ("samples/s", "disagreement", "oldest msg", "bytes/s")


def table(view: View, rows: int | None = None, width: int = 200) -> RenderableType:
    """One look as something rich can print; rows: how many nodes fit, those in trouble first.

    On a narrow terminal the columns that matter least are left out, so that names stay whole.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    kept = [i for i, title in enumerate(COLUMNS) if width >= WIDE or title not in LEFT_OUT]
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in (COLUMNS[i] for i in kept):
        if title in ("node", "state"):
            grid.add_column(title, no_wrap=True)
        elif title == "problems":
            grid.add_column(title, overflow="fold", max_width=60)
        else:
            grid.add_column(title, justify="right", no_wrap=True)
    shown = sorted(choose_nodes(view.nodes, rows), key=lambda node: node.state != DOWN)
    for node in shown:
        # Text, not str: what agents send is not markup.
        row = [Text(text) for i, text in enumerate(cells(node)) if i in kept]
        grid.add_row(*row, style="red" if node.state == DOWN else "")
    left = len(view.nodes) - len(shown)
    below = [Text(f"… and {left} more nodes, all up without problems")] if left else []
    below += [Text(remark, style="yellow") for remark in view.remarks]
    return Group(Text(headline(view), style="bold"), grid, *below)


def newest_rows(name: str, newest: Newest, most: int = ROWS) -> RenderableType:
    """The last rows of one node, the newest last: measured, predicted, interval, and whether it
    held.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not newest.rows:
        return Text(f"{name} has no rows to show: it has learned none lately, or predicts labels")
    level = "" if newest.coverage is None else f"{100 * newest.coverage:.0f} % "
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("row", "measured", "predicted", f"{level}interval", ""):
        grid.add_column(title, justify="right" if title else "left", no_wrap=True)
    for row in newest.rows[-most:]:
        ends = formats.NONE
        if row.lower is not None and row.upper is not None:
            ends = f"{formats.signed(row.lower)} to {formats.signed(row.upper)}"
        numbers = (
            formats.count(row.number),
            formats.signed(row.measured),
            formats.signed(row.predicted),
        )
        grid.add_row(*numbers, ends, "outside" if row.inside is False else "")
    judged = [row.inside for row in newest.rows if row.inside is not None]
    held = f"; {sum(judged)} of {len(judged)} within the interval" if judged else ""
    about = f"{name}: {newest.target or 'its target'} of the last {len(newest.rows)} rows{held}"
    return Group(Text(about, style="bold"), grid)


def choose_nodes(nodes: Sequence[NodeView], rows: int | None) -> list[NodeView]:
    """The nodes that fit, in their order; those in trouble are never left out for others."""
    if rows is None or len(nodes) <= rows:
        return list(nodes)
    calm = [node for node in nodes if not _troubled(node)]
    room = max(0, rows - (len(nodes) - len(calm)))
    hidden = {node.name for node in calm[room:]}
    return [node for node in nodes if node.name not in hidden]


def _troubled(node: NodeView) -> bool:
    return node.state == DOWN or bool(node.problems)


def headline(view: View) -> str:
    """All nodes in a line."""
    sums = view.totals
    moment = time.strftime("%H:%M:%S", time.localtime(view.at))
    return (
        f"{view.network}   {moment}   {sums['up']} up, {sums['down']} down   "
        f"{formats.rate(sums['samples_per_s'])} samples/s   {formats.amount(sums['bytes_per_s'])}/s"
    )


def cells(node: NodeView) -> list[str]:
    """A row of the table, as text."""
    return [
        node.name,
        "DOWN" if node.state == DOWN else "up",
        formats.count(node.samples),
        formats.rate(node.samples_per_s),
        formats.error(node.error, node.kind),
        formats.apart(node.disagreement),
        formats.age(node.oldest_message_s),
        formats.amount(node.bytes_per_s),
        "; ".join(node.says),
    ]


def show_once(collector: Collector, view: View, node: str | None = None) -> None:
    """Print one table; as wide as it needs to be where nobody looks at a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    console.print(table(view, width=console.width))
    if node is not None:
        console.print(newest_rows(node, collector.newest(node)))


def show_live(collector: Collector, every: float, node: str | None = None) -> None:
    """Redraw the table until Ctrl-C; the last one stays on the terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                began = time.monotonic()
                live.update(_screen(collector, console.height, console.width, node), refresh=True)
                time.sleep(max(0.0, every - (time.monotonic() - began)))
    except KeyboardInterrupt:
        return


def _screen(collector: Collector, height: int, width: int, node: str | None) -> RenderableType:
    """One look, as it fits: with a chosen node, its rows have the lower half."""
    from rich.console import Group

    view, room = collector.poll(), height - AROUND
    if node is None:
        return table(view, max(1, room), width)
    rows = max(1, min(ROWS, room // 2 - AROUND_ROWS))
    below = newest_rows(node, collector.newest(node), rows)
    return Group(table(view, max(1, room - rows - AROUND_ROWS), width), below)


def look_twice(collector: Collector, every: float) -> View:
    """One view with rates in it: two looks, so far apart."""
    collector.poll()
    time.sleep(every)
    return collector.poll()
