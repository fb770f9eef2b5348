"""Options that say how to read a file, for every command that reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

FORMATS = ("csv", "tsv", "parquet", "libsvm", "jsonl")

FILES_HELP = """\b
Files: CSV, TSV, Parquet, LIBSVM/SVMlight, JSON lines, plain or gzip; '-' is
stdin. The name says which (.csv .tsv .parquet .libsvm .svm .jsonl, then .gz),
otherwise the first line does.
"""

ROWS_HELP = """\b
Columns: experts bring numbers to unit size whenever they learn length scales;
for gradients numbers are standardised (minus mean, over standard deviation) by
the rows so far; the model remembers how. A missing number (empty, NA, NaN,
null, None, ?) stands at its column's mean. A text column becomes one 0/1 input
per level; the levels are those of the first rows, at most 50; missing texts and
other levels are zeros, and the latter are counted. Rows without a target are
skipped and counted. LIBSVM rows are taken as they are. The first rows, which
settle all this, are the first --chunk of them, 8192 where lines are short.
"""

Command = Callable[..., Any]
Data = click.Path(allow_dash=True)


def reading_options(command: Command) -> Command:
    """How to read the file."""
    options = [
        click.option("--format", type=click.Choice(FORMATS), help="Of the file; else guessed."),
        click.option("--no-header", is_flag=True, help="The CSV has no header: x1, x2, ..."),
        click.option("--delimiter", metavar="CHAR", help="Of the CSV; else , ; or tab is found."),
        click.option("--zero-based", is_flag=True, help="LIBSVM features are numbered from 0."),
        click.option("--chunk", type=click.IntRange(1), metavar="N", help="Rows read at a time."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def make_source(path: str, given: dict[str, Any]) -> Any:
    """The job's Source from what was given of the readers' options, which is taken out."""
    from dokl.jobs.files.sources import Source
    from dokl.readers import Options

    known = [field.name for field in fields(Options) if field.name in given]
    options = {name: given.pop(name) for name in known}
    if given.pop("no_header", False):
        options["header"] = False
    return Source(path, Options(**options))
