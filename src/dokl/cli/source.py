"""Options that say how to read a file, for every command that reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import with_options

FORMATS = ("csv", "tsv", "parquet", "libsvm", "jsonl", "xlsx")

FILES_HELP = """\b
Files: CSV, TSV, Parquet, LIBSVM/SVMlight, JSON lines or one array of objects,
spreadsheets (the first sheet), plain, gzip or a zip archive of one file; '-' is
stdin. The name says which (.csv .tsv .parquet .libsvm .svm .json .jsonl .xlsx,
then .gz), otherwise the first line does.
"""

ROWS_HELP = """\b
Columns: experts bring numbers to unit size whenever they learn length scales;
for gradients numbers are standardised (minus mean, over standard deviation) by
the rows so far; the model remembers how. A missing number (empty, NA, N/A,
#N/A, NaN, null, None, ?, -) stands at its column's mean. Decimal commas,
thousands (1.234,5 or 1,234), currencies ($326) and percent signs are
recognised column by column. Dates and times become the time of day, of the week
and of the year, on circles, where the rows cover each about twice. A text column
becomes one 0/1 input per level; the levels are those of the first rows, at most 50; missing
texts and other levels are zeros, and the latter are named and counted. Names,
identifiers and free text, more than 50 texts that hardly repeat, are not used,
which is said. Rows
without a target are skipped and counted. LIBSVM rows are taken as they are. The
first rows, which settle all this, are the first --chunk of them, 8192 where
lines are short. What was guessed is said, with the option that changes it.
"""

Command = Callable[..., Any]
Data = click.Path(allow_dash=True)


def reading_options(command: Command) -> Command:
    """How to read the file."""
    options = [
        click.option("--format", type=click.Choice(FORMATS), help="Of the file; else guessed."),
        click.option("--no-header", is_flag=True, help="The CSV has no header: x1, x2, ..."),
        click.option("--delimiter", metavar="CHAR", help="Of the CSV; else , ; | or tab is found."),
        click.option("--decimal", type=click.Choice([".", ","]), help="Mark of all numbers."),
        click.option("--dates", type=click.Choice(["dmy", "mdy"]),
                     help="Whether day or month is first in dates like 1/2/2013."),
        click.option("--missing", metavar="A,B,...",
                     help="Spellings of a missing value, instead of the usual ones."),
        click.option("--zero-based", is_flag=True, help="LIBSVM features are numbered from 0."),
        click.option("--chunk", type=click.IntRange(1), metavar="N", help="Rows read at a time."),
    ]  # fmt: skip
    return with_options(command, options)


def on_error_options(command: Command) -> Command:
    """What to do with rows that cannot be used."""
    options = [
        click.option("--on-error", type=click.Choice(["fail", "stop", "skip"]), default="fail",
                     show_default=True, help="At a row that is wrong: leave all files as they "
                     "were; stop, and keep what was done by then; or pass over it, and write it to "
                     "a file."),
        click.option("--refused", type=click.Path(path_type=Path), metavar="FILE",
                     help="Where --on-error skip writes rows and reasons."),
    ]  # fmt: skip
    return with_options(command, options)


def test_option(help: str) -> Callable[[Command], Command]:
    """Rows that are held out."""
    return click.option("--test", metavar="last:20%|random:20%", help=help)


def held_out(test: str | None, source: Any, in_order: bool, quiet: bool) -> tuple[Any, Any, Any]:
    """The rows to learn, those that are held out, and which these are; None without any.

    in_order: whether rows are in the order of time, and each needs those before it.
    """
    if test is None:
        return source, None, None
    from dokl.base.errors import BadInput
    from dokl.cli.meter import Meter
    from dokl.tables.jobs.hold_out import HoldOut, check_file

    which = HoldOut.of(test)
    check_file(source)
    if in_order and which.kind == "random":
        raise BadInput(
            "lags and horizons look back along the rows, and rows that are held out at random "
            f"would be missing there: --test {test.replace('random', 'last')}"
        )
    with Meter("counting rows", quiet) as meter:
        return *which.split(source, meter.show), which


def make_source(path: str, given: dict[str, Any], beside: str = "refused.csv") -> Any:
    """The job's Source from what was given of the readers' options, which is taken out.

    beside: where refused rows go, if nobody says where.
    """
    from dokl.tables.jobs.faults import OnError
    from dokl.tables.jobs.sources import Source
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
        raise click.UsageError("--refused is for --on-error skip")
    return Source(path, Options(**options), OnError(mode, refused or Path(beside)))
