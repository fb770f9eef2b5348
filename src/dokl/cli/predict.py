"""dokl predict"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from dokl.base.errors import BadInput
from dokl.cli.common import examples, remark, share_of, steps_option
from dokl.cli.meter import Meter, loading
from dokl.cli.source import FILES_HELP, Data, make_source, on_error_options, reading_options

OUTPUTS = ("csv", "jsonl", "parquet")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}


@click.command(
    epilog=FILES_HELP
    + "\n"
    + examples(
        "dokl predict temp.dokl new.csv > predictions.csv",
        "dokl predict temp.dokl new.csv --keep id -o out.jsonl",
        "dokl predict temp.dokl new.parquet -o out.parquet",
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
              help="Also the ends of intervals that hold this share of targets.")  # fmt: skip
@steps_option
@click.option("--std", is_flag=True, help="Also the standard deviation of each prediction.")
@click.option("--by-node/--together", default=None,
              help="Networks: by each row's own node, as is usual where DATA names it; or by what "
              "all have learned.")  # fmt: skip
@reading_options
@on_error_options
@click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
def predict(
    path: Path, data: str, out: Path | None, kind: str | None, keep: tuple[str, ...],
    more: str | None, interval: float | None, steps_ahead: int, std: bool, by_node: bool | None,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Predict the rows of DATA with a MODEL file.

    Rows are predicted as they arrive: a pipe need not end. Columns that the model does not know
    are passed over. Intervals are those of regressions trained without settings: as wide as it took
    for this share of the targets while the model learned, by copies of it that learned no more: the
    further a row lies beyond training the wider, if the rows change along the file.
    """
    kind = kind or ENDINGS.get("" if out is None else out.suffix.lower(), "csv")
    refused = f"{out}.refused.csv" if out is not None else "refused.csv"
    with loading(quiet):
        from dokl.tables.jobs import predict as job
        from dokl.tables.jobs.faults import closing
        from dokl.tables.jobs.output import open_output
        from dokl.tables.jobs.tables import notices
        from dokl.tables.models import TableModel

        source, model = make_source(data, options, refused), TableModel.load(path)
    share = None if interval is None else share_of(interval)
    asked = job.PredictionRequest(more, share, std, by_node, steps_ahead)
    fault: BadInput | None = None
    with (
        Meter("predicting", quiet or out is None) as meter,
        closing(source.on_error),
        open_output(out, kind, job.digits(model)) as write,
    ):
        try:
            say = partial(remark, quiet=quiet)
            for columns in job.predictions(model, source, keep, asked, meter.show, say):
                write(columns)
        except BadInput as error:
            if source.on_error.fault is None:
                raise
            fault = error
    for notice in notices(model):
        remark(notice, quiet)
    remark(source.on_error.words, quiet or not source.on_error.count)
    if fault is not None:
        raise BadInput(f"{fault}. The rows before it were predicted", options=fault.options)
