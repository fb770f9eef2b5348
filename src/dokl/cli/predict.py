"""dokl predict"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import examples, remark, share_of
from dokl.cli.meter import Meter, loading
from dokl.cli.source import FILES_HELP, Data, make_source, reading_options

OUTPUTS = ("csv", "jsonl")


@click.command(
    epilog=FILES_HELP
    + "\n"
    + examples(
        "dokl predict temp.dokl new.csv > predictions.csv",
        "dokl predict temp.dokl new.csv --keep id -o out.jsonl",
        "tail -f log.csv | dokl predict temp.dokl -",
        "dokl predict temp.dokl new.csv --interval 90 --std",
        "dokl predict spam.dokl mail.csv --proba --as jsonl",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("data", type=Data)
@click.option("--out", "-o", type=click.Path(path_type=Path), help="File to write; else stdout.")
@click.option("--as", "kind", type=click.Choice(OUTPUTS),
              help="What to write; else as the name of --out says, or csv.")  # fmt: skip
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column of the input.")
@click.option("--proba", "more", flag_value="proba", help="Also the probability of each class.")
@click.option("--scores", "more", flag_value="scores", help="Also the scores of the classes.")
@click.option("--interval", type=click.FloatRange(0, 100, True, True), metavar="PERCENT",
              help="Also lower and upper ends that hold so many of 100 targets.")  # fmt: skip
@click.option("--std", is_flag=True, help="Also the standard deviation of each prediction.")
@click.option("--by-node", is_flag=True, help="Networks: by each row's own node; else the mean.")
@reading_options
@click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
def predict(
    path: Path, data: str, out: Path | None, kind: str | None, keep: tuple[str, ...],
    more: str | None, interval: float | None, std: bool, by_node: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Predict the rows of DATA with a MODEL file.

    Rows are predicted as they arrive: a pipe need not end. Columns that the model does not know
    are passed over. Intervals are those of regressions trained without settings: as wide as it took
    for this share of the targets while the model learned.
    """
    with loading(quiet):
        from dokl.jobs.files import predict as job
        from dokl.jobs.files.output import as_text
        from dokl.jobs.files.tables import notices
        from dokl.models import TableModel

        source, model = make_source(data, options), TableModel.load(path)
    asked = job.PredictionRequest(
        more, None if interval is None else share_of(interval), std, by_node
    )
    named = out is not None and out.suffix in (".jsonl", ".ndjson")
    kind = kind or ("jsonl" if named else "csv")
    with Meter("predicting", quiet or out is None) as meter, _opened(out) as file:
        first = True
        for columns in job.predictions(model, source, keep, asked, meter.show):
            file.write(as_text(columns, kind, first, job.digits(model)))
            if out is None:
                file.flush()  # someone may be waiting for it
            first = False
    for notice in notices(model):
        remark(notice, quiet)


def _opened(out: Path | None) -> AbstractContextManager[Any]:
    if out is None:
        return nullcontext(sys.stdout)
    from dokl.files import atomic_write

    return atomic_write(out, "w")
