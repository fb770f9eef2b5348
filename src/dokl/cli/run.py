"""dokl run"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dokl.cli.options import echo_json, examples, output_switches

if TYPE_CHECKING:
    from dokl.paper.jobs.settings import Simulation


@click.command(
    epilog=examples(
        "dokl run --example > my.toml        a commented configuration to start from",
        "dokl run my.toml                    files are read and written beside my.toml",
        "dokl run my.toml --out results --engine reference --json",
        "dokl run my.toml --set learn.method=squares --set learn.share=sums --set network.every=10",
        "dokl run my.toml --set sending.bits=2 --set mixing.rule=ios",
        "mpirun -n 4 dokl run my.toml --engine mpi --checkpoint kept --resume",
    )
)
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--example", is_flag=True, help="Print a commented configuration and stop.")
@click.option(
    "--set", "changes", multiple=True, metavar="SECTION.KEY=VALUE",
    help="Change any key of the configuration; repeat it.",
)  # fmt: skip
@click.option("--engine", help="Instead of the configuration's engine.")
@click.option(
    "--runs", type=click.IntRange(1), metavar="N", help="Instead of the configuration's number."
)
@click.option("--seed", type=int, help="Instead of the configuration's seed.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for plot and JSON; created if absent."
)
@click.option("--ranks", type=int, help="Required number of MPI ranks (engine mpi).")
@click.option(
    "--checkpoint", type=click.Path(path_type=Path),
    help="Folder for checkpoints of the run (engine mpi).",
)  # fmt: skip
@click.option("--every-seconds", type=float, help="Seconds between checkpoints. Default: 300.")
@click.option("--every-steps", type=int, help="Steps between checkpoints.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint, if there is one.")
@output_switches
def run(
    config: Path | None, example: bool, changes: tuple[str, ...], engine: str | None,
    runs: int | None, seed: int | None, out: Path | None, ranks: int | None,
    checkpoint: Path | None, every_seconds: float | None, every_steps: int | None, resume: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Simulate a network that a CONFIG file (TOML) describes.

    Prints the mean over the last tenth of the steps, for the nodes together and alone; writes the
    picture and the JSON file that CONFIG names.
    """
    if example:
        from dokl.paper.jobs.settings import EXAMPLE

        click.echo(EXAMPLE, nl=False)
        return
    if config is None:
        raise click.UsageError("name a CONFIG file; 'dokl run --example > my.toml' prints one")
    if checkpoint is None and (resume or every_seconds or every_steps):
        raise click.UsageError("--resume, --every-seconds and --every-steps need --checkpoint")
    from dokl.paper.jobs import simulate as job
    from dokl.simulation.engines.mpi_checkpoints import Checkpoint

    with job.report_once(config, engine, quiet, changes) as speaks:
        sim = job.overridden(
            job.load(config, changes), engine=engine, runs=runs, seed=seed, ranks=ranks
        )
        how = every_seconds, every_steps, resume
        kept = None if checkpoint is None else Checkpoint(checkpoint, *how)
        folder = config.parent if out is None else out
        if speaks:
            job.check_outputs(sim, folder)
        traces = job.simulate(sim, config.parent, False if quiet else None, kept)
        if speaks:
            _show(sim, traces, folder, as_json, quiet)


def _show(
    sim: Simulation, traces: dict[str, Any], folder: Path, as_json: bool, quiet: bool
) -> None:
    from dokl.paper.jobs import simulate as job

    written = job.write_outputs(sim, traces, folder)
    if as_json:
        echo_json(job.results(sim, traces))
        return
    from dokl.tables.report import table

    rows = [
        [row["who"], row["what"], job.shown(row["mean"], row["what"]), str(row["runs"])]
        for row in job.summary(traces)
    ]
    table("mean over the last tenth of the steps", ["", "what", "value", "runs"], rows)
    if not quiet:
        engine_used = next(iter(traces.values())).engine
        seconds = sum(trace.seconds for trace in traces.values())
        click.echo(f"engine {engine_used}, {seconds:.1f} s", err=True)
        for path in written:
            click.echo(f"wrote {path}", err=True)
