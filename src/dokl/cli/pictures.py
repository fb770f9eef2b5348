"""--plot and --html: a run as a picture, and on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import figure, percent, remark, with_options

MOST = 20


def draws(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options that say where to draw, for a command whose pictures show this."""
    options = [
        click.option("--plot", type=click.Path(path_type=Path), metavar="FILE",
                     help=f"Draw {what}: .png, .svg, .pdf."),
        click.option("--html", type=click.Path(path_type=Path), metavar="FILE",
                     help="All of it on one page, pictures inside."),
    ]  # fmt: skip

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        return with_options(command, options)

    return decorate


picture_options = draws("predictions and targets, error, coverage, relevance, nodes, their map")


def check_places(plot: Path | None, html: Path | None) -> None:
    """Say before the work, and not after it, that a picture cannot be drawn there."""
    if plot is None and html is None:
        return
    from dokl.base.files import check_new
    from dokl.tables.report import check_picture, pyplot

    pyplot()
    if plot is not None:
        check_picture(plot)
    for path in (plot, html):
        if path is not None:
            check_new(path, True, "")


def story(title: str, run: Any, model: Any, prequential: bool, held: Any = None) -> Any:
    """What there is to draw of a training, with its held-out rows if any, or an evaluation."""
    from dokl.tables.jobs.describe import relevance, sharing_worth
    from dokl.tables.jobs.story import Story, error_of

    frozen = getattr(run, "frozen", None)
    snapshot = None if frozen is None else (frozen.at, error_of(frozen.score))
    told = run.score, run.course, relevance(model)
    tested = None if held is None else (held.course, error_of(held.score))
    earlier = run.persistence if held is None else held.persistence
    more = {"sharing": sharing_worth(model), "held": tested, "persistence": earlier}
    return Story(title, *told, run.coverage, snapshot, prequential, **more)


def draw(
    told: Any, scores: Any, plot: Path | None, html: Path | None,
    lists: Mapping[str, Sequence[str]], quiet: bool,
) -> None:  # fmt: skip
    """Write the picture and the page that were asked for; scores: the table that stands first."""
    if plot is not None:
        from dokl.tables.jobs.story import save

        save(told, plot)
        remark(f"picture in {plot}", quiet)
    if html is not None:
        from dokl.tables.jobs.page import write
        from dokl.tables.jobs.story import draw as picture

        tables: list[Any] = [scores]
        if told.relevance:
            shares = list(told.relevance.items())[:MOST]
            rows = [[name, percent(share, 1)] for name, share in shares]
            tables.append(("relevance of inputs", ["input", "share"], rows))
        if told.nodes:
            which = "nodes" if told.held is None else "nodes, held-out rows"
            tables.append((which, *node_rows(told.nodes)))
        write(html, told.title, picture(told), tables, lists)
        remark(f"page in {html}", quiet)


def node_rows(nodes: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of nodes."""
    found = {name: score.figures() for name, score in sorted(nodes.items())}
    names = [n for n in next(iter(found.values())) if not n.startswith("recall")]
    rows = [[node, *(figure(n, each[n]) for n in names)] for node, each in found.items()]
    return ["node", *names], rows
