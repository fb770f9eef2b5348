"""dokl bench"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dokl.base.errors import BadInput
from dokl.base.progress import progress
from dokl.cli.options import (
    DROP,
    TASK,
    echo_json,
    examples,
    make_source,
    output_switches,
    reading_options,
    remark,
    with_options,
)

ROWS, QUICK_ROWS = 10_000, 1_024


def own_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for the user's own file."""
    options = [
        click.option("--target", metavar="COLUMN", help="Your file: column to predict."),
        TASK,
        click.option("--only", multiple=True, metavar="NAME",
                     help="On your file: auto, kernel, sgd, ridge, trees, lightgbm, catboost, vw, "
                     "linear, forest; all."),
        DROP,
    ]  # fmt: skip
    return with_options(command, options)


@click.command(
    epilog="""\b
Without a file, all libraries learn the same rows in the same process, in turns.
time/dokl  time per row over dokl's, both in batches or both one row at a time
online     score of the predictions made before each row (or batch) was learned
test       score on other rows, at the end
model      size of the model file
RSS +      growth of the process while the first rows were learned

\b
Your own file is read as by dokl train. The libraries learn its rows in order, one
library after the other, with defaults, on all cores: dokl and River row by row,
scikit-learn's SGD in batches; Ridge, ExtraTrees, LightGBM and CatBoost are refitted
after each fifth of the rows and predict the next one. The score is the error after
the first fifth: squared, over the variance of the target, or the share of wrong
labels. Texts are 0/1 inputs, missing numbers become the mean so far, rows without a
target are skipped. memory + is the peak growth of the process. Below the table: the
best overall and in each fifth, the fastest, and the rank of dokl. Ctrl-C prints the
results so far.

\b
Missing libraries and data are named and skipped.

"""
    + examples(
        "dokl bench --quick                        under a minute",
        "dokl bench --data my.csv --target price   your own file",
        "dokl bench --data my.csv --target price --only auto --only lightgbm --rows 0",
        "dokl bench --data banana --peers sklearn --peers river",
        "dokl bench --data-dir data --rows 0 --plot bench.png      all rows of everything",
        "dokl bench --json > bench.json",
        "dokl bench --engines                      dokl's own engines against each other",
    )
)
@click.option(
    "--data", multiple=True, metavar="NAME|FILE",
    help="banana, waveform, a9a, xor, example2; all. Or your own file.",
)  # fmt: skip
@own_options
@click.option(
    "--peers", multiple=True, metavar="NAME", help="sklearn, exact, river, vw, padasip; all."
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Folder of the data files; or DOKL_DATA."
)
@click.option("--rows", type=int, help=f"Rows to learn at most, 0 for all. [default: {ROWS}]")
@click.option("--quick", is_flag=True, help=f"{QUICK_ROWS} rows: a minute or less.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it into this PNG or SVG.")
@click.option("--engines", is_flag=True, help="Compare dokl's own engines instead.")
@reading_options
@output_switches
def bench(
    data: tuple[str, ...], peers: tuple[str, ...], data_dir: Path | None, rows: int | None,
    quick: bool, plot: Path | None, engines: bool, as_json: bool, quiet: bool, **own: object,
) -> None:  # fmt: skip
    """Compare speed, accuracy and memory with other libraries."""
    if rows is not None and rows < 0:
        raise BadInput(f"--rows must be 0 (all) or more, got {rows}")
    asked = (QUICK_ROWS if quick else ROWS) if rows is None else rows
    if engines:
        _engines(as_json)
    elif _is_own(data, own):
        if peers or plot is not None:
            raise click.UsageError("--peers and --plot do not take your own file: see --only")
        _own(data, asked or None, own, as_json, quiet)
    else:
        _side_by_side(data, peers, data_dir, asked, plot, as_json, quiet)


def _side_by_side(
    data: tuple[str, ...], peers: tuple[str, ...], data_dir: Path | None, asked: int,
    plot: Path | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    from dokl.paper.bench import show
    from dokl.paper.bench.compare import side_by_side
    from dokl.paper.bench.peers import FAMILIES
    from dokl.paper.bench.tasks import NAMES

    tests = max(500, min(2000, (asked or ROWS) // 5))
    with progress(None, "comparing", False if quiet else None, unit=None) as bar:
        found, skipped = side_by_side(
            data or NAMES, peers or FAMILIES, asked or None, tests, data_dir,
            lambda word: bar.advance(1, word),
        )  # fmt: skip
    if plot and found:
        show.draw(found, plot)
    if as_json:
        echo_json(show.record(found, skipped))
        return
    show.print_tables(found)
    for line in show.best_of_each(found):
        click.echo(line)
    if not quiet:
        show.print_settings(found)
    _report(found, skipped, plot if found else None)


def _report(found: list[Any], skipped: dict[str, str], plot: Path | None) -> None:
    for name, why in skipped.items():
        click.echo(f"skipped {name}: {why}", err=True)
    for comparison in found:
        for name, why in comparison.skipped.items():
            click.echo(f"skipped {name} on {comparison.task.name}: {why}", err=True)
    if plot:
        click.echo(f"wrote {plot}", err=True)


# -- a file of one's own -------------------------------------------------------------------------
def _is_own(data: tuple[str, ...], own: dict[str, Any]) -> bool:
    """Whether --data is a file, and not the name of a data set."""
    from dokl.paper.bench.tasks import NAMES

    files = [name for name in data if name not in NAMES and (name == "-" or Path(name).is_file())]
    if own["target"] is not None and not data:
        raise click.UsageError("--target is a column of a file: name it with --data")
    if files and len(data) > 1:
        raise click.UsageError("one file at a time: --data is given more than once")
    if own["only"] and not files and own["target"] is None:
        raise click.UsageError("--only needs your own file: see --peers")
    return bool(files) or own["target"] is not None


def _own(
    data: tuple[str, ...], rows: int | None, own: dict[str, Any], as_json: bool, quiet: bool
) -> None:
    from dokl.paper.bench import show
    from dokl.paper.bench.entrants import read
    from dokl.paper.bench.own import chosen, compare_on
    from dokl.tables.jobs.start import Training

    only = [name.strip() for names in own.pop("only") for name in names.split(",")]
    entrants, missing = chosen(only)
    training = Training(target=own.pop("target"), task=own.pop("task"))
    table = read(make_source(data[0], own), training, rows)
    for line in () if quiet or as_json else table.guesses:
        click.echo(line)
    if table.n == rows:
        remark(f"the first {rows:,} rows of {table.name}; --rows 0 takes all", quiet or as_json)
    total = table.n * len(entrants)
    with progress(total, "comparing", False if quiet else None, unit=None) as bar:
        found = compare_on(table, entrants, bar.advance)
    found.skipped = {**missing, **found.skipped}
    if as_json:
        echo_json(show.own_record(found))
    else:
        if found.outcomes:
            show.print_own(found)
        for line in show.winners(found):
            click.echo(line)
        if found.outcomes and not quiet:
            show.print_own_settings(found)
        for name, why in found.skipped.items():
            click.echo(f"skipped {name}: {why}", err=True)
    if found.interrupted:
        click.echo("interrupted: the figures are of what was done by then", err=True)
        sys.exit(130)


def _engines(as_json: bool) -> None:
    from dokl.paper.bench import show
    from dokl.paper.bench.engines import compare_engines

    rows = compare_engines()
    if as_json:
        echo_json(show.engines_record(rows))
    else:
        show.print_engines(rows)
