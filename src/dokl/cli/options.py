"""What the commands share: options, of files and of lags, too, and what is made of them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dokl.tables.jobs.predict import HoldOut
    from dokl.tables.jobs.sources import Source


def examples(*lines: str) -> str:
    """An epilog of examples, each on a line of its own."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def with_options(
    command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]
) -> Callable[..., Any]:
    """A command with these options, in this order in its help."""
    for option in reversed(options):
        command = option(command)
    return command


LOG_LEVEL = click.option(
    "--log-level", type=click.Choice(("info", "warning", "error")), default="info",
    show_default=True, help="Lowest level that is logged.",
)  # fmt: skip


def output_switches(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json and --quiet, as every command that prints results has them."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
    return as_json(quiet(command))


def echo_json(value: object) -> None:
    """Results for programs: one JSON document on stdout; what is not a number is null."""
    click.echo(json.dumps(_plain(value), indent=2))


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def key_values(pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE options as a dictionary; numbers become numbers, true and false truth values."""
    out: dict[str, Any] = {}
    for key, text in split_pairs(pairs):
        try:
            out[key] = json.loads(text)
        except json.JSONDecodeError:
            out[key] = {"True": True, "False": False, "None": None}.get(text, text)
    return out


def split_pairs(pairs: Iterable[str], shape: str = "KEY=VALUE") -> Iterable[tuple[str, str]]:
    """KEY and VALUE of each option, as text."""
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not {shape}")
        yield key, text


def figure(name: str, value: Any) -> str:
    """A score as people read it."""
    if value is None:
        return "undefined"
    if name == "rows":
        return f"{int(value):,}"
    percent = name in ("accuracy", "error") or name.startswith("recall")
    return f"{100 * value:.2f}%" if percent else f"{value:.5g}"


def percent(share: float, digits: int = 0) -> str:
    """A share of one, as people read it."""
    return f"{100 * share:.{digits}f} %"


def steps_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """How far beyond training DATA begins."""
    return click.option(
        "--steps-ahead", type=click.IntRange(1), default=1, show_default=True, metavar="N",
        help="Intervals: the first row of DATA is N rows after the last learned one.",
    )(command)  # fmt: skip


def by_node_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who of a network predicts."""
    return click.option(
        "--by-node/--together", default=None,
        help="Networks: predict by each row's own node (the default if DATA names it), or by "
        "the whole network.",
    )(command)  # fmt: skip


def share_of(interval: float) -> float:
    """A share of one; below 1 % nobody wants, but may have written 0.9."""
    if interval < 1:
        raise click.BadParameter(
            f"{interval:g} is less than one percent: write --interval {100 * interval:g}"
        )
    return interval / 100


def remark(text: str, quiet: bool) -> None:
    """Something to know besides the results, on stderr."""
    if not quiet:
        click.echo(text, err=True)


# -- reading files --------------------------------------------------------------------------------
FORMATS = ("csv", "tsv", "parquet", "libsvm", "jsonl", "xlsx")

FILES_HELP = """\b
Files: CSV, TSV, Parquet, LIBSVM/SVMlight, JSON lines or one array of objects,
spreadsheets (the first sheet), plain, gzip or a zip archive of one file; '-' is
stdin. The format follows from the name (.csv .tsv .parquet .libsvm .svm .json
.jsonl .xlsx, then .gz), otherwise from the first line.
"""

ROWS_HELP = """\b
Columns: the bank scales numbers whenever it learns length scales; the gradient
method standardises them (minus mean, over standard deviation) by the rows so far.
The model stores the scaling. A missing number (empty, NA, N/A, #N/A, NaN, null,
None, ?, -) becomes the mean of its column. Decimal commas, thousands (1.234,5 or
1,234), currencies ($326) and percent signs are recognised in each column. Dates and
times become the time of day, week and year, on circles, if the rows cover each
about twice. A text column becomes one 0/1 input per level; the first rows give the
levels, at most 50. Missing texts and other levels are zeros; other levels are
counted and named. Names, identifiers and free text (more than 50 texts that hardly
repeat) are left out, with a message. Rows without a target are skipped and counted.
LIBSVM rows are used as they are. The first rows are the first --chunk of them, 8192
if lines are short. Each guess is printed with the option that changes it.
"""

Command = Callable[..., Any]
Data = click.Path(allow_dash=True)
DROP = click.option("--drop", multiple=True, metavar="COLUMN", help="Do not use this column.")
TEXT = click.option("--text", multiple=True, metavar="COLUMN", help="Take this column as text.")
NUMERIC = click.option("--numeric", multiple=True, metavar="COLUMN", help="Take it as numbers.")
TASKS = ("auto", "regression", "classification")
TASK = click.option("--task", type=click.Choice(TASKS), default="auto", show_default=True,
                    help="auto: text, and whole numbers of up to 10 kinds, are classes.",
                    )  # fmt: skip
PARAMETER = click.option("--parameter", "-p", "parameters", multiple=True, metavar="KEY=VALUE",
                         help="Any other parameter of the estimator.")  # fmt: skip


def label_options(rows: str) -> list[Callable[[Any], Any]]:
    """Labels of classes and levels of texts; rows: which ones have them by default."""
    return [
        click.option("--classes", help=f"All labels, comma separated. Default: those of {rows}."),
        click.option("--levels", multiple=True, metavar="COLUMN=A,B,...",
                     help=f"All levels of a text column. Default: those of {rows}."),
    ]  # fmt: skip


def reading_options(command: Command) -> Command:
    """How to read the file."""
    options = [
        click.option("--format", type=click.Choice(FORMATS),
                     help="Format of the file. Default: guessed."),
        click.option("--no-header", is_flag=True, help="The CSV has no header: x1, x2, ..."),
        click.option("--delimiter", metavar="CHAR",
                     help="Delimiter of the CSV. Default: , ; | or tab, guessed."),
        click.option("--decimal", type=click.Choice([".", ","]), help="Decimal mark."),
        click.option("--dates", type=click.Choice(["dmy", "mdy"]),
                     help="Whether day or month is first in dates like 1/2/2013."),
        click.option("--missing", metavar="A,B,...",
                     help="Spellings of a missing value. Default: the usual ones."),
        click.option("--zero-based", is_flag=True, help="LIBSVM features are numbered from 0."),
        click.option("--chunk", type=click.IntRange(1), metavar="N", help="Rows read at a time."),
    ]  # fmt: skip
    return with_options(command, options)


def on_error_options(command: Command) -> Command:
    """What to do with rows that cannot be used."""
    options = [
        click.option("--on-error", type=click.Choice(["fail", "stop", "skip"]), default="fail",
                     show_default=True, help="At an invalid row: fail and change no file; stop "
                     "and keep the work so far; or skip the row and write it to a file."),
        click.option("--refused", type=click.Path(path_type=Path), metavar="FILE",
                     help="File for rows that --on-error skip skips, with reasons."),
    ]  # fmt: skip
    return with_options(command, options)


def test_option(help: str) -> Callable[[Command], Command]:
    """Rows that are held out."""
    return click.option("--test", metavar="last:20%|random:20%", help=help)


def held_out(
    test: str | None, source: Source, in_order: bool, quiet: bool
) -> tuple[Source, Source | None, HoldOut | None]:
    """The rows to learn, those that are held out, and which these are; None without any.

    in_order: whether rows are in the order of time, and each needs those before it.
    """
    if test is None:
        return source, None, None
    from dokl.base.errors import BadInput
    from dokl.cli.results import Meter
    from dokl.tables.jobs.predict import HoldOut, check_file

    which = HoldOut.of(test)
    check_file(source)
    if in_order and which.kind == "random":
        raise BadInput(
            "lags and horizons need all earlier rows, so rows cannot be held out at random: "
            f"--test {test.replace('random', 'last')}"
        )
    with Meter("counting rows", quiet) as meter:
        return *which.split(source, meter.show), which


def keep_inputs(read: Iterable[str | Path | None], written: Iterable[Path | None]) -> None:
    """Refuse to write a file that the command also reads: its rows would be lost."""
    from dokl.base.errors import BadInput

    inputs = {os.path.realpath(path) for path in read if path is not None}
    for path in written:
        if path is not None and path.is_file() and os.path.realpath(path) in inputs:
            raise BadInput(f"{path} is read by this command: write to another file")


def make_source(path: str, given: dict[str, Any], beside: str = "refused.csv") -> Any:
    """The job's Source from what was given of the readers' options, which is taken out.

    beside: where refused rows go by default.
    """
    from dokl.tables.jobs.sources import OnError, Source
    from dokl.tables.readers import Options

    known = [field.name for field in fields(Options) if field.name in given]
    options = {name: given.pop(name) for name in known}
    if given.pop("no_header", False):
        options["header"] = False
    spelled = options.pop("missing", None)
    if spelled is not None:
        options["missing"] = tuple(word.strip() for word in spelled.split(","))
    mode, refused = given.pop("on_error", None), given.pop("refused", None)
    mode = None if mode == "fail" else mode
    if refused is not None and mode != "skip":
        raise click.UsageError("--refused needs --on-error skip")
    keep_inputs([path], [refused])
    return Source(path, Options(**options), OnError(mode, refused or Path(beside)))


# -- lags and horizons ----------------------------------------------------------------------------
SERIES_HELP = """\b
Series: --lag, --rolling and --difference make inputs from earlier values, also of the
target; --lags auto chooses lags. Distances are rows (24) or times (24h: s, min, h, d,
w). With --by every group has its own past, with --nodes every node. Rows must be in
the order of their times; repeated and earlier times are errors. With --horizon the
target of a row is the value that much later, and the row's own target value is an
input. The model file stores the last rows: predict, evaluate and serve continue from
them. The error of persistence is printed beside that of the model.
"""


TIME = click.option("--time", metavar="COLUMN",
                    help="Lags: the column of times. Default: the first of dates.")  # fmt: skip
AUTO = click.option("--lags", "auto_lags", type=click.Choice(["auto"]),
                    help="Choose lags by the first rows.")  # fmt: skip
HORIZON = click.option("--horizon", metavar="N|6h", default="0", show_default=True,
                       help="Predict the target N rows, or hours, later.")  # fmt: skip
BY = click.option("--by", metavar="COLUMN", help="Lags: each group has its own past.")


def earlier_options() -> list[Callable[[Any], Any]]:
    """Which earlier values are inputs."""
    return [
        click.option("--lag", multiple=True, metavar="COLUMN=1,24",
                     help="Earlier values as inputs: N rows, or 24h, before."),
        click.option("--rolling", multiple=True, metavar="COLUMN=24", help="Rolling means."),
        click.option("--difference", multiple=True, metavar="COLUMN=1",
                     help="The newest value minus an earlier one."),
    ]  # fmt: skip


def lag_request(options: dict[str, Any]) -> Any:
    """What was asked for by these options."""
    from dokl.tables.models.series import LagRequest

    def pairs(option: str, shape: str) -> tuple[tuple[str, str], ...]:
        found = split_pairs(options[option], shape)
        return tuple((name, back) for name, text in found for back in comma_list(text))

    return LagRequest(
        pairs("lag", "COLUMN=1,24"), pairs("rolling", "COLUMN=24"), pairs("difference", "COLUMN=1"),
        options.get("by"), options["time"], options.get("horizon", 0),
        options["auto_lags"] == "auto",
    )  # fmt: skip


def comma_list(text: str | None) -> tuple[str, ...]:
    """Parts between commas; none of an empty text."""
    return tuple(part.strip() for part in text.split(",")) if text else ()
