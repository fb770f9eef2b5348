"""dokl train, predict, evaluate, inspect: files in, files out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import echo_json, examples, key_values, output_switches
from dokl.errors import BadInput
from dokl.progress import Bar, progress

ROW_HELP = """\b
Files: CSV, TSV, Parquet, LIBSVM/SVMlight, JSON lines, plain or gzip; '-' is stdin.
Numbers are standardised (minus mean, over standard deviation); the model remembers how.
A missing number (empty, NA, NaN, null, ?) stands at its column's mean.
A text column becomes one 0/1 input per level seen in the first rows; other levels are zeros.
Rows without a target are skipped and counted.
"""


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How to read the file."""
    for option in reversed(
        [
            click.option("--format", help="csv, tsv, parquet, libsvm, jsonl; guessed otherwise."),
            click.option(
                "--n-features", type=int, help="Features of a LIBSVM file (needed from stdin)."
            ),
            click.option(
                "--text", multiple=True, metavar="COLUMN", help="Take this column as text."
            ),
            click.option("--numeric", multiple=True, metavar="COLUMN", help="Take it as numbers."),
            click.option("--no-header", is_flag=True, help="The CSV has no header: x1, x2, ..."),
        ]
    ):
        command = option(command)
    return command


def make_source(path: str, options: dict[str, Any]) -> Any:
    """The job's Source from the options above."""
    from dokl.jobs.train import Source

    return Source(
        path,
        options.pop("format"),
        options.pop("n_features"),
        options.pop("text"),
        options.pop("numeric"),
        False if options.pop("no_header") else None,
    )


class Meter:
    """A progress bar over the bytes of a file: rows so far, rows a second, a figure, time left."""

    def __init__(self, label: str, quiet: bool) -> None:
        self.label, self.quiet = label, quiet
        self.began, self.at = time.monotonic(), 0
        self.bar: Bar | None = None
        self.stack = ExitStack()

    def __enter__(self) -> Meter:
        return self

    def show(self, reader: Any, rows: int, figure: str = "") -> None:
        """Say how far we are."""
        if self.bar is None:
            show = False if self.quiet else None
            shown = progress(reader.bytes_total, self.label, show, unit=None)
            self.bar = self.stack.enter_context(shown)
        rate = rows / max(1e-9, time.monotonic() - self.began)
        gone = max(0, reader.bytes_read - self.at)  # a new pass starts the file again
        self.at = reader.bytes_read
        self.bar.advance(gone, f"{rows:,} rows, {rate:,.0f}/s {figure}")

    def __exit__(self, *error: Any) -> None:
        self.stack.close()


@click.command(
    epilog=ROW_HELP
    + "\n"
    + examples(
        "dokl train readings.csv --target temp --model temp.dokl",
        "dokl train more.csv --model temp.dokl --continue",
        "dokl train a9a.gz --n-features 123 --model adult.dokl --components 800",
        "zcat log.jsonl.gz | dokl train - --format jsonl --target y --model m.dokl",
        "dokl train spam.csv --target label --loss logistic --classes ham,spam --model spam.dokl",
        "dokl train x.csv --target y --model m.dokl -p average=weighted -p dtype=float64",
    )
)
@click.argument("data")
@click.option(
    "--model",
    "model_path",
    required=True,
    type=click.Path(path_type=Path),
    help="Model file to write.",
)
@click.option("--target", help="Column to predict (LIBSVM files have their own).")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the model file that is there.")
@click.option("--overwrite", is_flag=True, help="Replace a model file that is there.")
@click.option("--skip", default=0, help="Rows to pass over first, to go on after an interruption.")
@click.option("--task", default="auto", show_default=True, help="auto, regression, classification.")
@click.option("--classes", help="All labels, comma separated; else those of the first rows.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Do not use this column.")
@click.option(
    "--standardise", default="running", show_default=True, help="running, fixed (first rows), off."
)
@click.option("--passes", default=1, show_default=True, help="How often to read the file.")
@click.option("--kernel", help="gaussian, laplacian, matern, cauchy, rational_quadratic.")
@click.option("--sigma", help="Kernel width: a number, scale or median.")
@click.option("--components", type=int, help="D, numbers in the model's vector.")
@click.option("--features", help="auto, cos, paired, orthogonal, sobol, structured.")
@click.option("--loss", help="squared, huber, quantile, ...; hinge, logistic, ...")
@click.option("--step", help="A number, auto, or pegasos.")
@click.option("--alpha", type=float, help="L2 regularization.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the features.")
@click.option(
    "--parameter",
    "-p",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other parameter of the estimator.",
)
@source_options
@output_switches
def train(data: str, model_path: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Learn from DATA in one pass, at fixed memory, and write a model file.

    Prints the prequential error: each row is predicted before it is learned.
    """
    from dokl.jobs import train as job
    from dokl.jobs.tables import Model

    source = make_source(data, options)
    model = _existing(Model, model_path, options.pop("go_on"), options.pop("overwrite"))
    skip, passes = options.pop("skip"), options.pop("passes")
    training = _training(job.Training, options, model)
    with Meter("training", quiet) as meter:
        learned = job.train(
            source, training, model_path, model, passes, skip,
            lambda reader, made, score: meter.show(reader, score.n, score.line()),
        )  # fmt: skip
    _tell_training(learned, model_path, data, as_json, quiet, time.monotonic() - meter.began)


def _existing(kind: Any, path: Path, go_on: bool, overwrite: bool) -> Any:
    if go_on:
        return kind.load(path)
    if path.exists() and not overwrite:
        raise BadInput(f"{path} exists: --continue goes on with it, --overwrite starts anew")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{path.absolute().parent} is not a folder: make it first")
    return None


def _training(kind: Any, options: dict[str, Any], model: Any) -> Any:
    named = {"kernel": "kernel", "sigma": "sigma", "components": "n_components", "loss": "loss"}
    named |= {"features": "features", "step": "step", "alpha": "alpha"}
    given = {name: options.pop(key) for key, name in named.items()}
    extra = key_values(options.pop("parameters"))
    parameters = {key: _number(value) for key, value in given.items() if value is not None} | extra
    classes = options.pop("classes")
    labels = tuple(classes.split(",")) if classes else ()
    seed = options.pop("seed")
    fixed = {key: options.pop(key) for key in ("target", "task", "drop", "standardise")}
    if model is not None:
        told = [*parameters, *(["classes"] if labels else [])]
        if told:
            raise BadInput(
                f"--continue keeps the model's own settings; leave out {', '.join(told)}"
            )
    return kind(classes=labels, parameters={"random_state": seed, **parameters}, **fixed)


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _tell_training(
    learned: Any, path: Path, data: str, as_json: bool, quiet: bool, seconds: float
) -> None:
    from dokl.jobs.train import parameters_in_use
    from dokl.report import table

    model, figures = learned.model, learned.score.figures()
    rate = learned.score.n / seconds
    if as_json:
        made = {"model": str(path), "rows": model.rows, "skipped": model.skipped}
        made |= {"prequential": figures, "seconds": seconds, "rows_per_second": rate}
        echo_json(
            {**made, "interrupted": learned.interrupted, "settings": parameters_in_use(model)}
        )
    else:
        rows = [[name, _shown(name, value)] for name, value in figures.items()]
        table("prequential: every row predicted before it was learned", ["", ""], rows)
        if not quiet:
            click.echo(f"{rate:,.0f} rows/s; model in {path}", err=True)
            if model.skipped:
                click.echo(f"{model.skipped:,} rows without a target were skipped", err=True)
    if learned.interrupted:
        click.echo(
            f"interrupted after {model.rows:,} rows; what was learned is in {path}. Go on with:\n"
            f"  dokl train {data} --model {path} --continue --skip {model.rows}",
            err=True,
        )
        sys.exit(130)


def _shown(name: str, value: float) -> str:
    if name == "rows":
        return f"{int(value):,}"
    percent = name in ("accuracy", "error") or name.startswith("recall")
    return f"{100 * value:.2f}%" if percent else f"{value:.5g}"


@click.command(
    epilog=examples(
        "dokl predict temp.dokl new.csv > predictions.csv",
        "dokl predict temp.dokl new.csv --keep id -o out.jsonl",
        "tail -f log.csv | dokl predict temp.dokl - --format csv | head",
        "dokl predict spam.dokl mail.csv --proba",
    )
)
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("data")
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="File to write; stdout otherwise."
)
@click.option("--output", help="csv or jsonl; by the name of --out, else csv.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column of the input.")
@click.option("--proba", "more", flag_value="proba", help="Also the probability of each class.")
@click.option("--scores", "more", flag_value="scores", help="Also the scores of the classes.")
@source_options
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def predict(
    model_path: Path, data: str, out: Path | None, output: str | None, keep: tuple[str, ...],
    more: str | None, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Predict the rows of DATA with a MODEL file, streaming."""
    from dokl.jobs import predict as job
    from dokl.jobs.tables import Model

    source, model = make_source(data, options), Model.load(model_path)
    kind = output or ("jsonl" if out is not None and out.suffix in (".jsonl", ".ndjson") else "csv")
    if kind not in job.OUTPUTS:
        raise BadInput(f"--output must be csv or jsonl, got {kind!r}")
    with Meter("predicting", quiet or out is None) as meter, _target(out) as file:
        first = True
        for columns in job.predictions(model, source, keep, more, meter.show):
            file.write(job.as_text(columns, kind, first))
            first = False
        file.flush()


def _target(out: Path | None) -> AbstractContextManager[Any]:
    if out is None:
        return nullcontext(sys.stdout)
    from dokl.files import atomic_write

    return atomic_write(out, "w")


@click.command(
    epilog=examples(
        "dokl evaluate temp.dokl test.csv",
        "dokl evaluate adult.dokl a9a.t.gz --n-features 123 --json",
    )
)
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("data")
@source_options
@output_switches
def evaluate(model_path: Path, data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Score a MODEL file on the rows of DATA, which must have the target."""
    from dokl.jobs.predict import evaluate as job
    from dokl.jobs.tables import Model
    from dokl.report import table

    source, model = make_source(data, options), Model.load(model_path)
    with Meter("evaluating", quiet) as meter:
        figures = job(model, source, meter.show).figures()
    if as_json:
        echo_json(figures)
    else:
        table(f"{model_path} on {data}", ["", ""], [[n, _shown(n, v)] for n, v in figures.items()])


@click.command(epilog=examples("dokl inspect temp.dokl", "dokl inspect temp.dokl --json"))
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def inspect(model_path: Path, as_json: bool) -> None:
    """Tell what is in a MODEL file."""
    from dokl.jobs.describe import describe
    from dokl.report import facts

    found = describe(model_path)
    if as_json:
        echo_json(found)
        return
    facts(str(model_path), found)
