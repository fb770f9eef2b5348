"""dokl demo"""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    epilog="""\b
Examples:
  dokl demo                       a table here, a picture in ./dokl-demo.png
  dokl demo --out /tmp --runs 50  smoother curves
"""
)
@click.option("--out", type=click.Path(path_type=Path), default=".", help="Folder for the picture.")
@click.option("--runs", default=12, show_default=True, help="Realizations to average.")
@click.option("--seed", default=1, show_default=True, help="Seed of everything random.")
def demo(out: Path, runs: int, seed: int) -> None:
    """20 nodes learning one function together, against the same nodes alone."""
    from dokl import report
    from dokl.jobs.demo import demo as run_demo

    click.echo("20 nodes, 5,000 samples each, a vector of 2,500 numbers per node and message...")
    result = run_demo(out, runs, seed)
    report.table(
        f"Example 1 of the paper, mean of {runs} runs",
        ["20 nodes", "final error", "-17 dB after", "sent per step", "samples/s"],
        result.rows(),
    )
    gain = result.alone.tail().mean() / result.together.tail().mean()
    click.echo(f"Together the error is {gain:.2f} times smaller. Picture: {result.picture}")
