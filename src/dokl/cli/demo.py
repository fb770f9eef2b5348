"""dokl demo"""

from __future__ import annotations

from pathlib import Path

import click

from dokl.cli.options import echo_json, examples, output_switches, remark


@click.command(
    epilog=examples(
        "dokl demo                       a table here, a picture in ./dokl-demo.png",
        "dokl demo --out /tmp --runs 50  smoother curves",
    )
)
@click.option("--out", type=click.Path(path_type=Path), default=".", help="Folder for the picture.")
@click.option("--runs", type=click.IntRange(1), metavar="N", default=12, show_default=True,
              help="Realizations to average.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Seed of everything random.")
@output_switches
def demo(out: Path, runs: int, seed: int, as_json: bool, quiet: bool) -> None:
    """20 nodes learning together, by vectors and by sums, and alone."""
    from dokl.paper.jobs.demo import demo as job
    from dokl.tables import report

    quiet = quiet or as_json
    remark("20 nodes, 5,000 samples each, a vector of 2,500 numbers per node and message...", quiet)
    result = job(out, runs, seed, False if quiet else None)
    if as_json:
        echo_json(result.results())
        return
    report.table(
        f"Example 1 of the paper, mean of {runs} runs (sums and one place: {result.sums.runs})",
        ["20 nodes", "final error", "-17 dB after", "sent per step", "samples/s"],
        result.rows(),
    )
    click.echo(
        f"Together, with sums, the error is {result.gain:.2f} times smaller than alone. "
        f"Picture: {result.picture}"
    )
