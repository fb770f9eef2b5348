"""dokl bench"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dokl.cli.common import echo_json, examples, output_switches
from dokl.errors import BadInput
from dokl.progress import progress

ROWS, QUICK_ROWS = 10_000, 1_024


@click.command(
    epilog="""\b
Every library learns the same rows in the same process, in turns.
time/dokl  its time per row over dokl's, fed alike: in batches, or one row at a time
online     score of the predictions made before each row (or batch) was learned
test       score on other rows, at the end
model      size of the model, written down
RSS +      growth of the process while the first rows were learned
Peers and data that are not there are named and skipped.

"""
    + examples(
        "dokl bench --quick                        under a minute",
        "dokl bench --data banana --peers sklearn --peers river",
        "dokl bench --data-dir data --rows 0 --plot bench.png      all rows of everything",
        "dokl bench --json > bench.json",
        "dokl bench --engines                      dokl's own engines against each other",
    )
)
@click.option(
    "--data", multiple=True, metavar="NAME", help="banana, waveform, a9a, xor, example2; all."
)
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
@output_switches
def bench(
    data: tuple[str, ...], peers: tuple[str, ...], data_dir: Path | None, rows: int | None,
    quick: bool, plot: Path | None, engines: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Compare speed, accuracy and memory with what else one could use."""
    if rows is not None and rows < 0:
        raise BadInput(f"--rows must be 0 (all) or more, got {rows}")
    if engines:
        _engines(as_json)
        return
    from dokl.bench import show
    from dokl.bench.compare import side_by_side
    from dokl.bench.peers import FAMILIES
    from dokl.bench.tasks import NAMES

    asked = (QUICK_ROWS if quick else ROWS) if rows is None else rows
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
    if not quiet:
        show.print_settings(found)
    _tell(found, skipped, plot if found else None)


def _tell(found: list[Any], skipped: dict[str, str], plot: Path | None) -> None:
    for name, why in skipped.items():
        click.echo(f"skipped {name}: {why}", err=True)
    for comparison in found:
        for name, why in comparison.skipped.items():
            click.echo(f"skipped {name} on {comparison.task.name}: {why}", err=True)
    if plot:
        click.echo(f"wrote {plot}", err=True)


def _engines(as_json: bool) -> None:
    from dokl.bench import show
    from dokl.bench.engines import compare_engines

    rows = compare_engines()
    if as_json:
        echo_json(show.engines_record(rows))
    else:
        show.print_engines(rows)
