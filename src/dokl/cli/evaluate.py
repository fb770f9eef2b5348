"""dokl evaluate"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dokl.base.errors import BadInput
from dokl.cli.options import (
    FILES_HELP,
    Data,
    by_node_option,
    echo_json,
    examples,
    held_out,
    keep_inputs,
    make_source,
    on_error_options,
    output_switches,
    reading_options,
    remark,
    steps_option,
    test_option,
)
from dokl.cli.results import (
    Meter,
    check_places,
    draw,
    evaluation_figures,
    evaluation_words,
    loading,
    node_rows,
    picture_options,
    score_table,
    summarise,
)

if TYPE_CHECKING:
    from dokl.tables.jobs.predict import Evaluation
    from dokl.tables.models.table import TableModel


@click.command(
    epilog=FILES_HELP
    + "\n"
    + examples(
        "dokl evaluate temp.dokl test.csv",
        "dokl evaluate adult.dokl a9a.t.gz --json",
        "dokl evaluate air.dokl test.csv --plot nodes.png",
        "dokl evaluate air.dokl test.csv --together",
        "dokl evaluate temp.dokl test.csv --html report.html",
        "dokl evaluate temp.dokl readings.csv --test last:20%",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("data", type=Data)
@click.option("--target", metavar="COLUMN", help="Only for models saved in Python.")
@steps_option
@by_node_option
@test_option("Score only the rows of this file that train --test held out.")
@reading_options
@on_error_options
@picture_options
@output_switches
def evaluate(
    path: Path, data: str, target: str | None, steps_ahead: int, by_node: bool | None,
    test: str | None, plot: Path | None, html: Path | None, as_json: bool, quiet: bool,
    **options: object,
) -> None:  # fmt: skip
    """Score a MODEL file on DATA, which must have the target.

    Nothing is learned. The prequential error of the learned rows is printed beside the error on
    these rows. Rows without a target are skipped. For a regression by the default method the
    coverage of 90 % intervals is printed, too. A network predicts each row by its own node if DATA
    names it, and prints a table of all nodes.
    """
    check_places(plot, html)
    keep_inputs([path, data], [plot, html])
    with loading(quiet):
        from dokl.tables.jobs.predict import evaluate as job
        from dokl.tables.jobs.sources import closing, notices
        from dokl.tables.models import TableModel

        refused = f"{Path(data).name}.refused.csv"
        source, model = make_source(data, options, refused), TableModel.load(path)
    model.target = model.target if target is None else target
    _, rest, which = held_out(test, source, model.series is not None, quiet)
    source = source if rest is None else rest
    ahead = steps_ahead if which is None or which.in_order else None
    with Meter("evaluating", quiet) as meter, closing(source.on_error):
        found = job(model, source, by_node, meter.show, partial(remark, quiet=quiet), ahead)
    found.persistence.on &= which is None or which.in_order
    scores = _scores(found, model, f"{path} on {data}")
    _report(found, scores, model, as_json)
    for notice in notices(model):
        remark(notice, quiet)
    remark(source.on_error.words, quiet or not source.on_error.count)
    if plot is not None or html is not None:
        pictures = summarise(f"{path} on {data}", found, model, prequential=False)
        lists = {"to know": [*evaluation_words(found), *notices(model)]}
        draw(pictures, scores, plot, html, lists, quiet or as_json)
    if found.fault is not None:
        problem = f"{found.fault}. The scores are those of the rows before"
        raise BadInput(problem, options=found.fault.options)


def _scores(found: Evaluation, model: TableModel, title: str) -> Any:
    """A table: the error on these rows, and the prequential one of the rows that were learned."""
    columns = {"": found.score}
    if model.tally is not None and model.tally.n:
        columns = {"these rows": found.score, "prequential, while it learned": model.tally}
    return score_table(title, columns)


def _report(found: Evaluation, scores: Any, model: TableModel, as_json: bool) -> None:
    from dokl.tables.report import table

    if as_json:
        tally = model.tally
        learned = None if tally is None or not tally.n else tally.figures()
        echo_json({**evaluation_figures(found), "prequential": learned})
        return
    table(*scores)
    if found.course.nodes:
        table("nodes", *node_rows(found.course.nodes))
    for line in evaluation_words(found):
        click.echo(line)
