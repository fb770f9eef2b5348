"""dokl evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dokl.cli.common import echo_json, examples, figure, output_switches, remark
from dokl.cli.meter import Meter, loading
from dokl.cli.source import FILES_HELP, Data, make_source, reading_options


@click.command(
    epilog=FILES_HELP
    + "\n"
    + examples(
        "dokl evaluate temp.dokl test.csv",
        "dokl evaluate adult.dokl a9a.t.gz --json",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("data", type=Data)
@click.option("--target", metavar="COLUMN", help="Only for models saved in Python.")
@click.option("--by-node", is_flag=True, help="Networks: by each row's own node; else the mean.")
@reading_options
@output_switches
def evaluate(
    path: Path, data: str, target: str | None, by_node: bool, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Score a MODEL file on DATA, which must have the target.

    Nothing is learned. Rows without a target are left out. Of a regression without settings it is
    also counted how often 90 % intervals hold the target.
    """
    with loading(quiet):
        from dokl.jobs.files.predict import evaluate as job
        from dokl.jobs.files.tables import notices
        from dokl.models import TableModel
        from dokl.report import table

        source, model = make_source(data, options), TableModel.load(path)
    model.target = model.target if target is None else target
    with Meter("evaluating", quiet) as meter:
        score, coverage = job(model, source, by_node, meter.show)
    figures = score.figures()
    if as_json:
        echo_json(figures | ({} if coverage is None else {"intervals": coverage.figures()}))
    else:
        table(f"{path} on {data}", ["", ""], [[n, figure(n, v)] for n, v in figures.items()])
        if coverage is not None:
            click.echo(coverage.line())
    for notice in notices(model):
        remark(notice, quiet)
