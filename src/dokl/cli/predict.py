"""dokl predict"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from dokl.base.errors import BadInput
from dokl.cli.options import (
    FILES_HELP,
    Data,
    by_node_option,
    examples,
    keep_inputs,
    make_source,
    on_error_options,
    reading_options,
    remark,
    share_of,
    steps_option,
)
from dokl.cli.results import Meter, loading

OUTPUTS = ("csv", "jsonl", "parquet")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
OTHER_ENDINGS = (".xlsx", ".xls", ".json", ".gz", ".zip")  # a CSV of such a name could not be read


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
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="File to write. Default: stdout."
)
@click.option("--as", "kind", type=click.Choice(OUTPUTS),
              help="Format of the output. Default: by the name of --out, or csv.")  # fmt: skip
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column of the input.")
@click.option("--proba", "more", flag_value="proba", help="Also the probability of each class.")
@click.option("--scores", "more", flag_value="scores", help="Also the scores of the classes.")
@click.option("--interval", type=click.FloatRange(0, 100, True, True), metavar="PERCENT",
              help="Also the ends of intervals that contain this share of targets.")  # fmt: skip
@steps_option
@click.option("--std", is_flag=True, help="Also the standard deviation of each prediction.")
@by_node_option
@reading_options
@on_error_options
@click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
def predict(
    path: Path, data: str, out: Path | None, kind: str | None, keep: tuple[str, ...],
    more: str | None, interval: float | None, steps_ahead: int, std: bool, by_node: bool | None,
    quiet: bool, **options: object,
) -> None:  # fmt: skip
    """Predict the rows of DATA with a MODEL file.

    Rows are predicted as they arrive, so a pipe need not end. Columns that the model does not know
    are ignored. --interval needs a regression by the default method. The width of its intervals
    comes from the errors of frozen copies during training; if the rows changed along the file,
    intervals grow with the distance from the last learned row.
    """
    keep_inputs([path, data], [out])
    if kind is None and out is not None and out.suffix.lower() in OTHER_ENDINGS:
        raise BadInput(
            f"{out}: predictions are written as .csv, .jsonl or .parquet, and not as {out.suffix}"
        )
    kind = kind or ENDINGS.get("" if out is None else out.suffix.lower(), "csv")
    refused = f"{out}.refused.csv" if out is not None else "refused.csv"
    with loading(quiet):
        from dokl.tables.jobs import predict as job
        from dokl.tables.jobs.output import open_output
        from dokl.tables.jobs.sources import closing, notices
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
