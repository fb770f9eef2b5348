"""dokl evaluate"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from dokl.base.errors import BadInput
from dokl.cli.common import (
    echo_json,
    examples,
    figure,
    output_switches,
    remark,
    steps_option,
)
from dokl.cli.meter import Meter, loading
from dokl.cli.pictures import check_places, draw, node_rows, picture_options, story
from dokl.cli.source import FILES_HELP, Data, make_source, on_error_options, reading_options


@click.command(
    epilog=FILES_HELP
    + "\n"
    + examples(
        "dokl evaluate temp.dokl test.csv",
        "dokl evaluate adult.dokl a9a.t.gz --json",
        "dokl evaluate air.dokl test.csv --plot nodes.png",
        "dokl evaluate air.dokl test.csv --together",
        "dokl evaluate temp.dokl test.csv --html report.html",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("data", type=Data)
@click.option("--target", metavar="COLUMN", help="Only for models saved in Python.")
@steps_option
@click.option("--by-node/--together", default=None,
              help="Networks: by each row's own node, as is usual where DATA names it; or by what "
              "all have learned.")  # fmt: skip
@reading_options
@on_error_options
@picture_options
@output_switches
def evaluate(
    path: Path, data: str, target: str | None, steps_ahead: int, by_node: bool | None,
    plot: Path | None, html: Path | None, as_json: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Score a MODEL file on DATA, which must have the target.

    Nothing is learned. Rows without a target are left out. Of a regression without settings it is
    also counted how often 90 % intervals hold the target. Of a network each row is predicted
    by its own node where DATA names one, and there is a table of all nodes.
    """
    check_places(plot, html)
    with loading(quiet):
        from dokl.tables.jobs.faults import closing
        from dokl.tables.jobs.persistence import persistence_words
        from dokl.tables.jobs.predict import evaluate as job
        from dokl.tables.jobs.tables import notices
        from dokl.tables.models import TableModel

        refused = f"{Path(data).name}.refused.csv"
        source, model = make_source(data, options, refused), TableModel.load(path)
    model.target = model.target if target is None else target
    with Meter("evaluating", quiet) as meter, closing(source.on_error):
        found = job(model, source, by_node, meter.show, partial(remark, quiet=quiet), steps_ahead)
    _tell(found, f"{path} on {data}", as_json)
    for notice in notices(model):
        remark(notice, quiet)
    remark(source.on_error.words, quiet or not source.on_error.count)
    if plot is not None or html is not None:
        told = story(f"{path} on {data}", found, model, prequential=False)
        covered = [] if found.coverage is None else [found.coverage.line()]
        covered += persistence_words(found.persistence)
        draw(told, plot, html, {"to know": [*covered, *notices(model)]}, quiet or as_json)
    if found.fault is not None:
        said = f"{found.fault}. The scores are those of the rows before"
        raise BadInput(said, options=found.fault.options)


def _tell(found: Any, title: str, as_json: bool) -> None:
    from dokl.tables.jobs.persistence import persistence_words
    from dokl.tables.report import table

    figures, coverage, nodes = found.score.figures(), found.coverage, found.course.nodes
    if as_json:
        more = {} if coverage is None else {"intervals": coverage.figures()}
        more |= {"nodes": {n: each.figures() for n, each in sorted(nodes.items())}} if nodes else {}
        earlier = found.persistence.figures()
        more |= {} if earlier is None else {"persistence": earlier}
        echo_json(figures | more)
        return
    table(title, ["", ""], [[n, figure(n, v)] for n, v in figures.items()])
    if nodes:
        table("nodes", *node_rows(nodes))
    if coverage is not None:
        click.echo(coverage.line())
    for line in persistence_words(found.persistence):
        click.echo(line)
